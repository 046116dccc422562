"""The command line: the custodian's whole job, and one line with a non-zero exit for every mistake."""

import json

import numpy as np
import pytest

import dpglm
from dpglm.cli import main

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


def test_the_custodians_job_from_a_terminal(folder, capsys):
    assert run("check", "patients.csv", "--schema", "patients.toml") == 0
    text = capsys.readouterr().out
    assert "EYES ONLY" in text
    assert "'Yes'" in text
    assert run("ledger", "init", "p.ledger", "--schema", "patients.toml", "--epsilon", "1.2", "--delta", "1e-6") == 0
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
    assert [entry["release_id"] for entry in json.loads(capsys.readouterr().out)["entries"]] == [made.id]
    assert run("ledger", "verify", "p.ledger") == 0
    assert run("ledger", "export", "p.ledger", "--output", "again.json") == 0
    assert (folder / "again.json").read_bytes() == (folder / "r.json").read_bytes()


def test_init_writes_a_template_from_the_header_alone(folder, capsys):
    assert run("init", "patients.csv") == 0
    text = capsys.readouterr().out
    assert '[columns."age"]' in text
    assert '[columns."sick"]' in text
    assert "yes" not in text  # nothing from the rows
    (folder / "template.toml").write_text(text)
    assert run("check", "patients.csv", "--schema", "template.toml") == 1  # not before a person has filled it in


@pytest.mark.parametrize(
    ("arguments", "code", "part"),
    [
        ((*RELEASE, *BUDGET, "--output", "r.json"), 1, "either --ledger or --no-ledger"),
        ((*RELEASE, *BUDGET, "--no-ledger", "--ledger", "p.ledger", "--output", "r.json"), 1, "either --ledger"),
        ((*RELEASE, *BUDGET, "--ledger", "missing.ledger", "--output", "r.json"), 1, "ledger init"),
        ((*RELEASE, *BUDGET, "--no-ledger", "--output", "patients.csv"), 1, "exists already"),
        ((*RELEASE, *BUDGET, "--no-ledger", "--output", "nowhere/r.json"), 1, "folder does not exist"),
        ((*RELEASE, "--epsilon", "-1", "--delta", "1e-6", "--no-ledger", "--output", "r.json"), 1, "epsilon = -1"),
        ((*RELEASE, "--epsilon", "one", "--delta", "1e-6", "--no-ledger", "--output", "r.json"), 2, "epsilon"),
        (("release", "patients.csv"), 2, "--schema"),
        (("fit", "patients.csv", "--output", "f.npz"), 1, "is not valid JSON"),
        (("fit", "absent.json", "--output", "f.npz"), 1, "cannot be read"),
        (("ledger",), 2, "dpglm ledger"),
        (("ledger", "show", "patients.csv"), 1, "ledger = "),
        (("no-such-command",), 2, "no-such-command"),
    ],
)
def test_a_mistake_is_one_line_and_writes_nothing(folder, capsys, arguments, code, part):
    before = sorted(path.name for path in folder.iterdir())
    assert run(*arguments) == code
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert part in captured.err
    assert sorted(path.name for path in folder.iterdir()) == before


def test_noise_cannot_be_fixed_from_the_command_line(capsys):
    assert run("release", "--help") == 0
    text = capsys.readouterr().out.lower()
    assert "--epsilon" in text
    assert "seed" not in text
    assert "noise" not in text.replace("noisy", "")


def test_without_arguments_the_help_is_shown(capsys):
    assert run() == 0
    text = capsys.readouterr().out
    for command in ("demo", "init", "check", "release", "fit", "ledger"):
        assert command in text
