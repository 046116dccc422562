"""Survey, profile and looks as one chain: how far a replaced row can move it, and the privacy loss that can be seen.

Looks follow noisy answers, and the guarantee holds whatever function of them says where to look. So the attack chooses
that function: viewpoints at which the two tables' rows are as far apart as any (``worst_viewpoint``,
``worst_profile``). For every noisy transcript the exact sums of both tables are known, and with them the exact
likelihood ratio of all that was released: no distinguisher does better than its tails.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from scipy.stats import beta

from dpglm.custodian import by_looks, charge
from dpglm.custodian.bounded_rows import standard_rows
from dpglm.custodian.build import Request, build_release
from dpglm.custodian.look_plan import LookNoise, plan_looks
from dpglm.custodian.noise import NoiseSource, OperatingSystemNoise
from dpglm.custodian.tables import open_table
from dpglm.formula import Design, build_design
from dpglm.looks.viewpoint import Viewpoint
from dpglm.releases import Release
from dpglm.schema import Schema

ROWS, FORMULA, FAMILY = 2_000, "y ~ a + b", "logistic"
DELTA = 0.01
SCHEMA: dict[str, Any] = {
    "dataset": {"name": "two tables", "rows": ROWS, "unit": "one patient"},
    "columns": {
        "y": {"type": "binary", "levels": ["no", "yes"], "fill": "yes"},
        "a": {"type": "numeric", "lower": -1, "upper": 1, "fill": 1},
        "b": {"type": "numeric", "lower": -1, "upper": 1, "fill": 1},
    },
}
ONE, OTHER = ("no", -1.0, -1.0), (None, None, None)  # what is missing counts as the fill, the other end of everything
FAILURE = 1e-4  # chance that a sound mechanism is convicted
THRESHOLDS = np.linspace(-1.0, 3.0, 9)  # of the log likelihood ratio, fixed in advance

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Transcript:
    """What one release added noise to, and what came out, in order."""

    values: tuple[tuple[int, ...], ...]
    stddevs: tuple[tuple[float, ...], ...]
    outputs: tuple[tuple[int, ...], ...]
    release: Release


def design_of(rows: int = ROWS) -> Design:
    return build_design(FORMULA, Schema.from_dict(SCHEMA), FAMILY).of_size(rows)


def tables(rows: int = ROWS) -> tuple[pa.Table, pa.Table]:
    """Ordinary rows, and one that is ``ONE`` in the first table and ``OTHER`` in the second."""
    numbers = np.random.default_rng(3)
    y, x = numbers.choice(["no", "yes"], rows - 1), numbers.uniform(-1, 1, (2, rows - 1))
    return tuple(
        pa.table({
            "y": pa.array([*y.tolist(), row[0]], pa.string()), "a": pa.array([*x[0].tolist(), row[1]], pa.float64()),
            "b": pa.array([*x[1].tolist(), row[2]], pa.float64()),
        })
        for row in (ONE, OTHER)
    )  # type: ignore[return-value]  # fmt: skip


def request(epsilon: float, delta: float = DELTA, rows: int = ROWS) -> Request:
    schema = {**SCHEMA, "dataset": {**SCHEMA["dataset"], "rows": rows}}
    return Request(FORMULA, schema, FAMILY, epsilon, delta)


def worst_viewpoint(pair: Floats, noise: LookNoise) -> Viewpoint:
    """A viewpoint at which rows ``pair`` (coefficients, 2), with opposite outcomes, are as far apart as any.

    From its centre each row's outcome is the less likely one: no outcome could give a longer residual. The whitening
    takes the rows where the proof's maximum is: to one line, one short (its score is as long as its bound, its
    information short) and one long; or, where the information is precise, to an angle, both long
    (docs/looks_privacy.md, section 5).
    """
    size = len(pair)
    y, x = noise.score**-2, noise.information**-2
    information_bound = 1_000.0
    long = 5 * information_bound
    if y >= 2 * x:
        wanted = np.array([[2.5, long], [0.0, 0.0]])
    else:
        cosine = y / (y + 2 * x)  # of the rows; of their scores its negative
        wanted = long * np.array([[1.0, cosine], [0.0, math.sqrt(1 - cosine**2)]])
    away = np.linalg.pinv(pair)
    whitening = np.zeros((size, size))
    whitening[:2] = wanted @ away
    centre = tuple(map(float, np.array([1.0, -1.0]) @ away))
    return Viewpoint(centre, tuple(map(tuple, whitening.tolist())), 1.0, information_bound, 1.0, 6.0)


def worst_profile(pair: Floats) -> Viewpoint:
    """A viewpoint at which rows ``pair`` fall into different cells beyond the first rung, of lengths and of far rows:
    no two are further apart.
    """
    away = np.linalg.pinv(pair)
    whitening = np.zeros((len(pair), len(pair)))
    whitening[:2] = np.diag([2 * 2.2, 2 * 40.0]) @ away  # where all is even, the largest residual is 1/2
    centre = (0.0,) * len(pair)
    return Viewpoint(centre, tuple(map(tuple, whitening.tolist())), 1.0, float(len(pair)), 1.0, 4.0)


@contextmanager
def worst_looks(
    pair: pa.Table, epsilon: float, delta: float = DELTA, rows: int = ROWS, survey_is_known: bool = False
) -> Iterator[None]:
    """While it lasts, looks and profile stand where the two rows of ``pair`` are as far apart as any."""
    looks = {look.mu: look for look in plan_looks(design_of(rows), epsilon, delta, survey_is_known).looks}

    def first(design: Design, *_: Any) -> Floats:
        (batch,) = open_table(pair, design.table_columns).batches()
        x = standard_rows(batch, design).x * 2.0**-20
        return np.concatenate([np.ones((1, 2)), x])

    with ExitStack() as stack:
        for name, value in (
            ("before_looks", first),
            ("next_viewpoint", lambda seen, _, mu: worst_viewpoint(seen, looks[mu])),
            ("add_look", lambda seen, _: seen),
            ("profile_viewpoint", worst_profile),
            ("add_profile", lambda seen, _: seen),
        ):
            stack.enter_context(patch.object(by_looks, name, value))
        stack.enter_context(patch.object(charge, "version", lambda _: "1"))  # takes longer than a look
        yield


def two_rows(both: tuple[pa.Table, pa.Table]) -> pa.Table:
    return pa.concat_tables([table.slice(table.num_rows - 1) for table in both]).combine_chunks()


def transcript(table: pa.Table, asked: Request, noise: NoiseSource) -> Transcript:
    """One release, with everything that noise was added to."""
    return _watched(table, asked, noise, by_looks.add_noise)


def replayed(table: pa.Table, asked: Request, first: Transcript) -> Transcript:
    """The neighbour's release with the same noisy answers."""
    outputs = iter(first.outputs)
    return _watched(table, asked, OperatingSystemNoise(), lambda *_: next(outputs))


