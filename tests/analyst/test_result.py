"""What a reader gets from a fit: tables, predictions, ArviZ data, files, warnings."""

from __future__ import annotations

import io
import json
import pickle
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import dpglm
from dpglm.analyst.prediction import _position
from dpglm.analyst.priors import CustomPrior, NormalPrior, SphericalPrior
from dpglm.analyst.result import Diagnostics, Fit, import_arviz
from dpglm.custodian.build import Request, build_release
from dpglm.custodian.noise import FixedNoise
from dpglm.errors import FileError, InputError
from dpglm.schema import Schema

ROWS = 3000
COLUMNS: dict[str, Any] = {
    "a": {"type": "numeric", "lower": 20, "upper": 80},
    "b": {"type": "numeric", "lower": 1, "upper": 9},
    "age": {"type": "numeric", "lower": 20, "upper": 80},
    "g": {"type": "categorical", "levels": ["p", "q", "r"], "fill": "p"},
    "s": {"type": "binary", "levels": [0, 1], "fill": 0},
    "t": {"type": "numeric", "lower": 1, "upper": 9},
    "y": {"type": "binary", "levels": ["no", "yes"], "fill": "no"},
    "n": {"type": "count", "upper": 6, "fill": 0},
    "z": {"type": "numeric", "lower": 100, "upper": 300},
}
BASE = ["mean", "sd", "lower", "upper", "hdi_lower", "hdi_upper", "p_sign", "significant"]
LAST = ["inflation", "ess", "r_hat"]


def released(formula: str, family: str, rows: int = ROWS, share: float = 0.5, epsilon: float = 5.0) -> dpglm.Release:
    generator = np.random.default_rng(4)
    frame = pd.DataFrame(
        {
            "age": generator.uniform(25, 75, rows),
            "a": generator.uniform(25, 75, rows),
            "b": generator.uniform(2, 8, rows),
            "g": generator.choice(["p", "q", "r"], rows),
            "s": generator.choice([0, 1], rows),
            "t": generator.uniform(2, 8, rows),
            "y": np.where(generator.uniform(size=rows) < share, "yes", "no"),
            "n": generator.poisson(4 * share, rows),
            "z": generator.normal(200, 20, rows),
        }
    )
    schema = {"dataset": {"name": "people", "rows": rows, "unit": "one person"}, "columns": COLUMNS}
    request = Request(formula, schema, family, epsilon, 1e-6, method="moments", allocation="equal")
    return build_release(frame, request, FixedNoise(0))


def made(formula: str = "y ~ age + g", family: str = "logistic", *, link: str | None = None, **changes: Any) -> Fit:
    """A fit with draws that are known, so that nothing has to be sampled."""
    release = changes.pop("release", None) or released(formula, family)
    count = len(release.design.coefficient_names)
    generator = np.random.default_rng(9)
    draws = 0.3 + 0.1 * generator.normal(size=(4, 500, count))
    plenty = np.full(count, 2000.0)
    fields: dict[str, Any] = {
        "releases": (release,),
        "coefficients": draws,
        "spread": None if family == "logistic" else np.exp(generator.normal(size=(4, 500))),
        "predictor_stddev": 0.8,
        "inflation": np.stack([np.linspace(1.1, 1.5, count), np.linspace(1.2, 1.6, count)]),
        "diagnostics": Diagnostics(plenty, 2 * plenty, np.full(count, 1.001), 0, 0.9, True, None),
        "prior": NormalPrior(),
        "method": "nuts",
        "options": {"link": link, "dispersion": None, "moments": "exact", "noise_aware": True, "chains": 4, "seed": 1},
    }
    return Fit(**{**fields, **changes})


def test_arviz_is_imported_without_its_announcement(monkeypatch: pytest.MonkeyPatch) -> None:
    import builtins

    real = builtins.__import__

    def announcing(name: str, *arguments: Any, **options: Any) -> Any:
        if name == "arviz":
            warnings.warn("a new version is coming", FutureWarning, stacklevel=2)
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", announcing)
    assert hasattr(import_arviz(), "hdi")


