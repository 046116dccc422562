"""The command line: both people's whole job, machine-readable answers, silence on request, help with examples."""

import io
import json
import os
import re
import subprocess
import sys
import tomllib
from types import SimpleNamespace

import numpy as np
import pytest

import dpglm
from dpglm.analyst.priors import NormalPrior
from dpglm.analyst.result import Diagnostics, Fit
from dpglm.cli import main
from dpglm.cli_analyst import _points
from dpglm.schema import template
from seeded_noise import SeededNoise

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
AFTER_THE_SURVEY = ["look 1", "look 2", "profile", "look 3", "look 4", "look 5"]


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
    assert "ledger charged it in 7 entries, the last of which is number 7, and has" in capsys.readouterr().out
    made = dpglm.load_release("r.json")
    assert made.private
    assert made.ledger.entry == 7
    # The cap is nearly spent: a second release is refused, and nothing is written.
    assert run(*RELEASE, *BUDGET, "--ledger", "p.ledger", "--output", "second.json") == 1
    assert "would exceed the cap" in capsys.readouterr().err
    assert not (folder / "second.json").exists()
    assert run("ledger", "show", "p.ledger", "--json") == 0
    entries = json.loads(capsys.readouterr().out)["entries"]
    assert {(entry["release_id"], entry["kept"]) for entry in entries} == {(made.id, True)}
    assert [entry["part"] for entry in entries] == ["survey", *AFTER_THE_SURVEY]
    np.testing.assert_allclose([entry["mu"] for entry in entries], made.costs)
    assert run("ledger", "show", "p.ledger") == 0
    (line,) = [line for line in capsys.readouterr().out.split("\n") if made.id in line]
    assert line.split()[0] == "1-7"
    assert "survey, look 1, look 2, profile, look 3" in line
    assert run("ledger", "verify", "p.ledger", "--against", "r.json") == 0
    assert run("ledger", "export", "p.ledger", "--output", "again.json") == 0
    assert (folder / "again.json").read_bytes() == (folder / "r.json").read_bytes()


def known_fit(releases, **options):
    """A fit of moments that nobody had to sample."""
    given = {"link": None, "chains": 1, "seed": options["seed"]}
    draws = 0.3 + 0.1 * np.random.default_rng(options["seed"]).normal(size=(1, options["draws"], 2))
    plenty = np.full(2, 2000.0)
    health = Diagnostics(plenty, plenty, np.ones(2), 0, 0.9, True, 0.1)
    return Fit(tuple(releases), draws, None, 0.5, np.full((2, 2), 1.5), health, NormalPrior(), options["method"], given)


