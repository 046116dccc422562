"""Releases by looks -> the posterior in closed form: normal where the prior is, drawn exactly, in milliseconds.

Each dataset says, in the user's units, what its looks know of the table's own estimate t; its sampling error comes in
once, however many releases it has. Datasets are independent: their statements of the population's coefficients add up.
A prior that is not normal is sampled in as many dimensions as there are coefficients (``other_priors``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dpglm.analyst.joint import by_dataset, check_same_model
from dpglm.analyst.priors import CustomPrior, NormalPrior, Prior, prior_of
from dpglm.errors import InputError
from dpglm.looks.coding import before_looks, default_prior
from dpglm.looks.gaussian import Gaussian, of_prior, of_table, together
from dpglm.looks.population import inverse, solve
from dpglm.looks.profile import LOOKS_BEFORE, add_profile
from dpglm.looks.reading import Belief, Knowledge, add_look, plain_covariance, sampling_covariance
from dpglm.releases import Release

if TYPE_CHECKING:
    from dpglm.analyst.fit import Asked
    from dpglm.analyst.result import Fit

Floats = npt.NDArray[np.float64]

CLOSED_FORM = "closed form"  # the method of looks with a normal prior
_DRAWS = 1_000  # a chain


@dataclass(frozen=True, eq=False)
class ClosedForm:
    """What the looks of all releases say, in the first release's standard units.

    ``likelihood`` is of the population's coefficients, without a prior; ``table`` of the table's own estimate, where
    there is one table. ``sampling`` is the covariance that the plain estimate of all rows would have without noise.
    ``bounding`` is the part of the likelihood's covariance that stands for what bounding shifts: releases share it.
    ``surprises`` are, by look, chances of a score as far from its prediction as it was.
    """

    likelihood: Gaussian
    table: Gaussian | None
    sampling: Floats
    bounding: Floats
    prior: Gaussian
    surprises: Floats

    @cached_property
    def posterior(self) -> Gaussian:
        """With the normal prior."""
        return together([self.likelihood, self.prior])

    @cached_property
    def table_posterior(self) -> Gaussian | None:
        """Of the table's own estimate: the prior is of the coefficients that it scatters around."""
        return None if self.table is None else together([self.table, self.prior.with_error(self.sampling)])


@dataclass(frozen=True, eq=False)
class NormalDraws:
    """Draws of a normal posterior, (chains, draws, coefficients), made when they are asked for."""

    mean: Floats
    root: Floats
    shape: tuple[int, int]
    seed: int

    @classmethod
    def of(cls, statement: Gaussian, shape: tuple[int, int], seed: int) -> NormalDraws:
        """Of a statement, which must have a covariance."""
        return cls(statement.mean, np.asarray(np.linalg.cholesky(statement.covariance)), shape, seed)

    def made(self) -> Floats:
        """The draws: the same each time."""
        noise = np.random.default_rng(self.seed).standard_normal((*self.shape, len(self.root)))
        return np.asarray(self.mean + noise @ self.root.T)


def fit_looks(releases: Sequence[Release], asked: Asked) -> Fit:
    """The posterior of releases by looks."""
    from dpglm.analyst.result import Fit

    check_same_model(releases)
    for release in releases:
        if not release.stages:
            rule = "holds a survey and no look: its release stopped there"
            raise InputError("releases", release.id, rule, "fit another release")
    first = releases[0]
    prior = prior_of(asked.prior, first.design.coefficient_names, scipys=True)
    belief = _belief(first, prior)
    matrix, shift = first.design.to_original_units()
    tables, populations, plain, shifts, surprises, spreads, widths = [], [], [], [], [], [], []
    for members in by_dataset(releases):
        known = [
            _read(member, belief if member is first else _in_units_of(member, belief, matrix, shift))
            for member in members
        ]
        own = [
            _told(each) if member is first else _turned(_told(each), member, matrix, shift)
            for each, member in zip(known, members, strict=True)
        ]
        table = together([told.statement for told in own])
        leading = max(range(len(members)), key=lambda n: members[n].stages[-1].mu)
        error, shifted, without = own[leading].sampling, own[leading].shift, own[leading].plain
        tables.append(table.with_error(shifted + _apart(error, without)))
        populations.append(table.with_error(error))
        plain.append(without)
        shifts.append(shifted)
        surprises += [chance for each in known for chance in each.surprises]
        spreads.append(known[leading].spread * members[leading].design.spread_unit)
        widths.append(float(np.std(known[leading].population.rows @ known[leading].centre)))
    sampling = plain[0] if len(plain) == 1 else inverse(np.sum([inverse(error) for error in plain], axis=0))
    bounding = np.mean(shifts, axis=0)  # of sites alike, whatever their number: it does not average out
    closed = ClosedForm(
        together(populations).with_error(bounding), tables[0] if len(tables) == 1 else None, sampling, bounding,
        of_prior(belief), np.array(surprises),
    )  # fmt: skip
    shape = (int(asked.chains), int(asked.draws or _DRAWS))
    coefficients: Any = _drawn(closed, prior, shape, first, asked.seed)
    own_posterior = closed.table_posterior
    own_draws: Any = None if own_posterior is None else NormalDraws.of(own_posterior, shape, asked.seed + 1)
    family = first.design.family
    return Fit(
        releases=tuple(releases),
        coefficients=coefficients,
        spread=np.full(shape, spreads[0] / first.design.spread_unit) if family.has_spread else None,
        predictor_stddev=max(widths),
        inflation=_inflation(closed, coefficients, matrix),
        diagnostics=None,
        prior=prior,
        method=CLOSED_FORM if isinstance(prior, NormalPrior) else "sampled prior",
        options=asked.facts(),
        table_coefficients=own_draws,
        closed=closed,
    )


