"""Compiled programs as bytes, and back: run by jaxlib alone, without JAX.

jaxlib is XLA and what JAX needs of it. Its Python interface is not a public one, so whoever writes a program here
also reads it back and compares (programs.py): where jaxlib is not as expected, programs are left to JAX.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Arrays = list[npt.NDArray[Any]]

_making_client = Lock()


class Kind(NamedTuple):
    """What jaxlib asks about an array."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    weak_type: bool = False

    @classmethod
    def of(cls, array: Any) -> Kind:
        return cls(np.shape(array), np.dtype(array.dtype))


class _Made(NamedTuple):
    """An array of jaxlib's, as NumPy wants it. jaxlib's own way to one imports JAX."""

    array: Any

    def __dlpack__(self, **_: Any) -> Any:
        return _xla()._xla.buffer_to_dlpack_managed_tensor(self.array)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0  # a processor


def one_processor_only() -> bool:
    """Whether JAX sees one processor and nothing else, or would see it, as far as that can be told without JAX."""
    return _one_processor_only("jax" in sys.modules)


@lru_cache
def _one_processor_only(with_jax: bool) -> bool:
    if with_jax:
        jax = import_module("jax")  # another thread may be at it
        return bool(jax.default_backend() == "cpu" and jax.device_count() == 1)
    said = os.environ.get("JAX_PLATFORMS", os.environ.get("JAX_PLATFORM_NAME", ""))
    # Accelerators are packages in the namespace jax_plugins; a TPU's library is another.
    return said in ("", "cpu") and (said == "cpu" or not any(map(find_spec, ("jax_plugins", "libtpu"))))


def to_bytes(compiled: Any) -> bytes:
    """A program that JAX compiled, ``jax.stages.Compiled``."""
    executable = compiled.runtime_executable()
    return bytes(executable.client.serialize_executable(executable))


def from_bytes(content: bytes, results: Sequence[Kind]) -> Callable[[Sequence[npt.NDArray[Any]]], Arrays]:
    """A function of the program's arguments, all of them and in order, that gives its results, of these kinds."""
    client = _client()
    (device,) = client.devices()
    executable = client.deserialize_executable(content, executable_devices=_xla().DeviceList((device,)))
    core, place = _xla()._xla, _place(device)
    handlers = [_handler(kind, place) for kind in results]

    def run(arguments: Sequence[npt.NDArray[Any]]) -> Arrays:
        held = [core.batched_device_put(Kind.of(each), place, [each], [device], enable_x64=True) for each in arguments]
        made = executable.execute_sharded(held).consume_with_handlers(handlers)
        return [np.from_dlpack(_Made(array.block_until_ready())) for array in made]

    return run


def _handler(kind: Kind, place: Any) -> Any:
    """What makes an array of a result."""
    handler = _xla()._xla.array_result_handler
    try:
        return handler(kind, place, committed=True, _skip_checks=True)  # jaxlib 0.10 has JAX make the checks
    except TypeError:
        return handler(kind, place, committed=True)


@lru_cache(maxsize=1)
def load_lapack() -> None:
    """Programs call LAPACK by addresses that jaxlib takes from SciPy, when it is told to.

    Of SciPy's linear algebra the two modules that hold them suffice; all of it takes a tenth of a second.
    """
    lapack = import_module("jaxlib.lapack")
    if "scipy.linalg" not in sys.modules:
        import scipy

        for name in ("cython_blas", "cython_lapack"):
            full = f"scipy.linalg.{name}"
            spec = PathFinder.find_spec(full, [str(Path(scipy.__file__).parent / "linalg")])
            if spec is not None and spec.loader is not None:
                sys.modules[full] = module_from_spec(spec)
                spec.loader.exec_module(sys.modules[full])
    lapack._lapack.initialize()


@lru_cache(maxsize=1)
def _xla() -> Any:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")  # as JAX does: nothing but warnings
    return import_module("jaxlib.xla_client")


def _client() -> Any:
    with _making_client:
        return _one_client()


@lru_cache(maxsize=1)
def _one_client() -> Any:
    if "jax" in sys.modules:
        return import_module("jax").devices()[0].client
    client = _xla().make_cpu_client()
    for name, target, version in import_module("jaxlib.lapack").registrations()["cpu"]:
        _xla().register_custom_call_target(name, target, "cpu", version)
    return client


@lru_cache(maxsize=1)
def _place(device: Any) -> Any:
    """One device, as its arrays have to name it."""
    xla = _xla()
    whole = xla.HloSharding.replicate()

    class Place(xla._xla.SingleDeviceSharding):  # type: ignore[misc, name-defined]
        memory_kind = None

        def _to_xla_hlo_sharding(self, _: int) -> Any:
            return whole

    return Place(device, memory_kind=None)