@pytest.mark.parametrize(
    ("family", "formula", "link", "ratio"),
    [
        ("logistic", "y ~ age + g", None, "odds_ratio"),
        ("logistic", "y ~ age + g", "probit", None),
        ("poisson", "n ~ age + g", None, "rate_ratio"),
        ("poisson", "n ~ age + g", "softplus", None),
        ("linear", "z ~ age + g", None, None),
    ],
)
def test_summary_columns(family: str, formula: str, link: str | None, ratio: str | None) -> None:
    fit = made(formula, family, link=link)
    ratios = [] if ratio is None else [ratio, f"{ratio}_lower", f"{ratio}_upper"]
    assert list(fit.summary().columns) == BASE + ratios + LAST
    assert list(fit.summary(units="scaled").columns) == BASE + LAST
    assert list(fit.summary().index) == ["Intercept", "age", "g[q]", "g[r]"] == list(fit.names)


def test_summary_numbers() -> None:
    fit = made()
    scaled, table = fit.summary(units="scaled"), fit.summary()
    flat = fit.coefficients.reshape(-1, 4)
    np.testing.assert_allclose(scaled["mean"], flat.mean(axis=0))
    np.testing.assert_allclose(scaled["sd"], flat.std(axis=0, ddof=1))
    np.testing.assert_allclose(scaled[["lower", "upper"]].T, np.quantile(flat, [0.025, 0.975], axis=0))
    np.testing.assert_allclose(scaled["p_sign"], (flat > 0).mean(axis=0))
    assert scaled["significant"].tolist() == [bool(low > 0) for low in scaled["lower"]]
    assert (scaled["hdi_upper"] - scaled["hdi_lower"] <= scaled["upper"] - scaled["lower"] + 1e-12).all()
    # age: 20 ... 80 is -1 ... 1, so a year is 1/30 and the intercept moves by 50 years
    np.testing.assert_allclose(table.loc["age", "mean"], flat[:, 1].mean() / 30)
    np.testing.assert_allclose(table.loc["Intercept", "mean"], (flat[:, 0] - flat[:, 1] * 50 / 30).mean())
    np.testing.assert_allclose(table["odds_ratio"].iloc[2], np.exp(np.median(flat[:, 2])))
    np.testing.assert_allclose(table["odds_ratio_lower"], np.exp(table["lower"]))
    np.testing.assert_allclose(table["inflation"], fit.inflation[0])
    np.testing.assert_allclose(scaled["inflation"], fit.inflation[1])
    arviz, posterior = import_arviz(), fit.posterior
    sizes = [arviz.ess(posterior, method=method)["coefficient"].values for method in ("bulk", "tail")]
    np.testing.assert_allclose(table["ess"], np.min(sizes, axis=0), rtol=1e-6)
    np.testing.assert_allclose(table["r_hat"], arviz.rhat(posterior)["coefficient"].values, rtol=1e-6)
    half = fit.summary(prob=0.5)
    assert (half["upper"] - half["lower"] < 0.5 * (table["upper"] - table["lower"])).all()


@pytest.mark.parametrize("prob", [0, 1, -0.5, 95, "0.9", None, True])
def test_prob_is_checked_everywhere(prob: Any) -> None:
    fit, rows = made(), {"age": [50], "g": ["p"]}
    for call in (lambda: fit.summary(prob=prob), lambda: fit.contrast({"age": 1}, prob=prob),
                 lambda: fit.predict(rows, prob=prob)):  # fmt: skip
        with pytest.raises(InputError, match="must lie between 0 and 1"):
            call()


def test_unknown_units_are_refused() -> None:
    with pytest.raises(InputError, match="must be one of original, scaled"):
        made().summary(units="metric")


