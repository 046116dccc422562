"""Programs kept in files give the same numbers when read again; a damaged file or another's is as good as none."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpglm.analyst import looks, programs
from dpglm.analyst.model import ModelShape, TableShape
from dpglm.analyst.outcomes import outcome_of
from dpglm.analyst.priors import CustomPrior, NormalPrior, SphericalPrior
from dpglm.analyst.programs import described, kept_array, kept_program, loading_ahead
from dpglm.blocks import BlockShape

MATRIX = np.array([[2.0, 0.3], [0.3, 1.0]])
ROOT = np.linalg.cholesky(MATRIX)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DPGLM_CACHE", str(tmp_path))
    return tmp_path / "programs"


def fresh() -> tuple[Callable[..., Any], list[int]]:
    """A program as a new process has it, and a list that grows when it is traced."""
    traced: list[int] = []

    @kept_program
    def root(times: int, matrix: jax.Array) -> dict[str, jax.Array]:
        traced.append(times)
        return {"root": times * jnp.linalg.cholesky(matrix)}

    return root, traced


def check(expected_tracings: int, times: int = 1, matrix: np.ndarray = MATRIX) -> None:
    program, traced = fresh()
    for _ in range(2):
        np.testing.assert_array_equal(program(times, matrix)["root"], times * np.linalg.cholesky(matrix))
    assert len(traced) == expected_tracings


def test_a_program_is_traced_once_for_all_processes(folder: Path) -> None:
    check(1)
    check(0)
    check(1, times=3)
    check(1, matrix=np.eye(3))
    check(0, matrix=np.diag([4.0, 9.0]))
    assert len(list(folder.iterdir())) == 3


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[: len(content) // 2],
        lambda content: content[:-1] + bytes([content[-1] ^ 1]),
        lambda content: bytes(32) + content[32:],
        lambda content: b"no program at all",
    ],
)
def test_a_damaged_file_is_replaced(folder: Path, damage: Callable[[bytes], bytes]) -> None:
    check(1)
    (file,) = folder.iterdir()
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    check(1)
    assert len(file.read_bytes()) == pytest.approx(len(whole), rel=0.1)
    check(0)


def test_a_whole_file_that_holds_no_program_is_replaced(folder: Path) -> None:
    check(1)
    (file,) = folder.iterdir()
    programs._write(file, b"nothing that can be loaded")
    check(1)
    check(0)


def test_a_file_under_another_name_is_not_used(folder: Path) -> None:
    check(1)
    (file,) = folder.iterdir()
    check(1, times=3)
    (other,) = set(folder.iterdir()) - {file}
    file.write_bytes(other.read_bytes())
    check(1)


def test_files_that_nobody_reads_go(folder: Path) -> None:
    check(1)
    check(1, times=3)
    for file in folder.iterdir():
        os.utime(file, (0, 0))
    check(0)
    assert len(list(folder.iterdir())) == 2
    check(1, times=5)
    assert len(list(folder.iterdir())) == 2
    check(0)
    check(1, times=3)


@pytest.mark.parametrize("changed", ["another version", "another processor"])
def test_other_surroundings_have_other_files(folder: Path, monkeypatch: pytest.MonkeyPatch, changed: str) -> None:
    check(1)
    with monkeypatch.context() as patch:
        patch.setattr(programs, "surroundings", lambda: changed)
        check(1)
        check(0)
    check(0)
    assert len(list(folder.iterdir())) == 2


def test_surroundings_name_source_versions_settings_and_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    here = programs.surroundings
    before = here()
    assert here() == before
    assert jax.__version__ in before
    with jax.default_matmul_precision("highest"):
        assert here() != before
    assert here() == before
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true")
    assert here() != before
    monkeypatch.delenv("XLA_FLAGS")
    monkeypatch.setattr(programs, "_processor", lambda: ["another"])
    assert here() != before


def test_no_folder_or_one_that_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("not a folder")
    for folder in ("", str(tmp_path / "file")):
        monkeypatch.setenv("DPGLM_CACHE", folder)
        check(1)
        check(1)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_program_that_reads_back_wrong_is_left_to_jax(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(programs, "_loaded", lambda content: lambda matrix: {"root": matrix})
        check(1)
    (file,) = folder.iterdir()
    assert programs._read(file) == programs._NOT_KEPT
    check(1)
    assert programs._read(file) == programs._NOT_KEPT


@pytest.mark.parametrize("name", ["to_bytes", "from_bytes"])
def test_programs_are_left_to_jax_where_jaxlib_is_not_as_expected(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def missing(*_: Any) -> Any:
        raise AttributeError(name)

    monkeypatch.setattr(programs.executables, name, missing)
    check(1)
    (file,) = folder.iterdir()
    assert programs._read(file) == programs._NOT_KEPT
    check(1)


def test_an_option_that_the_compiler_does_not_know_is_left_out(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert programs.compiler_options() in ({}, programs._OPTIONS)
    monkeypatch.setattr(programs, "_OPTIONS", {"xla_cpu_no_such_option": True})
    monkeypatch.setattr(programs, "compiler_options", programs.compiler_options.__wrapped__)
    assert programs.compiler_options() == {}
    check(1)


def test_programs_that_jax_read_from_its_own_cache_are_kept_too(folder: Path, tmp_path: Path) -> None:
    """What JAX reads from its cache cannot be written again."""
    code = f"import jax; jax.config.update('jax_compilation_cache_dir', {str(tmp_path / 'jax')!r})\n{PROCESS}"
    for expected in ("traced 1", "traced 0"):
        assert expected in process(code)
    for file in folder.iterdir():
        file.unlink()
    for expected in ("traced 1", "traced 0"):
        assert expected in process(code)


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        ("pass", "traced 0 False"),
        ("import jax", "traced 1 True"),
        ("import jax; jax.config.update('jax_default_prng_impl', 'rbg')", "traced 1 True"),
        ("import os; os.environ['JAX_ENABLE_CHECKS'] = 'true'", "traced 1 True"),
        ("import os; os.environ['JAX_LOGGING_LEVEL'] = 'ERROR'", "traced 0 False"),
        ("from dpglm.analyst.jax_later import jax; jax.Array", "traced 0 True"),
        (
            "from dpglm.analyst.jax_later import jax; jax.config.update('jax_numpy_rank_promotion', 'raise')",
            "traced 1 True",
        ),
    ],
)
def test_processes_share_programs_whose_settings_are_the_same(folder: Path, first: str, expected: str) -> None:
    """One that never imports JAX has those of the environment."""
    code = """