def _watched(table: pa.Table, asked: Request, noise: NoiseSource, adding: Callable[..., Any]) -> Transcript:
    seen: list[Any] = []

    def add_noise(values: Any, stddevs: Any, source: Any) -> tuple[int, ...]:
        output = tuple(adding(values, stddevs, source))
        seen.append((tuple(values), tuple(stddevs), output))
        return output

    with patch.object(by_looks, "add_noise", add_noise):
        made = build_release(table, asked, noise)
    values, stddevs, outputs = zip(*seen, strict=True)
    return Transcript(values, stddevs, outputs, made)


def squared_moves(one: Transcript, other: Transcript) -> list[Fraction]:
    """Of every part, in units of its noise; the transcripts must be the same but for the sums."""
    assert one.outputs == other.outputs
    assert one.stddevs == other.stddevs
    return [
        sum((Fraction(a - b) ** 2 / Fraction(s) ** 2 for a, b, s in zip(*part, strict=True) if a != b), Fraction(0))
        for part in zip(one.values, other.values, one.stddevs, strict=True)
    ]


def log_likelihood_ratio(one: Transcript, other: Transcript) -> float:
    """log of the chance of this transcript under the first one's table over that under the other's."""
    return math.fsum(
        float(Fraction((a - b) * (2 * output - a - b)) / (2 * Fraction(stddev) ** 2))
        for part in zip(one.values, other.values, one.outputs, one.stddevs, strict=True)
        for a, b, output, stddev in zip(*part, strict=True)
        if a != b
    )


def losses(epsilon: float, releases: int, noise: NoiseSource, worst: bool) -> tuple[Floats, Floats, float]:
    """log P(first)/P(second) of releases of the first table and of the second; and the mean share of mu^2 that moved.

    ``worst``: viewpoints that are chosen against the two rows; otherwise those of the product.
    """
    both, asked = tables(), request(epsilon)
    found: tuple[list[float], list[float]] = ([], [])
    shares = []
    with ExitStack() as stack:
        if worst:
            stack.enter_context(worst_looks(two_rows(both), epsilon))
        else:
            stack.enter_context(patch.object(charge, "version", lambda _: "1"))
        for which in (0, 1):
            for _ in range(releases):
                own = transcript(both[which], asked, noise)
                other = replayed(both[1 - which], asked, own)
                ratio = log_likelihood_ratio(own, other)
                found[which].append(ratio if which == 0 else -ratio)
                shares.append(float(sum(squared_moves(own, other)) / Fraction(own.release.privacy.mu) ** 2))
    return np.array(found[0]), np.array(found[1]), float(np.mean(shares))


def epsilon_lower_bound(first: Floats, second: Floats, delta: float) -> float:
    """The largest epsilon that the samples prove, but for a chance of ``FAILURE``; 0 if they prove none."""
    level = FAILURE / (4 * len(THRESHOLDS))
    best = 0.0
    for one, other, sign in ((first, second, 1), (second, first, -1)):
        for threshold in THRESHOLDS:
            events = [int((sign * sample > threshold).sum()) for sample in (one, other)]
            low = beta.ppf(level, events[0], len(one) - events[0] + 1) if events[0] else 0.0
            high = beta.ppf(1 - level, events[1] + 1, len(other) - events[1]) if events[1] < len(other) else 1.0
            if low > delta:
                best = max(best, math.log((low - delta) / high))
    return best


@dataclass(frozen=True)
class LessNoise:
    """The planted mistake: only a part of the noise that is stated."""

    share: float
    private: bool = True

    def draw(self, grid_stddev: float, size: int) -> list[int]:
        return OperatingSystemNoise().draw(grid_stddev * self.share, size)


def run(releases: int, fewer: int) -> dict[str, Any]:
    """The facts for the page. There is no seed: the noise is real."""
    epsilon = 3.0
    results: dict[str, Any] = {"epsilon": epsilon, "delta": DELTA, "failure_rate": FAILURE, "rows": ROWS}
    for name, noise, worst, number in (
        ("worst viewpoints", OperatingSystemNoise(), True, releases),
        ("the product's viewpoints", OperatingSystemNoise(), False, fewer),
        ("a sixth of the noise", LessNoise(1 / 6), True, fewer),
    ):
        first, second, share = losses(epsilon, number, noise, worst)
        results[name] = {
            "releases_of_each_table": number,
            "mean_share_of_mu_squared": share,
            "epsilon_lower_bound": epsilon_lower_bound(first, second, DELTA),
        }
        print(name, results[name], flush=True)
    return results