def test_contrast() -> None:
    fit = made()
    draws = fit.draws().reshape(-1, 4)
    mixed = 10 * draws[:, 1] - draws[:, 2]
    result = fit.contrast({"age": 10, "g[q]": -1})
    np.testing.assert_allclose(result["mean"], mixed.mean())
    np.testing.assert_allclose(result["upper"], np.quantile(mixed, 0.975))
    assert list(result.index) == BASE
    with pytest.raises(InputError, match="must be among Intercept, age"):
        fit.contrast({"height": 1})
    for wrong in (float("nan"), "ten", None):
        with pytest.raises(InputError, match="must be a finite number"):
            fit.contrast({"age": wrong})  # type: ignore[dict-item]


def by_hand(fit: Fit, rows: dict[str, list[Any]]) -> np.ndarray:
    """u of each row and draw, from the coefficients in the user's units."""
    draws = fit.draws().reshape(-1, len(fit.names))
    columns = []
    for name in fit.names:
        if name == "Intercept":
            columns.append(np.ones(len(rows["age"])))
        elif "[" in name:
            column, level = name[:-1].split("[")
            columns.append(np.array([float(str(cell) == level) for cell in rows[column]]))
        else:
            columns.append(np.asarray(rows[name], dtype=float))
    return np.stack(columns, axis=1) @ draws.T


@pytest.mark.parametrize(
    ("formula", "family", "link", "inverse"),
    [
        ("y ~ age + g + s", "logistic", None, lambda u, t: 1 / (1 + np.exp(-u))),
        ("n ~ age + g + offset(t)", "poisson", "log", lambda u, t: np.exp(u + t)),
        ("n ~ age + g", "poisson", "softplus", lambda u, t: np.log1p(np.exp(u))),
        ("z ~ age + g", "linear", None, lambda u, t: u),
        ("z ~ age + g + offset(t)", "linear", None, lambda u, t: u + t),
    ],
)
def test_predict_by_hand(formula: str, family: str, link: str | None, inverse: Any) -> None:
    fit = made(formula, family, link=link)
    rows = {"age": [30.0, 71.0, 50.0], "g": ["p", "q", "r"], "t": [1.5, 2.0, 8.0], "s": [1, 0, 1]}
    expected = inverse(by_hand(fit, rows), np.array(rows["t"])[:, None])
    table = fit.predict(pd.DataFrame(rows))
    np.testing.assert_allclose(table["mean"], expected.mean(axis=1), rtol=1e-9)
    np.testing.assert_allclose(table["lower"], np.quantile(expected, 0.025, axis=1), rtol=1e-9)
    np.testing.assert_allclose(table["upper"], np.quantile(expected, 0.975, axis=1), rtol=1e-9)
    pd.testing.assert_frame_equal(fit.predict(rows), table)


def test_predict_clamps_and_takes_levels_as_the_custodian_does() -> None:
    fit = made("y ~ age + s")
    pd.testing.assert_frame_equal(
        fit.predict({"age": [500, -3], "s": [1, 0]}), fit.predict({"age": [80, 20], "s": ["1", 0.0]})
    )
    assert len(fit.predict({"age": 40, "s": 1})) == 1


def test_predict_of_many_rows_goes_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    fit, rows = made("y ~ age + s"), {"age": np.linspace(20, 80, 50), "s": [0, 1] * 25}
    whole, sizes = fit.predict(rows), []
    inverse_link = Fit.inverse_link
    monkeypatch.setattr(Fit, "inverse_link", lambda self, u: sizes.append(len(u)) or inverse_link(self, u))
    monkeypatch.setattr("dpglm.analyst.prediction._LARGEST_PIECE", 20_000)
    pd.testing.assert_frame_equal(fit.predict(rows), whole, rtol=1e-12)
    assert sum(sizes) == 50
    assert max(sizes) <= 10  # of 2,000 draws