from dpglm.analyst.jax_later import jnp
from dpglm.analyst.programs import kept_program
traced = []
@kept_program
def program(times, matrix):
    traced.append(1)
    return times * jnp.linalg.cholesky(matrix)[0, 0]
import sys, numpy as np
assert program(2, np.diag([4.0, 9.0])) == 4
print("traced", len(traced), "jax" in sys.modules)
"""
    assert process(code) == "traced 1 True\n"
    assert process(f"{first}\n{code}") == f"{expected}\n"
    assert process(f"{first}\n{code}").startswith("traced 0")


PROCESS = """
import jax, jax.numpy as jnp, numpy as np
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
from dpglm.analyst.programs import kept_program
traced = []
@kept_program
def program(times, matrix):
    traced.append(1)
    return jnp.linalg.eigh(times * matrix)[0] + jnp.diagonal(jnp.linalg.cholesky(matrix))
print(*program(1, np.diag([4.0, 9.0])), "traced", len(traced))
"""


def process(code: str = PROCESS) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120).stdout


def test_new_processes_find_lapack_and_do_not_disturb_each_other(folder: Path) -> None:
    started = [subprocess.Popen([sys.executable, "-c", PROCESS], stdout=subprocess.PIPE, text=True) for _ in range(3)]
    said = [one.communicate(timeout=120)[0] for one in started]
    assert set(said) <= {"6.0 12.0 traced 0\n", "6.0 12.0 traced 1\n"}  # one that starts late finds what another made
    assert "6.0 12.0 traced 1\n" in said
    assert process() == "6.0 12.0 traced 0\n"
    assert len(list(folder.iterdir())) == 1


@pytest.fixture
def new_process(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """Forget which programs were met; a list that grows with the name of the thread that loads one."""
    loaded = programs._loaded

    def forget() -> list[str]:
        threads: list[str] = []

        def watched(content: bytes) -> Any:
            threads.append(threading.current_thread().name)
            return loaded(content)

        monkeypatch.setattr(programs, "_loaded", watched)
        monkeypatch.setattr(programs, "_met", set())
        monkeypatch.setattr(programs, "_ahead", {})
        return threads

    return forget


def test_programs_of_earlier_fits_are_loaded_by_other_threads(new_process: Callable[[], list[str]]) -> None:
    for kind, elsewhere in (("a fit", 0), ("a fit", 2), ("another fit", 0), ("another fit", 2)):
        threads = new_process()
        with loading_ahead(kind):
            check(int(kind == "a fit" and not elsewhere))
            check(int(kind == "a fit" and not elsewhere), times=3)
        assert sum(name != "MainThread" for name in threads) == elsewhere
        with loading_ahead(kind):  # none is loaded twice
            pass
        assert sum(name != "MainThread" for name in threads) == elsewhere
        assert not programs._ahead


def test_a_fit_that_takes_another_program_adds_it(new_process: Callable[[], list[str]]) -> None:
    for many in (1, 2, 3):
        threads = new_process()
        with loading_ahead("a fit"):
            for times in range(1, many + 1):
                check(int(times == many), times=times)
        assert sum(name != "MainThread" for name in threads) == many - 1


def test_what_a_fit_does_not_take_is_not_loaded_for_the_next(
    folder: Path, new_process: Callable[[], list[str]]
) -> None:
    for times, tracings, loaded in ((1, 1, 0), (1, 0, 1), (3, 1, 1), (3, 0, 1), (1, 0, 1)):
        threads = new_process()
        with loading_ahead("a fit"):
            check(tracings, times=times)
        assert sum(name != "MainThread" for name in threads) == loaded
        assert not programs._ahead


def test_programs_are_loaded_before_the_fit_is_asked_for(new_process: Callable[[], list[str]]) -> None:
    kinds = [("linear", "y ~ x", 3)]
    for elsewhere in (0, 1):
        threads = new_process()
        programs.load_for(kinds)
        programs.load_for(kinds)
        with loading_ahead(*programs.kind_of(1, kinds)):
            check(1 - elsewhere)
        assert sum(name != "MainThread" for name in threads) == elsewhere
    new_process()
    programs.load_for([("linear", "y ~ x", 1)])
    programs.load_for(kinds * 2)
    assert not programs._ahead


def test_what_cannot_be_loaded_ahead_is_made_anew(folder: Path, new_process: Callable[[], list[str]]) -> None:
    new_process()
    with loading_ahead("a fit"):
        check(1)
        check(1, times=3)
    first, second = (file for file in folder.iterdir() if file.name.startswith("root"))
    first.unlink()
    second.write_bytes(b"no program at all")
    new_process()
    with loading_ahead("a fit"):
        check(1)
        check(1, times=3)
    (file,) = (file for file in folder.iterdir() if file.name.startswith("loading"))
    file.write_bytes(b"no names")
    with loading_ahead("a fit"):
        check(0)


def test_a_fit_that_fails_leaves_no_names(folder: Path, new_process: Callable[[], list[str]]) -> None:
    new_process()

    @loading_ahead("a fit")
    def failing() -> None:
        check(1)
        raise ValueError("stopped")

    with pytest.raises(ValueError, match="stopped"):
        failing()
    assert [file.name.split("-")[0] for file in folder.iterdir()] == ["root"]


def test_an_array_is_made_once_for_all_processes(folder: Path) -> None:
    made: list[int] = []

    @kept_array
    def thirds(count: int) -> Any:
        made.append(count)
        return np.arange(count) / 3

    for count in (5, 5, 6, 5):
        np.testing.assert_array_equal(thirds(count), np.arange(count) / 3)
    assert made == [5, 6]
    for file in folder.iterdir():
        file.write_bytes(file.read_bytes()[:-1])
    np.testing.assert_array_equal(thirds(5), np.arange(5) / 3)
    assert made == [5, 6, 5]


@pytest.mark.parametrize("dimension", [1, 5, 40])
def test_points_of_a_staged_release_are_the_same_from_a_file(folder: Path, dimension: int) -> None:
    """Centrings are public and depend on every bit of them."""
    from scipy.stats import norm, qmc

    expected = norm.ppf(np.clip(qmc.Sobol(dimension, seed=1).random(2**11), 1e-9, 1 - 1e-9))
    for _ in range(2):
        looks.normal_points.cache_clear()
        np.testing.assert_array_equal(looks.normal_points(dimension), expected)
    assert [file.name.split("-")[0] for file in folder.iterdir()] == ["normal_points"]
    looks.normal_points.cache_clear()


def model(**changes: Any) -> ModelShape:
    table = TableShape((BlockShape(1, 1),), outcome_of("logistic", None, (-1, 1)), 2, True, False, False)
    facts = {"names": ("a", "b"), "tables": (table,), "prior": NormalPrior(), "fixed_spread": None, "moments": "exact"}
    return ModelShape(**{**facts, **changes})


def test_models_have_one_text_each() -> None:
    models = [
        model(), model(names=("a", "b'")), model(names=("a, b",)), model(names=("a", "b", "c")), model(tables=()),
        model(prior=NormalPrior(2.5, 5.000000000000001)), model(prior=SphericalPrior(2.5, 5.0)),
        model(fixed_spread=1.0), model(moments="taylor"),
    ]  # fmt: skip
    assert len({described(each) for each in models}) == len(models)
    assert described(model()) == described(model())


@dataclass(frozen=True)
class Foreign:
    """A dataclass of another package."""

    value: int = 0


def test_foreign_objects_are_left_to_jax(folder: Path) -> None:
    def total(shape: Any, values: jax.Array) -> jax.Array:
        return jnp.sum(values)

    program = kept_program(total)
    for shape in (Foreign(), model(prior=CustomPrior((("a", Foreign()),))), (1, object())):
        assert program(shape, np.ones(3)) == 3
        with pytest.raises(programs._ForeignObjectError):
            described(shape)
    assert not folder.exists()


def test_threads_are_kept_and_a_fork_gets_its_own(monkeypatch):
    kept = programs.threads(2)
    assert programs.threads(2) is kept
    assert list(kept.map(abs, [-1, 2])) == [1, 2]
    monkeypatch.setattr(programs.os, "getpid", lambda: -1)
    assert programs.threads(2) is not kept
