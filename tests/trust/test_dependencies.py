"""The custodian's side loads few libraries: the list that docs/security.md asks to trust is the list that is loaded."""

from __future__ import annotations

from pathlib import Path

from trust.dependencies import loaded_by_a_release

# Those that read rows, draw noise or account for it, and what they need themselves. Where they are
# installed, PyArrow loads cloudpickle and NumPy charset-normalizer; setuptools is there in some environments only.
TRUSTED = {
    "absl-py", "attrs", "charset-normalizer", "cloudpickle", "Deprecated", "dm-tree", "dp-accounting", "formulaic",
    "interface_meta", "mpmath", "narwhals", "numpy", "opendp", "pandas", "pyarrow", "python-dateutil", "scipy",
    "setuptools", "six", "typing_extensions", "tzdata", "wrapt",
}  # fmt: skip
HEAVY = {"jax", "jaxlib", "numpyro", "arviz", "matplotlib", "xarray", "typer", "rich", "pyspark", "polars",
         "scikit-learn", "starlette", "uvicorn"}  # fmt: skip


def test_a_release_loads_no_more_than_the_trust_list(tmp_path: Path) -> None:
    loaded = loaded_by_a_release(str(tmp_path))
    assert {"numpy", "pyarrow", "opendp", "dp-accounting"} <= loaded
    assert not loaded & HEAVY
    assert loaded <= TRUSTED, loaded - TRUSTED


def test_the_measurement_sees_a_library_that_is_loaded(tmp_path: Path) -> None:
    assert "matplotlib" in loaded_by_a_release(str(tmp_path), before="import matplotlib")
