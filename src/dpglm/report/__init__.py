"""What a reader gets to see: a page and plots. Sees only a Fit and its releases; never imports the custodian's code.

The package can be called, because ``dpglm.report`` is both its name and the name of what it does: Python replaces
the one by the other as soon as any module of the package is imported.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from os import PathLike

    from dpglm.analyst.result import Fit


class _CallablePackage(ModuleType):
    def __call__(
        self,
        fit: Fit,
        path: str | PathLike[str],
        *,
        prob: float = 0.95,
        at: Mapping[str, Any] | None = None,
        overwrite: bool = False,
    ) -> Path:
        """Write a self-contained HTML page about a fit; see ``dpglm.report.html.report``."""
        from dpglm.report.html import report

        return report(fit, path, prob=prob, at=at, overwrite=overwrite)


sys.modules[__name__].__class__ = _CallablePackage
