"""What two neighbouring tables differ by, and what that difference can do to a survey and to a look.

One unit (a row, or a person with all of their rows) is *replaced* by another, so that their number is public; or one is
*added or removed*, and their number is private. The costs are proved in docs/looks_privacy.md, section 5.
"""

from __future__ import annotations

from dataclasses import dataclass

from dpglm.errors import InputError

REPLACED, ADDED_OR_REMOVED = "replaced", "added-or-removed"
NEIGHBOURS = (REPLACED, ADDED_OR_REMOVED)


@dataclass(frozen=True)
class Protection:
    """A neighbouring relation. ``several_rows``: a unit may have several rows, all of which change together."""

    neighbours: str = REPLACED
    several_rows: bool = False

    @property
    def replaced(self) -> bool:
        return self.neighbours == REPLACED

    @property
    def relation(self) -> str:
        """Its name in files and ledgers."""
        verb = "replace" if self.replaced else "add-or-remove"
        return f"{verb}-one-{'unit' if self.several_rows else 'row'}"

    @classmethod
    def named(cls, relation: str) -> Protection:
        """The inverse of ``relation``."""
        for neighbours in NEIGHBOURS:
            for several_rows in (False, True):
                found = cls(neighbours, several_rows)
                if found.relation == relation:
                    return found
        raise InputError("neighbouring relation", relation, "is not known", "update dpglm")

    @property
    def cells_changed(self) -> int:
        """Of counts in cells of which a unit is in one, as a sum of squares: it leaves one for another, or one."""
        return 2 if self.replaced else 1

    @property
    def square_variance(self) -> int:
        """Variance of the noise of a score's square, over that of the score, in units of their bounds.

        Two is what makes it free where a score may become its opposite; where it is only added or left out, its square
        is not free, and costs a sixteenth of the score.
        """
        return 2 if self.replaced else 16

    def squared_mu(self, y: float, x: float) -> float:
        """mu^2 of a look whose score has noise variance 1/y, and whose information 1/x, in units of their bounds.

        Added or removed: |s|^2 <= 1, |Q|^2 <= 1 and |s s'|^2 <= 1. Replaced: opposite scores, or perpendicular rows
        where the information is precise; of several rows score and information need not be of one direction.
        """
        if not self.replaced:
            return y * (1 + 1 / self.square_variance) + x
        if self.several_rows:
            return 4 * y + 2 * x
        return max(4 * y + x, 3 * y + 2 * x + y * y / (y + 2 * x))

    @property
    def information_cost(self) -> int:
        """What the information costs, in units of its precision x."""
        return 2 if self.replaced and self.several_rows else 1

    @property
    def score_cost(self) -> float:
        """What the score costs, in units of its precision y."""
        return 4.0 if self.replaced else 1 + 1 / self.square_variance


ONE_ROW_REPLACED = Protection()
