"""Reading a folder of measured operators: one parquet file per operator, a row per measurement."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from phasepoint.core.arrays import Floats
from phasepoint.core.errors import ModelError
from phasepoint.devices import DeviceSpec, device_spec
from phasepoint.learn.operators.work import DIMENSIONS, Work, operator_class, work_of_columns

if TYPE_CHECKING:
    import pyarrow as pa

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
    work: Work
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
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(file)
    except (OSError, pa.ArrowException) as error:
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
