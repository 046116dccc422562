"""Compiled programs, kept as files, so that a later process neither traces nor compiles them.

JAX's own cache keeps what XLA makes of a program, but the program is traced, lowered and hashed before it is looked up,
which takes longer than the sampling of a small model. Here the name of a file says all that a program depends on: this
package's source, versions, settings, processor, model and sizes of arrays. A file that is damaged or cannot be used is
as good as none. Like JAX's cache, the folder is the user's own: what is in it is run.

Only where one processor is all that JAX sees. A GPU's programs, and models that hold foreign objects, such as
a user's own prior distributions, are left to ``jax.jit`` and its cache.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import pickle
import platform
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from dataclasses import fields, is_dataclass
from functools import lru_cache, partial, wraps
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

import dpglm
from dpglm.analyst import executables, trees
from dpglm.analyst.jax_later import jax, started_by_us

_PARTS_OF_A_PROCESSOR = ("model name", "flags", "Features", "CPU part")
_CHECKSUM_SIZE = 32
_KEPT_UNUSED = 30 * 24 * 3600.0  # seconds until a file that nobody has read is removed
_NOT_KEPT = b"not kept"  # in place of a program that JAX cannot write
# With XLA's new emitters programs take half as long again to compile, and those of counts run half as fast (jaxlib
# 0.10): docs/fit_speed.md.
_OPTIONS: dict[str, str | bool | int] = {"xla_cpu_use_fusion_emitters": False}
_LOADERS = 2  # threads: two of a fit's programs are large

# Names of files: programs that this process has met, those that a thread is loading, those that the present fit took.
_met: set[str] = set()
_ahead: dict[str, Future[Any]] = {}
_taken: ContextVar[list[str] | None] = ContextVar("_taken", default=None)

_compiling = threading.RLock()
_starting = threading.Lock()

Result = TypeVar("Result")


def cache_folder() -> Path | None:
    """Where compiled programs are kept between runs (set DPGLM_CACHE to choose, or to '' for none)."""
    default = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "dpglm"
    folder = os.environ.get("DPGLM_CACHE", str(default))
    return Path(folder) if folder else None


def use_compilation_cache() -> None:
    """Let JAX keep what ``kept_program`` leaves to it in the same folder."""
    folder = cache_folder()
    if folder is not None and jax.config.jax_compilation_cache_dir is None:  # type: ignore[attr-defined]
        jax.config.update("jax_compilation_cache_dir", str(folder))  # type: ignore[no-untyped-call]
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)  # type: ignore[no-untyped-call]


def _folder() -> Path | None:
    """Where programs are, if they are kept."""
    folder = cache_folder()
    return folder / "programs" if folder is not None and executables.one_processor_only() else None


def kept_program(
    function: Callable[..., Result], options: dict[str, str | bool | int] | None = None
) -> Callable[..., Result]:
    """``jax.jit`` with a static first argument, whose programs are kept. Arguments are given by position.

    ``options`` are the compiler's, besides those of all programs. Threads that need a new program at the same time wait
    for one to compile it.
    """

    @lru_cache(maxsize=1)
    def jitted() -> Any:
        use_compilation_cache()
        together = compiler_options() | (options or {})
        return jax.jit(function, static_argnums=0, keep_unused=True, compiler_options=together)

    ready: dict[Any, Callable[..., Any]] = {}

    @wraps(function)
    def call(shape: Any, *arrays: Any) -> Any:
        folder = _folder()
        if folder is not None:
            arrays = trees.mapped(np.asarray, arrays)
        nesting = str(trees.mapped(lambda leaf: (np.shape(leaf), str(getattr(leaf, "dtype", type(leaf)))), arrays))
        key = (folder, shape, nesting)
        if key not in ready:
            with _compiling:
                program = ready.get(key) or _program(function, jitted, folder, shape, arrays, nesting)
                made = program(*arrays)
                ready[key] = program
            return made
        return ready[key](*arrays)

    return call


@lru_cache(maxsize=1)
def compiler_options() -> dict[str, str | bool | int]:
    """Options of the compiler for all programs, where it knows them."""
    with contextlib.suppress(Exception):
        jax.jit(lambda number: number, compiler_options=_OPTIONS).lower(0.0).compile()
        return _OPTIONS
    return {}


@contextlib.contextmanager
def loading_ahead(*facts: object) -> Iterator[None]:
    """Around a fit: other threads load the programs that the last fit of this kind took, before it asks for them.

    ``facts`` tell kinds apart, roughly: at worst programs are loaded in vain, and dropped from the list, which is kept
    in a file of its own. Loading leaves Python to the others: imports and the search for the mode go on meanwhile.
    """
    folder = _folder()
    if folder is None:
        yield
        return
    path, known = start_loading(folder, *facts)
    before = _taken.set([])
    try:
        yield
        taken = _taken.get() or []
    finally:
        _taken.reset(before)
    left = [name for name in known if _ahead.pop(name, None) is None]
    listed = left + [name for name in taken if name not in left]
    if listed != known:
        _write(path, "\n".join(listed).encode())


def start_loading(folder: Path, *facts: object) -> tuple[Path, list[str]]:
    """Start the threads; the file that lists the programs, and the list. What is loaded or being loaded is left."""
    with _starting:
        path = folder / _file_name(loading_ahead, repr(facts))
        known = (_read(path) or b"").decode().split()
        wanted = [name for name in known if name not in _met]
        if wanted:
            _met.update(wanted)
            wanted.sort(key=lambda name: -_size(folder / name))
            threads = ThreadPoolExecutor(_LOADERS)
            _ahead.update({name: threads.submit(_load, folder / name) for name in wanted})
            threads.shutdown(wait=False)  # they end when all is loaded
            executables.load_lapack()
    return path, known


def load_for(releases: Sequence[tuple[str, str, int]]) -> None:
    """Load ahead for a fit of releases of these families, formulas and numbers of stages, before it is asked for."""
    folder = _folder()
    if folder is not None:
        start_loading(folder, *kind_of(1, releases))


def kind_of(fits: int, releases: Sequence[tuple[str, str, int]]) -> tuple[object, ...]:
    """What ``loading_ahead`` is told: how many fits at once, and of which releases each."""
    return fits, *map(tuple, releases)


def kept_array(function: Callable[..., npt.NDArray[np.float64]]) -> Callable[..., npt.NDArray[np.float64]]:
    """An array that follows from a few plain values, kept as the programs are: for what is slow to import."""

    @wraps(function)
    def call(*values: int | float | str) -> npt.NDArray[np.float64]:
        folder = cache_folder()
        if folder is None:
            return function(*values)
        path = folder / "programs" / _file_name(function, repr(values))
        content = _read(path)
        if content is not None:
            return np.asarray(np.load(io.BytesIO(content), allow_pickle=False))
        array = function(*values)
        stream = io.BytesIO()
        np.save(stream, array)
        _write(path, stream.getvalue())
        return array

    return call


def _program(
    function: Callable[..., Any], jitted: Any, folder: Path | None, shape: Any, arrays: Any, nesting: str
) -> Callable[..., Any]:
    if folder is not None:
        with contextlib.suppress(_ForeignObjectError):
            name = _file_name(function, described(shape), nesting)
            kept = _kept(folder / name, jitted, shape, arrays)
            if kept is not None:
                return kept
    return partial(jitted(), shape)


class _ForeignObjectError(Exception):
    """A model holds something whose text may not tell all about it."""


def described(shape: Any) -> str:
    """A text that two models share only if they are equal: of this package's dataclasses, tuples and plain values."""
    if shape is None or isinstance(shape, bool | int | float | str):
        return repr(shape)
    if isinstance(shape, tuple):
        return f"({', '.join(map(described, shape))})"
    if is_dataclass(shape) and type(shape).__module__.startswith("dpglm."):
        values = ", ".join(f"{field.name}={described(getattr(shape, field.name))}" for field in fields(shape))
        return f"{type(shape).__qualname__}({values})"
    raise _ForeignObjectError


