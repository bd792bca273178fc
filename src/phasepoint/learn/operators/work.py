"""Operators of a framework: their class, the work that each has to do, and folders of measured ones.

The work is flop, bytes and the dimensions of a product. A folder holds one parquet file per operator, a row per
measurement.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from phasepoint.core.arrays import Floats
from phasepoint.core.errors import ModelError
from phasepoint.core.tables import read_parquet
from phasepoint.devices import DeviceSpec, device_spec

if TYPE_CHECKING:
    import pyarrow as pa

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
class OperatorWork:
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


def work_of_columns(op: str, columns: Mapping[str, Any], *, element_bytes: int = 4) -> OperatorWork:
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


def work_of_operators(operators: Sequence[Operator]) -> OperatorWork:
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


def join_works(parts: Sequence[OperatorWork]) -> OperatorWork:
    """Several works one after the other."""
    names = OperatorWork.__dataclass_fields__
    return OperatorWork(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})


def _loop(flop: Floats, read: Floats, written: Floats) -> OperatorWork:
    one = np.ones_like(flop)
    return OperatorWork(flop, flop, read, written, one, one, one, one, one, one)


def _rows(dims: Mapping[str, Floats], kind: str, size: int) -> OperatorWork:
    """A softmax or layer norm: each row is read and written once."""
    rows, length = dims["B"], dims["H"]
    one, moved = np.ones_like(rows), rows * length * size
    flop = _ROW_FLOP[kind] * rows * length
    return OperatorWork(flop, flop, moved, moved, rows, length, one, one, one, one)


def _product(dims: Mapping[str, Floats], size: int, *, shared: bool) -> OperatorWork:
    b, m, n, k = (dims[name] for name in ("B", "M", "N", "K"))
    if shared:  # one matrix of weights for all: B × M rows
        m, b = b * m, np.ones_like(b)
    one, flop = np.ones_like(b), 2.0 * b * m * n * k
    return OperatorWork(flop, flop, b * (m * k + n * k) * size, b * m * n * size, b, m, n, k, one, one)


def _convolution(dims: Mapping[str, Floats], size: int) -> OperatorWork:
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
    return OperatorWork(flop, flop / saved, read, m * n * size, one, m, n, k, window, stride)


COLUMNS = ("device", "latency_ms", "op")


@dataclass(frozen=True)
class OperatorTimes:
    """Measurements of one operator on one device.

    Attributes:
        op: the operator.
        kind: its class.
        device: as the file names it.
        spec: of the device.
        work: of each measurement.
        time_s: shape [n], seconds.
    """

    op: str
    kind: str
    device: str
    spec: DeviceSpec
    work: OperatorWork
    time_s: Floats


def read_operator_times(folder: str | Path) -> tuple[tuple[OperatorTimes, ...], tuple[str, ...]]:
    """All measurements of a folder, and notes on what was left out.

    Raises:
        ModelError: there is no parquet file, one cannot be read, a column is missing, or nothing could be used.
    """
    files = sorted(Path(folder).glob("*.parquet"))
    if not files:
        raise ModelError(
            f"{folder} holds no measurements; expected one parquet file per operator ({', '.join(COLUMNS)}, dims)"
        )
    times: list[OperatorTimes] = []
    left_out: dict[str, int] = {}
    for file in files:
        for op, table in _split(_read(file), "op").items():
            _read_operator(file, op, table, (times, left_out))
    notes = tuple(f"{reason}; {count:,} measurements left out" for reason, count in left_out.items())
    if not times:
        raise ModelError(f"{folder}: no measurement can be used: {'; '.join(notes) or 'the files have no rows'}")
    return tuple(times), notes


def _read_operator(file: Path, op: str, table: "pa.Table", found: tuple[list[OperatorTimes], dict[str, int]]) -> None:
    times, left_out = found

    def leave_out(reason: str, count: int) -> None:
        left_out[reason] = left_out.get(reason, 0) + count

    if op not in DIMENSIONS:
        leave_out(f"operator {op!r} is not known", table.num_rows)
        return
    missing = [name for name in DIMENSIONS[op] if name not in table.column_names]
    if missing:
        raise ModelError(
            f"{file}: operator {op} needs the columns {', '.join(missing)}; there are {table.column_names}"
        )
    for device, rows in _split(table, "device").items():
        spec = device_spec(device)
        if spec is None or spec.chip is None or "f32" not in spec.flop_per_s:
            leave_out(f"device {device!r} is not in devices/specs.toml, or without its chip", rows.num_rows)
            continue
        columns, latency_ms = _numbers(file, rows, DIMENSIONS[op])
        usable = np.isfinite(latency_ms) & (latency_ms > 0)
        for name, values in columns.items():
            usable &= np.isfinite(values) & (values >= (0 if name == "padding" else 1))
        if not usable.all():
            leave_out(f"{file.name}: no time above 0, or a dimension that is missing or below 1", int((~usable).sum()))
        if usable.any():
            work = work_of_columns(op, {name: values[usable] for name, values in columns.items()})
            times.append(OperatorTimes(op, operator_class(op), device, spec, work, latency_ms[usable] * 1e-3))


def _read(file: Path) -> "pa.Table":
    try:
        table = read_parquet(file)
    except (OSError, ValueError) as error:
        raise ModelError(
            f"{file} cannot be read as parquet ({error}); give a folder with one file per operator"
        ) from error
    missing = [name for name in COLUMNS if name not in table.column_names]
    if missing:
        raise ModelError(f"{file} has no column {', '.join(missing)}; expected {', '.join(COLUMNS)} and the dimensions")
    return table


def _split(table: "pa.Table", column: str) -> Mapping[str, "pa.Table"]:
    import pyarrow.compute as pc

    names = [str(name) for name in pc.unique(table[column]).to_pylist() if name is not None]
    return {name: table.filter(pc.equal(table[column], name)) for name in names}


def _numbers(file: Path, rows: "pa.Table", names: tuple[str, ...]) -> tuple[Mapping[str, Floats], Floats]:
    import pyarrow as pa

    def column(name: str) -> npt.NDArray[np.float64]:
        try:
            values = rows[name].cast(pa.float64()).to_numpy(zero_copy_only=False)
        except pa.ArrowException as error:
            raise ModelError(f"{file}: column {name} holds no numbers ({error})") from error
        return np.asarray(values, np.float64)

    return {name: column(name) for name in names}, column("latency_ms")