def test_predict_keeps_the_order_and_the_index_of_the_rows() -> None:
    fit = made("y ~ age + s")
    frame = pd.DataFrame({"age": [30, 50, 70], "s": [1, 0, 1]})
    turned = frame.iloc[[2, 0]]
    assert fit.predict(turned).index.tolist() == [2, 0]
    pd.testing.assert_frame_equal(fit.predict(turned), fit.predict(frame).loc[[2, 0]])
    pd.testing.assert_frame_equal(fit.predict(pa.Table.from_pandas(frame)), fit.predict(frame))


@pytest.mark.parametrize(
    ("levels", "cells"),
    [
        ([1.0, 2.0, 3.5], [1, "2", 3.5]),
        (["1.0", "2.0", "3.5"], [1, 2.0, "3.50"]),
        ([False, True], ["false", "True"]),
        (["no", "1"], ["no", 1.0]),
        (["v1", "v1.0", "v2"], ["v1", "v1.0", "v2"]),
        ([0, 1], [False, "TRUE"]),
    ],
)
def test_levels_are_found_as_the_custodian_finds_them(levels: list[Any], cells: list[Any]) -> None:
    kind = "binary" if len(levels) == 2 else "categorical"
    given = {"type": kind, "levels": levels, "fill": levels[0]}
    column = Schema.from_dict({"dataset": {"name": "t", "rows": 5}, "columns": {"k": given}}).columns["k"]
    assert [_position(cell, column) for cell in cells] == list(range(len(levels)))
    for other in ("maybe", 7, float("nan"), "1_0", "inf"):
        with pytest.raises(InputError, match="must be one of"):
            _position(other, column)


@pytest.mark.parametrize(
    ("rows", "part"),
    [
        ({"age": [50]}, "rows = g: is needed to predict"),
        ({"age": [50], "g": ["x"]}, "rows['g'] = x: must be one of ['p', 'q', 'r']"),
        ({"age": [50], "g": [None]}, "must be one of"),
        ({"age": [np.nan], "g": ["p"]}, "must be finite"),
        ({"age": [np.inf], "g": ["p"]}, "must be finite"),
        ({"age": ["old"], "g": ["p"]}, "rows['age'] = old: must be numbers"),
        ({"age": [50, 60], "g": ["p"]}, "equally long"),
        (7, "rows"),
        (None, "rows"),
    ],
)
def test_predict_refuses_in_one_line(rows: Any, part: str) -> None:
    with pytest.raises(InputError) as caught:
        made().predict(rows)
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("number", [1, -1, "first", None])
def test_predict_for_a_release_that_is_not_there(number: Any) -> None:
    with pytest.raises(InputError, match="release = "):
        made().predict({"age": [50], "g": ["p"]}, release=number)


def test_posterior_is_arviz_data_with_privacy_facts() -> None:
    fit = made("n ~ age + g", "poisson")
    data = fit.posterior
    assert type(data).__name__ == "InferenceData"
    assert data.posterior["coefficient"].dims == ("chain", "draw", "term")
    assert data.posterior["term"].values.tolist() == list(fit.names)
    np.testing.assert_array_equal(data.posterior["coefficient"], fit.draws())
    np.testing.assert_array_equal(data.posterior["spread"], fit.spread)
    release = fit.releases[0]
    facts = data.posterior.attrs
    assert facts["epsilon"] == [release.privacy.epsilon]
    assert facts["delta"] == [release.privacy.delta]
    assert facts["mu"] == [release.privacy.mu]
    assert facts["rows"] == [ROWS]
    assert facts["release_ids"] == [release.id]
    assert facts["formula"] == "n ~ age + g"


