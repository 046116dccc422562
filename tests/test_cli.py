"""The command line: both people's whole job, machine-readable answers, silence on request, help with examples."""

import io
import json
import os
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import dpglm
from dpglm.__main__ import _load_ahead
from dpglm.analyst import programs
from dpglm.analyst.priors import NormalPrior
from dpglm.analyst.result import Diagnostics, Fit
from dpglm.cli import _points, main

SCHEMA = """
[dataset]
name = "patients"
rows = 60
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
COMMANDS = [
    ("demo",), ("init",), ("check",), ("plan",), ("release",), ("fit",), ("report",),
    ("ledger", "init"), ("ledger", "show"), ("ledger", "verify"), ("ledger", "export"),
]  # fmt: skip


@pytest.fixture
def folder(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    lines = [f"{rng.uniform(15, 95):.1f},{rng.choice(['no', 'yes', 'Yes'])}" for _ in range(60)]
    (tmp_path / "patients.csv").write_text("age,sick\n" + "\n".join(lines) + "\n")
    (tmp_path / "patients.toml").write_text(SCHEMA)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments):
    with pytest.raises(SystemExit) as stopped:
        main([str(argument) for argument in arguments])
    return stopped.value.code


RELEASE = ("release", "patients.csv", "--schema", "patients.toml", "--formula", "sick ~ age", "--family", "logistic")
BUDGET = ("--epsilon", "1", "--delta", "1e-6")
LEDGER = ("ledger", "init", "p.ledger", "--schema", "patients.toml", "--epsilon", "1.2", "--delta", "1e-6")


@pytest.mark.parametrize("end", ["", "-wal", "-shm", "-journal"])
def test_a_release_is_not_written_over_a_file_of_the_ledger(end, folder, capsys):
    assert run(*LEDGER) == 0
    capsys.readouterr()
    target = f"p.ledger{end}"
    assert run(*RELEASE, *BUDGET, "--ledger", "p.ledger", "--output", target, *(() if end else ("--force",))) == 1
    said = capsys.readouterr().err
    assert "is a file of the ledger" in said or "is a ledger" in said
    assert len(dpglm.Ledger.open("p.ledger").entries()) == 0


def test_a_closed_standard_output_is_no_mistake(folder):
    assert run(*LEDGER) == 0
    shown = subprocess.run(
        f"{sys.executable} -m dpglm ledger show p.ledger >&-",
        shell=True,
        capture_output=True,
        cwd=folder,
        check=False,
    )
    assert (shown.returncode, shown.stderr) == (0, b"")


def test_the_custodians_job_from_a_terminal(folder, capsys):
    assert run("check", "patients.csv", "--schema", "patients.toml") == 0
    text = capsys.readouterr().out
    assert "EYES ONLY" in text
    assert "'Yes'" in text
    assert run(*LEDGER) == 0
    assert run(*RELEASE, *BUDGET, "--ledger", "p.ledger", "--output", "r.json") == 0
    assert "entry 1 of the dataset's ledger" in capsys.readouterr().out
    made = dpglm.load_release("r.json")
    assert made.private
    assert made.ledger.entry == 1
    # The cap is nearly spent: a second release is refused, and nothing is written.
    assert run(*RELEASE, *BUDGET, "--ledger", "p.ledger", "--output", "second.json") == 1
    assert "would exceed the cap" in capsys.readouterr().err
    assert not (folder / "second.json").exists()
    assert run("ledger", "show", "p.ledger", "--json") == 0
    (entry,) = json.loads(capsys.readouterr().out)["entries"]
    assert (entry["release_id"], entry["kept"]) == (made.id, True)
    assert entry["mu"] == pytest.approx(made.stages[0].mu)
    assert run("ledger", "verify", "p.ledger") == 0
    assert run("ledger", "export", "p.ledger", "--output", "again.json") == 0
    assert (folder / "again.json").read_bytes() == (folder / "r.json").read_bytes()


def known_fit(releases, **options):
    """A fit that nobody had to sample; a real one is in the demo's test."""
    given = {"link": options["link"], "chains": options["chains"], "seed": options["seed"]}
    draws = 0.3 + 0.1 * np.random.default_rng(options["seed"]).normal(size=(1, options["draws"], 2))
    plenty = np.full(2, 2000.0)
    health = Diagnostics(plenty, plenty, np.ones(2), 0, 0.9, True, 0.1)
    return Fit(tuple(releases), draws, None, 0.5, np.full((2, 2), 1.5), health, NormalPrior(), options["method"], given)


HEAVY = ("arviz", "jax", "formulaic", "matplotlib", "numpyro", "pandas", "pyarrow", "rich", "scipy.stats", "xarray")


