"""How much of a run some of its devices' work takes: a claim, with its interval."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phasepoint.core.arrays import Floats, Int64s
from phasepoint.core.statistics import t_quantile
from phasepoint.findings.device_ops import DeviceOps
from phasepoint.findings.finding import Claim
from phasepoint.findings.view import FindingsView, lay_out
from phasepoint.phases.captured import PARTS


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