@pytest.mark.parametrize("prior", [NormalPrior(1.0, 2.0), SphericalPrior(3.0, 4.0)])
@pytest.mark.parametrize("family", ["logistic", "poisson"])
def test_save_and_load(family: str, prior: Any, tmp_path: Path) -> None:
    fit = made({"logistic": "y ~ age + g", "poisson": "n ~ age + g"}[family], family, prior=prior)
    fit = replace(fit, diagnostics=replace(fit.diagnostics, pareto_k=0.31), method="laplace")
    fit.save(tmp_path / "f.npz")
    again = dpglm.load_fit(tmp_path / "f.npz")
    pd.testing.assert_frame_equal(again.summary(), fit.summary())
    np.testing.assert_array_equal(again.coefficients, fit.coefficients)
    assert (again.spread is None) == (fit.spread is None)
    if fit.spread is not None:
        np.testing.assert_array_equal(again.spread, fit.spread)
    assert again.diagnostics.pareto_k == 0.31
    assert again.releases == fit.releases
    assert again.options == fit.options
    assert again.prior == prior
    assert again.warnings == fit.warnings
    assert repr(again) == repr(fit)


def test_a_custom_prior_is_kept_as_text(tmp_path: Path) -> None:
    import numpyro.distributions as dist

    fit = made(prior=CustomPrior((("age", dist.HalfNormal(0.7)),), NormalPrior(1.5)))
    for name in ("one.npz", "two.npz"):
        fit.save(tmp_path / name)
        fit = dpglm.load_fit(tmp_path / name)
    assert isinstance(fit.prior, CustomPrior)
    assert fit.prior.others == NormalPrior(1.5)
    text = dict(fit.prior.distributions)["age"]
    assert text == "HalfNormal(scale=0.7)"


def test_save_says_where_it_cannot_write(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="cannot be written"):
        made().save(tmp_path / "no such folder" / "f.npz")


def rewritten(path: Path, **changes: Any) -> None:
    """A fit file with some of its arrays, or of its facts, replaced."""
    with np.load(path) as stored:
        arrays = {name: stored[name] for name in stored.files}
    facts = json.loads(arrays["facts"].tobytes())
    facts.update(changes.pop("facts", {}))
    arrays["facts"] = np.frombuffer(json.dumps(facts).encode(), dtype=np.uint8)
    arrays.update(changes)
    buffer = io.BytesIO()
    np.savez(buffer, **{name: value for name, value in arrays.items() if value is not None})
    path.write_bytes(buffer.getvalue())


class Harmful:
    """Would leave a file behind, were it unpickled."""

    def __reduce__(self) -> Any:
        return Path.touch, (Path("/tmp/dpglm-was-unpickled"),)


def edited_release(fit: Fit) -> list[str]:
    text = fit.releases[0].to_json()
    changed = text.replace('"epsilon": 5.0', '"epsilon": 4.0')
    assert changed != text
    return [changed]


@pytest.mark.parametrize(
    ("damage", "part"),
    [
        (lambda path, fit: path.write_bytes(path.read_bytes()[:-200]), "is not a whole fit file"),
        (lambda path, fit: path.write_bytes(b""), "is not a whole fit file"),
        (lambda path, fit: path.write_bytes(np.random.default_rng(1).bytes(5000)), "is not a whole fit file"),
        (lambda path, fit: path.write_bytes(pickle.dumps(Harmful())), "is not a whole fit file"),
        (lambda path, fit: rewritten(path, coefficients=np.array([Harmful()])), "is not a whole fit file"),
        (lambda path, fit: path.unlink(), "cannot be read (No such file"),
        (lambda path, fit: path.write_bytes(pickle.dumps(np.zeros(3))), "is not a whole fit file"),
        (lambda path, fit: rewritten(path, facts={"version": 99}), "has version 99, this dpglm reads 2"),
        (lambda path, fit: rewritten(path, facts={"format": "other"}), "is not a dpglm fit"),
        (lambda path, fit: rewritten(path, facts={"releases": edited_release(fit)}), "wrong checksum"),
        (lambda path, fit: rewritten(path, facts={"releases": []}), "is not a whole fit file"),
        (lambda path, fit: rewritten(path, facts={"releases": 3}), "is not a whole fit file"),
        (lambda path, fit: rewritten(path, facts={"prior": {"kind": "flat"}}), "is not a whole fit file"),
        (lambda path, fit: rewritten(path, facts={"prior": []}), "is not a whole fit file"),
        (lambda path, fit: rewritten(path, facts={"options": {"link": "magic"}}), "is not a whole fit file"),
        (lambda path, fit: rewritten(path, facts={"options": None}), "is not a whole fit file"),
        (lambda path, fit: rewritten(path, facts={"diagnostics": {}}), "is not a whole fit file"),
        (lambda path, fit: rewritten(path, coefficients=np.zeros((4, 500, 3))), "is not a whole fit file"),
        (lambda path, fit: rewritten(path, coefficients=np.full((4, 500, 4), np.nan)), "is not a whole fit file"),
        (lambda path, fit: rewritten(path, coefficients=np.full((4, 5, 4), "a")), "is not a whole fit file"),
        (lambda path, fit: rewritten(path, inflation=np.zeros(4)), "is not a whole fit file"),
        (lambda path, fit: rewritten(path, r_hat=None), "is not a whole fit file"),
    ],
)
def test_bad_fit_files_give_one_line(damage: Any, part: str, tmp_path: Path) -> None:
    fit, path = made(), tmp_path / "f.npz"
    fit.save(path)
    damage(path, fit)
    with pytest.raises(FileError) as caught:
        dpglm.load_fit(path)
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not Path("/tmp/dpglm-was-unpickled").exists()


