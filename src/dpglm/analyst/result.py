"""Fit: the posterior as analysts use it. Summary in the user's units, ArviZ data, prediction, contrasts, saving."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dpglm.analyst.cautions import cautions
from dpglm.analyst.closed_form import CLOSED_FORM, ClosedForm, NormalDraws
from dpglm.analyst.convergence import convergence
from dpglm.analyst.describe import describe, describe_normal, flat
from dpglm.analyst.priors import Prior
from dpglm.errors import InputError
from dpglm.families import OTHER_LINKS
from dpglm.looks.gaussian import Gaussian
from dpglm.release_file import write_atomically
from dpglm.releases import Release

if TYPE_CHECKING:
    import pandas as pd

    from dpglm.analyst.joint_test import JointTest
    from dpglm.analyst.table import Table

Floats = npt.NDArray[np.float64]

UNITS = ("original", "scaled")
TARGETS = ("population", "table")


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
class Likelihood:
    """A Gaussian likelihood of the coefficients in the user's units.

    ``precision`` and ``shift`` (precision times mean) are its information form, which adds up over datasets and is zero
    in a direction of which nothing is known; ``mean`` and ``covariance`` are the same for other eyes.
    """

    names: tuple[str, ...]
    statement: Gaussian

    @property
    def precision(self) -> pd.DataFrame:
        return self._matrix(self.statement.precision)

    @property
    def shift(self) -> pd.Series:
        import pandas as pd

        return pd.Series(self.statement.shift, index=list(self.names))

    @property
    def mean(self) -> pd.Series:
        import pandas as pd

        return pd.Series(self.statement.mean, index=list(self.names))

    @property
    def covariance(self) -> pd.DataFrame:
        return self._matrix(self.statement.covariance)

    def _matrix(self, values: Floats) -> pd.DataFrame:
        import pandas as pd

        return pd.DataFrame(values, index=list(self.names), columns=list(self.names))


class _WhenAsked:
    """A field of ``Fit`` that is given as an array, or as draws that are made when they are first asked for."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, fit: Fit, owner: type[Fit]) -> Any:
        given = fit.__dict__[self.name]
        if isinstance(given, NormalDraws):
            given = fit.__dict__[self.name] = given.made()
        return given

    def __set__(self, fit: Fit, given: Any) -> None:
        fit.__dict__[self.name] = given


