"""The expected outcome of new rows and of profiles, with intervals.

The linear predictor of a row is normal where the coefficients are, and a link rises everywhere: interval ends are exact
then, and means and deviations are good to many digits. Other fits are asked by their draws.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import product
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dpglm.analyst.describe import describe, flat, tail_of
from dpglm.analyst.typical import checked_value, reference_point
from dpglm.errors import InputError
from dpglm.formula import Design
from dpglm.schema import Column
from dpglm.values import days, level_value

if TYPE_CHECKING:
    import pandas as pd

    from dpglm.analyst.result import Fit

Floats = npt.NDArray[np.float64]

_LARGEST_PIECE = 2**22  # rows times draws of a prediction at a time
_NODES = 40  # of a Gauss-Hermite rule
_MOST_PROFILES = 100_000
_FIXED_DRAWS, _FIXED_SEED = 4_000, 0  # of a normal posterior: the same whatever the fit's seed


def predict(fit: Fit, rows: Any, prob: float, release: int = 0) -> pd.DataFrame:
    """``Fit.predict``."""
    import pandas as pd

    if release not in range(len(fit.releases)):
        raise InputError("release", release, f"must be 0 to {len(fit.releases) - 1}", "correct it")
    tail = tail_of(prob)
    design = fit.releases[release].design
    x = with_intercept(coded_rows(rows, design), design)
    normal = fit.normal()
    if normal is not None:
        told = _of_normal(fit, x, *_own_normal(design, *normal), release, tail)
    else:
        own = own_coefficients(design, flat(fit.draws()))
        pieces = np.array_split(x, 1 + x.shape[0] * len(own) // _LARGEST_PIECE)  # all at once may not fit
        told = np.concatenate([_of_draws(expected(fit, piece, own, release), tail) for piece in pieces], axis=1)
    index = rows.index if isinstance(rows, pd.DataFrame) else None
    return pd.DataFrame(dict(zip(("mean", "sd", "lower", "upper"), told, strict=True)), index=index)


def predict_at(fit: Fit, at: Mapping[str, Any] | None, prob: float) -> pd.DataFrame:
    """``Fit.predict_at``."""
    import pandas as pd

    profiles = profiles_at(fit, at)
    told = predict(fit, profiles, prob)
    return pd.concat([pd.DataFrame(profiles), told], axis=1)


def difference_at(fit: Fit, at: Mapping[str, Any], versus: Mapping[str, Any] | None, prob: float) -> pd.DataFrame:
    """``Fit.difference_at``."""
    import pandas as pd

    tail_of(prob)
    design = fit.releases[0].design
    pairs = [profiles_at(fit, each) for each in (at, versus)]
    for name, each in zip(("at", "versus"), pairs, strict=True):
        number = len(next(iter(each.values())))
        if number != 1:
            raise InputError(name, f"{number} profiles", "must be one profile", "give one value a column")
    both = {name: [*pairs[0][name], *pairs[1][name]] for name in pairs[0]}
    x = with_intercept(coded_rows(both, design), design)
    one, other = expected(fit, x, own_coefficients(design, some_draws(fit)), 0)
    found = {"difference": describe(one - other, prob)}
    if min(design.family.outcome_limits) == 0:  # of what cannot be negative
        of_logarithm = describe(np.log(one) - np.log(other), prob)
        ends = {key: math.exp(of_logarithm[key]) for key in ("lower", "upper", "median", "hdi_lower", "hdi_upper")}
        moments = {"mean": float((one / other).mean()), "sd": float((one / other).std(ddof=1))}
        found["ratio"] = {**of_logarithm, **ends, **moments}
    wanted = ("mean", "sd", "lower", "upper", "median", "p_sign", "significant")
    return pd.DataFrame({name: [row[name] for row in found.values()] for name in wanted}, index=list(found))


def some_draws(fit: Fit) -> Floats:
    """Draws of the coefficients in the user's units: of a normal posterior the same whatever the fit's seed."""
    normal = fit.normal()
    if normal is None:
        return flat(fit.draws())
    mean, covariance = normal
    size = (_FIXED_DRAWS // 2, len(mean))
    noise = np.random.default_rng(_FIXED_SEED).standard_normal(size)
    root = np.linalg.cholesky(covariance)
    return np.asarray(mean + np.concatenate([noise, -noise]) @ root.T)


def with_intercept(x: Floats, design: Design) -> Floats:
    """Coded rows with a column of ones before them, where the regression has an intercept."""
    return np.column_stack([np.ones(len(x)), x]) if design.intercept else x


def own_coefficients(design: Design, draws: Floats) -> Floats:
    """Coefficients in the user's units, one set a row, in a design's scaled ones."""
    matrix, shift = design.to_original_units()
    return np.asarray(np.linalg.solve(matrix, (draws - shift).T).T, dtype=np.float64)


def expected(fit: Fit, x: Floats, own: Floats, release: int) -> Floats:
    """E[y | row] of rows as ``with_intercept`` gives them, (rows, draws)."""
    design = fit.releases[release].design
    u = x[:, : own.shape[1]] @ own.T + _offset(x, design)[:, None]
    return _outcome(fit, u, design)


def _own_normal(design: Design, mean: Floats, covariance: Floats) -> tuple[Floats, Floats]:
    matrix, shift = design.to_original_units()
    turned = np.linalg.solve(matrix, covariance)
    return np.asarray(np.linalg.solve(matrix, mean - shift)), np.asarray(np.linalg.solve(matrix, turned.T))


def _of_normal(fit: Fit, x: Floats, mean: Floats, covariance: Floats, release: int, tail: float) -> Floats:
    """Mean, standard deviation and interval of E[y | row] of normal coefficients."""
    design = fit.releases[release].design
    slopes = x[:, : len(mean)]
    centre = slopes @ mean + _offset(x, design)
    stddev = np.sqrt(np.maximum(np.einsum("ij,jk,ik->i", slopes, covariance, slopes), 0.0))
    nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
    values = _outcome(fit, centre[:, None] + stddev[:, None] * nodes, design)
    average = values @ weights / weights.sum()
    spread = np.sqrt(np.maximum((values - average[:, None]) ** 2 @ weights / weights.sum(), 0.0))
    reach = NormalDist().inv_cdf(1 - tail) * stddev
    return np.stack([average, spread, *(_outcome(fit, end, design) for end in (centre - reach, centre + reach))])


def _of_draws(values: Floats, tail: float) -> Floats:
    return np.stack([values.mean(axis=1), values.std(axis=1), *np.quantile(values, [tail, 1 - tail], axis=1)])


def _offset(x: Floats, design: Design) -> Floats:
    if design.offset is None:
        return np.zeros(len(x))
    return np.asarray(x[:, -1] * (design.offset.factors[0].scale / math.sqrt(design.spread_unit)))


def _outcome(fit: Fit, u: Floats, design: Design) -> Floats:
    mean = fit.inverse_link(u)
    return design.outcome.center + design.outcome.scale * mean if design.family.coding == "scaled" else mean


def profiles_at(fit: Fit, at: Mapping[str, Any] | None) -> dict[str, list[Any]]:
    """All combinations of the values that were given, the other columns at typical ones."""
    if at is not None and not isinstance(at, Mapping):
        raise InputError("at", type(at).__name__, "must be a dict of columns", 'write for example {"age": [40, 60]}')
    release = fit.releases[0]
    point = reference_point(release)
    given: dict[str, list[Any]] = {name: [value] for name, value in point.items()}
    for name, value in (at or {}).items():
        if name not in point:
            raise InputError("at", name, f"must name a predictor ({', '.join(point)})", "correct the name")
        values = [value] if isinstance(value, str | bytes) or not hasattr(value, "__iter__") else list(value)
        given[name] = [checked_value(each, release.design.schema.columns[name]) for each in values]
        if not given[name]:
            raise InputError(f"at[{name!r}]", value, "is empty", "give a value")
    if math.prod(map(len, given.values())) > _MOST_PROFILES:
        rule = f"are more than {_MOST_PROFILES:,} profiles together"
        raise InputError("at", ", ".join(at or {}), rule, "give fewer values")
    combined = list(product(*given.values()))
    return {name: [profile[number] for profile in combined] for number, name in enumerate(given)}


def coded_rows(rows: Any, design: Design) -> Floats:
    """New rows in the table's coding, (rows, dimension): numbers clamped to their bounds, levels by their position."""
    values = coded_cells(rows, design)
    return design.predictors(values, len(next(iter(values.values())))).T


