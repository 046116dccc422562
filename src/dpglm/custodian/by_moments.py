"""The paper's release: one pass, moments of all rows, one charge, noise."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from dpglm.custodian.charge import Account
from dpglm.custodian.mechanism import Mechanism, calibrate
from dpglm.custodian.noise import NoiseSource, add_noise
from dpglm.custodian.passes import Counter, Progress, check_rows, exact_sums, moment_sums
from dpglm.custodian.sums import BlockSums
from dpglm.custodian.tables import Source
from dpglm.formula import Design
from dpglm.privacy import check_epsilon_delta
from dpglm.releases import Block, Release, Stage


def release_by_moments(
    open_source: Callable[[], Source],
    design: Design,
    epsilon: object,
    delta: object,
    options: tuple[object, object, object],
    account: Account,
    noise: NoiseSource,
    progress: Progress | None,
) -> Release:
    """A release of moments; ``options`` are radius, allocation and statistics."""
    budget = check_epsilon_delta(epsilon, delta)
    mechanism = calibrate(design, *budget, *options)
    privacy = mechanism.guarantee(*budget)
    account.check_affordable([mechanism.mu])
    source = open_source()
    check_rows(source.num_rows, design)
    # From here on rows are read; only their number, which is public, may lead to an error.
    counter = Counter(progress, design.schema.dataset.number)
    sums = exact_sums(source, design, partial(moment_sums, design=design, mechanism=mechanism), counter)
    account.spend([mechanism.mu], privacy, ["moments"])
    with account.after_the_charge():
        stage = Stage("moments", mechanism.allocation, mechanism.mu, noisy_moments(sums, mechanism, noise))
        made = Release(
            *account.stamp(), design, mechanism.radius, mechanism.grid, (stage,), privacy, account.fact, noise.private
        )
    account.keep(made)
    return made


def noisy_moments(sums: BlockSums, mechanism: Mechanism, noise: NoiseSource) -> tuple[Block, ...]:
    """The blocks of a release."""
    return tuple(
        Block(
            y_power=block.y_power,
            degree=block.degree,
            integers=add_noise(values, grid_stddevs, noise),
            unit=float(mechanism.grid.unit(block.y_power, block.degree)),
            noise_stddev=stddev,
            grid_stddevs=grid_stddevs,
            multiplicities=multiplicities,
        )
        for block, values, grid_stddevs, stddev, multiplicities in zip(
            sums.blocks, sums.values, mechanism.grid_stddevs, mechanism.noise_stddevs, mechanism.multiplicities,
            strict=True,
        )
    )  # fmt: skip
