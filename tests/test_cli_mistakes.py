"""Wrong invocations: one line (name, value, rule, remedy), a documented exit code, and no file, whole or partial."""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpglm
from dpglm.cli import main

ROWS = 60
SCHEMA = f"""
[dataset]
name = "patients"
rows = {ROWS}
unit = "one patient"
[columns.age]
type = "numeric"
lower = 20
upper = 90
[columns.sick]
type = "binary"
levels = ["no", "yes"]
fill = "no"
"""
TABLE = ("release", "patients.csv")
SCHEMA_OPTION = ("--schema", "patients.toml")
MODEL = ("--formula", "sick ~ age", "--family", "logistic")
BUDGET = ("--epsilon", "1", "--delta", "1e-6")
ACCOUNT = ("--no-ledger",)
OUTPUT = ("--output", "new.json")
FIT = ("fit", "r.json", "--output", "new.npz")
FIT_MOMENTS = ("fit", "m.json", "--output", "new.npz")
REPORT = ("report", "f.npz", "--output", "new.html")


def release(
    table: tuple[str, ...] = TABLE, schema: tuple[str, ...] = SCHEMA_OPTION, model: tuple[str, ...] = MODEL,
    budget: tuple[str, ...] = BUDGET, account: tuple[str, ...] = ACCOUNT, output: tuple[str, ...] = OUTPUT,
) -> tuple[str, ...]:  # fmt: skip
    """A right invocation, with one part replaced."""
    return (*table, *schema, *model, *budget, *account, *output)