@dataclass(frozen=True, eq=False)
class Fit:
    """Draws of the coefficients, (chains, draws, coefficients), in scaled units, with what they came from.

    Scaled units are standard ones for looks, and those of the declared bounds for moments. ``inflation`` is (2,
    coefficients): in the user's units, then in scaled ones. ``table_coefficients`` are draws of the estimate that the
    table itself would give; only looks at one table tell. ``closed`` is what looks say in closed form; ``diagnostics``
    are a sampler's, of moments.
    """

    releases: tuple[Release, ...]
    coefficients: Floats
    spread: Floats | None
    predictor_stddev: float
    inflation: Floats
    diagnostics: Diagnostics | None
    prior: Prior
    method: str
    options: dict[str, Any]
    table_coefficients: Floats | None = None
    closed: ClosedForm | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The coefficients: ``Intercept`` first, then the terms in formula order."""
        return self.releases[0].design.coefficient_names

    @property
    def link(self) -> str:
        """The link function: of looks the release's; of moments the one asked for, or the family's default."""
        return self._link()

    @property
    def ratio_name(self) -> str | None:
        """What e to a coefficient is, "odds_ratio", "rate_ratio" or "hazard_ratio"; None where it has no name."""
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
            rule = "only a fit of one table's releases by looks tells the table's own estimate"
            raise InputError("target", target, rule, "use target='population', or fit one table by itself")
        if units == "scaled":
            return chosen
        matrix, shift = self.releases[0].design.to_original_units()
        return np.asarray(chosen @ matrix.T + shift)

    def summary(self, prob: float = 0.95, units: str = "original", target: str = "population") -> pd.DataFrame:
        """One row a coefficient: mean, sd, intervals, P(sign), significance, privacy inflation.

        Fits of moments have ``ess`` and ``r_hat`` too. ``lower`` and ``upper`` are equal-tailed. ``p_sign`` is the
        probability of the more probable sign. ``significant`` says whether the interval excludes zero. ``inflation``
        is how many times wider the interval is than without privacy: of looks, than that of the same table with robust
        standard errors; of moments, than that of the model without noise. With ``target="table"`` the intervals are
        for the estimate of this very table: narrower, and silent about other samples; without noise they would have no
        width, so that there is no inflation.
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
        exact = self.normal_marginals(units, target)
        if self.method == "nuts":  # of what is shown: in the user's units coefficients are sums of sampled ones
            bulk, tail, r_hat = convergence(draws)
            assert diagnostics is not None
            diagnostics = replace(diagnostics, ess_bulk=bulk, ess_tail=tail, r_hat=r_hat)
        for position, column in enumerate(flat(draws).T):
            row = describe(column, prob) if exact is None else describe_normal(*exact[position], prob)
            median, ratio = row.pop("median"), self._ratio_name()
            if ratio is not None and units == "original":
                values = np.exp(np.clip([median, row["lower"], row["upper"]], -700, 700))
                row |= dict(zip((ratio, f"{ratio}_lower", f"{ratio}_upper"), values, strict=True))
            row["inflation"] = inflation[position]
            if diagnostics is not None:
                row["ess"] = min(diagnostics.ess_bulk[position], diagnostics.ess_tail[position])
                row["r_hat"] = diagnostics.r_hat[position]
            rows.append(row)
        return rows

    def table(
        self, *, prob: float = 0.95, per: Mapping[str, float] | float | None = None, target: str = "population"
    ) -> Table:
        """The table that people paste, in the schema's labels, reference levels named; odds or rate ratios beside.

        Below levels that the schema says are ordered stand their further steps and their trend (see ``steps``).

        Parameters
        ----------
        prob
            Probability of the intervals.
        per
            How many units of a numeric column an effect is for: ``{"age": 10}``, or one number for all. Default: round
            steps near each column's scale by the survey.
        target
            As for ``summary``.
        """
        from dpglm.analyst.table import table_of

        return table_of(self, prob=prob, per=per, target=target)

    @property
    def likelihood(self) -> Likelihood:
        """What the releases say of the coefficients, in the user's units and without the prior, for any other tool."""
        if self.closed is None:
            rule = "has no closed form: it is a fit of moments"
            raise InputError("likelihood", self.method, rule, "fit releases by looks")
        return Likelihood(self.names, self.closed.likelihood.turned(*self.releases[0].design.to_original_units()))

    def normal_marginals(self, units: str = "original", target: str = "population") -> list[tuple[float, float]] | None:
        """Mean and standard deviation of each coefficient where the posterior is normal; None where it is not."""
        normal = self.normal(units, target)
        if normal is None:
            return None
        return list(zip(normal[0].tolist(), np.sqrt(np.diag(normal[1])).tolist(), strict=True))

    def normal(self, units: str = "original", target: str = "population") -> tuple[Floats, Floats] | None:
        """Mean and covariance of the coefficients where the posterior is normal; None where it is not."""
        if self.closed is None or self.method != CLOSED_FORM:
            return None
        statement = self.closed.posterior if target == "population" else self.closed.table_posterior
        assert statement is not None
        mean, covariance = statement.mean, statement.covariance
        if units == "original":
            matrix, shift = self.releases[0].design.to_original_units()
            mean, covariance = matrix @ mean + shift, matrix @ covariance @ matrix.T
        return mean, covariance

    def contrast(self, weights: Mapping[str, float], prob: float = 0.95) -> pd.Series:
        """A linear combination of coefficients in the user's units, for example ten years of age: ``{"age": 10}``."""
        from dpglm.analyst.contrasts import contrast

        return contrast(self, weights, prob)

    def steps(
        self, column: str | None = None, *, order: Sequence[Any] | None = None, prob: float = 0.95
    ) -> pd.DataFrame:
        """Ordered levels: the effect of each step from one level to the next, and the trend per level.

        The trend is the slope of the least squares line through the levels' effects, equally spaced. Where the column
        stands in products, too, all of it is at the reference levels and zeros of the others. A level that stands for
        missing cells has no place in the order.

        Parameters
        ----------
        column
            A predictor with levels. Default: all whose schema says ``ordered = true``.
        order
            Its levels from the lowest up, or some of them. Default: as they are declared.
        prob
            Probability of the intervals.
        """
        from dpglm.analyst.ordered import steps

        return steps(self, column, order, prob)

    def probability(
        self,
        weights: str | Mapping[str, float],
        *,
        above: float | None = None,
        below: float | None = None,
        ratio: bool = False,
    ) -> float:
        """The posterior probability that an effect is above a number, below one, or between two.

        Parameters
        ----------
        weights
            A coefficient's name, or a linear combination as for ``contrast``.
        above, below
            At least one: ``above=0`` is the probability of the direction. With both, they are the ends of a range.
        ratio
            Whether the numbers are odds or rate ratios: ``fit.probability({"age": 10}, above=1.2, ratio=True)``.
        """
        from dpglm.analyst.contrasts import probability

        return probability(self, weights, above, below, ratio)

    def test(self, terms: Any) -> JointTest:
        """Are these coefficients all zero? The joint Wald test, with a p value: is a larger model needed?

        ``terms`` is one or a list of coefficients (``"age"``), of terms of the formula, for all coefficients that they
        have (``"smoker"``, ``"age:smoker"``), or of dicts of weights as for ``contrast``. The test is of the releases'
        likelihood, without the prior; of moments, of the posterior. Of several models of one table, release the
        largest and test what it has beyond the others: likelihoods of two releases do not compare.
        """
        from dpglm.analyst.joint_test import joint_test

        return joint_test(self, terms)

    def predict(self, rows: Any, *, prob: float = 0.95, release: int = 0) -> pd.DataFrame:
        """E[y | row] for new rows: posterior mean and interval of a probability, an expected count or a mean.

        ``rows`` is a DataFrame, whose index is kept, an Arrow table or a dict of columns in the user's units; numbers
        outside their declared bounds are clamped, as the table's were. With several releases, ``release`` says whose
        offset and coding to use. Of a fit in closed form the answer is exact, else it is from the draws.
        """
        from dpglm.analyst.prediction import predict

        return predict(self, rows, prob, release)

    def predict_at(self, at: Mapping[str, Any] | None = None, *, prob: float = 0.95) -> pd.DataFrame:
        """E[y] of profiles: the predictors' values, and the posterior mean and interval of the expected outcome.

        ``at`` holds a value or a list of values by column, all combined: ``{"age": [40, 60], "smoker": "current"}``.
        Columns that are left out stand at typical values: the centre that the survey shows, and the level that most
        rows have (of moments, the middle of the bounds and the reference level).
        """
        from dpglm.analyst.prediction import predict_at

        return predict_at(self, at, prob)

    def difference_at(
        self, at: Mapping[str, Any], versus: Mapping[str, Any] | None = None, *, prob: float = 0.95
    ) -> pd.DataFrame:
        """How much the expected outcome of one profile differs from that of another: their difference and ratio.

        Both are as for ``predict_at``, with one value a column; ``versus`` is the typical profile where it is left out.
        """
        from dpglm.analyst.prediction import difference_at

        return difference_at(self, at, versus, prob)

    def survival(
        self, at: Mapping[str, Any] | None = None, *, prob: float = 0.95, period: str | None = None
    ) -> pd.DataFrame:
        """Survival curves of profiles, of a release of person-periods (``dpglm.person_periods``).

        One row a profile and end of a period: the posterior mean of the chance to be without the event until then, and
        its interval. ``at`` is as for ``predict_at``, without the column of periods. ``period`` names that column where
        another one has consecutive intervals for its levels, too.
        """
        from dpglm.analyst.survival import survival

        return survival(self, at, prob, period)

    def marginal_effects(
        self, *, prob: float = 0.95, per: Mapping[str, float] | float | None = None, rows: Any = None
    ) -> pd.DataFrame:
        """Average marginal effects: what a change of one predictor does to the expected outcome, on average over rows.

        One row a numeric predictor (one step up, around where it is) and one a level (instead of the reference level,
        all else as it is), in units of the outcome: a probability, a count, a mean.

        Parameters
        ----------
        prob
            Probability of the intervals.
        per
            The steps, as for ``table``.
        rows
            What to average over, as for ``predict``. Default: typical rows built from the survey, each column as it
            shows, and the columns as if they were independent; nobody in the table. Releases of moments have no survey.
        """
        from dpglm.analyst.marginal import marginal_effects

        return marginal_effects(self, prob, per, rows)

    @property
    def posterior(self) -> Any:
        """ArviZ data with a ``posterior`` group in the user's units, and the privacy facts as attributes.

        ``spread`` is the dispersion of counts, and the residual variance of linear outcomes.
        """
        az = import_arviz()
        draws = self.draws()
        data: dict[str, Any] = {"coefficient": draws}
        if self.spread is not None:
            data["spread"] = self.spread * self.releases[0].design.spread_unit
        inference = az.from_dict(posterior=data, coords={"term": list(self.names)}, dims={"coefficient": ["term"]})
        inference.posterior.attrs.update(self._facts())
        return inference

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a reader of this fit should know, in plain words."""
        return tuple(cautions(self))

    def save(self, path: str | Path) -> None:
        """Write one file (arrays and text only; nothing in it is executed on reading)."""
        from dpglm.analyst.fit_file import fit_bytes

        write_atomically(Path(path), fit_bytes(self))

    def __str__(self) -> str:
        lines = [repr(self), self.summary().round(4).to_string()]
        return "\n".join(lines + [f"note: {warning}" for warning in self.warnings])

    def _repr_html_(self) -> str:
        """For a notebook: the table to paste, below what a reader should know."""
        from dpglm.notebook import list_html, paragraph_html

        found = self.warnings
        text = (paragraph_html("Read this first", strong=True) + list_html(found)) if found else ""
        if not all(release.private for release in self.releases):
            text = paragraph_html("NOT PRIVATE: made with fixed noise, for tests.", alarm=True) + text
        return text + self.table().to_html()

    def __repr__(self) -> str:
        chains, draws, _ = self.coefficients.shape
        formula, count = self.releases[0].formula, len(self.releases)
        return f"Fit({formula!r}, {count} release(s), {self.method}, {chains} x {draws} draws)"

    def inverse_link(self, u: Floats) -> Floats:
        """E[y | u] before any clamp, in 0/1 for two levels: by the family's link, or one that only moments have."""
        if self._link() == "softplus":
            return np.asarray(np.logaddexp(0, u))
        family = self.releases[0].design.family
        return OTHER_LINKS.get((family.name, self._link()), family).inverse_link(u)

    def _link(self) -> str:
        return str(self.options.get("link") or self.releases[0].design.family.link)

    def _ratio_name(self) -> str | None:
        return {"logit": "odds_ratio", "log": "rate_ratio", "cloglog": "hazard_ratio"}.get(self._link())

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


for _name in ("coefficients", "table_coefficients"):  # a thousand fits need a thousand draws of few of them
    setattr(Fit, _name, _WhenAsked(_name))
