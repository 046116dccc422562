"""What a release promises and what it does not, in plain words."""

from __future__ import annotations

import math

from dpglm.looks.profile import LOOKS_BEFORE
from dpglm.schema import Dataset

LARGE_EPSILON = 10.0
LARGE = (
    f"An epsilon above {LARGE_EPSILON:g} promises little by itself: with such a factor a release may tell much about"
    " single rows. Ask for less, or give it only to whom you would trust with more."
)
CAVEATS = (
    "The number of rows (unless a row may be added or removed), the schema (bounds, levels, fill values), the formula"
    " and the condition are public and are not protected. How many rows count is protected.",
    "A person who has several rows in the table is protected less, unless the guarantee is for all rows of a person"
    " together (unit_column).",
    "How long the release took and how much memory it used are not protected.",
    "The guarantee holds for this release; other releases of the same rows add up (see the ledger).",
    "The computer that made the release, and whoever could read the rows there, are trusted.",
)


def those_that_count(kind: str, rows: int, counted: tuple[float, float], where: str | None) -> str:
    """One sentence: how many do, through noise, and why others do not."""
    number, stddev = counted
    outside = "" if where is None else f"is outside of {where}, or "
    return (
        f"About {min(number, rows):,.0f} of its {rows:,} {kind} count (± {1.96 * stddev:,.0f} by noise): a row that"
        f" {outside}lacks a value which the regression needs does not."
    )


def plain_statement(
    dataset: Dataset,
    epsilon: float,
    delta: float,
    ledger: tuple[int, float, float, float] | None,
    private: bool,
    looks: int | None = None,
    counted: tuple[float, float] | None = None,
    where: str | None = None,
    noisy_rows: int | None = None,
    charges: int = 1,
) -> str:
    """A short paragraph for the custodian and for readers of the results.

    ``ledger`` is entry, spent, cap, cap's delta; ``looks`` the number of looks, None for moments;
    ``counted`` how many rows count with the noise of that number, None where all do; ``noisy_rows`` how many
    there are, where that is private; ``charges`` how many entries of the ledger the release has.
    """
    if not private:
        return (
            "NOT PRIVATE: this release was made with fixed noise, for tests. It reveals exact sums of the rows and must"
            " never be published."
        )
    times = math.exp(min(epsilon, 700.0))
    factor = f"{times:.3g}" if times < 1e4 else f"{times:.0e}"
    num_rows = noisy_rows if dataset.number is None else dataset.number
    assert num_rows is not None
    several = dataset.protection.several_rows
    about = (
        f"{num_rows:,} {dataset.counted}"
        if dataset.number is not None
        else (f"about {num_rows:,} {dataset.counted}, a noisy number,")
    )
    one = "unit, with all of its rows," if several else "row"
    replaced = dataset.protection.replaced
    change = f"Replacing any one {one} by any other" if replaced else f"Adding or leaving out any one {one}"
    text = (
        f"This release describes {about} of {dataset.name!r}; one {dataset.counted[:-1]} is {dataset.unit}."
        f" {change} would have changed the chance of every possible release by a factor of"
        f" at most e^{epsilon:g} = {factor}, up to a probability of {delta:g}"
        f" (({epsilon:g}, {delta:g})-differential privacy)."
    )
    if not replaced:
        text += (
            f" How many {dataset.counted} there are is protected with them. This is a weaker promise than one for a"
            f" replaced {one.partition(',')[0]}: of two that replace each other it bounds the factor by"
            f" e^{2 * epsilon:g} only."
        )
    if counted is not None:
        text += f" {those_that_count(dataset.counted, num_rows, counted, where)}"
    if epsilon > LARGE_EPSILON:
        text += f" {LARGE}"
    if delta * num_rows > 1:
        some = one.partition(",")[0]
        text += f" That delta is more than one in their number: the promise may fail for some {some} altogether."
    if looks:
        reach = ", noisy counts of how far rows reach," if looks > LOOKS_BEFORE else ""
        text += (
            f" The budget was shared by a survey of where the columns live{reach} and {looks} looks at the table, each"
            " taken from where the noisy ones before it point. The guarantee is for all of them together."
        )
    elif looks == 0:
        text += " It holds a survey of where the columns live, and nothing else was released."
    if ledger is None:
        return text + " It was made without a ledger: nothing keeps count of what was released from these rows in all."
    entry, spent, cap, cap_delta = ledger
    charged = f"as entry {entry}" if charges == 1 else f"in {charges} entries, the last of which is number {entry}"
    return text + (
        f" The dataset's ledger charged it {charged}, and has now spent epsilon = {spent:.3g} of {cap:g}"
        f" (at delta = {cap_delta:g})."
    )