# (arguments, exit code, what the line must hold)
MISTAKES: list[tuple[tuple[str, ...], int, str]] = [
    # release: files
    (release(table=("release", "absent.csv")), 1, "table = absent.csv: does not exist"),
    (release(table=("release", "empty.csv")), 1, "is empty"),
    (release(table=("release", "")), 1, "table = : must not be empty; give the path of a CSV or Parquet file"),
    (release(table=("release", " ")), 1, "must not be empty"),
    (("check", "", *SCHEMA_OPTION), 1, "table = : must not be empty"),
    (("init", ""), 1, "table = : must not be empty"),
    (release(table=("release", "r.json")), 1, "is a release, not a table; give the CSV or Parquet"),
    (release(table=("release", "f.npz")), 1, "is a fit, not a table"),
    (release(table=("release", "p.ledger")), 1, "is a ledger, not a table"),
    (release(table=("release", "patients.toml"), schema=("--schema", "patients.csv")), 1, "is a schema, not a table"),
    (release(schema=("--schema", "patients.csv")), 1, "is a table, not a schema; give the TOML"),
    (release(schema=("--schema", "r.json")), 1, "is a release, not a schema"),
    (release(schema=("--schema", "absent.toml")), 1, "schema = absent.toml: cannot be read"),
    (release(schema=("--schema", "broken.toml")), 1, "is not valid TOML"),
    (release(schema=("--schema", "blank.toml")), 1, "levels"),
    (release(schema=("--schema", "more-rows.toml")), 1, "dataset.rows = 61: the table has 60 rows"),
    (release(schema=("--schema", "other.toml"), model=("--formula", "sick ~ bmi", "--family", "logistic")), 1, "bmi"),
    # release: ledger and output
    (release(account=()), 1, "give either --ledger or --no-ledger"),
    (release(account=("--no-ledger", "--ledger", "p.ledger")), 1, "give either --ledger or --no-ledger"),
    (release(account=("--ledger", "absent.ledger")), 1, "ledger init"),
    (release(account=("--ledger", "patients.csv")), 1, "is a table, not a ledger"),
    (release(account=("--ledger", "r.json")), 1, "is a release, not a ledger"),
    (release(account=("--ledger", "p.ledger"), budget=("--epsilon", "9", "--delta", "1e-6")), 1, "exceed the cap"),
    (release(output=("--output", "r.json")), 1, "output = r.json: exists already; choose another name"),
    (release(output=("--output", "patients.csv")), 1, "exists already"),
    (release(output=("--output", "absent/new.json")), 1, "its folder does not exist; create the folder"),
    (release(output=("--output", ".")), 1, "is a folder; name a file in it"),
    (release(output=("--output", "/dev/null", "--force")), 1, "is not an ordinary file"),
    (release(output=("--output", "patients.csv", "--force")), 1, "is a table, and --force replaces only a release"),
    (release(output=("--output", "p.ledger", "--force")), 1, "is a ledger, and --force replaces only a release"),
    # release: numbers and words
    (release(budget=("--epsilon", "-1", "--delta", "1e-6")), 1, "epsilon = -1"),
    (release(budget=("--epsilon", "nan", "--delta", "1e-6")), 1, "epsilon = nan"),
    (release(budget=("--epsilon", "1", "--delta", "2")), 1, "delta = 2"),
    (release(budget=("--epsilon", "one", "--delta", "1e-6")), 2, "epsilon"),
    (release(model=("--formula", "sick ~ agee", "--family", "logistic")), 1, "did you mean 'age'?"),
    (release(model=("--formula", "sick", "--family", "logistic")), 1, "formula = sick"),
    (release(model=("--formula", "", "--family", "logistic")), 1, "write a formula"),
    (release(model=("--formula", "sick ~ scale(age)", "--family", "logistic")), 1, "leave it out"),
    (release(model=("--formula", "sick ~ age", "--family", "logit")), 1, "family = logit: must be one of logistic"),
    (release(model=("--formula", "sick ~ age", "--family", "poisson")), 1, "poisson needs a count column"),
    (release(output=("--output", "new.json", "--method", "moments", "--radius", "-2")), 1, "radius = -2.0: must be"),
    (release(output=("--output", "new.json", "--method", "moments", "--allocation", "best")), 1, "must be one of"),
    (release(output=("--output", "new.json", "--radius", "1")), 1, "radius = 1.0: belongs to method='moments'"),
    (release(output=("--output", "new.json", "--allocation", "equal")), 1, "belongs to method='moments'"),
    (release(output=("--output", "new.json", "--method", "stages")), 1, "must be one of looks, moments"),
    (release(output=("--output", "new.json", "--survey", "absent.json")), 1, "release = absent.json: cannot be read"),
    (release(output=("--output", "new.json", "--survey", "patients.csv")), 1, "is a table, not a release"),
    (release(output=("--output", "new.json", "--survey", "m.json")), 1, "must be a release by looks"),
    (release(output=("--output", "new.json", "--method", "moments", "--survey", "r.json")), 1, "survey = (a rel"),
    (release(schema=("--schema", "other-name.toml"), output=("--output", "new.json", "--survey", "r.json")), 1,
     "is of another dataset"),
    (release(output=("--output", "new.json", "--seed", "1")), 2, "--seed"),
    (("release", "patients.csv"), 2, "--schema"),
    # fit
    (("fit", "absent.json", "--output", "new.npz"), 1, "release = absent.json: cannot be read"),
    (("fit", "patients.csv", "--output", "new.npz"), 1, "is a table, not a release; give a file that `dpglm release`"),
    (("fit", "f.npz", "--output", "new.npz"), 1, "is a fit, not a release"),
    (("fit", "half.json", "--output", "new.npz"), 1, "it may be truncated"),
    (("fit", "edited.json", "--output", "new.npz"), 1, "wrong checksum"),
    (("fit", "r.json", "--output", "f.npz"), 1, "exists already"),
    (("fit", "r.json", "--output", "r.json", "--force"), 1, "is a release, and --force replaces only a fit"),
    (("fit", "--output", "new.npz"), 2, "releases"),
    ((*FIT, "--method", "laplace"), 1, "method = laplace: belongs to releases by --method moments; leave --method out"),
    ((*FIT, "--link", "logit"), 1, "link = logit: belongs to releases by --method moments"),
    ((*FIT, "--dispersion", "2"), 1, "dispersion = 2.0: belongs to releases by --method moments"),
    ((*FIT, "--chains", "2"), 1, "chains = 2: belongs to releases by --method moments"),
    (("fit", "r.json", "m.json", "--output", "new.npz"), 1, "is by another method than the first"),
    ((*FIT_MOMENTS, "--method", "nut"), 1, "method = nut: must be one of nuts, laplace"),
    ((*FIT_MOMENTS, "--link", "softplus"), 1, "link"),
    ((*FIT_MOMENTS, "--dispersion", "2"), 1, "dispersion"),
    ((*FIT_MOMENTS, "--chains", "0"), 1, "chains = 0"),
    ((*FIT, "--draws", "-5"), 1, "draws = -5"),
    ((*FIT, "--draws", "many"), 2, "draws"),
    ((*FIT_MOMENTS, "--chains", "1000000000"), 1, "chains = 1000000000: must be a whole number from 1 to 1000"),
    ((*FIT, "--draws", "2000000000"), 1, "draws = 2000000000: must be a whole number from 4 to 1000000"),
    ((*FIT_MOMENTS, "--draws", "1000000", "--chains", "11"), 1, "in each of 11 chains are more than 10,000,000 in all"),
    ((*FIT, "--prob", "95"), 1, "prob = 95.0: must lie between 0 and 1"),
    # report
    (("report", "absent.npz", "--output", "new.html"), 1, "fit = absent.npz: cannot be read"),
    (("report", "r.json", "--output", "new.html"), 1, "is a release, not a fit; give a file that `dpglm fit` wrote"),
    (("report", "old.html", "--output", "new.html"), 1, "is a web page, not a fit"),
    (("report", "half.npz", "--output", "new.html"), 1, "is not a whole fit file"),
    (("report", "f.npz", "--output", "old.html"), 1, "exists already"),
    (("report", "f.npz", "--output", "f.npz", "--force"), 1, "is a fit, and --force replaces only a web page"),
    (("report", "f.npz"), 2, "--output"),
    ((*REPORT, "--prob", "0"), 1, "prob = 0.0"),
    ((*REPORT, "--at", "age"), 1, "at = age: must be COLUMN=VALUE"),
    ((*REPORT, "--at", "agee=40"), 1, "at = agee: must name a predictor (age)"),
    ((*REPORT, "--at", "age="), 1, "at = age=: must be COLUMN=VALUE"),
    ((*REPORT, "--at", "=40"), 1, "at = =40: must be COLUMN=VALUE"),
    ((*REPORT, "--at", "age=400"), 1, "must lie in [20, 90]"),
    # ledger, init, check, demo
    (("ledger",), 2, "dpglm ledger"),
    (("ledger", "spend", "p.ledger"), 2, "spend"),
    (("ledger", "show", "absent.ledger"), 1, "ledger init"),
    (("ledger", "show", "patients.csv"), 1, "is a table, not a ledger"),
    (("ledger", "verify", "r.json"), 1, "is a release, not a ledger"),
    (("ledger", "export", "p.ledger", "--output", "new.json"), 1, "release"),
    (("ledger", "export", "p.ledger", "--output", "r.json"), 1, "exists already"),
    (("ledger", "init", "p.ledger", *SCHEMA_OPTION, "--epsilon", "1", "--delta", "1e-6"), 1, "exists"),
    (("ledger", "init", "new.ledger", *SCHEMA_OPTION, "--epsilon", "0", "--delta", "1e-6"), 1, "epsilon = 0"),
    (("init", "absent.csv"), 1, "does not exist"),
    (("init", "r.json"), 1, "is a release, not a table"),
    (("init", "patients.csv", "--output", "patients.toml"), 1, "exists already"),
    (("check", "patients.csv", "--schema", "patients.csv"), 1, "is a table, not a schema"),
    (("demo", "."), 1, "folder = .: must be new or empty"),
    (("demo", "patients.csv/inside"), 1, "cannot be made"),
    (("no-such-command",), 2, "no-such-command"),
    (("--no-such-option",), 2, "--no-such-option"),
]  # fmt: skip


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with everything that a mistake may touch."""
    folder = tmp_path_factory.mktemp("mistakes")
    rng = np.random.default_rng(0)
    lines = [f"{rng.uniform(15, 95):.1f},{rng.choice(['no', 'yes'])}" for _ in range(ROWS)]
    (folder / "patients.csv").write_text("age,sick\n" + "\n".join(lines) + "\n")
    (folder / "empty.csv").write_text("")
    (folder / "patients.toml").write_text(SCHEMA)
    (folder / "broken.toml").write_text("[dataset\n")
    (folder / "blank.toml").write_text(SCHEMA.replace('levels = ["no", "yes"]\n', ""))
    (folder / "more-rows.toml").write_text(SCHEMA.replace("rows = 60", "rows = 61"))
    (folder / "other-name.toml").write_text(SCHEMA.replace('"patients"', '"somebody else"'))
    (folder / "other.toml").write_text(SCHEMA.replace("columns.age", "columns.bmi"))
    (folder / "old.html").write_text("<!doctype html>\n")
    schema = dpglm.Schema.load(folder / "patients.toml")
    made = dpglm.release(
        folder / "patients.csv", "sick ~ age", schema=schema, family="logistic", epsilon=1, delta=1e-6, ledger=None
    )
    made.save(folder / "r.json")
    moments = dpglm.release(
        folder / "patients.csv", "sick ~ age", schema=schema, family="logistic", epsilon=1, delta=1e-6, ledger=None,
        method="moments",
    )  # fmt: skip
    moments.save(folder / "m.json")
    text = made.to_json()
    (folder / "half.json").write_text(text[: len(text) // 2])
    (folder / "edited.json").write_text(text.replace('"family": "logistic"', '"family":  "logistic"', 1).replace(
        '"rows": 60', '"rows": 59'))  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dpglm.FitWarning)  # sixty rows
        dpglm.fit(made, draws=100).save(folder / "f.npz")
    whole = (folder / "f.npz").read_bytes()
    (folder / "half.npz").write_bytes(whole[: len(whole) // 2])
    dpglm.Ledger.create(folder / "p.ledger", schema.dataset, epsilon=2, delta=1e-6)
    return folder


@pytest.fixture
def folder(prepared: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(prepared)
    return prepared


def contents(folder: Path) -> dict[str, bytes]:
    """Every file with its content; SQLite's side files come and go."""
    return {
        path.name: path.read_bytes() for path in folder.iterdir() if not path.name.endswith(("-wal", "-shm", ".ledger"))
    }


