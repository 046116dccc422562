"""What a release by looks would tell of a nominal table, step by step as the looks would go. No row is read.

The nominal table has columns without relation to each other, levels of equal shares, and effects of a typical size.
Its looks are expectations without noise; everything else (budget, bounds, what is learnt of a look) is the code of a
release and of its fit, so that a plan and a release choose the same bounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from dpglm.custodian.look_plan import LookNoise, plan_looks
from dpglm.formula import Design
from dpglm.looks.coding import before_looks, default_prior, standard_design
from dpglm.looks.gaussian import of_population, of_prior, of_table, together
from dpglm.looks.population import inverse, seen
from dpglm.looks.reading import Knowledge, Look, add_look
from dpglm.looks.rule import next_viewpoint
from dpglm.looks.survey import Place, Subject, Survey, subjects
from dpglm.looks.viewpoint import Viewpoint
from dpglm.schema import Column

PREDICTOR_STDDEV = 0.5  # of the linear predictor, standard units: how strong the columns are together
_RANGE = 10.0  # declared range of a number, in its standard deviations


@dataclass(frozen=True)
class Told:
    """Standard deviation of a slope in standard units, and how much of it privacy adds: both of an average slope."""

    stddev: float
    inflation: float


def told_by_looks(design: Design, epsilon: object, delta: object, outcome: float | None) -> Told:
    """What looks at the nominal table tell; ``outcome`` is its share of the second level, or its mean count."""
    plan = plan_looks(design, epsilon, delta)
    survey = _survey(design, outcome)
    coded = standard_design(design, survey)
    prior = default_prior(coded, survey)
    known = before_looks(coded, survey, prior)
    slopes = len(known.centre) - design.intercept
    truth = known.centre + 0.0
    truth[design.intercept :] = PREDICTOR_STDDEV / math.sqrt(slopes)
    for noise in plan.looks:
        view = next_viewpoint(known, plan.privacy.mu, noise.mu)
        known = add_look(known, _expected_look(known, view, noise, truth - view.centre_vector))
    population = of_population(known)
    posterior = np.diag(together([population, of_prior(prior)]).covariance)[design.intercept :]
    sampling = np.diag(population.covariance - of_table(known).covariance)[design.intercept :]
    return Told(math.sqrt(posterior.mean()), math.sqrt((posterior / sampling).mean()))


def _survey(design: Design, outcome: float | None) -> Survey:
    """What a survey would say of the nominal table."""
    asked = subjects(design)
    places = [_place(subject) for subject in asked]
    if outcome is not None:
        first = places[0]
        places[0] = replace(first, shares=(1 - outcome, outcome)) if first.shares else replace(first, centre=outcome)
    rows = float(design.schema.dataset.rows)
    return Survey(asked, tuple(places), (0.0,) * len(design.table_columns), rows, 0.0, ())


def _place(subject: Subject) -> Place:
    source = subject.source  # declared bounds only say where the nominal table lies
    if isinstance(source, Column):
        return Place(0.0, 1.0, (1 / len(source.levels),) * len(source.levels), 0.0)
    return Place((source.lower + source.upper) / 2, (source.upper - source.lower) / _RANGE, (), 0.0)


def _expected_look(known: Knowledge, view: Viewpoint, noise: LookNoise, move: npt.NDArray[np.float64]) -> Look:
    """A look at a table that is as the looks before it said, and whose estimate is a move away."""
    table = seen(known.population, view, known.family, known.response_range, known.information)
    rows = known.num_rows
    score = rows * table.slope(move) @ inverse(view.whitening_matrix).T @ move
    stddevs = np.multiply(noise.grid_stddevs, view.units).tolist()
    return Look(view, score, rows * table.bounded, rows * table.square(), stddevs[0], stddevs[1], stddevs[2], noise.mu)
