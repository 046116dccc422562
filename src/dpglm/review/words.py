"""The sentences of the statement, for readers who know data protection and not differential privacy."""

from __future__ import annotations

import math
import re
from decimal import ROUND_CEILING, ROUND_FLOOR, Context

from dpglm.releases import Release
from dpglm.review.facts import Facts, noisy_numbers
from dpglm.schema import Column
from dpglm.statement import CAVEATS, LARGE, LARGE_EPSILON, those_that_count
from dpglm.values import date_of

_QUESTIONS = (
    "Were bounds, levels and the formula chosen without looking at the rows?",
    "Is this the only ledger of these rows, and are no other statistics of the same people published by other means?",
    "Who can read the rows, and the machine that holds them?",
    "Is the budget that is still left meant to be spent, and by whom is that decided?",
)
_NOT_PROTECTED = (
    "What is true of a group. The release is meant to tell what is true of many: if smoking goes with a disease in"
    " the table, readers learn something about every smoker, in the table or not.",
    "People in their relatives' rows. A row about one person may tell of another; that other one is not protected"
    " against it.",
)


def summary(facts: Facts) -> list[str]:
    """The page in a few sentences."""
    several = facts.protection.several_rows  # of one of those who are protected, and how many these are is public
    rows = "rows" if facts.rows is None else f"{facts.rows:,} {'units with their rows' if several else 'rows'}"
    who = f"“{facts.name}”" + (f", a table of {rows}, each {facts.unit}" if facts.releases else "")
    if not facts.private:
        return [f"A release of {who} is not private, and nothing below holds for it."]
    count = len(facts.releases)
    what = "one file of noisy numbers was" if count == 1 else f"{count} files of noisy numbers were"
    said = [
        f"From {who}, {what} made. No row, and no exact number that was computed from rows, is in"
        f" {'it' if count == 1 else 'them'}."
        if count
        else f"Nothing of {who} has been released."
    ]
    if facts.unfinished:
        begun = len(facts.unfinished)
        which = "One more was begun and not finished" if begun == 1 else f"{begun} more were begun and not finished"
        said.append(f"{which}: what may have been seen of that is counted as spent.")
    if facts.spent.mu > 0:
        known, apart, there = (
            ("all rows but those of one of them", "two versions of those apart", "whether those are there at all")
            if facts.protection.several_rows
            else ("every row but one", "two versions of that one apart", "whether that one is there at all")
        )
        said.append(
            f"Whoever knows {known} and has to tell {apart if facts.protection.replaced else there} is right at most"
            f" {times_in_hundred(facts.spent.best_guess)} times in 100; a coin is right 50 times."
        )
    return said


def promise(facts: Facts) -> list[str]:
    """What was promised to whom."""
    spent = facts.spent
    whole = "all releases together" if facts.ledger else "this release"
    epsilon, delta = up(spent.epsilon), f"{small(spent.delta)} (one in {1 / spent.delta:,.0f})"
    weaker = (
        f" How many rows there are is protected, too. Of two rows that replace each other it bounds that by"
        f" e^{up(2 * spent.epsilon)} only."
    )
    return [
        f"To {unit_of(facts)}: that {whole} would have looked almost the same with {changed(facts)}. Almost the same"
        f" means that no outcome becomes more than e^{epsilon} = {factor(spent.epsilon)} times as probable or as"
        f" improbable by that change, but for a probability of {delta} altogether. This is"
        f" ({epsilon}, {small(spent.delta)})-differential privacy. It holds whatever else a reader knows, now or later,"
        f" and whatever is computed from what was released.{'' if facts.protection.replaced else weaker}",
        "The table below says what that means for a reader who holds something about one person to be probable to some"
        f" degree and then reads {whole}.",
    ]


def changed(facts: Facts) -> str:
    """The change that must not show."""
    several = facts.protection.several_rows
    if facts.protection.replaced:
        what = "all rows of any one of them" if several else "the content of any one row"
        return f"{what} replaced by any other {'rows' if several else 'content'}"
    return f"{'all rows of any one of them' if several else 'any one row'} added or left out"


def unit_of(facts: Facts) -> str:
    """Who is protected, as the schema says it: "one patient" becomes "each patient"."""
    return f"each {facts.unit[4:]}" if facts.unit.startswith("one ") else facts.unit


def questions(facts: Facts) -> list[str]:
    """What no file can answer: a person has to have looked."""
    several = "Does every person have at most one row in the table?"
    if facts.protection.several_rows:
        several = "Do all rows of a person bear the same name of the unit?"
    public = "the number of rows, " if facts.protection.replaced else ""
    return [several, *_QUESTIONS, f"May {public}the names of the columns and their bounds be public?"]


