"""The demo tells its whole story, in a new folder only, and its numbers are those of its files."""

import numpy as np
import pytest

import dpglm
from dpglm import demo
from dpglm.cli import main
from dpglm.errors import FileError


def test_the_story(tmp_path, capsys):
    folder = tmp_path / "demo"
    demo.run(folder)
    text = capsys.readouterr().out
    for part in ("THE CUSTODIAN", "A LEDGER", "THE RELEASE", "THE ANALYST", "THE REPORT", "try next"):
        assert part in text
    names = {"patients.toml", "patients.csv", "patients.ledger", "diabetes.release.json", "diabetes.fit.npz"}
    assert names | {"diabetes.html"} <= {path.name for path in folder.iterdir()}
    fit = dpglm.load_fit(folder / "diabetes.fit.npz")
    for name, mean in fit.summary()["mean"].items():
        assert any(line.split()[:2] == [name, f"{mean:.3f}"] for line in text.split("\n"))
    assert fit.releases[0].private
    entries = dpglm.Ledger.open(folder / "patients.ledger").summary().number_of_entries
    assert entries == len(fit.releases[0].costs)
    assert fit.releases[0].id in (folder / "diabetes.html").read_text()
    assert folder.joinpath("diabetes.html").resolve().as_uri() in text
    with pytest.raises(FileError, match="must be new or empty"):
        demo.run(folder)
    # The same fit from the command line.
    assert fit.releases[0].method == "looks"
    command = ["fit", str(folder / "diabetes.release.json"), "--output", str(folder / "again.npz"), "--seed", "1"]
    with pytest.raises(SystemExit) as stopped:
        main(command)
    assert stopped.value.code == 0
    assert "written to" in capsys.readouterr().out
    np.testing.assert_array_equal(dpglm.load_fit(folder / "again.npz").coefficients, fit.coefficients)


def test_in_silence(tmp_path, capsys):
    demo.run(tmp_path, quiet=True)
    assert tuple(capsys.readouterr()) == ("", "")


def test_the_non_private_fit_solves_its_equations():
    table = demo.simulated_table()
    assert len(table) == demo.ROWS
    estimate, error = demo.plain_fit(table)
    # The truth is within 4 standard errors of the estimate, and not within one thousandth of one.
    distance = np.abs(estimate - list(demo.TRUTH.values())) / error
    assert (distance < 4).all()
    assert (distance > 1e-3).all()
