"""A release by looks: survey, then look after look, each charged before its noise is drawn.

Guarantee: survey and looks together cost at most the plan's mu, whatever the rows hold and whatever the noisy answers
lead to; what is asked next depends on noisy answers and public facts alone (docs/looks_privacy.md).

Order of events: one pass counts rows exactly, in memory; the survey is charged, and its questions are answered with
noise, one after the other. Where it says that a column cannot be used, that is all that is spent. Then all looks are
charged, with the profile between the second and the third, and each is one pass from where the noisy ones before it
point.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import partial

from dpglm.custodian.bounded_rows import look_sums, on_grid
from dpglm.custodian.charge import Account
from dpglm.custodian.grouping import GroupedSource
from dpglm.custodian.look_plan import LookNoise, LookPlan, plan_looks
from dpglm.custodian.mechanism import monomial_stddevs
from dpglm.custodian.noise import NoiseSource, add_noise
from dpglm.custodian.passes import Counter, Progress, check_rows, exact_sums
from dpglm.custodian.profile_counts import profile_counts
from dpglm.custodian.spark import SparkSource
from dpglm.custodian.sums import BlockSums
from dpglm.custodian.survey_counts import TableCounts, table_counts
from dpglm.custodian.tables import Source
from dpglm.errors import InputError, SurveyError
from dpglm.formula import Design
from dpglm.looks.coding import LARGEST, before_looks, default_prior, look_grid, standard_design
from dpglm.looks.profile import LOOKS_BEFORE, Profile, add_profile, profile_viewpoint
from dpglm.looks.questions import COUNT_BITS, answer_of
from dpglm.looks.reading import Knowledge, add_look
from dpglm.looks.rule import next_viewpoint
from dpglm.looks.survey import SurveyRecord, surveying, units_of
from dpglm.looks.viewpoint import Viewpoint
from dpglm.releases import Block, Release, Stage


def release_by_looks(
    open_source: Callable[[], Source],
    design: Design,
    epsilon: object,
    delta: object,
    earlier: object,
    account: Account,
    noise: NoiseSource,
    progress: Progress | None,
) -> Release:
    """A release by looks of a design that is coded by declared bounds; ``earlier`` is a release with a survey."""
    known = None if earlier is None else _survey_of(earlier, design)
    plan = plan_looks(design, epsilon, delta, survey_is_known=known is not None)
    account.check_affordable([*([plan.survey_mu] if known is None else []), *_parts(plan).values()])
    source = open_source()
    if design.schema.dataset.unit_column is None:
        check_rows(source.num_rows, design)
    # From here on rows are read; only their number, where it is public, may lead to an error.
    source = grouped(source.repeatable()) if design.schema.dataset.unit_column is not None else source.repeatable()
    passes = len(plan.looks) + 1 + (known is None)
    counter = Counter(progress, design.schema.dataset.number, passes)
    if known is None:
        counts = exact_sums(source, design, partial(table_counts, design=design), counter)
        record, alone = _surveyed(counts, design, plan, account, noise)
        if record.survey.problems:
            account.keep(alone)
            raise SurveyError(alone)
        coded = alone.design
    else:
        record, coded = known, standard_design(design, known.survey_of(design))
    with account.after_the_charge():  # of the survey, if another release took what was left since
        account.spend(list(_parts(plan).values()), plan.privacy, list(_parts(plan)))
        radius = LARGEST * math.sqrt(coded.dimension)
        made = Release(
            *account.stamp(), coded, radius, look_grid(coded), (), plan.privacy, account.fact, noise.private, record
        )
        account.so_far = made
        survey = record.survey_of(design)
        seen = before_looks(coded, survey, default_prior(coded, survey))
        for scales in plan.looks:
            if len(made.stages) == LOOKS_BEFORE:
                profile = _profiled(source, seen, plan, noise, counter, coded)
                made = replace(made, profile=profile)
                account.so_far = made
                seen = add_profile(seen, profile)
            view = on_grid(next_viewpoint(seen, plan.privacy.mu, scales.mu))
            sums = exact_sums(source, coded, partial(look_sums, design=coded, view=view), counter)
            stage = Stage("look", "fixed", scales.mu, _noisy_look(sums, view, scales, noise), view)
            made = replace(made, stages=(*made.stages, stage))
            account.so_far = made
            if len(made.stages) < len(plan.looks):
                seen = add_look(seen, stage.as_look())
    account.keep(made)
    return made


def grouped(source: Source) -> Source:
    """The same rows, unit by unit, by this machine or by Spark's own shuffle."""
    return source.grouped() if isinstance(source, SparkSource) else GroupedSource(source)


