"""Programs kept in files give the same numbers when read again; a damaged file or another's is as good as none."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpglm.analyst import programs
from dpglm.analyst.model import ModelShape, TableShape
from dpglm.analyst.outcomes import outcome_of
from dpglm.analyst.priors import CustomPrior, NormalPrior, SphericalPrior
from dpglm.analyst.programs import described, kept_program
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
    here = programs.surroundings.__wrapped__
    before = here()
    assert here() == before
    assert jax.__version__ in before
    assert "jax_default_matmul_precision" in before
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


def test_programs_that_jax_read_from_its_own_cache_are_kept_too(folder: Path, tmp_path: Path) -> None:
    """What JAX reads from its cache cannot be written again."""
    code = f"import jax; jax.config.update('jax_compilation_cache_dir', {str(tmp_path / 'jax')!r})\n{PROCESS}"
    for expected in ("traced 1", "traced 0"):
        assert expected in process(code)
    for file in folder.iterdir():
        file.unlink()
    for expected in ("traced 1", "traced 0"):
        assert expected in process(code)


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
    assert [one.communicate(timeout=120)[0] for one in started] == ["6.0 12.0 traced 1\n"] * 3
    assert process() == "6.0 12.0 traced 0\n"
    assert len(list(folder.iterdir())) == 1


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