@pytest.mark.parametrize("stages", ["1", "3"])
def test_a_second_fit_is_the_same_and_imports_little(folder, monkeypatch, stages):
    """Without programs kept in files, with new ones, and with those: the same draws. None needs slow imports.

    But for the points of a release in stages, which scipy.stats makes once.
    """
    assert run(*RELEASE, *BUDGET, "--stages", stages, "--no-ledger", "--output", "r.json") == 0
    made_once = {"scipy.stats"} if stages == "3" else set()
    code = "import sys; from dpglm.cli import main\ntry: main()\nfinally: print(*set(sys.modules), sep=chr(10))"
    texts = []
    for number, cache in enumerate(("", "kept", "kept")):
        monkeypatch.setenv("DPGLM_CACHE", cache and str(folder / cache))
        command = [sys.executable, "-c", code, "fit", "r.json", "--output", f"{number}.npz", "--draws", "100"]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
        text, modules = done.stdout.split(f"written to {number}.npz\n")
        assert set(HEAVY).intersection(modules.split("\n")) == (made_once | {"jax"} if number < 2 else set())
        texts.append(text)
    assert texts[0] == texts[1] == texts[2]
    assert (folder / "0.npz").read_bytes() == (folder / "1.npz").read_bytes() == (folder / "2.npz").read_bytes()
    kept = {path.name.split("-")[0] for path in (folder / "kept" / "programs").iterdir()}
    assert kept >= {"transitions", "loading_ahead", "of_draws" if stages == "1" else "normal_points"}