def _parts(plan: LookPlan) -> dict[str, float]:
    """mu of what follows the survey, by name, in the order in which its noise is drawn."""
    parts = {f"look {number}": look.mu for number, look in enumerate(plan.looks, 1)}
    names = list(parts)
    parts["profile"] = plan.profile_mu
    return {name: parts[name] for name in (*names[:LOOKS_BEFORE], "profile", *names[LOOKS_BEFORE:])}


def _profiled(
    source: Source, seen: Knowledge, plan: LookPlan, noise: NoiseSource, counter: Counter, coded: Design
) -> Profile:
    """The profile of the table from what is known after the looks before it."""
    view = on_grid(profile_viewpoint(seen))
    counts = exact_sums(source, coded, partial(profile_counts, design=coded, view=view), counter)
    scale = plan.profile_stddev * 2.0**COUNT_BITS
    noisy = tuple(add_noise(cells.tolist(), [scale] * len(cells), noise) for cells in counts.cells)
    return Profile(view, noisy, plan.profile_stddev, plan.profile_mu)


def _survey_of(earlier: object, design: Design) -> SurveyRecord:
    """The survey of an earlier release of the same dataset, which must know every column."""
    if not isinstance(earlier, Release) or earlier.survey_record is None:
        raise InputError("survey", type(earlier).__name__, "must be a release by looks", "leave it out, or pass one")
    if earlier.design.schema.dataset != design.schema.dataset:
        rule = "is of another dataset, unit or number of rows"
        raise InputError("survey", earlier.dataset_id, rule, "leave it out: a new one is taken")
    earlier.survey_record.survey_of(design)
    return earlier.survey_record


def _surveyed(
    counts: TableCounts, design: Design, plan: LookPlan, account: Account, noise: NoiseSource
) -> tuple[SurveyRecord, Release]:
    """The survey of exact counts, charged before its first answer; and a release that holds it alone.

    That one states the (epsilon, delta) that was asked for: whether to stop depends on noisy answers, so a smaller one
    would not be true of it. What it cost, which the ledger adds up, is the survey's mu.
    """
    account.spend([plan.survey_mu], plan.privacy, ["survey"])
    with account.after_the_charge():
        asked = []
        asking = surveying(design)
        question = next(asking)
        paid = units_of(design)
        left = paid
        while True:
            left -= question.units
            if left < -1e-9 * paid:  # which the noise has room for
                raise ArithmeticError("a survey asks more than was paid for")  # no answers lead here
            exact = counts.answers(question)
            scale = plan.survey_stddev * 2.0**COUNT_BITS / question.sharper
            integers = add_noise(exact, [scale] * len(exact), noise)
            asked.append((question, integers))
            try:
                question = asking.send(answer_of(question, integers, plan.survey_stddev))
            except StopIteration as end:
                survey = end.value
                break
        record = SurveyRecord(
            account.identity, design, plan.survey_mu, plan.survey_stddev, tuple(asked), survey
        )  # fmt: skip
        coded = standard_design(design, survey)
        alone = Release(
            *account.stamp(), coded, LARGEST * math.sqrt(coded.dimension), look_grid(coded), (), plan.privacy,
            account.fact, noise.private, record,
        )  # fmt: skip
    account.so_far = alone
    return record, alone


def _noisy_look(sums: BlockSums, view: Viewpoint, scales: LookNoise, noise: NoiseSource) -> tuple[Block, ...]:
    """The blocks of a look; its noise is the same number of grid steps whatever the bounds are."""
    blocks = []
    for block, values, stddev, unit in zip(sums.blocks, sums.values, scales.grid_stddevs, view.units, strict=True):
        grid_stddevs = monomial_stddevs(block, Fraction(stddev), view.dimension)
        multiplicities = tuple(block.multiplicities(view.dimension).tolist())
        integers = add_noise(values, grid_stddevs, noise)
        blocks.append(
            Block(block.y_power, block.degree, integers, unit, stddev * unit, grid_stddevs, multiplicities)
        )  # fmt: skip
    return tuple(blocks)
