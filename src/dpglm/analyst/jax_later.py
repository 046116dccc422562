"""JAX, imported when it is first used: a fit whose programs are all in the cache folder never needs it.

Importing JAX takes as long as sampling a small model. All modules of the analyst's side take it from here, and so have
double precision. Those that use it while they are imported (decorators, tables of primitives) are imported by the
functions that trace.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = ["double_precision", "jax", "jnp", "lax", "special", "started_by_us", "transformed"]


@lru_cache(maxsize=1)
def started_by_us() -> dict[str, Any] | None:
    """Import JAX in double precision. Its settings as they were then, None where somebody else imported it before."""
    first = "jax" not in sys.modules
    config = import_module("jax").config
    config.update("jax_enable_x64", True)
    return dict(config.values) if first else None


def double_precision() -> bool:
    """Whether JAX has it, where it is imported: turned on at the first look, whoever imported it and when."""
    if "jax" not in sys.modules:
        return True
    started_by_us()
    return bool(sys.modules["jax"].config.jax_enable_x64)


class _Module:
    """A module that is imported when something of it is asked for."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        started_by_us()
        value = getattr(import_module(self._name), attribute)
        setattr(self, attribute, value)
        return value


class _Transformed:
    """A function that JAX transforms when it is first called; rules of its derivatives wait until then."""

    def __init__(self, transformation: str, options: dict[str, Any], function: Callable[..., Any]) -> None:
        self._made = lru_cache(maxsize=1)(self._make)
        self._wanted = transformation, options, function
        self._rules: list[tuple[str, Any, Any]] = []

    def defjvp(self, *rules: Callable[..., Any], **options: Any) -> None:
        self._rules.append(("defjvp", rules, options))

    def defvjp(self, *rules: Callable[..., Any], **options: Any) -> None:
        self._rules.append(("defvjp", rules, options))

    def _make(self) -> Any:
        transformation, options, function = self._wanted
        made = getattr(jax, transformation)(function, **options)
        for name, rules, options in self._rules:
            getattr(made, name)(*rules, **options)
        return made

    def __call__(self, *arguments: Any) -> Any:
        return self._made()(*arguments)


def transformed(transformation: str, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """A decorator: ``jax.jit``, ``jax.custom_jvp`` or ``jax.custom_vjp`` by name, with its options."""
    return lambda function: _Transformed(transformation, options, function)


if TYPE_CHECKING:
    import jax
    import jax.numpy as jnp
    from jax import lax
    from jax.scipy import special
else:
    jax, jnp, lax, special = map(_Module, ("jax", "jax.numpy", "jax.lax", "jax.scipy.special"))
    if "jax" in sys.modules:
        started_by_us()