def _file_name(function: Callable[..., Any], *facts: str) -> str:
    everything = (surroundings(), function.__module__, function.__qualname__, *facts)
    return f"{function.__name__.strip('_')}-{hashlib.sha256(repr(everything).encode()).hexdigest()}"


def surroundings() -> str:
    """All but the model that decides what is compiled: source, versions, settings, processor."""
    said = [(name, value) for name, value in os.environ.items() if name.startswith(("JAX_", "XLA_", "PJRT_"))]
    return repr((_installed(), _of_programs(said), _changed_settings(), _processor()))


@lru_cache(maxsize=1)
def _installed() -> list[str]:
    package = Path(dpglm.__file__).parent
    source = hashlib.sha256(b"\0".join(path.read_bytes() for path in sorted(package.rglob("*.py")))).hexdigest()
    versions = (version(name) for name in ("jax", "jaxlib", "numpy", "scipy"))
    return [dpglm.__version__, source, platform.python_version(), *versions]


def _changed_settings() -> list[tuple[str, str]]:
    """JAX's, unless they are as they follow from the environment: not changed since this package imported JAX."""
    if "jax" not in sys.modules:
        return []
    now = jax.config.values.items()
    return [] if _of_programs((started_by_us() or {}).items()) == _of_programs(now) else _of_programs(now)