def _read(release: Release, belief: Belief) -> Knowledge:
    """What the looks of a release say."""
    assert release.survey_record is not None
    known = before_looks(release.design, release.survey_record.survey_of(release.design), belief)
    for stage in release.stages:
        if release.profile is not None and known.looks == LOOKS_BEFORE:
            known = add_profile(known, release.profile)
        known = add_look(known, stage.as_look())
    return known


def _belief(release: Release, prior: Prior) -> Belief:
    """The prior as a normal one, in the standard units of a release, its intercept around the survey's."""
    assert release.survey_record is not None
    default = default_prior(release.design, release.survey_record.survey)
    if isinstance(prior, CustomPrior):
        return default
    mean, covariance = prior.as_normal(release.design.coefficient_names)
    return Belief(default.mean + mean, covariance)


def _in_units_of(release: Release, belief: Belief, matrix: Floats, shift: Floats) -> Belief:
    """A belief of the first release's standard units in another's."""
    own, own_shift = release.design.to_original_units()
    turn = solve(own, matrix)
    return Belief(turn @ belief.mean + solve(own, shift - own_shift), turn @ belief.covariance @ turn.T)


class _Told(NamedTuple):
    """What a release says of its table's own estimate; covariances of sampling error, without bounds too, and of the
    shift by bounding.
    """

    statement: Gaussian
    sampling: Floats
    plain: Floats
    shift: Floats


def _told(known: Knowledge) -> _Told:
    """In the release's own standard units."""
    assert known.pooled is not None
    sampling = sampling_covariance(known)
    return _Told(of_table(known), sampling, plain_covariance(known, sampling), known.pooled.bounding)


def _turned(told: _Told, release: Release, matrix: Floats, shift: Floats) -> _Told:
    """In the first release's standard units."""
    own, own_shift = release.design.to_original_units()
    turn = solve(matrix, own)
    statement = told.statement.turned(turn, solve(matrix, own_shift - shift))
    return _Told(statement, *(turn @ each @ turn.T for each in told[1:]))


def _apart(bounded: Floats, plain: Floats) -> Floats:
    """Covariance of the bounded estimate of one table around the plain one: the least efficiency that is lost."""
    ratio = np.sqrt(np.abs(np.diag(bounded) - np.diag(plain)) / np.diag(bounded))
    return np.asarray(np.outer(ratio, ratio) * bounded)


def _drawn(closed: ClosedForm, prior: Prior, shape: tuple[int, int], first: Release, seed: int) -> Floats | NormalDraws:
    """Draws of the coefficients, standard units."""
    if isinstance(prior, NormalPrior):
        return NormalDraws.of(closed.posterior, shape, seed)
    from dpglm.analyst.other_priors import sampled

    start = closed.prior.mean
    return sampled(closed.likelihood, prior, first.design.coefficient_names, start, shape, seed)


def _inflation(closed: ClosedForm, coefficients: Floats | NormalDraws, matrix: Floats) -> Floats:
    """Posterior standard deviation over the robust standard error of all rows without noise: (2, coefficients)."""
    if isinstance(coefficients, NormalDraws):
        covariance = closed.posterior.covariance
    else:
        covariance = np.atleast_2d(np.cov(coefficients.reshape(-1, coefficients.shape[-1]).T))
    ratios = [
        np.diag(turn @ covariance @ turn.T) / np.diag(turn @ closed.sampling @ turn.T)
        for turn in (matrix, np.eye(len(matrix)))
    ]
    return np.asarray(np.sqrt(np.stack(ratios)))
