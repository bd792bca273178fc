"""What the devices did in the captured steps, op by op.

How much of a run some of its devices' work takes: a claim, with its interval.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from phasepoint.core.arrays import Floats, Int64s
from phasepoint.core.encoding import encode_rows
from phasepoint.core.statistics import t_quantile
from phasepoint.estimates.captured import PARTS
from phasepoint.findings.finding import Claim
from phasepoint.findings.view import FindingsView, lay_out

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


@dataclass(frozen=True)
class Estimate:
    """Estimated time of some of the work: the claim, and the 95 % interval of its total."""

    claim: Claim
    low_ps: int
    high_ps: int


def estimate_of(view: FindingsView, part: str, ops: DeviceOps, wanted_ps: Floats) -> Estimate:
    """What some of the devices' work takes of the run, as its share of a category in the captured steps.

    The ops' own times may overlap each other and other categories; the category's exclusive time does not. So the
    share comes from the ops and the time from the category's estimate, phase by phase.

    Args:
        view: the run.
        part: the category, `compute`, `communication` or `data_movement`.
        ops: the devices' work in the captured steps.
        wanted_ps: `[n]` of each row's self time the part that counts, 0 for ops of other categories.
    """
    whole_ps = np.where(_of_category(ops, part), ops.self_ps, 0).astype(np.float64)
    captured, labels = view.captured, view.labels
    n_steps = len(captured.row)
    wanted, whole = (_by_step(ops.index, values, n_steps) for values in (wanted_ps, whole_ps))
    overall = wanted.sum() / max(whole.sum(), 1.0)
    weight, total_ps = np.zeros(len(view.clock.dur_ps)), 0
    for phase in view.phases:
        mine = labels[captured.row] == phase
        ratio = wanted[mine].sum() / whole[mine].sum() if whole[mine].any() else overall
        part_ps = int(view.part(part, phase).total_ps * ratio)
        steps = labels == phase
        weight[steps] = view.clock.dur_ps[steps] * (part_ps / max(float(view.clock.dur_ps[steps].sum()), 1.0))
        total_ps += part_ps
    seen = np.divide(wanted, whole, out=np.zeros(n_steps), where=whole > 0)
    weight[captured.row] = captured.parts_ps[:, PARTS.index(part)] * seen
    claim = Claim(part, lay_out(weight, total_ps, view.clock.dur_ps))
    return Estimate(claim, *_interval(view, part, claim.total_ps, _scatter(view, np.arange(n_steps), wanted, whole)))


def _interval(view: FindingsView, part: str, total_ps: int, scatter: float) -> tuple[int, int]:
    """The category's own interval and that of the share, as independent: squares add up."""
    known = view.part(part)
    if not known.total_ps or not total_ps:
        return 0, total_ps
    share, apart_ps = total_ps / known.total_ps, scatter * known.total_ps
    low_ps = np.hypot((known.total_ps - known.low_ps) * share, apart_ps)
    high_ps = np.hypot((known.high_ps - known.total_ps) * share, apart_ps)
    return max(total_ps - int(low_ps), 0), total_ps + int(high_ps)


def _scatter(view: FindingsView, index: Int64s, wanted: Floats, whole: Floats) -> float:
    """Half the 95 % interval of the share, from how windows differ (ratio estimator over clusters; Cochran, 6.4)."""
    row = view.captured.row[index]
    if len(row) == view.clock.n_steps or not whole.any():
        return 0.0
    names = np.column_stack([view.clock.host[row], view.clock.attempt[row], view.captured.window[index]])
    window = np.unique(names, axis=0, return_inverse=True)[1].ravel()
    n = int(window.max()) + 1
    ratio = wanted.sum() / whole.sum()
    if n < 2:
        return float(ratio)  # one window says nothing about others
    apart = np.bincount(window, wanted - ratio * whole)
    return float(t_quantile(0.975, n - 1) * np.sqrt(n / (n - 1) * (apart**2).sum()) / whole.sum())


def _by_step(index: Int64s, values: Floats, n_steps: int) -> Floats:
    return np.bincount(index, values, n_steps).astype(np.float64)


def _of_category(ops: DeviceOps, category: str) -> NDArray[np.bool_]:
    return np.array([kind.category == category for kind in ops.kinds], bool)[ops.kind]


def estimate_of_steps(view: FindingsView, part: str, index: Int64s, saved_ps: Floats) -> Estimate:
    """What could be won in some captured steps, carried over to the others of their phase by their length.

    A phase of which no step was looked at wins nothing.

    Args:
        view: the run.
        part: of the claim.
        index: `[n]` the steps that were looked at, as positions in `Captured.row`.
        saved_ps: `[n]` what each could win.
    """
    rows, dur_ps, labels = view.captured.row[index], view.clock.dur_ps, view.labels
    weight = np.zeros(len(dur_ps))
    seen_ps = dur_ps[rows].astype(np.float64)
    saved_ps = np.minimum(saved_ps, seen_ps)
    for phase in np.unique(labels[rows]).tolist():
        mine = labels[rows] == phase
        weight[labels == phase] = dur_ps[labels == phase] * (saved_ps[mine].sum() / max(seen_ps[mine].sum(), 1.0))
    total_ps = int(weight.sum())
    weight[rows] = saved_ps
    claim = Claim(part, lay_out(weight, total_ps, dur_ps))
    scatter = _scatter(view, index, saved_ps, seen_ps)
    apart_ps = int(scatter * claim.total_ps / max(saved_ps.sum() / max(seen_ps.sum(), 1.0), 1e-9))
    return Estimate(claim, max(claim.total_ps - apart_ps, 0), claim.total_ps + apart_ps)
