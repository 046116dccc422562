"""A batch along the last axis: like ``jax.vmap``, with code that a processor runs several times faster.

``jax.vmap`` of a program on small arrays puts the batch first, and XLA then loops over axes of length five and calls
LAPACK for each tiny matrix. Here every array carries the batch, its lanes, as its last axis: all inner loops run over
contiguous lanes, in vector registers. The program of one point is read equation by equation. Elementwise operations
apply as they are; sums, products and factors of small matrices are written out as elementwise operations; for what has
no rule here, one equation is left to ``jax.vmap``.

XLA would fuse all of these and compute shared parts again and again. So a value that is read more than once is settled:
computed and stored, behind a ``lax.optimization_barrier``. On a processor barriers last only if the program is compiled
with ``batches.OPTIONS``. Without them it is the same program, but slow.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.extend import core

from dpglm.analyst.small_factors import cholesky, eigh, hold, solve_lower, total

_LARGEST_FACTOR = 40  # rows of a matrix that is factored here


class _Lanes(NamedTuple):
    """An array whose last axis is the batch. If it is settled, it can be read often at no cost."""

    array: Array
    settled: bool

    @property
    def shape(self) -> tuple[int, ...]:
        """Of one point."""
        return self.array.shape[:-1]


Value = Any  # _Lanes, or a constant: NumPy's array without lanes
Rule = Callable[[Any, list[Value], Any, int], "list[Array] | None"]


def lanes(function: Callable[..., Any]) -> Callable[..., Any]:
    """``jax.vmap(function, in_axes=-1, out_axes=-1)``, to rounding; not to be differentiated.

    >>> lanes(lambda x: x @ x)(jnp.array([[1.0, 2.0], [3.0, 4.0]])).tolist()
    [10.0, 20.0]
    """

    def batched(*arguments: Any) -> Any:
        leaves = jax.tree.leaves(arguments)
        points = jax.tree.map(lambda leaf: cast("Any", jax.ShapeDtypeStruct)(leaf.shape[:-1], leaf.dtype), arguments)
        closed, out = cast("Any", jax.make_jaxpr(function, return_shape=True))(*points)
        count = leaves[0].shape[-1]
        made = _evaluate(closed.jaxpr, closed.consts, [_Lanes(leaf, True) for leaf in leaves], count)
        return jax.tree.unflatten(jax.tree.structure(out), [_spread(value, value.shape, count) for value in made])

    return batched


def _evaluate(jaxpr: Any, constants: Sequence[Any], arguments: Sequence[Value], count: int) -> list[Value]:
    """The equations that are needed, one after the other."""
    equations, uses = _needed(jaxpr)
    values: dict[Any, Value] = {}

    def keep(variables: Sequence[Any], made: Sequence[Value]) -> None:
        for variable, value in zip(variables, made, strict=True):
            values[variable] = _settled(value) if uses[variable] > 1 else value

    def read(variable: Any) -> Value:
        if isinstance(variable, core.Literal):
            return np.asarray(variable.val, cast("Any", variable.aval).dtype)
        return values[variable]

    keep(jaxpr.constvars, [np.asarray(constant) for constant in constants])
    keep(jaxpr.invars, arguments)
    for equation in equations:
        keep(equation.outvars, _apply(equation, [read(variable) for variable in equation.invars], count))
    return [read(variable) for variable in jaxpr.outvars]


def _needed(jaxpr: Any) -> tuple[list[Any], Counter[Any]]:
    """Equations that the results need, and how often these use each variable."""
    uses = Counter(variable for variable in jaxpr.outvars if not isinstance(variable, core.Literal))
    equations = []
    for equation in reversed(jaxpr.eqns):
        if any(uses[variable] for variable in equation.outvars):
            equations.append(equation)
            uses.update(variable for variable in equation.invars if not isinstance(variable, core.Literal))
    return equations[::-1], uses


def _apply(equation: Any, inputs: list[Value], count: int) -> list[Value]:
    """One equation."""
    name, params, out = equation.primitive.name, equation.params, equation.outvars[0].aval
    constant = [isinstance(value, np.ndarray) for value in inputs]
    if name == "platform_index":
        return [np.asarray(next(n for n, p in enumerate(params["platforms"]) if p is None or "cpu" in p), np.int32)]
    body = params.get("jaxpr", params.get("call_jaxpr")) if name in _CALLS else None
    if name == "cond" and constant[0]:
        body, inputs = params["branches"][int(inputs[0])], inputs[1:]
    if body is not None:
        return _evaluate(body.jaxpr, body.consts, inputs, count)
    if all(constant) and name in _FOLDED:
        return [np.asarray(_FOLDED[name](params, *inputs), out.dtype)]
    if (simple := _simplified(name, inputs, out)) is not None:
        return [simple]
    if name in _ELEMENTWISE:
        arrays = [_spread(value, out.shape, count) for value in inputs]
        return [_Lanes(equation.primitive.bind(*arrays, **params), False)]
    if name in _VIEWS:
        value = _settled(inputs[0]) if math.prod(out.shape) > math.prod(inputs[0].shape) else inputs[0]
        return [_Lanes(_VIEWS[name](params, _array(value), out.shape), not isinstance(value, _Lanes) or value.settled)]
    if name in ("split", "unstack"):
        return _parts(equation, _settled(inputs[0]))
    made = _RULES[name](params, [_settled(value) for value in inputs], out, count) if name in _RULES else None
    return [_stored(array) for array in (_left_to_vmap(equation, inputs, count) if made is None else made)]


def _array(value: Value) -> Array:
    """With lanes, or one lane for all."""
    return value.array if isinstance(value, _Lanes) else jnp.asarray(value)[..., None]


def _spread(value: Value, shape: tuple[int, ...], count: int) -> Array:
    return jnp.broadcast_to(_array(value), (*shape, count))


def _stored(array: Array) -> _Lanes:
    return _Lanes(hold(array), True)


def _settled(value: Value) -> Value:
    return _stored(value.array) if isinstance(value, _Lanes) and not value.settled else value


def _simplified(name: str, inputs: list[Value], out: Any) -> Value | None:
    """Products with zeros and ones, and sums with zeros, of which derivatives are full."""

    def holds(value: Value, number: int) -> bool:
        return isinstance(value, np.ndarray) and value.dtype.kind == "f" and bool(np.all(value == number))

    if name in ("mul", "dot_general") and (holds(inputs[0], 0) or holds(inputs[1], 0)):
        return np.zeros(out.shape, out.dtype)
    neutral = {"add": 0, "add_any": 0, "sub": 0, "mul": 1, "div": 1}.get(name)
    if neutral is not None:
        for kept, other in ((0, 1), (1, 0))[: 1 if name in ("sub", "div") else 2]:
            if holds(inputs[other], neutral) and inputs[kept].shape == out.shape:
                return inputs[kept]
    return None


def _left_to_vmap(equation: Any, inputs: list[Value], count: int) -> list[Array]:
    given = {v: value for v, value in zip(equation.invars, inputs, strict=True) if not isinstance(v, core.Literal)}
    names = jax.make_jaxpr(lambda: 0)().jaxpr.debug_info.with_unknown_names()
    jaxpr = core.Jaxpr([], list(given), equation.outvars, [equation], equation.effects, names)
    run = jax.vmap(core.jaxpr_as_fun(core.ClosedJaxpr(jaxpr, ())), in_axes=-1, out_axes=-1, axis_size=count)
    return list(run(*(_spread(_settled(value), value.shape, count) for value in given.values())))


def _sum(params: Any, inputs: list[Value], out: Any, count: int) -> list[Array]:
    axes, array = params["axes"], _array(inputs[0])
    return [total([_at(array, axes, place) for place in _places(inputs[0], axes)]).reshape(*out.shape, count)]


def _places(value: Value, axes: Sequence[int]) -> Iterator[tuple[int, ...]]:
    return np.ndindex(*(value.shape[axis] for axis in axes))


def _at(array: Array, axes: Sequence[int], place: Sequence[int]) -> Array:
    """A slice of length one along some axes."""
    starts, stops = [0] * array.ndim, list(array.shape)
    for axis, start in zip(axes, place, strict=True):
        starts[axis], stops[axis] = start, start + 1
    return lax.slice(array, starts, stops)


def _dot(params: Any, inputs: list[Value], out: Any, count: int) -> list[Array]:
    """Sum over k of left[b, m, k] right[b, k, n], term by term."""
    contracted, batch = params["dimension_numbers"]
    if (picked := _pick(inputs, contracted)) is not None:
        return [picked]

    def terms(side: int, new_axis: int) -> Iterator[Array]:
        value, axes, first = inputs[side], contracted[side], batch[side]
        array, shape = _array(value), value.shape
        free = [axis for axis in range(len(shape)) if axis not in (*axes, *first)]
        sizes = [math.prod(shape[axis] for axis in some) for some in (first, free)]
        sizes.insert(new_axis, 1)
        for place in _places(value, axes):
            moved = _at(array, axes, place).transpose(*axes, *first, *free, array.ndim - 1)
            yield moved.reshape(*sizes, array.shape[-1])

    product = total([left * right for left, right in zip(terms(0, 2), terms(1, 1), strict=True)])
    return [product.reshape(*out.shape, count)]


def _pick(inputs: list[Value], contracted: Any) -> Array | None:
    """A product of a vector with a constant matrix, each column of which has one one, and zeros."""
    for matrix, vector, axes in zip(inputs, inputs[::-1], contracted, strict=True):
        if isinstance(matrix, np.ndarray) and matrix.ndim == 2 and len(vector.shape) == 1:
            columns = np.moveaxis(matrix, axes[0], 0)
            if np.isin(columns, (0, 1)).all() and np.all(columns.sum(axis=0) == 1):
                return jnp.take(_array(vector), columns.argmax(axis=0), axis=0, mode="clip")
    return None


def _gather(params: Any, inputs: list[Value], out: Any, count: int) -> list[Array] | None:
    """Single elements at constant places."""
    numbers, places, shape = params["dimension_numbers"], inputs[1], inputs[0].shape
    filled = params["mode"] == lax.GatherScatterMode.FILL_OR_DROP
    if filled or not isinstance(places, np.ndarray) or numbers.offset_dims or numbers.operand_batching_dims:
        return None
    index = [np.zeros(out.shape, np.int64)] * len(shape)
    for column, axis in enumerate(numbers.start_index_map):
        index[axis] = places[..., column]
    flat = np.ravel_multi_index(index, shape, mode="clip")
    return [jnp.take(_array(inputs[0]).reshape(-1, count), flat, axis=0, mode="clip")]


def _joined(params: Any, inputs: list[Value], out: Any, count: int) -> list[Array]:
    arrays = [_spread(value, value.shape, count) for value in inputs]
    if "dimension" in params:
        return [jnp.concatenate(arrays, params["dimension"])]
    return [jnp.stack(arrays, params["axis"])]


def _padded(params: Any, inputs: list[Value], out: Any, count: int) -> list[Array] | None:
    if not isinstance(inputs[1], np.ndarray):
        return None
    return [lax.pad(_array(inputs[0]), jnp.asarray(inputs[1]), (*params["padding_config"], (0, 0, 0)))]


def _parts(equation: Any, value: Value) -> list[Value]:
    """Slices along one axis."""
    axis, array = equation.params["axis"], _array(value)
    sizes = equation.params.get("sizes", [1] * len(equation.outvars))
    stops = np.cumsum(sizes).tolist()
    parts = [lax.slice_in_dim(array, stop - size, stop, axis=axis) for stop, size in zip(stops, sizes, strict=True)]
    shapes = [variable.aval.shape for variable in equation.outvars]
    return [_Lanes(part.reshape(*shape, part.shape[-1]), True) for part, shape in zip(parts, shapes, strict=True)]


def _cholesky(params: Any, inputs: list[Value], out: Any, count: int) -> list[Array] | None:
    return [cholesky(_array(inputs[0]))] if _is_small_matrix(inputs[0]) else None


def _triangular_solve(params: Any, inputs: list[Value], out: Any, count: int) -> list[Array] | None:
    """Every side and triangle is brought to A X = B for a lower triangular A."""
    if not _is_small_matrix(inputs[0]):
        return None
    a, b = (_spread(value, value.shape, count) for value in inputs)
    right, turned = not params["left_side"], params["transpose_a"]
    if right:  # X A = B is A' X' = B'
        b = b.swapaxes(0, 1)
    if right != turned:
        a = a.swapaxes(0, 1)
    upwards = params["lower"] == (right != turned)
    if upwards:
        a, b = a[::-1, ::-1], b[::-1]
    x = solve_lower(a, b, params["unit_diagonal"])
    x = x[::-1] if upwards else x
    return [x.swapaxes(0, 1) if right else x]


def _eigh(params: Any, inputs: list[Value], out: Any, count: int) -> list[Array] | None:
    if not _is_small_matrix(inputs[0]) or not params["lower"] or params["subset_by_index"] is not None:
        return None
    return list(eigh(_array(inputs[0])))


def _is_small_matrix(value: Value) -> bool:
    return len(value.shape) == 2 and len(_array(value)) <= _LARGEST_FACTOR


def _sliced(params: Any, array: Array, shape: tuple[int, ...]) -> Array:
    strides = (*params["strides"], 1) if params["strides"] else None
    return lax.slice(array, (*params["start_indices"], 0), (*params["limit_indices"], array.shape[-1]), strides)


def _broadcast(params: Any, array: Array, shape: tuple[int, ...]) -> Array:
    axes = (*params["broadcast_dimensions"], len(shape))
    return lax.broadcast_in_dim(array, (*shape, array.shape[-1]), axes)


def _broadcast_constant(params: Any, array: Any) -> Any:
    shape = [1] * len(params["shape"])
    for length, axis in zip(array.shape, params["broadcast_dimensions"], strict=True):
        shape[axis] = length
    return np.broadcast_to(array.reshape(shape), params["shape"])


_CALLS = ("jit", "pjit", "closed_call", "custom_jvp_call", "custom_vjp_call")
_FOLDED: dict[str, Callable[..., Any]] = {  # constants
    **{name: lambda params, *arrays, apply=apply: apply(*arrays) for name, apply in {
        "add": np.add, "add_any": np.add, "sub": np.subtract, "mul": np.multiply, "neg": np.negative, "eq": np.equal,
        "ge": np.greater_equal, "gt": np.greater, "le": np.less_equal, "lt": np.less, "ne": np.not_equal,
    }.items()},
    "broadcast_in_dim": _broadcast_constant,
    "concatenate": lambda params, *arrays: np.concatenate(arrays, params["dimension"]),
    "convert_element_type": lambda params, array: array,
    "iota": lambda params: np.indices(params["shape"])[params["dimension"]],
    "reduce_sum": lambda params, array: array.sum(axis=params["axes"]),
    "reshape": lambda params, array: array.reshape(params["new_sizes"]),
    "select_n": lambda params, which, *arrays: np.choose(which, arrays),
    "squeeze": lambda params, array: np.squeeze(array, params["dimensions"]),
    "transpose": lambda params, array: array.transpose(params["permutation"]),
}  # fmt: skip
_NAMES = """
    abs add add_any and ceil clamp convert_element_type copy cos digamma div eq erf erf_inv erfc exp exp2 expm1 floor
    ge gt integer_pow is_finite le lgamma log log1p logistic lt max min mul ne neg not or pow rem round rsqrt select_n
    sign sin sqrt square stop_gradient sub tan tanh xor
"""
_ELEMENTWISE = frozenset(_NAMES.split())
_VIEWS: dict[str, Callable[[Any, Array, tuple[int, ...]], Array]] = {
    "broadcast_in_dim": _broadcast,
    "reshape": lambda params, array, shape: array.reshape(*shape, array.shape[-1]),
    "slice": _sliced,
    "squeeze": lambda params, array, shape: array.reshape(*shape, array.shape[-1]),
    "transpose": lambda params, array, shape: array.transpose(*params["permutation"], array.ndim - 1),
}
_RULES: dict[str, Rule] = {
    "cholesky": _cholesky, "concatenate": _joined, "dot_general": _dot, "eigh": _eigh, "gather": _gather,
    "pad": _padded, "reduce_sum": _sum, "stack": _joined, "triangular_solve": _triangular_solve,
}  # fmt: skip
