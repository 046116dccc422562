"""The file of a fit: arrays and text only; nothing in it is executed on reading."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np

from dpglm.analyst.closed_form import ClosedForm
from dpglm.analyst.priors import CustomPrior, NormalPrior, Prior, SphericalPrior, distribution_text
from dpglm.analyst.result import UNITS, Diagnostics, Fit
from dpglm.errors import FileError
from dpglm.looks.gaussian import Gaussian
from dpglm.release_file import read_release

FIT_FORMAT = "dpglm-fit"
FIT_VERSION = 2
_LARGEST_FILE = 2**31
_BY_COEFFICIENT = ("ess_bulk", "ess_tail", "r_hat")
_STATEMENTS = ("likelihood", "prior", "table")


def fit_bytes(fit: Fit) -> bytes:
    """The file's content."""
    diagnostics = fit.diagnostics
    facts = {
        "format": FIT_FORMAT,
        "version": FIT_VERSION,
        "method": fit.method,
        "options": fit.options,
        "predictor_stddev": fit.predictor_stddev,
        "diagnostics": None
        if diagnostics is None
        else {
            "divergences": diagnostics.divergences,
            "acceptance": diagnostics.acceptance,
            "mode_converged": diagnostics.mode_converged,
            "pareto_k": diagnostics.pareto_k,
        },
        "prior": _prior_facts(fit.prior),
        "releases": [release.to_json() for release in fit.releases],
    }
    arrays: dict[str, Any] = {
        "coefficients": fit.coefficients,
        "inflation": fit.inflation,
        "spread": np.zeros(0) if fit.spread is None else fit.spread,
        "table_coefficients": np.zeros(0) if fit.table_coefficients is None else fit.table_coefficients,
        "facts": np.frombuffer(json.dumps(facts).encode(), dtype=np.uint8),
    }
    if diagnostics is not None:
        arrays |= {name: getattr(diagnostics, name) for name in _BY_COEFFICIENT}
    if fit.closed is not None:
        arrays |= _closed_arrays(fit.closed)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


def load_fit(path: str | Path) -> Fit:
    """Read a file written by ``Fit.save``."""

    def wrong(rule: str) -> FileError:
        return FileError("fit", str(path), rule, "write it again with Fit.save")

    try:
        if Path(path).stat().st_size > _LARGEST_FILE:
            raise wrong("is larger than a fit can be")
        with open(path, "rb") as stream, np.load(stream, allow_pickle=False) as stored:
            if sum(member.file_size for member in stored.zip.infolist()) > _LARGEST_FILE:
                raise wrong("is larger than a fit can be")  # when unpacked
            arrays = {name: stored[name] for name in stored.files}
        facts = json.loads(arrays.pop("facts").tobytes().decode())
    except OSError as error:
        raise wrong(f"cannot be read ({error.strerror or 'not a fit'})") from None
    except FileError:
        raise
    except Exception:  # zip, NumPy and JSON readers fail in many ways on a damaged file
        raise wrong("is not a whole fit file") from None
    if not isinstance(facts, dict) or facts.get("format") != FIT_FORMAT:
        raise wrong("is not a dpglm fit")
    if facts.get("version") != FIT_VERSION:
        raise wrong(f"has version {str(facts.get('version'))[:20]}, this dpglm reads {FIT_VERSION}")
    try:
        releases = tuple(read_release(text, f"{path}: release") for text in facts["releases"])
        diagnostics = None
        if facts["diagnostics"] is not None:
            diagnostics = Diagnostics(*(arrays[name] for name in _BY_COEFFICIENT), **facts["diagnostics"])
        spread = arrays["spread"] if arrays["spread"].size else None
        own = arrays.get("table_coefficients", np.zeros(0))
        fit = Fit(
            releases, arrays["coefficients"], spread, float(facts["predictor_stddev"]), arrays["inflation"],
            diagnostics, _prior_from(facts["prior"]), facts["method"], facts["options"], own if own.size else None,
            _closed_from(arrays),
        )  # fmt: skip
        _check_consistent(fit)
    except FileError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError, RecursionError):
        raise wrong("is not a whole fit file") from None
    return fit