def test_programs_are_loaded_while_the_command_is_read(folder, monkeypatch):
    """The shell's command gives what the function gives; a thread of its own guesses what will be fitted."""
    assert run(*RELEASE, *BUDGET, "--stages", "1", "--no-ledger", "--output", "r.json") == 0
    monkeypatch.setenv("DPGLM_CACHE", str(folder / "kept"))
    options = ("--draws", "100", "--force", "--output")
    assert run("fit", "r.json", *options, "0.npz") == 0
    for number in (1, 2):
        command = [sys.executable, "-m", "dpglm", "fit", "r.json", *options, f"{number}.npz"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.endswith(f"written to {number}.npz\n")
        assert (folder / f"{number}.npz").read_bytes() == (folder / "0.npz").read_bytes()
    guessed = []
    monkeypatch.setattr(programs, "load_for", guessed.append)
    (folder / "broken.json").write_text('{"regression"')
    (folder / "other.json").write_text('{"regression": []}')
    (folder / "huge.json").write_text(" " * 10_000_001)
    os.mkfifo(folder / "pipe.json")
    for arguments in (
        ["r.json", "--output", "0.npz", "--seed", "3"], ["--quiet", "r.json", "r.json"], ["broken.json", "r.json"],
        ["other.json"], ["huge.json"], ["pipe.json"], [".", "missing.json", "\0.json"], [],
    ):  # fmt: skip
        _load_ahead(arguments)
    kind = ("logistic", "sick ~ age", 1)
    assert guessed == [[kind], [kind, kind]]


def test_both_jobs_in_silence_and_in_json(folder, capsys, monkeypatch):
    monkeypatch.setattr(dpglm, "fit", known_fit)
    steps = [
        ("check", "patients.csv", "--schema", "patients.toml"),
        LEDGER,
        (*RELEASE, *BUDGET, "--ledger", "p.ledger", "--output", "r.json"),
        ("fit", "r.json", "--method", "laplace", "--draws", "300", "--seed", "5", "--output", "f.npz"),
        ("report", "f.npz", "--output", "h.html", "--at", "age=40", "--prob", "0.9"),
        ("ledger", "verify", "p.ledger"),
    ]
    for step in steps:
        assert run(*step, "--quiet") == 0
        assert tuple(capsys.readouterr()) == ("", "")
    for name in ("p.ledger", "r.json", "f.npz", "h.html"):
        (folder / name).unlink()
    answers = []
    for step in steps:
        assert run(*step, "--quiet", "--json") == 0
        answers.append(json.loads(capsys.readouterr().out))
    _, summary, made, fitted, page, verified = answers
    assert summary["cap_epsilon"] == 1.2
    assert made["release_id"] == dpglm.load_release("r.json").id
    assert list(fitted["summary"]) == ["Intercept", "age"]
    assert fitted["summary"]["age"]["mean"] == pytest.approx(dpglm.load_fit("f.npz").summary()["mean"]["age"])
    assert page == {"output": "h.html", "bytes": (folder / "h.html").stat().st_size}
    assert "The other predictors stay at age = 40" in (folder / "h.html").read_text()
    assert verified == {"sound": True}
    # In words, on top of what is there.
    assert run(*steps[3], "--force", "--prob", "0.5") == 0
    text = capsys.readouterr().out
    assert "50 % interval" in text
    assert "odds ratio" in text
    assert "note: 60 rows" not in text.split("\n")[0]
    assert max(map(len, text.split("\n")[:3])) <= 110
    assert run(*steps[4], "--force") == 0
    assert "written to h.html" in capsys.readouterr().out


def test_init_writes_a_template_from_the_header_alone(folder, capsys):
    assert run("init", "patients.csv") == 0
    text = capsys.readouterr().out
    assert '[columns."age"]' in text
    assert '[columns."sick"]' in text
    assert "yes" not in text  # nothing from the rows
    assert run("init", "patients.csv", "--output", "template.toml") == 0
    assert "fill in what is blank" in capsys.readouterr().out
    assert (folder / "template.toml").read_text() == text
    assert run("check", "patients.csv", "--schema", "template.toml") == 1  # not before a person has filled it in


def test_at_takes_names_and_levels_that_hold_an_equals_sign():
    columns = [SimpleNamespace(name=name) for name in ("age", "x=1", "group")]
    fitted = SimpleNamespace(releases=[SimpleNamespace(design=SimpleNamespace(table_columns=columns))])
    given = ["age=40", "x=1=3", "group=>=65", "other=1=2"]
    assert _points(given, fitted) == {"age": "40", "x=1": "3", "group": ">=65", "other": "1=2"}


def test_noise_cannot_be_fixed_from_the_command_line(capsys):
    assert run("release", "--help") == 0
    text = capsys.readouterr().out.lower()
    assert "--epsilon" in text
    assert "seed" not in text
    assert "noise" not in text.replace("noisy", "")


def test_without_arguments_the_help_is_shown(capsys):
    assert run() == 0
    text = capsys.readouterr().out
    for command in ("demo", "init", "check", "release", "fit", "report", "ledger"):
        assert command in text
    for code in ("Exit codes", "0 ", "1 ", "2 ", "3 ", "130 "):
        assert code in text
    assert run("--version") == 0
    assert capsys.readouterr().out == f"dpglm {dpglm.__version__}\n"


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_help_has_an_example(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert run(*command, "--help") == 0
    lines = [line.strip() for line in capsys.readouterr().out.split("\n")]
    start = next(number for number, line in enumerate(lines) if line in ("Example:", "Examples:"))
    assert lines[start + 1].startswith(f"dpglm {' '.join(command)}")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("dpglm rel", {"release"}),
        ("dpglm ledger ", {"init", "show", "verify", "export"}),
        ("dpglm release t.csv --family ", {"logistic", "poisson", "linear"}),
        ("dpglm fit r.json --met", {"--method"}),
    ],
)
def test_the_shell_completes(words, expected):
    position = str(len(words.split(" ")) - 1)
    environment = {**os.environ, "_DPGLM_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": position}
    done = subprocess.run([sys.executable, "-m", "dpglm"], env=environment, capture_output=True, text=True)
    assert set(done.stdout.split()) == expected
    assert done.stderr == ""


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_long_work_shows_a_spinner_on_a_terminal_only(folder, monkeypatch, capsys):
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    assert run("check", "patients.csv", "--schema", "patients.toml") == 0
    assert "reading patients.csv" in screen.getvalue()
    silent = Terminal()
    monkeypatch.setattr(sys, "stderr", silent)
    assert run("check", "patients.csv", "--schema", "patients.toml", "--quiet") == 0
    assert silent.getvalue() == ""


def test_a_release_shows_a_bar_of_rows_on_a_terminal_only(folder, monkeypatch, capsys):
    def screen_of(terminal, *options):
        screen = Terminal() if terminal else io.StringIO()
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stderr", screen)
            assert run(*RELEASE, *BUDGET, "--no-ledger", "--output", "r.json", "--force", *options) == 0
        return screen.getvalue()

    shown = screen_of(True)
    assert "reading 60 rows of patients.csv" in shown
    assert "100%" in shown
    for options in ((False,), (True, "--quiet"), (True, "--json"), (False, "--json")):
        assert screen_of(*options) == "", options
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["output"] == "r.json"


def test_importing_the_command_line_is_quick():
    """Help and completion must not wait for JAX, pandas or matplotlib."""
    code = "import sys, dpglm.cli; print([m for m in ('jax', 'pandas', 'arviz', 'matplotlib') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"
