"""How much of each row of a person counts, where rows end with an event: by the person's past alone.

A person is followed period by period until the event, so that how many rows they have depends on the outcome. A bound
on all of a person's rows together (one kappa a person) would depend on it, too, and the score of such persons has no
mean zero: coefficients would be off by many standard errors. Here every row has a kappa of its own that is known before
its outcome is. With C the length that the rows of earlier periods add where the event does not come in them,

    kappa = min(1, (B - C) / length),        length = m(u) |z|,    C = sum over earlier rows of E[y] |z|,

so the score of a person is a martingale, whose mean is zero at the truth; and it is at most B long for every person
whose event comes in their last period. (docs/method.md, section 4. The guarantee does not hang on it: lengths are
checked in integers afterwards, whatever the rows hold.)
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

_BITS = 20  # lengths are counted in 2^-20 of the bound, rounded up: whole numbers add up alike in any order
_LONGEST = 2**40  # of a length: beyond it a row counts for nothing anyway


def shares_by_past(person: Integers, period: Integers, length: Floats, expected: Floats, bound: float) -> Floats:
    """kappa of every row, of persons whose rows are all here, in any order.

    ``length`` is the longest score of a row, ``expected`` that of a row without the event. Rows of one person in one
    period share what is left.
    """
    if not len(person):
        return np.zeros(0)
    order = np.lexsort((period, person))
    person, period = person[order], period[order]
    first_of_person = np.append(True, person[1:] != person[:-1])
    first = first_of_person | np.append(True, period[1:] != period[:-1])
    starts = np.flatnonzero(first)
    lengths = np.add.reduceat(_whole(length[order], bound), starts)
    spent = np.add.reduceat(_whole(expected[order], bound), starts)
    before = np.cumsum(spent) - spent
    opens = first_of_person[starts]
    before -= before[opens][np.cumsum(opens) - 1]
    left = np.clip(2**_BITS - before, 0, None) / np.maximum(lengths, 1)
    shares = np.empty(len(order))
    shares[order] = np.minimum(left, 1.0)[np.cumsum(first) - 1]
    return shares


def _whole(lengths: Floats, bound: float) -> Integers:
    """Lengths as whole numbers of small parts of the bound; what is no length counts as endless."""
    with np.errstate(all="ignore"):
        parts = np.ceil(lengths * (2.0**_BITS / bound))
    return np.where(parts < _LONGEST, np.maximum(parts, 0), _LONGEST).astype(np.int64)
