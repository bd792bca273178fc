"""What the devices did in the captured steps, op by op, and how much of the run some of it takes."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phasepoint.core.arrays import Floats, Int64s
from phasepoint.core.encoding import encode_rows
from phasepoint.estimates.captured import PARTS
from phasepoint.estimates.run_time import RunTime, estimate_time
from phasepoint.findings.evidence.window_spans import need_device
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
    """Ops and kernels on devices in captured steps; of several windows that saw a step, the first.

    Raises:
        Unavailable: the device is not in the trace.
    """
    need_device(view)
    ops, captured = view.table("ops"), view.captured
    on_device = pc.and_(
        pc.not_equal(ops.column("device").cast(pa.string()), "host"),
        pc.is_in(ops.column("level").cast(pa.string()), value_set=pa.array(["op", "kernel"])),
    )
    ops = ops.filter(on_device)
    index = captured.index_of(view.clock.rows_of(ops))
    known = index >= 0
    known[known] = captured.window[index[known]] == ops.column("window").to_numpy()[known]
    ops = ops.filter(pa.array(known))
    code = encode_rows(ops, _KEYS)
    first = np.unique(code, return_index=True)[1]
    columns = zip(*(ops.column(name).take(first).to_pylist() for name in _KEYS), strict=True)
    kinds = tuple(OpKind(*row) for row in columns)
    return DeviceOps(kinds, code, index[known], *(ops.column(name).to_numpy() for name in ("self_ps", "count")))


def time_of_ops(view: FindingsView, part: str, ops: DeviceOps, wanted_ps: Floats) -> RunTime:
    """What some of the devices' work takes of the run, as its share of a category in the captured steps.

    The ops' own times may overlap each other and other categories; the category's exclusive time does not. So of each
    captured step the share comes from the ops and the time from the category. A step that shows the category but none
    of its ops says nothing.

    Args:
        view: the run.
        part: the category, `compute`, `communication` or `data_movement`.
        ops: the devices' work in the captured steps.
        wanted_ps: `[n]` of each row's self time the part that counts, 0 for ops of other categories.
    """
    of_part = np.array([kind.category == part for kind in ops.kinds], bool)[ops.kind]
    n_steps = len(view.captured.row)
    wanted, whole = (np.bincount(ops.index, ps, n_steps) for ps in (wanted_ps, np.where(of_part, ops.self_ps, 0)))
    part_ps = view.captured.parts_ps[:, PARTS.index(part)]
    time_ps = part_ps * np.divide(wanted, whole, out=np.zeros(n_steps), where=whole > 0)
    index = np.flatnonzero((whole > 0) | (part_ps == 0))
    return estimate_time(view.sampled.only(index), time_ps[index])


def time_of_steps(view: FindingsView, index: Int64s, saved_ps: Floats) -> RunTime:
    """What could be won in some captured steps, carried over to the others of their phase.

    A phase of which no step was looked at wins nothing.

    Args:
        view: the run.
        index: `[n]` the steps that were looked at, as positions in `Captured.row`.
        saved_ps: `[n]` what each could win.
    """
    rows = view.captured.row[index]
    saved_ps = np.minimum(saved_ps, view.clock.dur_ps[rows])
    return estimate_time(view.sampled.only(index), saved_ps, phases=set(view.labels[rows].tolist()))
