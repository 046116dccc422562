"""For a review board: one page and one record of what was promised, what was spent and what is not protected.

Sees releases, or a ledger that it is handed; never imports the custodian's code.
"""

from __future__ import annotations

from dpglm.review.page import review_statement

__all__ = ["review_statement"]
