"""What the devices did in the captured steps, op by op."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phasepoint.core.arrays import Int64s
from phasepoint.core.encoding import encode_rows
from phasepoint.findings.view import FindingsView

_KEYS = ("host", "attempt", "device", "program", "op", "level", "category", "layer")


@dataclass(frozen=True)
class OpKind:
    """An op of one device: what rows of the ops table share."""

    host: int
    attempt: int
    device: str
    program: int | None
    op: str
    level: str
    category: str
    layer: str | None


@dataclass(frozen=True, eq=False)
class DeviceOps:
    """Work of the devices in the captured steps: one row per step and op.

    Attributes:
        kinds: the ops.
        kind: `[n]`, position in `kinds`.
        index: `[n]`, position of the step in `Captured.row`.
        self_ps: `[n]`.
        count: `[n]` executions.
    """

    kinds: tuple[OpKind, ...]
    kind: Int64s
    index: Int64s
    self_ps: Int64s
    count: Int64s

    def of_kinds(self, values: Int64s) -> Int64s:
        """`[n_kinds]` exact sums of `values` `[n]`."""
        sums = np.zeros(len(self.kinds), np.int64)
        np.add.at(sums, self.kind, values)
        return sums


def read_device_ops(view: FindingsView) -> DeviceOps:
    """Ops and kernels on devices in captured steps; of several windows that saw a step, the first."""
    ops, keys, captured = view.table("ops"), view.keys, view.captured
    on_device = pc.and_(
        pc.not_equal(ops.column("device").cast(pa.string()), "host"),
        pc.is_in(ops.column("level").cast(pa.string()), value_set=pa.array(["op", "kernel"])),
    )
    ops = ops.filter(on_device)
    index = captured.index_of(keys.rows_of(ops))
    known = index >= 0
    known[known] = captured.window[index[known]] == ops.column("window").to_numpy()[known]
    ops = ops.filter(pa.array(known))
    code = encode_rows(ops, _KEYS)
    first = np.unique(code, return_index=True)[1]
    columns = zip(*(ops.column(name).take(first).to_pylist() for name in _KEYS), strict=True)
    kinds = tuple(OpKind(*row) for row in columns)
    return DeviceOps(kinds, code, index[known], *(ops.column(name).to_numpy() for name in ("self_ps", "count")))