def _of_programs(settings: Iterable[tuple[str, Any]]) -> list[tuple[str, str]]:
    """Those that can change a program."""
    named = sorted((name, str(value)) for name, value in settings)
    return [pair for pair in named if not any(word in pair[0].lower() for word in ("cache", "log"))]


def usable_cores() -> int:
    """Those that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads(count: int) -> ThreadPoolExecutor:
    """Kept: a fit of many asks for them some hundred times. A fork has none of its parent's, and gets its own."""
    return _threads(count, os.getpid())


@lru_cache
def _threads(count: int, _process: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count)


@lru_cache(maxsize=1)
def _processor() -> list[str]:
    """What machine code depends on. Where the system does not tell, the name of the machine stands for it."""
    facts = [platform.system(), platform.machine(), f"{usable_cores()} usable"]
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as stream:
            first = stream.read(2**16).split("\n\n")[0].splitlines()
    except OSError:
        return [*facts, platform.node()]
    return facts + [line for line in first if line.startswith(_PARTS_OF_A_PROCESSOR)]


def _kept(path: Path, jitted: Any, shape: Any, arrays: tuple[Any, ...]) -> Callable[..., Any] | None:
    """The program in a file, or a new one that is written there; None where JAX cannot write it."""
    _met.add(path.name)
    taken = _taken.get()
    if taken is not None:
        taken.append(path.name)
    with contextlib.suppress(Exception):  # whatever it is: the program is made anew
        loading = _ahead.pop(path.name, None)
        loaded: Callable[..., Any] | None = _load(path) if loading is None else loading.result()
        executables.load_lapack()
        return loaded
    traceable = jitted()
    with _without_jax_cache():  # a program that JAX read from there cannot be written (jaxlib 0.10)
        program: Callable[..., Any] = traceable.lower(shape, *arrays).compile()
    _write(path, _content(program, arrays))
    return program


def _content(program: Any, arrays: tuple[Any, ...]) -> bytes:
    """A program as bytes, if it gives the same numbers when it is read again."""
    with contextlib.suppress(Exception):  # not all that compiles can be written
        expected = program(*arrays)
        numbers = iter(range(len(trees.leaves(expected))))
        kinds = list(map(executables.Kind.of, trees.leaves(expected)))
        content = pickle.dumps((executables.to_bytes(program), kinds, trees.filled(expected, numbers)))
        pairs = zip(trees.leaves(expected), trees.leaves(_loaded(content)(*arrays)), strict=True)
        if all(np.array_equal(one, other, equal_nan=True) for one, other in pairs):
            return content
    return _NOT_KEPT


def _load(path: Path) -> Callable[..., Any] | None:
    """The program in a file, None for one that is not kept; an error where there is none that can be used."""
    content = _read(path)
    if content is None:
        raise FileNotFoundError(path)
    return None if content == _NOT_KEPT else _loaded(content)


def _loaded(content: bytes) -> Callable[..., Any]:
    executable, kinds, nesting = pickle.loads(content)
    run = executables.from_bytes(executable, kinds)

    def program(*arrays: Any) -> Any:
        return trees.filled(nesting, iter(run([np.asarray(leaf, order="C") for leaf in trees.leaves(arrays)])))

    return program


@contextlib.contextmanager
def _without_jax_cache() -> Iterator[None]:
    from jax.experimental.compilation_cache.compilation_cache import reset_cache

    before = jax.config.jax_enable_compilation_cache  # type: ignore[attr-defined]
    jax.config.update("jax_enable_compilation_cache", False)  # type: ignore[no-untyped-call]
    reset_cache()  # JAX asks only once whether there is one
    try:
        yield
    finally:
        jax.config.update("jax_enable_compilation_cache", before)  # type: ignore[no-untyped-call]
        reset_cache()


def _read(path: Path) -> bytes | None:
    """What ``_write`` wrote there, if it is whole and has not been renamed."""
    try:
        stored = path.read_bytes()
        os.utime(path)  # it is still of use
    except OSError:
        return None
    checksum, content = stored[:_CHECKSUM_SIZE], stored[_CHECKSUM_SIZE:]
    return content if checksum == _checksum(path, content) else None


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _write(path: Path, content: bytes) -> None:
    """All or nothing; several processes may write the same. A folder that cannot be written to is no mistake."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(_checksum(path, content) + content)
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
        for old in path.parent.iterdir():
            if old.stat().st_mtime < time.time() - _KEPT_UNUSED:
                old.unlink()


def _checksum(path: Path, content: bytes) -> bytes:
    return hashlib.sha256(path.name.encode() + b"\0" + content).digest()