@pytest.mark.parametrize("method", ["looks", "moments"])
def test_both_jobs_in_silence_and_in_json(method, folder, capsys, monkeypatch):
    if method == "moments":
        monkeypatch.setattr(dpglm, "fit", known_fit)
    of_moments = ("--method", "laplace") if method == "moments" else ()
    steps = [
        ("check", "patients.csv", "--schema", "patients.toml"),
        LEDGER,
        (*RELEASE, *BUDGET, "--method", method, "--ledger", "p.ledger", "--output", "r.json"),
        ("fit", "r.json", *of_moments, "--draws", "300", "--seed", "5", "--output", "f.npz"),
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
    assert ("ess" in fitted["summary"]["age"]) == (method == "moments")
    assert fitted["summary"]["age"]["mean"] == pytest.approx(dpglm.load_fit("f.npz").summary()["mean"]["age"])
    assert page == {"output": "h.html", "bytes": (folder / "h.html").stat().st_size}
    assert "The other predictors stay at age = 40" in (folder / "h.html").read_text()
    assert verified == {"sound": True}
    # In words, on top of what is there.
    assert run(*steps[3], "--force", "--prob", "0.5") == 0
    text = capsys.readouterr().out
    assert "50 % interval" in text
    assert "odds ratio" in text
    assert ("r_hat" in text) == (method == "moments")
    assert "note: 60 rows" not in text.split("\n")[0]
    assert max(map(len, text.split("\n")[:3])) <= 110
    assert run(*steps[4], "--force") == 0
    assert "written to h.html" in capsys.readouterr().out


@pytest.mark.parametrize("method", ["looks", "moments"])
def test_a_ledger_says_what_is_left_in_round_numbers_and_all_of_it_can_be_had(method, folder, capsys):
    assert run(*LEDGER) == 0
    assert "left:  epsilon = 1.2: nothing is spent" in capsys.readouterr().out
    budget = ("--epsilon", "1.2", "--delta", "1e-6", "--method", method)
    assert run(*RELEASE, *budget, "--ledger", "p.ledger", "--output", "r.json") == 0
    assert run("ledger", "show", "p.ledger") == 0
    shown = capsys.readouterr().out
    assert "spent: epsilon = 1.2 " in shown
    assert "left:  nothing that is of use" in shown
    assert re.search(r"^ +1(-7)?  \d{4}-\d\d-\d\d \d\d:\d\d  ", shown, re.MULTILINE)
    assert "epsilon 1.2," in shown


def test_an_epsilon_above_ten_gets_a_sentence(folder, capsys):
    for epsilon, said in ((10, False), (12, True)):
        budget = ("--epsilon", epsilon, "--delta", "1e-6", "--no-ledger")
        assert run(*RELEASE, *budget, "--output", f"{epsilon}.json") == 0
        assert ("An epsilon above 10 promises little by itself" in capsys.readouterr().out) == said
        planned = ("plan", "--schema", "patients.toml", "--formula", "sick ~ age", "--family", "logistic")
        assert run(*planned, "--epsilon", epsilon) == 0
        assert ("An epsilon above 10 promises little by itself" in capsys.readouterr().out) == said


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


def test_init_does_not_take_a_header_with_semicolons_for_one_column(tmp_path, capsys):
    table = tmp_path / "t.csv"
    table.write_text("age;smoker;sick\n")
    for command in ("init", "studio"):
        assert run(command, table) == 1
        told = capsys.readouterr().err
        assert "they may separate several; save it with commas" in told
        assert "smoker" not in told


def test_init_writes_the_wanted_columns_alone_in_the_tables_order(tmp_path, capsys):
    table = tmp_path / "t.csv"
    table.write_text('age,bmi,"weight, kg",smoker,diabetes\n1,2,3,a,b\n')
    assert run("init", table, "--columns", 'smoker, age,"weight, kg"') == 0
    found = tomllib.loads(capsys.readouterr().out.replace("rows =", "rows = 5"))
    assert list(found["columns"]) == ["age", "weight, kg", "smoker"]
    assert len(template("t", [f"x{n}" for n in range(100)]).splitlines()) < 330  # three lines a column
    for wanted, part in (
        ("age,smokr", "did you mean 'smoker'?"),
        (",", "is not in the table's header"),
        ("", "no column"),
    ):
        assert run("init", table, "--columns", wanted) == 1
        assert part in capsys.readouterr().err


@pytest.mark.parametrize(
    "line",
    [
        "52,27.1,secret,yes",
        "secret,1957-03-02,yes",
        "secret,secret,b",
        "a,,secret",
        "secret@example.org,a",
        f"a,{'secret ' * 20}",
        "-3,secret",
        "$1,secret",
        "07.03.1957,secret",
        "12:30,secret",
        "true,secret",
        "1e5,secret",
        ".5,secret",
        "3 %,secret",
        '"a,b\n52,secret\n53,secret\n',
        '"a\rsecret",b',
    ],
)
def test_init_prints_no_row_for_names(line, tmp_path, capsys):
    """A file without a header, or with a quote that is not closed, would put the first person on the screen."""
    (tmp_path / "t.csv").write_bytes(f"{line}\n53,29.4,never,no\n".encode())
    assert run("init", str(tmp_path / "t.csv")) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert len(printed.err.splitlines()) == 1
    assert "secret" not in printed.err
    assert "names of the columns" in printed.err or "columns' names" in printed.err


@pytest.mark.parametrize("names", ["age,bmi", "x1,x2", "2nd visit,No,Na", "q1.2a,a-b,%", "Größe,№,été", "id"])
def test_init_takes_ordinary_names(names, tmp_path, capsys):
    (tmp_path / "t.csv").write_text(f"{names}\n1,2,3\n", encoding="utf-8")
    assert run("init", str(tmp_path / "t.csv")) == 0
    assert capsys.readouterr().out.count("[columns.") == len(names.split(","))


def test_check_ends_non_zero_where_a_column_matches_nothing(tmp_path, capsys):
    (tmp_path / "t.csv").write_text("age,sick\n30,0\n40,1\n")
    (tmp_path / "t.toml").write_text(
        '[dataset]\nname = "t"\nrows = 2\n[columns.age]\ntype = "numeric"\nlower = 0\nupper = 90\n'
        '[columns.sick]\ntype = "binary"\nlevels = ["no", "yes"]\nfill = "no"\n'
    )
    command = ("check", str(tmp_path / "t.csv"), "--schema", str(tmp_path / "t.toml"))
    assert run(*command) == 1
    printed = capsys.readouterr()
    assert "LOOK AT sick" in printed.out
    assert printed.err.splitlines() == [printed.err.strip()]
    assert "column = sick: not one of its cells can be read" in printed.err
    assert run(*command, "--json") == 1
    assert json.loads(capsys.readouterr().out)["matching_nothing"] == ["sick"]
    (tmp_path / "t.csv").write_text("age,sick\n30,0\n40,yes\n")
    assert run(*command) == 0  # half of it is flagged, and no more
    assert "LOOK AT sick: 50 % of its cells" in capsys.readouterr().out


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


SURVEYED = """
[dataset]
name = "patients"
rows = 20000
unit = "one patient"
[columns.age]
type = "numeric"
lower = 20
upper = 90
[columns.height]
type = "numeric"
lower = 0
upper = 300
[columns.sick]
type = "binary"
levels = ["no", "yes"]
fill = "no"
"""


@pytest.fixture
def surveyed(tmp_path, monkeypatch):
    """Patients who are all as high as can be, with a ledger of epsilon = 20; noise that is always the same."""
    monkeypatch.setattr("dpglm.custodian.build.OperatingSystemNoise", lambda: SeededNoise(1))
    rng = np.random.default_rng(0)
    lines = [f"{rng.normal(50, 10):.1f},300,{rng.choice(['no', 'yes'])}" for _ in range(20_000)]
    (tmp_path / "patients.csv").write_text("age,height,sick\n" + "\n".join(lines) + "\n")
    (tmp_path / "patients.toml").write_text(SURVEYED)
    monkeypatch.chdir(tmp_path)
    schema = ("--schema", "patients.toml")
    assert run("ledger", "init", "p.ledger", *schema, "--epsilon", "20", "--delta", "1e-6", "--quiet") == 0
    return ("release", "patients.csv", *schema, "--family", "logistic", "--epsilon", "5", "--delta", "1e-6")


def test_a_survey_that_says_stop_is_one_line_and_is_kept(surveyed, tmp_path, capsys):
    given = (*surveyed, "--formula", "sick ~ age + height", "--ledger", "p.ledger", "--output", "r.json")
    assert run(*given) == 1
    out, line = capsys.readouterr()
    assert out == ""
    assert line.count("\n") == 1
    assert "height: nearly all rows have one value" in line
    assert "only the survey was spent" in line
    assert not (tmp_path / "r.json").exists()
    (entry,) = dpglm.Ledger.open("p.ledger").entries()
    assert entry.description["part"] == "survey"
    # The line says how to have it; with it, the release goes on all the same, and pays for no other survey.
    command = line.split("it is kept: dpglm ")[1].split(";")[0].split()
    assert command[:3] == ["ledger", "export", "p.ledger"]
    assert run(*command, "--quiet") == 0
    assert run("fit", "survey.json", "--output", "f.npz") == 1
    assert "holds a survey and no look" in capsys.readouterr().err
    assert run(*given, "--survey", "survey.json", "--quiet") == 0
    entries = dpglm.Ledger.open("p.ledger").entries()
    assert [entry.description["part"] for entry in entries] == ["survey", *AFTER_THE_SURVEY]
    assert run("ledger", "verify", "p.ledger", "--against", "survey.json", "r.json", "--quiet") == 0
    assert run("fit", "r.json", "--output", "f.npz") == 0
    assert "note: the survey says of height" in capsys.readouterr().out


def test_a_fit_prints_the_table_to_paste_and_nothing_else(surveyed, tmp_path, capsys):
    schema = tmp_path / "patients.toml"
    schema.write_text(schema.read_text().replace("lower = 20\n", 'lower = 20\nlabel = "Age in years"\n'))
    begins = {"table": "Logistic", "csv": "coefficient,label", "html": "<table>", "latex": "\\begin"}
    assert run(*surveyed, "--formula", "sick ~ age", "--no-ledger", "--output", "r.json", "--quiet") == 0
    for kind, text in begins.items():
        capsys.readouterr()
        assert run("fit", "r.json", "--output", "f.npz", "--force", "--format", kind) == 0
        out, _ = capsys.readouterr()
        assert out.startswith(text)
        assert "Age in years" in out
        assert "note: " not in out
    assert run("fit", "r.json", "--output", "f.npz", "--force", "--format", "json") == 0
    shown = json.loads(capsys.readouterr().out)["rows"][1]
    row = dpglm.load_fit("f.npz").summary().loc["age"]
    assert shown["estimate"] == pytest.approx(row["mean"] * shown["per"], rel=1e-12)
    assert run("fit", "r.json", "--output", "f.npz", "--force", "--format", "word") == 1
    assert run("fit", "r.json", "--output", "f.npz", "--force", "--format", "csv", "--json") == 1


def test_a_fit_answers_whether_terms_are_needed(surveyed, capsys):
    assert run(*surveyed, "--formula", "sick ~ age", "--no-ledger", "--output", "r.json", "--quiet") == 0
    capsys.readouterr()
    fit = ("fit", "r.json", "--output", "f.npz", "--force")
    assert run(*fit, "--test", "age", "--test", "age, Intercept") == 0
    out = capsys.readouterr().out
    assert "test: age: all zero? chi-square" in out
    assert "test: age, Intercept: all zero?" in out
    assert run(*fit, "--test", "age", "--json") == 0
    (told,) = json.loads(capsys.readouterr().out)["tests"]
    assert told["p_value"] == pytest.approx(dpglm.load_fit("f.npz").test("age").p_value)
    assert run(*fit, "--test", "weight") == 1
    assert "must be among age, Intercept" in capsys.readouterr().err


def test_without_a_ledger_the_survey_that_says_stop_is_one_line_too(surveyed, capsys):
    given = (*surveyed, "--formula", "sick ~ height", "--no-ledger", "--output", "r.json")
    assert run(*given) == 1
    assert "kept" not in capsys.readouterr().err


def test_a_survey_is_used_again(surveyed, capsys):
    given = (*surveyed, "--formula", "sick ~ age", "--ledger", "p.ledger")
    assert run(*given, "--output", "one.json", "--quiet") == 0
    assert run(*given, "--survey", "one.json", "--output", "two.json", "--quiet") == 0
    one, two = dpglm.load_release("one.json"), dpglm.load_release("two.json")
    assert (len(one.costs), len(two.costs)) == (7, 6)
    assert two.survey_record == one.survey_record
    assert run("fit", "one.json", "two.json", "--output", "both.npz", "--quiet") == 0
    assert run(*given, "--method", "moments", "--survey", "one.json", "--output", "three.json") == 1
    assert "belongs to method='looks'" in capsys.readouterr().err


@pytest.mark.parametrize(("family", "formula"), [("logistic", "sick ~ age"), ("linear", "age ~ sick")])
def test_a_fit_by_looks_needs_neither_jax_nor_what_makes_plots_or_tables(family, formula, surveyed, tmp_path):
    """From the shell to the printed table: what is imported is what it takes. Counts need SciPy besides."""
    given = (*surveyed, "--formula", formula, "--no-ledger", "--output", "r.json", "--quiet", "--family", family)
    assert run(*given) == 0
    code = """
import sys
from dpglm.cli import main
try:
    main(["fit", "r.json", "--output", "f.npz"])
except SystemExit as stopped:
    assert stopped.code == 0
unwanted = ("jax", "scipy", "pandas", "arviz", "matplotlib", "pyarrow", "formulaic", "opendp", "dpglm.custodian")
print([name for name in sys.modules if (name + ".").startswith(tuple(each + "." for each in unwanted))])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout.endswith("written to f.npz\n[]\n"), done.stdout + done.stderr


def test_importing_the_command_line_is_quick():
    """Help and completion must not wait for JAX, pandas or matplotlib."""
    code = "import sys, dpglm.cli; print([m for m in ('jax', 'pandas', 'arviz', 'matplotlib') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"
