"""What a release by looks would tell of a nominal table, step by step as the looks would go. No row is read.

The nominal table has columns without relation to each other and effects of a typical size; where its columns live is
assumed (levels of equal shares, unless something else is said) or what an earlier survey of the table showed. Its looks
are expectations without noise; everything else (budget, bounds, what is learnt of a look) is the code of a release and
of its fit, so that a plan and a release choose the same bounds and predict the same error.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import numpy.typing as npt

from dpglm.custodian.look_plan import LookNoise, LookPlan, plan_looks
from dpglm.expressions import Expression
from dpglm.formula import Design, DesignColumn, Factor
from dpglm.looks.coding import before_looks, default_prior, standard_design
from dpglm.looks.gaussian import of_population, of_prior, together
from dpglm.looks.population import Population, Standing, inverse, of_moments
from dpglm.looks.questions import Place, Subject
from dpglm.looks.reading import Knowledge, Look, add_look, plain_covariance, sampling_covariance
from dpglm.looks.rule import next_viewpoint
from dpglm.looks.survey import Survey, subjects
from dpglm.schema import Column

PREDICTOR_STDDEV = 0.5  # of the linear predictor: how strong the columns are together, where nothing is said of it
_RANGE = 10.0  # declared range of a number, in its standard deviations, where nothing is said of it


@dataclass(frozen=True)
class Assumptions:
    """What is assumed of a table that nobody has seen: none of it is read from rows.

    ``outcome`` is the share of the second level, or the mean count; ``spreads`` are standard deviations of numeric
    columns, and ``shares`` of levels, by column and in the levels' order. ``overlap`` is how much of a column's
    variance the others explain, ``strength`` the standard deviation of the linear predictor, ``spread`` what is left
    of the outcome's variance, of counts over their mean.
    """

    outcome: float | None
    spreads: Mapping[str, float] | None
    shares: Mapping[str, tuple[float, ...]] | None
    overlap: Mapping[str, float] | None
    strength: float
    spread: float


@dataclass(frozen=True)
class Told:
    """One coefficient: its posterior standard deviation with privacy and its standard error without, standard units.

    ``unit`` turns them into the user's, and is None where a spread that nobody stated would decide it.
    """

    name: str
    stddev: float
    plain: float
    unit: float | None


def told_by_looks(
    design: Design,
    epsilon: object,
    delta: object,
    survey: Survey,
    assumed: Assumptions,
    stated: frozenset[str] | None,
) -> tuple[Told, ...]:
    """What looks at the nominal table tell of each slope.

    ``stated`` are the numbers whose spread was stated; None where the survey is one that exists.
    """
    plan = plan_looks(design, epsilon, delta, survey_is_known=stated is None)
    coded = standard_design(design, survey)
    prior = default_prior(coded, survey)
    beginning = before_looks(coded, survey, prior)
    if design.family.has_spread:
        beginning = replace(beginning, spread=assumed.spread)
    known = _read(plan, replace(beginning, agreeing=True), _population(coded), assumed.strength)
    posterior = together([of_population(known), of_prior(prior)]).covariance
    plain = plain_covariance(known, sampling_covariance(known))
    matrix, _ = coded.to_original_units()
    stddevs, errors = np.sqrt(np.diag(posterior)), np.sqrt(np.diag(plain))
    units = np.abs(np.diag(matrix)).tolist()
    slopes = [column for term in coded.terms for column in term.columns]
    first = int(design.intercept)
    told = []
    for n, column in enumerate(slopes, first):
        # Rows are whitened, so that noise and sampling error grow alike where columns are related.
        wider = math.sqrt(1 / (1 - max(_overlap(factor, assumed) for factor in column.factors)))
        unit = units[n] if _has_unit(column, design, stated) else None
        told.append(Told(column.name, wider * float(stddevs[n]), wider * float(errors[n]), unit))
    return tuple(told)


def _overlap(factor: Factor, assumed: Assumptions) -> float:
    """How much of a factor's variance the other columns are said to explain."""
    name = factor.source.text if isinstance(factor.source, Expression) else factor.source.name
    return (assumed.overlap or {}).get(name, 0.0)


def _has_unit(column: DesignColumn, design: Design, stated: frozenset[str] | None) -> bool:
    """Whether every scale that its unit depends on was stated."""
    factors = (*column.factors, design.outcome) if design.family.coding == "scaled" else column.factors
    numbers = [factor.source.text for factor in factors if isinstance(factor.source, Expression)]
    return stated is None or set(numbers) <= stated


def _population(coded: Design) -> Population:
    """Rows of the nominal table in standard units: only levels of one factor are related, for a row has one of them."""
    columns = [column for term in coded.terms for column in term.columns]
    covariance = np.eye(len(columns) + (coded.offset is not None))
    for one, two in combinations(range(len(columns)), 2):
        if len(columns[one].factors) == len(columns[two].factors) == 1:
            covariance[one, two] = covariance[two, one] = _relation(columns[one].factors[0], columns[two].factors[0])
    mean = np.zeros(len(covariance))
    return of_moments(mean, covariance, coded.intercept, coded.offset is not None)


def _relation(one: Factor, two: Factor) -> float:
    """Correlation of two indicators of one factor, whose centres are the shares of their levels."""
    if one.source != two.source or not isinstance(one.source, Column):
        return 0.0
    return -one.center * two.center / (one.scale * two.scale)


def _read(plan: LookPlan, known: Knowledge, population: Population, strength: float) -> Knowledge:
    """What is known after all looks at the nominal table; its profile shows the tails that are typical."""
    slopes = len(known.centre) - known.intercept
    truth = known.centre + 0.0
    truth[known.intercept :] = strength / math.sqrt(slopes)
    for noise in plan.looks:
        view = next_viewpoint(known, plan.privacy.mu, noise.mu)
        standing = Standing(population, view, known.family, known.response_range)
        known = add_look(known, _expected_look(standing, known.num_rows, noise, truth - view.centre_vector))
    return known


def nominal_survey(design: Design, assumed: Assumptions) -> Survey:
    """What a survey would say of the nominal table."""
    asked = subjects(design)
    places = [_place(subject, assumed) for subject in asked]
    if assumed.outcome is not None:
        first, outcome = places[0], assumed.outcome
        places[0] = replace(first, shares=(1 - outcome, outcome)) if first.shares else replace(first, centre=outcome)
    rows = float(design.schema.dataset.size or 0)
    return Survey(asked, tuple(places), (0.0,) * len(design.table_columns), rows, 0.0, (), rows, rows)


def _place(subject: Subject, assumed: Assumptions) -> Place:
    source = subject.source
    if isinstance(source, Column):
        equal = (1 / len(source.levels),) * len(source.levels)
        return Place(0.0, 1.0, (assumed.shares or {}).get(source.name, equal), 0.0)
    spread = (assumed.spreads or {}).get(subject.name)
    # Declared bounds only say where the nominal table lies.
    return Place(
        (source.lower + source.upper) / 2, (source.upper - source.lower) / _RANGE if spread is None else spread, (), 0.0
    )


def _expected_look(standing: Standing, rows: float, noise: LookNoise, move: npt.NDArray[np.float64]) -> Look:
    """A look at the nominal table, whose estimate is a move away."""
    view = standing.view
    table = standing.seen(standing.population.moments(standing.residual[0]))
    score = rows * table.slope(move) @ inverse(view.whitening_matrix).T @ move
    stddevs = np.multiply(noise.grid_stddevs, view.units).tolist()
    return Look(
        view, score, rows * table.bounded, rows * table.square(move), stddevs[0], stddevs[1], stddevs[2], noise.mu
    )
