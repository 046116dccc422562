"""What a release by looks would tell of a nominal table, step by step as the looks would go. No row is read.

The nominal table has columns without relation to each other and effects of a typical size; where its columns live is
assumed (levels of equal shares, unless something else is said) or what an earlier survey of the table showed. Its looks
are expectations without noise; everything else (budget, bounds, what is learnt of a look) is the code of a release and
of its fit, so that a plan and a release choose the same bounds and predict the same error.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import numpy.typing as npt

from dpglm.custodian.assumptions import Assumptions
from dpglm.custodian.look_plan import LookNoise, LookPlan, plan_looks
from dpglm.custodian.nominal_units import Makeup, makeup, rows_of_units
from dpglm.expressions import Expression
from dpglm.formula import Design, DesignColumn, Factor
from dpglm.looks.coding import before_looks, default_prior, standard_design
from dpglm.looks.gaussian import of_population, of_prior, together
from dpglm.looks.population import Population, Standing, inverse, of_moments
from dpglm.looks.profile import LOOKS_BEFORE, RESIDUALS
from dpglm.looks.questions import Place, Subject
from dpglm.looks.reading import Knowledge, Look, add_look, plain_covariance, sampling_covariance
from dpglm.looks.rule import next_viewpoint
from dpglm.looks.survey import Survey, subjects
from dpglm.looks.tails import measured
from dpglm.looks.viewpoint import Viewpoint
from dpglm.schema import Column

Floats = npt.NDArray[np.float64]

_MOST_FACTOR = 3.0  # of a spread that a profile tells, as in ``looks/profile``
_HARDLY_CLIPPED = 10.0  # standard deviations
_RANGE = 10.0  # declared range of a number, in its standard deviations, where nothing is said of it


@dataclass(frozen=True)
class Told:
    """One coefficient: its posterior standard deviation with privacy and its standard error without, standard units.

    ``unit`` turns them into the user's, and is None where a spread that nobody stated would decide it.
    """

    name: str
    stddev: float
    plain: float
    unit: float | None


@dataclass(frozen=True, eq=False)
class Nominal:
    """The nominal table: its rows in standard units, effects, how outcomes scatter, and whose rows they are."""

    population: Population
    strength: float
    spread: float
    made_up: Makeup

    def scatter(self, known: Knowledge) -> float:
        """How outcomes scatter, over what is thought of it: where scores of units are taken as seen, nothing tells."""
        return self.spread / known.spread if known.units.robust else 1.0

    def robust_covariance(self, known: Knowledge) -> Floats:
        """Of the plain estimate, by how scores of units vary, without bounds and without noise."""
        assert known.last is not None
        view = replace(known.last.look.view, clip=_HARDLY_CLIPPED)
        weight, _, _ = Standing(self.population, view, known.family, known.response_range).residual
        information = self.population.moments(weight)
        towards = inverse(information)
        variance = known.dispersion * self.scatter(known) * self.made_up.robust(information)
        return np.asarray(towards @ variance @ towards / known.num_rows)

    def after_profile(self, known: Knowledge, noise: LookPlan) -> Knowledge:
        """What a profile shows where scores are of units: they reach as far as theirs do in typical tables, and how
        outcomes scatter, which no look tells there.
        """
        family, tails = known.family, known.tails
        lengths = self.made_up.reach(tails.lengths, known.units.long_rows)
        known = replace(known, tails=replace(tails, lengths=lengths))
        if not family.has_spread:
            return known
        u = self.population.predictor(known.with_offset(known.centre))
        reach = family.typical_residuals(u, self.spread) * math.sqrt(self.scatter(known))
        beyond = np.mean(reach > RESIDUALS[:, None], axis=1)
        stddev = noise.profile_stddev * known.units.mean_rows / known.num_rows
        core = family.typical_residuals(u, known.spread)
        found = measured(core, RESIDUALS, beyond - np.append(beyond[1:], 0.0), stddev)
        factor = min(max(float(found.shares @ found.scales**2), 1 / _MOST_FACTOR), _MOST_FACTOR)
        return replace(known, spread=max(known.spread * factor, family.least_spread))

    def look(self, known: Knowledge, view: Viewpoint, noise: LookNoise, move: Floats) -> Look:
        """A look at the nominal table, whose estimate is a move away: of each kind of rows as bounds meet them."""
        rows, size, whitening = known.num_rows, view.dimension, view.whitening_matrix
        slope, bounded, square = np.zeros((3, size, size))
        for kind in self.made_up.kinds:
            own = known.units.of_rows(view) if known.units.followed else view
            own = replace(
                own, score_bound=own.score_bound / kind.reach, information_bound=own.information_bound / kind.reach
            )
            standing = Standing(self.population, own, known.family, known.response_range, known.units.past)
            table = standing.seen(self.population.moments(standing.residual[0]))
            back = standing.unwhitening
            slope += kind.share * kind.weight * table.slope(move)
            bounded += kind.share * kind.weight * table.bounded
            of_units = self.made_up.related(back @ table.square(move) @ back.T, kind)
            square += self.scatter(known) * kind.share * kind.weight**2 * whitening @ of_units @ whitening.T
        score = rows * slope @ inverse(whitening).T @ move
        stddevs = np.multiply(noise.grid_stddevs, view.units).tolist()
        return Look(view, score, rows * bounded, rows * square, stddevs[0], stddevs[1], stddevs[2], noise.mu)


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
    if design.family.has_spread and not beginning.units.robust:  # which soon is learnt
        beginning = replace(beginning, spread=assumed.spread)
    nominal = Nominal(_population(coded), assumed.strength, assumed.spread, makeup(coded, survey, assumed))
    known = _read(plan, replace(beginning, agreeing=True), nominal)
    posterior = together([of_population(known), of_prior(prior)]).covariance
    if known.units.robust:
        plain = nominal.robust_covariance(known)
    else:
        plain = plain_covariance(known, sampling_covariance(known))
    matrix, _ = coded.to_original_units()
    stddevs, errors = np.sqrt(np.diag(posterior)), np.sqrt(np.diag(plain))
    if known.units.robust:  # bounds may tame a few heavy rows; that is no promise
        stddevs = np.maximum(stddevs, errors)
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


def _read(plan: LookPlan, known: Knowledge, nominal: Nominal) -> Knowledge:
    """What is known after all looks at the nominal table; its profile shows the tails that are typical."""
    slopes = len(known.centre) - known.intercept
    truth = known.centre + 0.0
    truth[known.intercept :] = nominal.strength / math.sqrt(slopes)
    for number, noise in enumerate(plan.looks):
        if number == LOOKS_BEFORE and known.units.robust:
            known = nominal.after_profile(known, plan)
        view = next_viewpoint(known, plan.privacy.mu, noise.mu)
        known = add_look(known, nominal.look(known, view, noise, truth - view.centre_vector))
    return known


def nominal_survey(design: Design, assumed: Assumptions) -> Survey:
    """What a survey would say of the nominal table."""
    asked = subjects(design)
    places = [_place(subject, assumed) for subject in asked]
    if assumed.outcome is not None:
        first, outcome = places[0], assumed.outcome
        places[0] = replace(first, shares=(1 - outcome, outcome)) if first.shares else replace(first, centre=outcome)
    total = float(design.schema.dataset.size or 0)
    some, mean_rows, long_rows = rows_of_units(assumed)
    if design.schema.dataset.unit_order is not None and places[0].shares:
        share = places[0].shares[1] / mean_rows  # of rows, from that of units that ever have the event
        places[0] = replace(places[0], shares=(1 - share, share))
    rows = some * total
    return Survey(
        asked, tuple(places), (0.0,) * len(design.table_columns), rows, 0.0, (), rows, total, 1.0, mean_rows, long_rows
    )


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
