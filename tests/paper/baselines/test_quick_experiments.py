"""The paper's experiments in their quick form: prepare, sample and score a few small simulated tables."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import arviz as az
import numpy as np
import pandas as pd
import pytest
from scipy.stats import ks_2samp

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture(autouse=True)
def _benchmarks_on_the_path(monkeypatch):
    """For this module alone: the folder's other scripts have common names."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.split(".")[0] in ("paper", "machine", "seeded_noise"):
            del sys.modules[name]


def test_a_quick_run_scores_every_method(tmp_path):
    from paper.__main__ import main
    from paper.jobs import temperatures

    work, output = tmp_path / "work", tmp_path / "paper.jsonl"
    arguments = ["prepare", "sample", "score", "--quick", "--only", "coverage", "--workers", "0"]
    other = {"experiment": "counts", "method": "dpglm"}
    output.write_text(json.dumps(other) + "\n" + json.dumps({"experiment": "coverage", "method": "of before"}) + "\n")
    main([*arguments, "--work", str(work), "--output", str(output)])
    first, *lines = [json.loads(line) for line in output.read_text().splitlines()]
    assert first == other  # of an experiment that was not scored: it stays, those that were are replaced
    assert {line["method"] for line in lines} == {"non_private", "dpglm", "naive", "dp_sgld", "search"}
    scored = [line for line in lines if line["method"] != "search"]
    for line in scored:
        distances = np.array(line["ks"])
        assert distances.shape == (2, 3)
        assert ((distances >= 0) & (distances <= 1)).all()
    (rows,) = (line for line in scored if line["method"] == "non_private")
    assert np.max(rows["ks"]) == 0  # at no distance from itself
    widths = {(line["method"], line.get("epsilon")): np.mean(line["width"]) for line in scored}
    assert widths["dpglm", 0.1] > 2  # noise widens, and less of it widens less
    assert widths["dpglm", 1.0] < widths["dpglm", 0.1]
    assert widths["naive", 0.1] < widths["dpglm", 0.1]
    # The search leaves out chains that are too hot.
    job = np.load(work / "coverage_dp_sgld.npz")
    found = temperatures(job["settings"][:, 0], job["settings"][:, 1:], 1_000).diagonal()
    assert (found < 200).all()
    finished = (work / "coverage_dpglm.npz").stat().st_mtime_ns
    main([*arguments, "--work", str(work), "--output", str(output)])  # nothing is sampled again
    assert (work / "coverage_dpglm.npz").stat().st_mtime_ns == finished
    # Of one method: its lines are replaced, those of the others stay.
    marked = [json.loads(line) | {"repetitions": 99} for line in output.read_text().splitlines()]
    output.write_text("".join(json.dumps(line) + "\n" for line in marked))
    main(["score", *arguments[3:], "--methods", "dpglm", "--work", str(work), "--output", str(output)])
    again = [json.loads(line) for line in output.read_text().splitlines()]
    assert len(again) == len(marked)
    assert {line["method"]: line["repetitions"] for line in again} == {line["method"]: 99 for line in marked} | {
        "dpglm": 2, "non_private": 2,
    }  # fmt: skip


def test_real_tables_come_from_files_or_from_a_public_loader(tmp_path, monkeypatch):
    """A file wins; without one nothing is fetched unless it is asked for."""
    from paper.tables import adult, diabetes

    levels = {"workclass": "Private", "marital-status": "Divorced", "occupation": "Sales", "relationship": "Husband"}
    people = {"age": range(17, 8_017), "education-num": 9, "sex": "Male", **levels, "class": [">50K", "<=50K"] * 4_000}
    frames = {
        ("adult", 2): pd.DataFrame(people),
        ("diabetes", 1): pd.DataFrame({"age": [30, 40], "preg": 1, "pedi": 0.5, "insu": 9, "class": ["tested_positive",
                                       "tested_negative"], "plas": 1}),
    }  # fmt: skip
    asked = []

    def fetch_openml(name, version, as_frame):
        asked.append(name)
        return SimpleNamespace(frame=frames[name, version])

    monkeypatch.setitem(sys.modules, "sklearn", ModuleType("sklearn"))
    monkeypatch.setitem(sys.modules, "sklearn.datasets", SimpleNamespace(fetch_openml=fetch_openml))
    assert diabetes(tmp_path) is None
    assert adult(tmp_path) is None
    assert asked == []
    assert diabetes(tmp_path, fetch=True).frame["outcome"].tolist() == [1, 0]
    assert adult(tmp_path, fetch=True).frame["income"].sum() == 4_000
    assert asked == ["diabetes", "adult"]
    diabetes(tmp_path, fetch=True).frame.head(1).to_csv(tmp_path / "pima.csv.gz", index=False)
    assert len(diabetes(tmp_path, fetch=True).frame) == 1
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(SystemExit, match="scikit-learn"):
        adult(tmp_path, fetch=True)


