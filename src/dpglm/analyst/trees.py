"""Nested tuples, named tuples, lists and dictionaries of arrays, as ``jax.tree`` takes them, without JAX.

None holds nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any


def leaves(tree: Any) -> list[Any]:
    """All that is not nested, in order.

    >>> leaves((1, [2, (3,)], {"b": 4, "a": 5}))
    [1, 2, 3, 5, 4]
    """
    return [leaf for part in parts for leaf in leaves(part)] if (parts := _parts(tree)) is not None else [tree]


def mapped(function: Callable[..., Any], tree: Any, *others: Any) -> Any:
    """A function of each leaf, and of those in its place in other trees; the nesting of the first.

    >>> mapped(lambda one, other: one - other, (1, {"a": 5}), (2, {"a": 3}))
    (-1, {'a': 2})
    """
    parts = _parts(tree)
    if parts is None:
        return function(tree, *others)
    new = [mapped(function, *each) for each in zip(parts, *map(_parts, others), strict=True)]
    return _like(tree, new)


def filled(tree: Any, values: Iterator[Any]) -> Any:
    """The same nesting with other leaves, in order."""
    return mapped(lambda _: next(values), tree)


def _parts(tree: Any) -> list[Any] | None:
    if tree is None:
        return []
    if isinstance(tree, dict):
        return [tree[key] for key in sorted(tree)]
    return list(tree) if isinstance(tree, tuple | list) else None


def _like(tree: Any, parts: list[Any]) -> Any:
    if tree is None:
        return None
    if isinstance(tree, dict):
        return dict(zip(sorted(tree), parts, strict=True))
    return type(tree)(*parts) if hasattr(tree, "_fields") else type(tree)(parts)
