"""What a user would do instead of dpglm, for comparison: not for a release.

    non_private   NUTS on the rows themselves: the answer without privacy
    naive         a release read as if it held no noise
    taylor        a release read with the paper's expansion of the link
    dp_sgld       noisy gradients: a private chain (Wang, Fienberg & Smola 2015)

``non_private`` and ``dp_sgld`` see rows, which ``scaled_rows`` reads as a release would; nothing else in dpglm imports
this package.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpglm.paper.baselines.coded_rows import ScaledRows, scaled_rows
    from dpglm.paper.baselines.langevin import SgldSettings, dp_sgld, dp_sgld_many
    from dpglm.paper.baselines.on_rows import non_private, non_private_many
    from dpglm.paper.baselines.rows_posterior import RowsPosterior
    from dpglm.paper.baselines.simpler_readings import naive, taylor

_HOME = {
    "RowsPosterior": "rows_posterior",
    "ScaledRows": "coded_rows",
    "SgldSettings": "langevin",
    "dp_sgld": "langevin",
    "dp_sgld_many": "langevin",
    "naive": "simpler_readings",
    "non_private": "on_rows",
    "non_private_many": "on_rows",
    "scaled_rows": "coded_rows",
    "taylor": "simpler_readings",
}

__all__ = [
    "RowsPosterior",
    "ScaledRows",
    "SgldSettings",
    "dp_sgld",
    "dp_sgld_many",
    "naive",
    "non_private",
    "non_private_many",
    "scaled_rows",
    "taylor",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'dpglm.paper.baselines' has no attribute {name!r}")
    return getattr(import_module(f"dpglm.paper.baselines.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
