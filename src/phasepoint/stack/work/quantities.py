"""Flop, bytes and occupancy of executions, each with its source: counter, compiler, formula.

Flop and bytes of an operator from the shapes of what goes into it.

Flop: a multiply and an add are two. Bytes: every input read once and every output written once, the least that an
operator can move. Operators that are not listed are unknown; so are convolutions where the trace does not say what they
give (`convolutions.py`).

Source: matrix products and attention as `torch/utils/flop_counter.py` counts them (PyTorch 2.13, read 2026-11-21);
elementwise arithmetic is one flop an element, as XLA's cost analysis counts it.

Shares of a whole number, exactly.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from phasepoint.core.arrays import Bools, Int64s
from phasepoint.hlo.shapes import ELEMENT_BYTES, ArrayShape, parse_array


def share_out(owner: Int64s, value: Int64s, weight: Int64s) -> Int64s:
    """Share each owner's value among its rows in proportion to their weights, as whole numbers that add up to it.

    Args:
        owner: `[n]` whose part each row is, any integers.
        value: `[n]` the owner's whole value, equal in all its rows, not negative.
        weight: `[n]` not negative; where all of an owner are 0, its first row has everything.

    Returns:
        `[n]` parts. What rounding leaves goes to the owner's rows in order, one each.

    Example:
        >>> share_out(np.array([0, 0, 0]), np.array([10, 10, 10]), np.array([1, 1, 1])).tolist()
        [4, 3, 3]
    """
    if not len(owner):
        return np.empty(0, np.int64)
    order = np.argsort(owner, kind="stable")
    sorted_owner = owner[order]
    first = np.concatenate(([True], sorted_owner[1:] != sorted_owner[:-1]))
    group = np.cumsum(first) - 1
    begin = np.flatnonzero(first)
    total_weight = np.add.reduceat(weight[order].astype(np.float64), begin)
    whole = value[order][begin]
    parts = np.zeros(len(order), np.int64)
    heavy = total_weight[group] > 0
    exact = whole[group][heavy] * (weight[order][heavy] / total_weight[group][heavy])
    parts[heavy] = np.floor(exact).astype(np.int64)
    parts[heavy] = np.minimum(parts[heavy], whole[group][heavy])
    left = whole - np.add.reduceat(parts, begin)
    place = np.arange(len(order)) - begin[group]
    size = np.diff(np.append(begin, len(order)))
    parts += left[group] // size[group] + (place < left[group] % size[group])
    # Of an owner without weight all of it was left; its first row has it.
    weightless = ~heavy
    parts[weightless] = np.where(first[weightless], whole[group][weightless], 0)
    result = np.empty(len(order), np.int64)
    result[order] = parts
    return result


_ARRAYS = re.compile(r"[a-z][a-z0-9]*\[[0-9,]*\]")


class OpWork(NamedTuple):
    """What one execution of an operator does at least.

    Attributes:
        flop: floating-point operations, None where unknown.
        read_bytes: bytes of its inputs.
        write_bytes: bytes of its outputs.
        element_type: type of its first operand: bf16, f32.
    """

    flop: int | None
    read_bytes: int
    write_bytes: int
    element_type: str


_Formula = Callable[[Sequence[ArrayShape]], tuple[int | None, int] | None]
"""Operands, behind them what is known of results → flop and elements written; None where they do not fit."""


def _product(left: ArrayShape, right: ArrayShape) -> tuple[int, int] | None:
    """`[…, m, k] × […, k, n]`."""
    if len(left.dims) < 2 or len(left.dims) != len(right.dims) or left.dims[-1] != right.dims[-2]:
        return None
    written = left.elements // max(left.dims[-1], 1) * right.dims[-1]
    return 2 * written * left.dims[-1], written


def _linear(operands: Sequence[ArrayShape]) -> tuple[int, int] | None:
    given, weight = operands[:2]
    if len(weight.dims) != 2 or not given.dims or given.dims[-1] != weight.dims[1]:
        return None
    written = given.elements // max(given.dims[-1], 1) * weight.dims[0]
    return 2 * written * given.dims[-1], written


def _matrix_vector(operands: Sequence[ArrayShape]) -> tuple[int, int] | None:
    matrix, vector = operands[-2:]
    fits = len(matrix.dims) == 2 and matrix.dims[1:] == vector.dims
    return (2 * matrix.elements, matrix.dims[0]) if fits else None


def _dot(operands: Sequence[ArrayShape]) -> tuple[int, int]:
    return 2 * operands[0].elements, 1


def _attention(operands: Sequence[ArrayShape]) -> tuple[int, int] | None:
    """Scores, and their product with the values: query `[b, h, q, d]`, key `[b, h, k, d]`, value `[b, h, k, e]`."""
    query, key, value = operands[:3]
    if not (len(query.dims) == len(key.dims) == len(value.dims) == 4):
        return None
    batch, heads, queries, depth = query.dims
    keys, width = value.dims[2:]
    return 2 * batch * heads * queries * keys * (depth + width), batch * heads * queries * width


def _attention_backward(operands: Sequence[ArrayShape]) -> tuple[int, int] | None:
    """Scores again and four products: gradients of values, scores, queries and keys."""
    query, key, value = operands[1:4]
    if not (len(query.dims) == len(key.dims) == len(value.dims) == 4):
        return None
    batch, heads, queries, depth = query.dims
    keys, width = value.dims[2:]
    flop = 2 * batch * heads * queries * keys * (3 * depth + 2 * width)
    return flop, query.elements + key.elements + value.elements


def _convolution(arrays: Sequence[ArrayShape]) -> tuple[int, int] | None:
    """Input, weight and perhaps a bias, then the result: each of its elements takes all of one channel's weights."""
    weight, result = arrays[1], arrays[-1]
    if len(weight.dims) < 3 or len(result.dims) < len(weight.dims) - 1:
        return None
    return 2 * result.elements * (weight.elements // max(weight.dims[0], 1)), result.elements


def _convolution_backward(arrays: Sequence[ArrayShape]) -> tuple[int, int] | None:
    """Gradient of the result, input, weight, then the gradients that were wanted: each takes what the result took."""
    given, weight, wanted = arrays[0], arrays[2], arrays[3:]
    if len(weight.dims) < 3:
        return None
    flop = 2 * given.elements * (weight.elements // max(weight.dims[0], 1))
    return flop * len(wanted), sum(one.elements for one in wanted)


def _elementwise(operands: Sequence[ArrayShape]) -> tuple[int, int]:
    written = _broadcast([one.dims for one in operands])
    return written, written


def _broadcast(shapes: Sequence[tuple[int, ...]]) -> int:
    longest = max(map(len, shapes), default=0)
    elements = 1
    for place in range(1, longest + 1):
        elements *= max(dims[-place] for dims in shapes if len(dims) >= place)
    return elements


_ARITHMETIC = ("add", "add_", "sub", "sub_", "mul", "mul_", "div", "div_", "neg", "relu", "relu_", "threshold_backward")
_ATTENTION = ("flash_attention", "efficient_attention", "cudnn_attention", "flash_attention_for_cpu")

FORMULAS: dict[str, tuple[int, _Formula]] = {
    "aten::mm": (2, lambda operands: _product(*operands[:2])),
    "aten::bmm": (2, lambda operands: _product(*operands[:2])),
    "aten::addmm": (3, lambda operands: _product(*operands[1:3])),
    "aten::_addmm_activation": (3, lambda operands: _product(*operands[1:3])),
    "aten::baddbmm": (3, lambda operands: _product(*operands[1:3])),
    "aten::linear": (2, _linear),
    "aten::mv": (2, _matrix_vector),
    "aten::addmv": (3, _matrix_vector),
    "aten::dot": (2, _dot),
    **{f"aten::_scaled_dot_product_{kind}": (3, _attention) for kind in _ATTENTION},
    **{f"aten::_scaled_dot_product_{kind}_backward": (4, _attention_backward) for kind in _ATTENTION},
    **{f"aten::{name}": (1, _elementwise) for name in _ARITHMETIC},
}
"""Operator → how many operands it needs, and its formula."""

GIVES = " -> "
"""Between the operands and what an operator gives, in the texts of shapes."""

_BACKWARD, _FORWARD = (3, _convolution_backward), (2, _convolution)
"""The same of the only operators whose results are known, convolutions."""


@lru_cache(maxsize=65_536)
def op_work(name: str, shape: str) -> OpWork | None:
    """What one execution of an operator does, None where no formula fits.

    Args:
        name: operator: `aten::addmm`.
        shape: types and shapes of its operands as `spans.shape` has them.

    Example:
        >>> op_work("aten::mm", "f32[2,3], f32[3,5]")
        OpWork(flop=60, read_bytes=84, write_bytes=40, element_type='f32')
        >>> op_work("aten::conv2d", "f32[1,3,8,8], f32[4,3,3,3] -> f32[1,4,4,4]").flop
        3456
    """
    needs, _, gives = shape.partition(GIVES)
    of_results = _BACKWARD if name.endswith("_backward") else _FORWARD
    found = of_results if gives else FORMULAS.get(name)
    operands, results = (
        [array for one in _ARRAYS.findall(text) if (array := parse_array(one)) is not None] for text in (needs, gives)
    )
    if found is None or len(operands) < found[0]:
        return None
    if any(operand.element_type not in ELEMENT_BYTES for operand in operands):
        return None
    done = found[1]([*operands[: found[0]], *results] if results else operands)
    if done is None:
        return None
    read_bytes = sum(one.elements * ELEMENT_BYTES[one.element_type] for one in operands)
    return OpWork(done[0], read_bytes, done[1] * ELEMENT_BYTES[operands[0].element_type], operands[0].element_type)


SOURCES = {"counter": 1, "compiler": 2, "formula": 4}
"""Who says it, as a bit, so that a sum can have several."""


@dataclass(frozen=True, eq=False)
class Quantity:
    """One quantity of executions. Arrays are `[n]`.

    Attributes:
        value: 0 where it is not known.
        source: a value of `SOURCES`, 0 where it is not known.
    """

    value: NDArray[Any]
    source: Int64s

    @property
    def known(self) -> Bools:
        """`[n]` whether it is known."""
        return self.source > 0

    def learn(self, rows: Int64s | Bools, value: NDArray[Any], source: str | Int64s) -> None:
        """Set it for some executions."""
        self.value[rows] = value
        self.source[rows] = SOURCES[source] if isinstance(source, str) else source


@dataclass(frozen=True, eq=False)
class Quantities:
    """What executions did. Arrays are `[n]`.

    Attributes:
        flop: floating-point operations.
        read_bytes: bytes read from memory.
        write_bytes: bytes written.
        bytes: bytes read and written.
        occupancy: share of the warps (waves) that a processor can hold, 0–1.
        element_type: type of the operands (bf16, f32; tf32 where the kernel rounds to it), None where not known.
    """

    flop: Quantity
    read_bytes: Quantity
    write_bytes: Quantity
    bytes: Quantity
    occupancy: Quantity
    element_type: NDArray[np.object_]


def no_quantities(n_rows: int) -> Quantities:
    """Quantities of which nothing is known."""
    flop, read, written, moved = (Quantity(np.zeros(n_rows, np.int64), np.zeros(n_rows, np.int64)) for _ in range(4))
    occupancy = Quantity(np.zeros(n_rows), np.zeros(n_rows, np.int64))
    return Quantities(flop, read, written, moved, occupancy, np.full(n_rows, None, object))


_TOGETHER = (("flop",), ("bytes", "read_bytes", "write_bytes"), ("occupancy",))
"""Quantities that are taken from one source: what is read and written adds up to the bytes, the first of theirs."""


def join_quantities(sources: Sequence[Quantities]) -> Quantities:
    """Each quantity of each execution from the first that knows it."""
    joined = no_quantities(len(sources[0].element_type))
    for source in sources:
        for names in _TOGETHER:
            fresh = getattr(source, names[0]).known & ~getattr(joined, names[0]).known
            for name in names:
                quantity: Quantity = getattr(source, name)
                getattr(joined, name).learn(fresh, quantity.value[fresh], quantity.source[fresh])
        unnamed = np.array([kind is None for kind in joined.element_type], np.bool_)
        joined.element_type[unnamed] = source.element_type[unnamed]
    return joined


def source_texts(bits: Int64s) -> list[str | None]:
    """`[n]` sources in words: `counter`, `compiler, formula`; None where nothing is known."""
    words = [", ".join(name for name, bit in SOURCES.items() if value & bit) or None for value in range(8)]
    return [words[value] for value in bits.tolist()]
