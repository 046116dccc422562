"""How much of each row of a person counts, where rows end with an event: by the person's past alone.

A person is followed period by period until the event, so that how many rows they have depends on the outcome. A bound
on all of a person's rows together (one kappa a person) would depend on it, too, and the score of such persons has no
mean zero: coefficients would be off by many standard errors. Here every row has a kappa of its own that is known before
its outcome is: what earlier rows leave of the bound B,

    kappa = min(1, left / length),        left = B - sum over earlier rows of kappa E[y] |z|,        length = m(u) |z|.

So the score of a person is a martingale, whose mean is zero at the truth; and it is at most B long for every person
whose event comes in their last period. (docs/method.md, section 4. The guarantee does not hang on it: lengths are
checked in integers afterwards, whatever the rows hold.)
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

FINER = 2.0**11  # a row's score is rounded to so much finer steps: rounding of many rows is less than one step
_BITS = 20  # lengths are counted in 2^-20 of the bound, rounded up: whole numbers add up alike in any order
_LONGEST = 2.0**40  # of a length: beyond it a row counts for nothing anyway


def shares_by_past(person: Integers, period: Floats, length: Floats, expected: Floats, bound: float) -> Floats:
    """kappa of every row, of persons whose rows are all here, in any order.

    ``length`` is the longest score of a row, ``expected`` that of a row without the event. Rows of one person in one
    period share what is left. What a person's rows get depends on that person's rows alone, to the last bit.
    """
    if not len(person):
        return np.zeros(0)
    order = np.lexsort((period, person))
    person, period = person[order], period[order]
    opens = np.append(True, person[1:] != person[:-1])
    first = opens | np.append(True, period[1:] != period[:-1])
    starts = np.flatnonzero(first)  # of the rows of a person in a period
    lengths = np.add.reduceat(_whole(length[order], bound), starts)
    spent = np.add.reduceat(_whole(expected[order], bound), starts)
    owner = np.cumsum(opens[starts]) - 1
    number = np.arange(len(starts)) - np.flatnonzero(opens[starts])[owner]  # of the period, among the person's
    left, shares = np.full(owner[-1] + 1, 2.0**_BITS), np.empty(len(starts))
    by_number = np.argsort(number, kind="stable")
    for these in np.split(by_number, np.cumsum(np.bincount(number))[:-1]):
        shares[these] = np.minimum(1.0, np.maximum(left[owner[these]], 0.0) / np.maximum(lengths[these], 1.0))
        left[owner[these]] -= shares[these] * spent[these]
    found = np.empty(len(order))
    found[order] = shares[np.cumsum(first) - 1]
    return found


def spent_before(person: Integers, period: Floats, expected: Floats, bound: float) -> Floats:
    """What a person's rows of earlier periods expect to add, in bounds, of every row."""
    if not len(person):
        return np.zeros(0)
    order = np.lexsort((period, person))
    person, period = person[order], period[order]
    opens = np.append(True, person[1:] != person[:-1])
    first = opens | np.append(True, period[1:] != period[:-1])
    spent = _whole(expected[order], bound).astype(np.int64)
    before = (np.cumsum(spent) - spent)[np.flatnonzero(first)[np.cumsum(first) - 1]]
    before -= before[np.flatnonzero(opens)[np.cumsum(opens) - 1]]
    found = np.empty(len(order))
    found[order] = before * 2.0**-_BITS
    return found


def _whole(lengths: Floats, bound: float) -> Floats:
    """Lengths in small parts of the bound, whole numbers; what is no length counts as endless."""
    with np.errstate(all="ignore"):
        parts = np.ceil(lengths * (2.0**_BITS / bound))
    return np.where(parts < _LONGEST, np.maximum(parts, 0.0), _LONGEST)
