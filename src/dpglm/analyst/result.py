"""Fit: the posterior as analysts use it. Summary in the user's units, ArviZ data, prediction, contrasts, saving."""

from __future__ import annotations

import io
import json
import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dpglm.analyst.cautions import cautions
from dpglm.analyst.convergence import convergence
from dpglm.analyst.priors import CustomPrior, NormalPrior, Prior, SphericalPrior, distribution_text
from dpglm.centring import CANONICAL_LINKS
from dpglm.errors import FileError, InputError
from dpglm.formula import Design
from dpglm.release_file import Release, read_release, write_atomically
from dpglm.schema import Column, level_number

if TYPE_CHECKING:
    import pandas as pd

Floats = npt.NDArray[np.float64]

FIT_FORMAT = "dpglm-fit"
FIT_VERSION = 1
UNITS = ("original", "scaled")
TARGETS = ("population", "table")
_LARGEST_FILE = 2**31
_LARGEST_PIECE = 2**22  # rows times draws of a prediction at a time


class FitWarning(UserWarning):
    """Something about a fit that its reader should know."""


def import_arviz() -> Any:
    """ArviZ, without the announcement of its next version that it makes once a day."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        import arviz
    return arviz


@dataclass(frozen=True, eq=False)
class Diagnostics:
    """What the sampler says about itself, by coefficient. A Laplace approximation's ``pareto_k`` above 0.7 is bad."""

    ess_bulk: Floats
    ess_tail: Floats
    r_hat: Floats
    divergences: int
    acceptance: float
    mode_converged: bool
    pareto_k: float | None


