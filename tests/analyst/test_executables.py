"""Programs run by jaxlib alone give what JAX gives, bit by bit, and do not import it."""

from __future__ import annotations

import pickle
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpglm.analyst import executables, trees

RNG = np.random.default_rng(4)
MATRIX = np.cov(RNG.normal(size=(4, 30)))


def several(matrix: Any, flags: Any, count: Any, key: Any) -> Any:
    """Numbers of all kinds: factors from LAPACK, counts, flags, random bits, a scalar, an empty array."""
    values, vectors = jnp.linalg.eigh(matrix)
    drawn = jax.random.normal(jax.random.wrap_key_data(key), (3,))
    return {
        "factors": (jnp.linalg.cholesky(matrix), values, vectors),
        "others": [flags & (matrix[0] > 0), count + 1, key, jnp.sum(drawn), matrix[:0], drawn.astype(jnp.float32)],
    }


ARGUMENTS = (MATRIX, np.array([True, False, True, True]), np.asarray(7), np.array([1, 2**31], dtype=np.uint32))


def program() -> tuple[bytes, list[Any], list[executables.Kind]]:
    compiled = jax.jit(several, keep_unused=True).lower(*ARGUMENTS).compile()
    expected = [np.asarray(leaf) for leaf in jax.tree.leaves(compiled(*ARGUMENTS))]
    return executables.to_bytes(compiled), expected, list(map(executables.Kind.of, expected))


def same(made: list[Any], expected: list[Any]) -> bool:
    return all(
        one.dtype == other.dtype and one.shape == other.shape and np.array_equal(one, other)
        for one, other in zip(made, expected, strict=True)
    )


def test_numbers_of_all_kinds_are_the_same_bit_by_bit() -> None:
    content, expected, kinds = program()
    executables.load_lapack()
    run = executables.from_bytes(content, kinds)
    for _ in range(3):
        assert same(run(ARGUMENTS), expected)
    assert not same(run((2 * MATRIX, *ARGUMENTS[1:])), expected)


def test_results_outlive_the_call_and_arguments_are_left_alone() -> None:
    content, expected, kinds = program()
    run = executables.from_bytes(content, kinds)
    matrix = MATRIX.copy()
    made = run((matrix, *ARGUMENTS[1:]))
    matrix[:] = 5.0
    for scale in (2, 3, 4):
        run((scale * MATRIX, *ARGUMENTS[1:]))
    assert same(made, expected)


WITHOUT_JAX = """
import pickle, sys
import numpy as np
from dpglm.analyst import executables
content, expected, kinds, arguments = pickle.loads(open(sys.argv[1], "rb").read())
def check(run):
    for one, other in zip(run(arguments), expected, strict=True):
        assert one.dtype == other.dtype and np.array_equal(one, other)
assert executables.one_processor_only()
first = executables.from_bytes(content, kinds)
executables.load_lapack()
check(first)
print(*(name in sys.modules for name in ("jax", "scipy.linalg")))
import jax, scipy.linalg.cython_lapack, scipy.linalg.interpolative, scipy.stats
jax.config.update("jax_enable_x64", True)
np.testing.assert_allclose(jax.numpy.linalg.cholesky(arguments[0]), scipy.linalg.cholesky(arguments[0], lower=True))
check(first)
check(executables.from_bytes(content, kinds))
"""


def test_nothing_imports_jax_and_jax_can_come_later(tmp_path: Path) -> None:
    content, expected, kinds = program()
    (tmp_path / "program").write_bytes(pickle.dumps((content, expected, kinds, ARGUMENTS)))
    command = [sys.executable, "-c", WITHOUT_JAX, str(tmp_path / "program")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr, done.returncode) == ("False False\n", "", 0)


@pytest.mark.parametrize(
    ("platforms", "package", "expected"),
    [
        ("", None, True),
        ("cpu", None, True),
        ("cuda", None, False),
        ("cpu,cuda", None, False),
        ("", "jax_plugins", False),
        ("", "libtpu", False),
        ("cpu", "jax_plugins", True),
    ],
)
def test_accelerators_are_left_to_jax(tmp_path: Path, platforms: str, package: str | None, expected: bool) -> None:
    if not (platforms or package) and find_spec("jax_plugins"):
        pytest.skip("this machine has an accelerator")
    if package is not None:
        (tmp_path / package / "xla_cuda12").mkdir(parents=True)
    code = (
        f"import os, sys; sys.path.append({str(tmp_path)!r}); os.environ['JAX_PLATFORMS'] = {platforms!r}\n"
        "from dpglm.analyst.executables import one_processor_only; print(one_processor_only(), 'jax' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout == f"{expected} False\n"


def test_trees_are_jaxs() -> None:
    kind = executables.Kind
    tree = (1, [2.0, None, (3,)], {"b": 4, "a": [5]}, kind((6,), np.dtype(float)), ())
    assert trees.leaves(tree) == jax.tree.leaves(tree)
    assert trees.mapped(str, tree) == jax.tree.map(str, tree)
    assert trees.mapped(lambda *pair: pair[::-1], tree, trees.mapped(id, tree)) == jax.tree.map(
        lambda *pair: pair[::-1], tree, jax.tree.map(id, tree)
    )
    numbers = iter(range(100))
    assert trees.filled(tree, numbers) == jax.tree.unflatten(jax.tree.structure(tree), range(next(numbers)))
    with pytest.raises(ValueError, match="argument"):
        trees.mapped(max, (1, 2), (1, 2, 3))
