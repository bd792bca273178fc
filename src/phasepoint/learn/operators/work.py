"""Operators of a framework, their class, and the work that each has to do: flop, bytes, dimensions of a product."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from phasepoint.core.arrays import Floats
from phasepoint.core.errors import ModelError

CLASSES = ("bmm", "linear", "element-wise", "softmax", "layer norm", "convolution")
PRODUCTS = ("bmm", "linear", "convolution")
"""Classes that sum over a dimension: their time hangs on tiles, waves and flop."""

_INPUTS_AND_FLOP = {
    **{"add": (2, 1), "mul": (2, 1), "div": (2, 8), "pow": (2, 20)},
    **{"addu": (1, 1), "mulu": (1, 1), "divu": (1, 1), "powu": (1, 20)},
    **{"relu": (1, 1), "gelu": (1, 20), "tanh": (1, 15)},
}
"""Element-wise operators: tensors read, and instructions per element (a function: steps of its polynomial)."""
_GENERIC = ("fusion", "reduce")
"""Loops given by their bytes and flop: `bytes_read`, `bytes_written`, `flop`."""
_ROWS = {"softmax": "softmax", "ln": "layer norm"}
_ROW_FLOP = {"softmax": 25.0, "layer norm": 8.0}
_BYTES = {"f64": 8, "f32": 4, "tf32": 4, "s32": 4, "bf16": 2, "f16": 2, "f8": 1, "s8": 1}

DIMENSIONS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys((*_INPUTS_AND_FLOP, *_ROWS), ("B", "H")),
    **dict.fromkeys(_GENERIC, ("bytes_read", "bytes_written", "flop")),
    **dict.fromkeys(("bmm", "linear"), ("B", "M", "N", "K")),
    "conv": ("B", "input_channel", "input_size", "kernel_size", "output_channel", "padding", "stride"),
}
"""Dimensions that each operator must have."""


@dataclass(frozen=True)
class Operator:
    """A framework's operator with its dimensions.

    Attributes:
        op: `bmm`, `linear`, `conv`, `softmax`, `ln`, an element-wise one (`add`, `relu`, …), or a loop given by its
            traffic (`fusion`, `reduce`).
        dims: by name, as `DIMENSIONS` lists them. `linear` multiplies [B, M, K] by [K, N]; `bmm` has B products.
        dtype: element type, in HLO's names.
    """

    op: str
    dims: Mapping[str, int]
    dtype: str = "f32"


@dataclass(frozen=True)
class Work:
    """What operators of one class have to do. All arrays have shape [n].

    Attributes:
        flop: sums and products of the direct algorithm.
        least_flop: what the fastest known algorithm needs (convolutions: Winograd's).
        read_bytes: compulsory, each input once.
        write_bytes: compulsory.
        batch: products, or rows (softmax, layer norm), or 1.
        m: rows of a product, or elements of a row.
        n: columns of a product, or 1.
        k: what is summed over, or 1.
        kernel_size: window of a convolution, or 1.
        stride: of a convolution, or 1.
    """

    flop: Floats
    least_flop: Floats
    read_bytes: Floats
    write_bytes: Floats
    batch: Floats
    m: Floats
    n: Floats
    k: Floats
    kernel_size: Floats
    stride: Floats

    @property
    def bytes(self) -> Floats:
        """Read and written."""
        return self.read_bytes + self.write_bytes


def operator_class(op: str) -> str:
    """Class of an operator: one of `CLASSES`.

    Raises:
        ModelError: the operator is not known.
    """
    if op in ("bmm", "linear"):
        return op
    if op in _ROWS:
        return _ROWS[op]
    if op in _INPUTS_AND_FLOP or op in _GENERIC:
        return "element-wise"
    if op == "conv":
        return "convolution"
    raise ModelError(f"there is no operator {op!r}; known are {', '.join(DIMENSIONS)}")


def work_of_columns(op: str, columns: Mapping[str, Any], *, element_bytes: int = 4) -> Work:
    """Work of many operators of one name.

    Args:
        op: its name.
        columns: each dimension of `DIMENSIONS[op]`, shape [n].
        element_bytes: size of an element.

    Raises:
        ModelError: a dimension is missing or not above 0.
    """
    kind = operator_class(op)
    missing = [name for name in DIMENSIONS[op] if name not in columns]
    if missing:
        raise ModelError(f"operator {op} has no {', '.join(missing)}; it needs {', '.join(DIMENSIONS[op])}")
    dims = {name: np.asarray(columns[name], np.float64) for name in DIMENSIONS[op]}
    for name, values in dims.items():
        least = 0.0 if name in ("padding", "flop", "bytes_read") else 1.0
        if values.size and not (values >= least).all():
            raise ModelError(f"operator {op}: {name} must be at least {least:.0f}, found {values.min():g}")
    if op in _GENERIC:
        return _loop(dims["flop"], dims["bytes_read"], dims["bytes_written"])
    if op == "conv":
        return _convolution(dims, element_bytes)
    if kind in PRODUCTS:
        return _product(dims, element_bytes, shared=op == "linear")
    elements = dims["B"] * dims["H"]
    if kind == "element-wise":
        inputs, flop = _INPUTS_AND_FLOP[op]
        return _loop(flop * elements, inputs * elements * element_bytes, elements * element_bytes)
    return _rows(dims, kind, element_bytes)


def work_of_operators(operators: Sequence[Operator]) -> Work:
    """Work of operators of one class, in their order.

    Raises:
        ModelError: an operator, a dimension or an element type is not known.
    """
    parts = []
    for operator in operators:
        if operator.dtype not in _BYTES:
            raise ModelError(f"element type {operator.dtype!r} is not known; known are {', '.join(_BYTES)}")
        columns = {name: [value] for name, value in operator.dims.items()}
        parts.append(work_of_columns(operator.op, columns, element_bytes=_BYTES[operator.dtype]))
    return join_works(parts)


def join_works(parts: Sequence[Work]) -> Work:
    """Several works one after the other."""
    names = Work.__dataclass_fields__
    return Work(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})


def _loop(flop: Floats, read: Floats, written: Floats) -> Work:
    one = np.ones_like(flop)
    return Work(flop, flop, read, written, one, one, one, one, one, one)


def _rows(dims: Mapping[str, Floats], kind: str, size: int) -> Work:
    rows, length = dims["B"], dims["H"]
    one, moved = np.ones_like(rows), rows * length * size
    flop = _ROW_FLOP[kind] * rows * length
    return Work(flop, flop, moved, moved, rows, length, one, one, one, one)


def _product(dims: Mapping[str, Floats], size: int, *, shared: bool) -> Work:
    b, m, n, k = (dims[name] for name in ("B", "M", "N", "K"))
    if shared:  # one matrix of weights for all: B × M rows
        m, b = b * m, np.ones_like(b)
    one, flop = np.ones_like(b), 2.0 * b * m * n * k
    return Work(flop, flop, b * (m * k + n * k) * size, b * m * n * size, b, m, n, k, one, one)


def _convolution(dims: Mapping[str, Floats], size: int) -> Work:
    window, stride = dims["kernel_size"], dims["stride"]
    out = np.floor((dims["input_size"] + 2 * dims["padding"] - window) / stride) + 1
    if (out < 1).any():
        raise ModelError("operator conv: the window is larger than the padded input")
    m, n = dims["B"] * out * out, dims["output_channel"]
    k = dims["input_channel"] * window * window
    flop, one = 2.0 * m * n * k, np.ones_like(m)
    # Winograd's F(4 × 4, r × r) multiplies (r + 3)² times for 16 outputs of r² products each (Lavin and Gray 2015)
    saved = np.where((stride == 1) & (window > 1), (4 * window / (window + 3)) ** 2, 1.0)
    read = (dims["B"] * dims["input_channel"] * dims["input_size"] ** 2 + n * k) * size
    return Work(flop, flop / saved, read, m * n * size, one, m, n, k, window, stride)
