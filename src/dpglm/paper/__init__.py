"""The paper's system, whole: noise-aware posteriors of releases of moments, by NUTS or at the mode, and its baselines.

    assemble -> model (outcomes, likelihood) -> modes -> sampler (nuts) -> posteriors

The only part of dpglm that needs JAX and NumPyro, which ``pip install dpglm[paper]`` brings; ``dpglm.fit`` imports it
where a release of moments is fitted. It computes in double precision: importing it turns ``jax_enable_x64`` on for the
whole process. Programs that JAX compiles are kept between runs by JAX itself, in a folder of the user's, unless a
folder was chosen already (``JAX_COMPILATION_CACHE_DIR``).
"""

from __future__ import annotations

import os
from pathlib import Path

from dpglm.errors import InputError

try:
    import jax
    import numpyro  # noqa: F401
except ImportError as error:
    raise InputError("jax", error.name, "is not installed, and releases of moments need it",
                     'install it with: pip install "dpglm[paper]"') from None  # fmt: skip

jax.config.update("jax_enable_x64", True)  # type: ignore[no-untyped-call]


def _keep_programs() -> None:
    """A folder for JAX's own cache, where the user has not chosen one and one can be made."""
    if jax.config.jax_compilation_cache_dir is not None:  # type: ignore[attr-defined]
        return
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dpglm" / "jax"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # no home, or none that can be written to
        return
    jax.config.update("jax_compilation_cache_dir", str(folder))  # type: ignore[no-untyped-call]
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)  # type: ignore[no-untyped-call]


_keep_programs()