def run(*arguments: str) -> Any:
    with pytest.raises(SystemExit) as stopped:
        main(list(arguments))
    return stopped.value.code


@pytest.mark.parametrize(("arguments", "code", "part"), MISTAKES, ids=[" ".join(each[0])[:90] for each in MISTAKES])
def test_a_mistake_is_one_line_and_writes_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], code: int, part: str
) -> None:
    before = contents(folder)
    assert run(*arguments) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert part in captured.err
    assert "Traceback" not in captured.err
    if code == 1:  # name = value: rule; remedy
        assert re.fullmatch(r"\S.* = .*: .+; .+\n", captured.err)
    else:
        assert "--help" in captured.err
    assert contents(folder) == before
    assert not dpglm.Ledger.open("p.ledger").entries()


def test_a_folder_that_cannot_be_written_to_is_noticed_before_anything_is_spent(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    assert run(*release(account=("--ledger", "p.ledger"))) == 1
    assert "its folder cannot be written to; choose another folder" in capsys.readouterr().err
    assert not dpglm.Ledger.open("p.ledger").entries()


def test_there_are_at_least_forty() -> None:
    assert len(MISTAKES) >= 40
    assert len({arguments for arguments, _, _ in MISTAKES}) == len(MISTAKES)


@pytest.mark.parametrize(
    "arguments", [release(), REPORT, ("init", "patients.csv", "--output", "new.toml")], ids=lambda each: each[0]
)
def test_a_full_disk_leaves_nothing_behind(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    """The limit on the size of files stands in for a full disk: both fail a write half-way."""
    before = contents(folder)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        assert run(*arguments) == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    captured = capsys.readouterr()
    assert "cannot be written (File too large); choose another path" in captured.err
    assert captured.err.count("\n") == 1
    assert contents(folder) == before


def test_a_release_that_cannot_be_written_is_kept_by_the_ledger(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = tmp_path / "own.ledger"
    assert run("ledger", "init", str(ledger), *SCHEMA_OPTION, "--epsilon", "2", "--delta", "1e-6", "--quiet") == 0
    with monkeypatch.context() as patch:
        patch.setattr("os.replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        assert run(*release(account=("--ledger", str(ledger)))) == 1
    line = capsys.readouterr().err
    assert "No space left on device" in line
    assert f"at no further cost: dpglm ledger export {ledger} --output FILE" in line
    assert not (folder / "new.json").exists()
    assert run("ledger", "export", str(ledger), "--output", str(tmp_path / "new.json"), "--quiet") == 0
    assert len(dpglm.Ledger.open(ledger).entries()) == 7
    assert dpglm.load_release(tmp_path / "new.json").ledger is not None


@pytest.mark.parametrize(
    ("arguments", "where"),
    [
        (release(), "dpglm.custodian.by_looks.exact_sums"),
        (release(account=("--ledger", "p.ledger")), "dpglm.custodian.by_looks.exact_sums"),
        (FIT, "dpglm.analyst.fit.fit_looks"),
        (FIT_MOMENTS, "dpglm.paper.posteriors.assemble"),
        (REPORT, "dpglm.report.html.page"),
        (REPORT, "os.replace"),
    ],
)
def test_stopping_half_way(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, arguments: Any, where: str
) -> None:
    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    before = contents(folder)
    monkeypatch.setattr(where, stop)
    assert run(*arguments) == 130
    captured = capsys.readouterr()
    assert captured.err.startswith("stopped: no ")
    assert captured.err.count("\n") == 1
    assert ("ledger show p.ledger" in captured.err) == ("--ledger" in arguments)
    assert captured.out == ""
    assert contents(folder) == before


def test_a_bug_is_one_line_that_quotes_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("a cell: 77.7")

    monkeypatch.setattr("dpglm.report.html.page", broken)
    assert run(*REPORT) == 3
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    assert "a bug of dpglm (ZeroDivisionError)" in line
    assert "77.7" not in line
    monkeypatch.setenv("DPGLM_TRACEBACK", "1")
    with pytest.raises(ZeroDivisionError):
        main(list(REPORT))


def test_control_c_in_a_real_process(folder: Path, tmp_path: Path) -> None:
    """The process waits for the other end of a pipe in place of a release; then it is interrupted."""
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)
    command = [sys.executable, "-m", "dpglm", "fit", str(pipe), "--output", str(tmp_path / "new.npz")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with pipe.open("w"):  # opens once the process reads
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=60)
    assert (process.returncode, out, error) == (130, "", "stopped: no output file was written\n")
    assert not (tmp_path / "new.npz").exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("arguments", [["ledger", "show", "p.ledger"], ["--help"]])
def test_a_full_standard_output(folder: Path, arguments: list[str]) -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "dpglm", *arguments]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert done.stderr == (
        "output = standard output: cannot be used (No space left on device); make room, or choose another\n"
    )