def _check_consistent(fit: Fit) -> None:
    """Raise ValueError where a file's parts do not belong together."""
    count = len(fit.names)
    diagnostics, closed = fit.diagnostics, fit.closed
    by_coefficient = [] if diagnostics is None else [getattr(diagnostics, name) for name in _BY_COEFFICIENT]
    shapes = {
        "coefficients": fit.coefficients.ndim == 3 and fit.coefficients.shape[2] == count and fit.coefficients.size > 0,
        "table_coefficients": fit.table_coefficients is None or fit.table_coefficients.shape == fit.coefficients.shape,
        "spread": fit.spread is None or fit.spread.shape == fit.coefficients.shape[:2],
        "inflation": fit.inflation.shape == (len(UNITS), count),
        "diagnostics": all(each.shape == (count,) for each in by_coefficient),
        "numbers": all(each.dtype == np.float64 for each in (fit.coefficients, fit.inflation, *by_coefficient)),
        "finite": bool(np.isfinite(fit.coefficients).all()),
        "method": isinstance(fit.method, str),
        "link": isinstance(fit.options, dict) and fit.link in _links(fit),
        "pareto_k": diagnostics is None or diagnostics.pareto_k is None or isinstance(diagnostics.pareto_k, float),
        "closed form": (closed is None) == (diagnostics is not None) and (closed is None or _is_whole(closed, count)),
    }
    wrong = [name for name, right in shapes.items() if not right]
    if wrong:
        raise ValueError(", ".join(wrong))


def _is_whole(closed: ClosedForm, count: int) -> bool:
    """Whether a closed form can be used: right sizes, finite numbers, and covariances that exist."""
    statements = [each for each in (closed.likelihood, closed.prior, closed.table) if each is not None]
    arrays = [(each.precision, (count, count)) for each in statements] + [(each.shift, (count,)) for each in statements]
    arrays += [(each, (count, count)) for each in (closed.sampling, closed.bounding)]
    arrays += [(closed.surprises, closed.surprises.shape[:1])]
    if not all(each.shape == shape and each.dtype == np.float64 and np.isfinite(each).all() for each, shape in arrays):
        return False
    try:
        for each in (closed.prior.precision, closed.posterior.precision, closed.sampling):
            np.linalg.cholesky(each)
    except np.linalg.LinAlgError:
        return False
    return True


def _links(fit: Fit) -> set[str]:
    """The family's, and those that only moments have."""
    return {fit.releases[0].design.family.link, "probit", "softplus"}


def _closed_arrays(closed: ClosedForm) -> dict[str, Any]:
    arrays: dict[str, Any] = {name: getattr(closed, name) for name in ("sampling", "bounding", "surprises")}
    for name in _STATEMENTS:
        statement = getattr(closed, name)
        if statement is not None:
            arrays |= {f"{name}_precision": statement.precision, f"{name}_shift": statement.shift}
    return arrays


def _closed_from(arrays: dict[str, Any]) -> ClosedForm | None:
    if "sampling" not in arrays:
        return None
    found = {
        name: Gaussian(arrays[f"{name}_precision"], arrays[f"{name}_shift"])
        for name in _STATEMENTS
        if f"{name}_precision" in arrays
    }
    return ClosedForm(
        found["likelihood"], found.get("table"), arrays["sampling"], arrays["bounding"], found["prior"],
        arrays["surprises"],
    )  # fmt: skip


def _prior_facts(prior: Prior) -> dict[str, Any]:
    if isinstance(prior, NormalPrior):
        return {"kind": "normal", "slopes": prior.slopes, "intercept": prior.intercept}
    if isinstance(prior, SphericalPrior):
        return {
            "kind": "spherical", "largest_squared_norm": prior.largest_squared_norm, "intercept": prior.intercept,
        }  # fmt: skip
    texts = {name: distribution_text(each) for name, each in prior.distributions}
    return {"kind": "custom", "distributions": texts, "others": _prior_facts(prior.others)}


def _prior_from(facts: dict[str, Any]) -> Prior:
    """The prior that a file names; custom distributions are kept as their text."""
    kind = facts["kind"]
    rest = {key: value for key, value in facts.items() if key != "kind"}
    if kind == "normal":
        return NormalPrior(**rest)
    if kind == "spherical":
        return SphericalPrior(**rest)
    others = _prior_from(rest["others"])
    if kind != "custom" or not isinstance(others, NormalPrior):
        raise ValueError(kind)
    return CustomPrior(tuple(rest["distributions"].items()), others)