def cautions(facts: Facts) -> list[str]:
    """What a board should see first, if anything."""
    said = []
    spent = facts.spent
    if not facts.private:
        said.append(
            "NOT PRIVATE: a release was made with fixed noise, for tests. It reveals exact sums of the rows and must"
            " never be published."
        )
    number = max((release.num_rows for release in facts.releases), default=0)
    if spent.delta * number > 1:
        fails = "the promise may fail for some row altogether"
        said.append(f"δ = {small(spent.delta)} is more than one in the number of rows: {fails}.")
    if spent.epsilon > LARGE_EPSILON:
        said.append(LARGE)
    if any(release.ledger is None for release in facts.releases):
        said.append(
            "There was no ledger: nothing keeps count of what has been released of these rows in all, and the promise"
            " is for this release alone."
        )
    return said


def released(release: Release) -> str:
    """What one release holds."""
    kinds = "moments of the columns"
    if release.method == "looks":
        looks = len(release.stages)
        reach = ", counts of how far rows reach" if release.profile is not None else ""
        record = release.survey_record
        survey = "a survey of where the columns live"
        survey += "" if record is None or record.release_id == release.id else " (an earlier release's)"
        kinds = f"{survey}{reach} and {looks} looks at the regression" if looks else f"{survey}, and nothing else"
    told = f"{kinds}: {noisy_numbers(release):,} integers, each with noise"
    if release.design.counted_is_public:
        return told
    where = None if release.design.where is None else release.design.where.text
    counted = release.design.schema.dataset.counted
    return f"{told}. {those_that_count(counted, release.num_rows, release.counted, where)}"


def weighed(release: Release) -> str:
    """What rows weigh, if not one each."""
    return "" if release.design.weights is None else f", rows weighed by {release.design.weights}"


def declared(column: Column) -> str:
    """What the schema says of a column, and so the file."""
    if column.fill is None:
        missing = "; without a value a row does not count"
    else:
        missing = "" if column.missing_is_level else f"; a missing value becomes {column.fill}"
    return _range(column) + missing


def _range(column: Column) -> str:
    if column.has_levels:
        shown = [str(level) for level in column.levels[:12]]
        more = f" and {len(column.levels) - 12} more" if len(column.levels) > 12 else ""
        return f"levels {', '.join(shown)}{more}"
    if column.is_wide:
        return "a number; no bound was declared, so a very wide one holds"
    if column.dates:
        return f"a date, clamped to {date_of(column.lower)} to {date_of(column.upper)}"
    kind = "a count, " if column.type == "count" else ""
    return f"{kind}clamped to {column.lower:g} to {column.upper:g}"


def not_protected(facts: Facts) -> list[str]:
    """What the promise leaves out."""
    of_one = [] if facts.ledger else ["Releases of the same rows add up. This page knows of one."]
    caveats = [each for each in CAVEATS if not each.startswith("The guarantee holds for this release")]
    beyond = (
        "Releases that did not go through this ledger, and statistics about the same people that were published by"
        " other means."
    )
    return [*caveats, *of_one, *([beyond] if facts.ledger else []), *_NOT_PROTECTED]


def up(number: float) -> str:
    """Four digits, never less than the number: a promise is not rounded to a better one.

    >>> up(1.19862), up(1.0), up(0.00012341)
    ('1.199', '1', '0.0001235')
    """
    return f"{float(Context(prec=4, rounding=ROUND_CEILING).create_decimal(repr(number))):g}"


def down(number: float) -> str:
    """Four digits, never more than the number."""
    return f"{float(Context(prec=4, rounding=ROUND_FLOOR).create_decimal(repr(number))):g}"


def small(number: float) -> str:
    """A small probability: 1e-6."""
    return re.sub(r"e-0*", "e-", f"{number:g}")


def factor(epsilon: float) -> str:
    """e^epsilon as people read it."""
    if epsilon > 700:
        return "more than 1e300"
    times = math.exp(epsilon)
    return f"{times:.3g}" if times < 1e4 else f"{times:.0e}"


def times_in_hundred(share: float) -> str:
    """A share rounded up, never 100 where it is less.

    >>> [times_in_hundred(share) for share in (0.5431, 0.99999, 1.0)]
    ['54.4', '99.9990', '100']
    """
    if share >= 1:
        return "100"
    digits = 1 if share < 0.999 else 4
    return f"{min(math.ceil(100 * share * 10**digits - 1e-9) / 10**digits, 99.9999):.{digits}f}"