def test_sketches_tell_distances_and_agreement():
    """Against SciPy and ArviZ; a shifted chain is seen."""
    from paper.sketches import Sketches, distances, rank_r_hat

    rng = np.random.default_rng(1)
    one, other = rng.normal(size=(1, 4, 1000, 2)), 0.3 + 1.5 * rng.normal(size=(1, 4, 1000, 2))
    found = distances(Sketches.of(one).quantiles[0], Sketches.of(other).quantiles[0])
    for place in range(2):
        exact = ks_2samp(one[..., place].ravel(), other[..., place].ravel()).statistic
        assert found[place] == pytest.approx(exact, abs=0.005)
    shifted = one[0] + np.array([0, 0, 0, 0.5])[:, None, None]
    for draws in (one[0], shifted):
        expected = az.rhat(az.convert_to_dataset({"x": draws}))["x"].values
        np.testing.assert_allclose(rank_r_hat(draws), expected, atol=1e-6)
    assert rank_r_hat(shifted).min() > 1.02
    assert np.isnan(rank_r_hat(one[0, :1])).all()
    assert (distances(np.full((401, 2), np.nan), Sketches.of(one).quantiles[0]) == 1).all()


def test_each_posterior_is_sampled_until_its_chains_agree(monkeypatch):
    """Most need more draws than the first thirty, not all as many: results are of the right ones all the same."""
    from dpglm.paper.baselines.on_rows import stacked_rows
    from paper import jobs
    from paper.tables import simulated

    slopes = [-3.0, 3.0]
    tables = [simulated("logistic", 400, np.array([slope]), np.random.default_rng(n), np.eye(1) / 4)
              for n, slope in enumerate(slopes)]  # fmt: skip
    model, data = stacked_rows([table.rows for table in tables], None, None, None)
    monkeypatch.setattr(jobs, "LARGEST_R_HAT", 1.01)
    asked = []
    go_on = jobs.continue_chains
    monkeypatch.setattr(jobs, "continue_chains", lambda run, n: asked.append((len(run.keys), n)) or go_on(run, n))
    result = jobs.PosteriorJob(model, data, np.zeros((2, model.size)), draws=30).run(Path())
    assert asked[0] == (2, 30)
    assert 1 < len(asked) < 9
    assert {count for count, _ in asked} == {1, 2}  # one agrees earlier
    assert [n for _, n in asked[1:]] == [30 * 2**n for n in range(len(asked) - 1)]
    assert (result["r_hat"].max(axis=1) < 1.01).all()
    assert (np.diff(result["mean"][:, 0]) > 0.5).all()


def test_verdicts_turn_when_the_numbers_do():
    """One cell of the results is spoiled at a time, and the claim that rests on it does not hold any more."""
    from paper.lines import Study
    from paper.verdicts import variants, verdicts

    def holding(study):
        return {verdict.claim for verdict in [*verdicts(study), *variants(study)] if verdict.holds}

    study = Study.load(BENCHMARKS / "results" / "paper.jsonl")
    said = holding(study)

    def spoiled(experiment, method, epsilon, **values):
        lines = [dict(line) for line in study.lines]
        chosen = [one for one in lines if (one["experiment"], one["method"]) == (experiment, method)]
        (line,) = (one for one in chosen if one.get("epsilon") == epsilon)
        line.update({name: value(line[name]) for name, value in values.items()})
        return Study(tuple(lines))

    far = {"ks": lambda ks: np.full_like(ks, 0.99).tolist()}
    for experiment, method, epsilon, values, part in (
        ("diabetes", "staged", 1.0, far, "below DP-SGLD's (diabetes, adult"),
        ("counts", "dpglm", 0.5, far, "below naive's"),
        ("adult", "taylor", 0.3, {"ks": lambda ks: (0.5 * np.array(ks)).tolist()}, "not above Taylor's"),
        ("synthetic", "paper_blocks", 0.7337, far, "paper's blocks: the same (synthetic)"),
        ("counts_log", "staged", 3.0, far, "in stages: the same (counts"),
        ("coverage", "staged", 0.3, {"cover": lambda c: np.zeros_like(c).tolist()}, "dpglm in stages, where the rule"),
        ("coverage_wide", "naive", 1.0, {"cover": _nominal}, "those of naive"),
        ("synthetic", "dpglm", 1.1, {"r_hat": lambda _: 1.02}, "R-hat below 1.01"),
    ):
        lost = said - holding(spoiled(experiment, method, epsilon, **values))
        assert any(part in claim for claim in lost), (experiment, method, lost)


def _nominal(cover):
    """As many tables, 95 in 100 of the intervals cover."""
    return (np.arange(np.size(cover)).reshape(np.shape(cover)) % 20 > 0).astype(int).tolist()