@dataclass(frozen=True, eq=False)
class Fit:
    """Draws of the coefficients, (chains, draws, coefficients), in scaled units, with what they came from.

    ``inflation`` is (2, coefficients): in the user's units, then in scaled ones. ``table_coefficients`` are draws of
    the estimate that the table itself would give; only a staged release tells.
    """

    releases: tuple[Release, ...]
    coefficients: Floats
    spread: Floats | None
    predictor_stddev: float
    inflation: Floats
    diagnostics: Diagnostics
    prior: Prior
    method: str
    options: dict[str, Any]
    table_coefficients: Floats | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The coefficients: ``Intercept`` first, then the terms in formula order."""
        return self.releases[0].design.coefficient_names

    @property
    def link(self) -> str:
        """The link function: the one asked for, or the family's default."""
        return self._link()

    @property
    def ratio_name(self) -> str | None:
        """What the exponential of a coefficient is, "odds_ratio" or "rate_ratio"; None where it has no name."""
        return self._ratio_name()

    def draws(self, units: str = "original", target: str = "population") -> Floats:
        """Draws of the coefficients, (chains, draws, coefficients), in the user's units or scaled.

        ``target`` is "population", or "table" for the estimate that this very table would give without any noise.
        """
        if units not in UNITS:
            raise InputError("units", units, f"must be one of {', '.join(UNITS)}", "correct it")
        if target not in TARGETS:
            raise InputError("target", target, f"must be one of {', '.join(TARGETS)}", "correct it")
        chosen = self.coefficients if target == "population" else self.table_coefficients
        if chosen is None:
            rule = "only a fit of one staged release tells the table's own estimate"
            raise InputError("target", target, rule, "use target='population', or fit a release in stages by itself")
        if units == "scaled":
            return chosen
        matrix, shift = self.releases[0].design.to_original_units()
        return np.asarray(chosen @ matrix.T + shift)

    def summary(self, prob: float = 0.95, units: str = "original", target: str = "population") -> pd.DataFrame:
        """One row a coefficient: mean, sd, intervals, P(sign), significance, privacy inflation, ess, r_hat.

        ``lower`` and ``upper`` are equal-tailed. ``p_sign`` is the probability of the more probable sign.
        ``significant`` says whether the interval excludes zero. ``inflation`` is how many times wider the interval
        is than without privacy noise at the same number of rows. With ``target="table"`` the intervals are for the
        estimate of this very table: narrower, and silent about other samples; without noise they would have no width,
        so that there is no inflation.
        """
        import pandas as pd

        index = pd.Index(self.names, name="coefficient")
        return pd.DataFrame(self.summary_rows(prob, units, target), index=index)

    def summary_rows(
        self, prob: float = 0.95, units: str = "original", target: str = "population"
    ) -> list[dict[str, Any]]:
        """The rows of ``summary`` as plain dicts, for whom pandas takes too long to import."""
        rows, draws = [], self.draws(units, target)
        inflation, diagnostics = self.inflation[UNITS.index(units)], self.diagnostics
        if target == "table":
            inflation = np.full(len(self.names), np.nan)
        if self.method == "nuts":  # of what is shown: in the user's units coefficients are sums of sampled ones
            bulk, tail, r_hat = convergence(draws)
            diagnostics = replace(diagnostics, ess_bulk=bulk, ess_tail=tail, r_hat=r_hat)
        for position, column in enumerate(_flat(draws).T):
            row = _describe(column, prob)
            median, ratio = row.pop("median"), self._ratio_name()
            if ratio is not None and units == "original":
                values = np.exp(np.clip([median, row["lower"], row["upper"]], -700, 700))
                row |= dict(zip((ratio, f"{ratio}_lower", f"{ratio}_upper"), values, strict=True))
            row["inflation"] = inflation[position]
            row["ess"] = min(diagnostics.ess_bulk[position], diagnostics.ess_tail[position])
            row["r_hat"] = diagnostics.r_hat[position]
            rows.append(row)
        return rows

    def contrast(self, weights: Mapping[str, float], prob: float = 0.95) -> pd.Series:
        """A linear combination of coefficients in the user's units, for example ten years of age: ``{"age": 10}``."""
        import pandas as pd

        if not isinstance(weights, Mapping) or not weights:
            raise InputError("weights", weights, "must be a dict of coefficients", 'write for example {"age": 10}')
        vector = np.zeros(len(self.names))
        for name, weight in weights.items():
            if name not in self.names:
                raise InputError("weights", name, f"must be among {', '.join(self.names)}", "correct the name")
            if isinstance(weight, bool) or not isinstance(weight, Real) or not math.isfinite(weight):
                raise InputError(f"weights[{name!r}]", weight, "must be a finite number", "correct it")
            vector[self.names.index(name)] = float(weight)
        return pd.Series(_describe(_flat(self.draws()) @ vector, prob)).drop("median")

    def predict(self, rows: Any, *, prob: float = 0.95, release: int = 0) -> pd.DataFrame:
        """E[y | row] for new rows: posterior mean and interval of a probability, an expected count or a mean.

        ``rows`` is a DataFrame, whose index is kept, an Arrow table or a dict of columns in the user's units; numbers
        outside their declared bounds are clamped, as the table's were. With several releases, ``release`` says whose
        offset and coding to use.
        """
        import pandas as pd

        if release not in range(len(self.releases)):
            raise InputError("release", release, f"must be 0 to {len(self.releases) - 1}", "correct it")
        tail = _tail(prob)
        design = self.releases[release].design
        x = _coded_rows(rows, design)
        matrix, shift = design.to_original_units()
        # This release's scaled coefficients.
        own = np.asarray(np.linalg.solve(matrix, (_flat(self.draws()) - shift).T), dtype=np.float64)
        pieces = np.array_split(x, 1 + x.shape[0] * own.shape[1] // _LARGEST_PIECE)  # all at once may not fit
        told = np.concatenate([self._expected(piece, own, design, tail) for piece in pieces], axis=1)
        index = rows.index if isinstance(rows, pd.DataFrame) else None
        return pd.DataFrame(dict(zip(("mean", "sd", "lower", "upper"), told, strict=True)), index=index)

    def _expected(self, x: Floats, own: Floats, design: Design, tail: float) -> Floats:
        """Mean, standard deviation and interval of E[y | row], for draws of this design's scaled coefficients."""
        intercept, slopes = (own[0], own[1:]) if design.intercept else (0.0, own)
        u = intercept + x[:, : len(slopes)] @ slopes
        if design.offset is not None:
            scale = design.outcome.scale if design.family.coding == "scaled" else 1.0
            u = u + (x[:, -1] * design.offset.factors[0].scale / scale)[:, None]
        mean = self._inverse_link(u)
        if design.family.coding == "scaled":
            mean = design.outcome.center + design.outcome.scale * mean
        return np.stack([mean.mean(axis=1), mean.std(axis=1), *np.quantile(mean, [tail, 1 - tail], axis=1)])

    @property
    def posterior(self) -> Any:
        """ArviZ data with a ``posterior`` group in the user's units, and the privacy facts as attributes.

        ``spread`` is the dispersion of counts, and the residual variance of linear outcomes.
        """
        az = import_arviz()
        draws = self.draws()
        data: dict[str, Any] = {"coefficient": draws}
        if self.spread is not None:
            outcome = self.releases[0].design.outcome
            data["spread"] = self.spread * (outcome.scale**2 if self.releases[0].family == "linear" else 1.0)
        inference = az.from_dict(posterior=data, coords={"term": list(self.names)}, dims={"coefficient": ["term"]})
        inference.posterior.attrs.update(self._facts())
        return inference

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a reader of this fit should know, in plain words."""
        return tuple(cautions(self))

    def save(self, path: str | Path) -> None:
        """Write one file (arrays and text only; nothing in it is executed on reading)."""
        facts = {
            "format": FIT_FORMAT,
            "version": FIT_VERSION,
            "method": self.method,
            "options": self.options,
            "predictor_stddev": self.predictor_stddev,
            "diagnostics": {
                "divergences": self.diagnostics.divergences,
                "acceptance": self.diagnostics.acceptance,
                "mode_converged": self.diagnostics.mode_converged,
                "pareto_k": self.diagnostics.pareto_k,
            },
            "prior": _prior_facts(self.prior),
            "releases": [release.to_json() for release in self.releases],
        }
        arrays: dict[str, Any] = {
            "coefficients": self.coefficients,
            "inflation": self.inflation,
            "ess_bulk": self.diagnostics.ess_bulk,
            "ess_tail": self.diagnostics.ess_tail,
            "r_hat": self.diagnostics.r_hat,
            "spread": np.zeros(0) if self.spread is None else self.spread,
            "table_coefficients": np.zeros(0) if self.table_coefficients is None else self.table_coefficients,
            "facts": np.frombuffer(json.dumps(facts).encode(), dtype=np.uint8),
        }
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **arrays)
        write_atomically(Path(path), buffer.getvalue())

    def __str__(self) -> str:
        lines = [repr(self), self.summary().round(4).to_string()]
        return "\n".join(lines + [f"note: {warning}" for warning in self.warnings])

    def __repr__(self) -> str:
        chains, draws, _ = self.coefficients.shape
        formula, count = self.releases[0].formula, len(self.releases)
        return f"Fit({formula!r}, {count} release(s), {self.method}, {chains} x {draws} draws)"

    def _inverse_link(self, u: Floats) -> Floats:
        """E[y | u] before any clamp, in 0/1 for two levels."""
        from scipy.special import expit, ndtr

        inverse = {"logit": expit, "probit": ndtr, "log": np.exp, "softplus": lambda v: np.logaddexp(0, v)}
        return np.asarray(inverse.get(self._link(), lambda v: v)(u))

    def _link(self) -> str:
        return self.options.get("link") or CANONICAL_LINKS[self.releases[0].family]

    def _ratio_name(self) -> str | None:
        return {"logit": "odds_ratio", "log": "rate_ratio"}.get(self._link())

    def _facts(self) -> dict[str, Any]:
        first = self.releases[0]
        return {
            "formula": first.formula,
            "family": first.family,
            "epsilon": [release.privacy.epsilon for release in self.releases],
            "delta": [release.privacy.delta for release in self.releases],
            "mu": [release.privacy.mu for release in self.releases],
            "rows": [release.num_rows for release in self.releases],
            "release_ids": [release.id for release in self.releases],
            "dataset_ids": [release.dataset_id for release in self.releases],
        }


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
        diagnostics = Diagnostics(arrays["ess_bulk"], arrays["ess_tail"], arrays["r_hat"], **facts["diagnostics"])
        spread = arrays["spread"] if arrays["spread"].size else None
        own = arrays.get("table_coefficients", np.zeros(0))
        fit = Fit(
            releases, arrays["coefficients"], spread, float(facts["predictor_stddev"]), arrays["inflation"],
            diagnostics, _prior_from(facts["prior"]), facts["method"], facts["options"], own if own.size else None,
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
    diagnostics = fit.diagnostics
    by_coefficient = (diagnostics.ess_bulk, diagnostics.ess_tail, diagnostics.r_hat)
    shapes = {
        "coefficients": fit.coefficients.ndim == 3 and fit.coefficients.shape[2] == count and fit.coefficients.size > 0,
        "table_coefficients": fit.table_coefficients is None or fit.table_coefficients.shape == fit.coefficients.shape,
        "spread": fit.spread is None or fit.spread.shape == fit.coefficients.shape[:2],
        "inflation": fit.inflation.shape == (len(UNITS), count),
        "diagnostics": all(each.shape == (count,) for each in by_coefficient),
        "numbers": all(each.dtype == np.float64 for each in (fit.coefficients, fit.inflation, *by_coefficient)),
        "finite": bool(np.isfinite(fit.coefficients).all()),
        "method": isinstance(fit.method, str),
        "link": isinstance(fit.options, dict) and fit._link() in ("logit", "probit", "log", "softplus", "identity"),
        "pareto_k": diagnostics.pareto_k is None or isinstance(diagnostics.pareto_k, float),
    }
    wrong = [name for name, right in shapes.items() if not right]
    if wrong:
        raise ValueError(", ".join(wrong))


def _flat(draws: Floats) -> Floats:
    return draws.reshape(-1, draws.shape[-1])


def _tail(prob: object) -> float:
    """Probability on each side of an equal-tailed interval."""
    if isinstance(prob, bool) or not isinstance(prob, Real) or not 0 < float(prob) < 1:
        raise InputError("prob", prob, "must lie between 0 and 1", "write for example prob=0.95")
    return (1 - float(prob)) / 2


def _describe(draws: Floats, prob: float) -> dict[str, Any]:
    tail = _tail(prob)
    lower, median, upper = np.quantile(draws, [tail, 0.5, 1 - tail])
    hdi = _shortest_interval(draws, prob)
    positive = float(np.mean(draws > 0))
    return {
        "mean": draws.mean(),
        "sd": draws.std(ddof=1),
        "lower": lower,
        "upper": upper,
        "median": median,
        "hdi_lower": hdi[0],
        "hdi_upper": hdi[1],
        "p_sign": max(positive, 1 - positive),
        "significant": bool(lower > 0 or upper < 0),
    }


def _shortest_interval(draws: Floats, prob: float) -> tuple[float, float]:
    """The shortest interval that holds this share of the draws.

    >>> low, high = _shortest_interval(np.array([0.0, 5.0, 1.0, 1.5, 1.2]), 0.5)
    >>> float(low), float(high)
    (1.0, 1.5)
    """
    ordered = np.sort(draws)
    inside = int(prob * len(ordered))
    first = int(np.argmin(ordered[inside:] - ordered[: len(ordered) - inside]))
    return ordered[first], ordered[first + inside]


def _coded_rows(rows: Any, design: Design) -> Floats:
    """New rows in the table's coding, (rows, dimension): numbers clamped to their bounds, levels by their position."""
    if not hasattr(rows, "columns") and not isinstance(rows, Mapping):
        raise InputError("rows", type(rows).__name__, "must be a DataFrame or a dict of columns", "correct the rows")
    if hasattr(rows, "column_names"):  # Arrow's
        rows = dict(zip(rows.column_names, rows.columns, strict=True))
    available = list(rows.columns) if hasattr(rows, "columns") else list(rows)
    needed = dict.fromkeys(name for column in design.columns for f in column.factors for name in f.column_names)
    values = {}
    for name in needed:
        if name not in available:
            raise InputError("rows", name, "is needed to predict", "add the column")
        cells = np.atleast_1d(np.asarray(rows[name]))
        if cells.ndim != 1:
            raise InputError(f"rows[{name!r}]", f"shape {cells.shape}", "must be a column", "give one value a row")
        values[name] = _coded_cells(cells, design.schema.columns[name])
    lengths = {len(value) for value in values.values()}
    if len(lengths) != 1:
        raise InputError("rows", sorted(lengths), "columns must be equally long", "correct the rows")
    return design.predictors(values, lengths.pop()).T


def _coded_cells(cells: npt.NDArray[Any], column: Column) -> Floats:
    if column.has_levels:
        positions = {cell: _position(cell, column) for cell in dict.fromkeys(cells.tolist())}
        return np.array([positions[cell] for cell in cells.tolist()], dtype=np.float64)
    try:
        numbers = cells.astype(np.float64)
    except (TypeError, ValueError):
        raise InputError(f"rows[{column.name!r}]", str(cells[0]), "must be numbers", "correct the column") from None
    if not np.isfinite(numbers).all():
        raise InputError(f"rows[{column.name!r}]", "NaN or infinity", "must be finite", "fill missing values first")
    return np.clip(numbers, column.lower, column.upper)


def _position(cell: Any, column: Column) -> int:
    """Position among the levels as the custodian finds it: by number where all are numbers, else by text.

    pandas makes 1.0 of a 1 beside a missing value, so a cell that matches no text is tried without its ".0".
    """
    text, numbers = str(cell), [level_number(level) for level in column.levels]
    levels = [str(level) for level in column.levels]
    if {level.lower() for level in levels} == {"true", "false"}:
        text, levels = text.lower(), [level.lower() for level in levels]
    if None not in numbers:
        number = level_number({"true": "1", "false": "0"}.get(text.lower(), text))
        if number in numbers:
            return numbers.index(number)
    for spelling in (text, text.removesuffix(".0")):
        if None in numbers and spelling in levels:
            return levels.index(spelling)
    raise InputError(f"rows[{column.name!r}]", str(cell), f"must be one of {list(column.levels)}", "correct it")


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
