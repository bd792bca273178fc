"""The ops table as columns over the captured steps: self time and executions of each op, ready to be summed."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phasepoint.core.arrays import Bools, Int64s
from phasepoint.core.encoding import compact, encode_column, encode_rows, first_rows
from phasepoint.estimates.captured import Captured
from phasepoint.phases.clock.steps import StepSeries, read_numbers

_DEVICE_LEVELS = ("op", "kernel")


@dataclass(frozen=True)
class OpKey:
    """An op of the run: what rows of the ops table must share to be one op."""

    op: str
    category: str
    layer: str | None
    program: str | None


@dataclass(frozen=True, eq=False)
class OpColumns:
    """Rows of the captured steps' ops.

    Attributes:
        keys: the ops.
        index: `[n_rows]`, captured step (position in `Captured.row`) of each row.
        op: `[n_rows]`, position in `keys`.
        self_ps: `[n_rows]`.
        count: `[n_rows]`.
    """

    keys: tuple[OpKey, ...]
    index: Int64s
    op: Int64s
    self_ps: Int64s
    count: Int64s

    def sums(self, group: Int64s, n_groups: int, values: Int64s) -> Int64s:
        """Exact sums of `values` `[n_rows]` by group of captured step and op, `[n_groups, n_ops]`."""
        result = np.zeros((n_groups, len(self.keys)), np.int64)
        np.add.at(result, (group[self.index], self.op), values)
        return result

    def picked(self, ops: Int64s) -> "OpColumns":
        """The same rows with only these ops by name; all others are one nameless op at the end."""
        position = np.full(len(self.keys), len(ops), np.int64)
        position[ops] = np.arange(len(ops))
        keys = (*(self.keys[i] for i in ops.tolist()), OpKey("", "", None, None))
        return OpColumns(keys, self.index, position[self.op], self.self_ps, self.count)


def read_op_columns(ops: pa.Table, programs: pa.Table | None, steps: StepSeries, captured: Captured) -> OpColumns:
    """Device work of the captured steps: levels op and kernel, on a device where any row is on one.

    On a GPU the framework's ops on the host launch the kernels on the device; only the kernels are listed, since the
    ops' own time is the host's.

    Args:
        ops: columns `step`, `op`, `count`, `self_ps`; optionally `device`, `level`, `category`, `layer`, `program`.
        programs: columns `program`, `name`, to name the ops' programs.
        steps: of the run.
        captured: the captured steps.
    """
    ops = ops.filter(pa.array(_device_rows(ops)))
    index = captured.index_of(steps.rows_of(ops))
    known = index >= 0
    if "window" in ops.column_names and len(captured.row):
        known &= captured.window[index] == ops.column("window").to_numpy()
    ops = ops.filter(pa.array(known))
    codes, op_keys = _encode(ops, programs)
    return OpColumns(
        op_keys, index[known], codes, *(read_numbers(ops, name, missing=-1) for name in ("self_ps", "count"))
    )


def _device_rows(ops: pa.Table) -> Bools:
    rows = np.ones(ops.num_rows, bool)
    if "level" in ops.column_names:
        found = pc.is_in(_strings(ops, "level"), value_set=pa.array(_DEVICE_LEVELS)).to_numpy()
        rows = found if found.any() else rows
    if "device" in ops.column_names:
        found = rows & pc.not_equal(_strings(ops, "device"), "host").to_numpy()
        rows = found if found.any() else rows
    return np.asarray(rows, np.bool_)


def _encode(ops: pa.Table, programs: pa.Table | None) -> tuple[Int64s, tuple[OpKey, ...]]:
    columns = [_codes(ops, "op"), _codes(ops, "category"), _codes(ops, "layer"), _program_codes(ops, programs)]
    code, size = np.zeros(ops.num_rows, np.int64), 1
    for codes, names in columns:
        code, size = compact(code * len(names) + codes, size * len(names))
    first = first_rows(code)
    named = zip(*([names[i] for i in codes[first].tolist()] for codes, names in columns), strict=True)
    return code, tuple(OpKey(op or "", category or "unknown", layer, program) for op, category, layer, program in named)


def _codes(ops: pa.Table, name: str) -> tuple[Int64s, list[str | None]]:
    if name not in ops.column_names:
        return np.zeros(ops.num_rows, np.int64), [None]
    codes, names = encode_column(ops.column(name))
    return np.where(codes < 0, len(names), codes), [*names, None]


def _program_codes(ops: pa.Table, programs: pa.Table | None) -> tuple[Int64s, list[str | None]]:
    """Programs by name: ids mean something on one host only."""
    if programs is None or "program" not in ops.column_names:
        return np.zeros(ops.num_rows, np.int64), [None]
    columns = [name for name in ("host", "attempt") if name in ops.column_names and name in programs.column_names]
    of = {tuple(row[c] for c in (*columns, "program")): row["name"] for row in programs.to_pylist()}
    names = [*dict.fromkeys(of.values()), None]
    position = {name: i for i, name in enumerate(names)}
    rows = np.column_stack([read_numbers(ops, c, missing=-1) for c in (*columns, "program")])
    code = encode_rows(ops, (*columns, "program"))
    first = first_rows(code)
    codes = [position[of.get(tuple(row))] for row in rows[first].tolist()]
    return np.array(codes, np.int64)[code] if len(rows) else np.zeros(0, np.int64), names


def _strings(table: pa.Table, name: str) -> pa.ChunkedArray:
    return table.column(name).cast(pa.string())