def coded_cells(rows: Any, design: Design) -> dict[str, Floats]:
    """The columns that a prediction needs: declared numbers, and positions of levels."""
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
        values[name] = _coded_column(cells, design.schema.columns[name])
    lengths = {len(value) for value in values.values()}
    if len(lengths) != 1:
        raise InputError("rows", sorted(lengths), "columns must be equally long", "correct the rows")
    return values


def _day(cell: Any, column: Column) -> float:
    """A date, as the custodian reads it, or a number of days."""
    found = float(cell) if isinstance(cell, int | float) else days(str(cell))
    if found is None:
        raise InputError(f"rows[{column.name!r}]", str(cell), "must be a date", "write for example 2020-01-31")
    return found


def _coded_column(cells: npt.NDArray[Any], column: Column) -> Floats:
    if column.has_levels:
        positions = {cell: _position(cell, column) for cell in dict.fromkeys(cells.tolist())}
        return np.array([positions[cell] for cell in cells.tolist()], dtype=np.float64)
    if column.dates and cells.dtype.kind not in "iuf":
        cells = np.array([_day(cell, column) for cell in cells])
    try:
        numbers = cells.astype(np.float64)
    except (TypeError, ValueError):
        raise InputError(f"rows[{column.name!r}]", str(cells[0]), "must be numbers", "correct the column") from None
    if not np.isfinite(numbers).all():
        raise InputError(f"rows[{column.name!r}]", "NaN or infinity", "must be finite", "fill missing values first")
    return np.clip(numbers, column.lower, column.upper)


def _position(cell: Any, column: Column) -> int:
    """Position among the levels as the custodian finds it: by value."""
    value, values = level_value(str(cell)), [level_value(level) for level in column.levels]
    if value in values:
        return values.index(value)
    raise InputError(f"rows[{column.name!r}]", str(cell), f"must be one of {list(column.levels)}", "correct it")