def test_a_quiet_fit_has_no_warnings_and_prints() -> None:
    fit = made()
    assert fit.warnings == ()
    assert str(fit).startswith("Fit('y ~ age + g', 1 release(s), nuts, 4 x 500 draws)\n")
    assert "note" not in str(fit)
    assert fit == fit
    assert fit != made()


def diagnosed(**changes: Any) -> Fit:
    fit = made(method=changes.pop("method", "nuts"))
    return replace(fit, diagnostics=replace(fit.diagnostics, **changes))


@pytest.mark.parametrize(
    ("fit", "words"),
    [
        (lambda: made(coefficients=3.0 * np.random.default_rng(0).normal(size=(4, 500, 4))), "the release says little"
         " about age, g[q], g[r]: the posterior is close to the prior"),
        (lambda: made(prior=NormalPrior(slopes=0.11, intercept=1.0)), "prior and release disagree about age, g[q],"
         " g[r], by "),
        (lambda: made(prior=NormalPrior(slopes=0.1, intercept=1.0)), "by more than 10 standard deviations"),
        (lambda: made(release=released("y ~ age + g", "logistic", rows=70)), "70 rows for 3 columns"),
        (lambda: made(release=released("y ~ age + g", "logistic", share=0.005)), "rows have the rarer outcome"),
        (lambda: made(release=released("y ~ age + g", "logistic", share=0.995)), "rows have the rarer outcome"),
        (lambda: made(family="poisson", release=released("n ~ age + g", "poisson", share=1e-3)), "events were counted"),
        (lambda: made(predictor_stddev=8.0), "the linear predictor has standard deviation 8.0"),
        (lambda: made(options={"noise_aware": False}), "these intervals are too narrow"),
        (lambda: diagnosed(r_hat=np.full(4, 1.2)), "the chains disagree; raise draws"),
        (lambda: diagnosed(r_hat=np.full(4, 5.0)), "more draws will not help; look for a predictor that decides"),
        (lambda: made(coefficients=np.array([0.0, 1.5, 0.0, 0.0])
                      + np.array([0.1, 2.6, 0.1, 0.1]) * np.random.default_rng(0).normal(size=(4, 500, 4))),
         "the release says little about age: the posterior is close to the prior"),
        (lambda: diagnosed(ess_tail=np.full(4, 120.0)), "only 120 effective draws"),
        (lambda: diagnosed(divergences=40), "40 divergent transitions"),
        (lambda: diagnosed(pareto_k=0.9, method="laplace"), "Pareto k = 0.90"),
        (lambda: diagnosed(mode_converged=False, method="laplace"), "no clear mode was found"),
    ],
)  # fmt: skip
def test_warnings_in_plain_words(fit: Any, words: str) -> None:
    made_fit = fit()
    assert sum(words in message for message in made_fit.warnings) == 1
    assert f"note: {made_fit.warnings[0]}" in str(made_fit)


def test_prior_and_release_disagree_by_what_a_normal_model_says() -> None:
    """Estimates and their variances, with a normal prior, give back how far the estimates were from zero."""
    generator = np.random.default_rng(3)
    scale, own, estimate = 0.5, 0.2, np.array([0.1, 1.0, 2.0, -2.0])
    variance = 1 / (1 / scale**2 + 1 / own**2)
    draws = variance / own**2 * estimate + np.sqrt(variance) * generator.normal(size=(4, 50_000, 4))
    fit = made(coefficients=draws, prior=NormalPrior(slopes=scale, intercept=scale))
    # g[q] and g[r]: 2 over sqrt(0.5^2 + 0.2^2) is 3.7; age: 1.9
    (message,) = (each for each in fit.warnings if each.startswith("prior and release disagree"))
    assert "about g[q], g[r], by 3.7 standard deviations" in message


def test_a_posterior_that_is_the_prior_is_no_conflict() -> None:
    """With nothing left of the prior's variance, a mean that moved by chance would be many deviations away."""
    noise = np.random.default_rng(1).normal(size=(4, 2_000, 4))
    fit = made(coefficients=np.array([0.0, 1.1, 0.0, 0.0]) + np.array([0.1, 2.53, 0.1, 0.1]) * noise)
    assert not any("disagree" in message for message in fit.warnings)
    far = made(coefficients=np.array([0.0, 20.0, 0.0, 0.0]) + np.array([0.1, 2.53, 0.1, 0.1]) * noise)
    assert any("disagree about age, by more than 10" in message for message in far.warnings)


def test_strong_effects_are_no_matter_where_rows_are_many_or_effects_weak() -> None:
    own = np.zeros((4, 500, 4))
    assert made(release=released("y ~ age + g", "logistic", epsilon=3.0), table_coefficients=own).warnings == ()
    weak = released("y ~ age + g", "logistic", epsilon=0.3)
    assert made(release=weak, table_coefficients=own, predictor_stddev=0.5).warnings == ()


def test_the_spread_of_arviz_data_is_in_the_users_units() -> None:
    """The variance of a linear outcome with bounds 100 apart of its middle; the dispersion of counts has no unit."""
    linear, counts = made("z ~ age", "linear"), made("n ~ age", "poisson")
    scale = linear.releases[0].design.outcome.scale
    assert scale > 10
    np.testing.assert_allclose(linear.posterior.posterior["spread"], linear.spread * scale**2)
    np.testing.assert_allclose(counts.posterior.posterior["spread"], counts.spread)


def test_two_releases_of_one_table_warn_once() -> None:
    small = [released("y ~ age + g", "logistic", rows=70) for _ in range(2)]
    assert len(made(release=small[0], releases=tuple(small)).warnings) == 1


def test_inflation_is_at_least_one_and_grows_as_epsilon_shrinks() -> None:
    releases = [released("y ~ a + b", "logistic", epsilon=epsilon) for epsilon in (100.0, 2.0, 0.3)]
    fits = dpglm.fit_many(releases, method="laplace")
    for units in ("original", "scaled"):
        inflation = np.stack([fit.summary(units=units)["inflation"] for fit in fits])
        assert (inflation > 0.999).all()
        assert (np.diff(inflation, axis=0) > 0.01).all()
        assert (inflation[0] < 1.05).all()
    # a slope's units cancel; the intercept's mix the slopes in
    np.testing.assert_allclose(fits[1].inflation[0, 1:], fits[1].inflation[1, 1:], rtol=1e-9)
    assert abs(fits[2].inflation[0, 0] / fits[2].inflation[1, 0] - 1) > 0.01
