"""What tells phases of one sort from each other, in words: `train-2` alone says nothing.

    2.0 × the batch, 1.9 × as long, from step 8,210 on
    1.3 × the operations, 1.4 × as long, from step 96 on
    1.6 × as long, steps 300–499: most of it aten::mm (+4.20 ms a step)

Compared is with the largest phase of the sort: batches, operations of the forward pass, step time, ops; and where its
steps lie.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phasepoint.core.arrays import Floats
from phasepoint.core.statistics import median
from phasepoint.core.units import format_count, format_ps
from phasepoint.estimates.estimates import Estimates
from phasepoint.phases.clock.breakdown import FEW, OpTime
from phasepoint.phases.detection.result import Phase, PhaseResult

LEAST_RATIO = 1.02
"""Times and batches nearer than that to each other are not told as different: noise of a median (a choice)."""

LEAST_OF_RISE = 0.3
"""Part of the longer step's excess that one op must explain to be named: less is one cause among several (a choice)."""


def tell_differences(result: PhaseResult, steps: pa.Table, estimates: Estimates) -> Mapping[int, str]:
    """Phase id → what tells it from the largest phase of its kind, or slow and short steps from the run's.

    Args:
        result: the run's phases.
        steps: `Run.table("steps")`, in the order of `result.labels`.
        estimates: of the same run, for the ops of each phase.
    """
    batch, nodes = (_numbers(steps, name) for name in ("batch_elements", "graph_nodes"))
    told = {}
    for kind in dict.fromkeys(phase.kind for phase in result.phases):
        same = sorted((p for p in result.phases if p.kind == kind), key=lambda p: (-p.total_ps, p.id))
        is_slow = kind in ("slow", "short")
        usual = max(result.phases, key=lambda p: p.total_ps) if is_slow else same[0]
        for phase in same[not is_slow :]:
            words = [
                _ratio_text(_usual(result, known, phase), _usual(result, known, usual), of)
                for known, of in ((batch, "the batch"), (nodes, "the operations"))
            ]
            words += [_ratio_text(phase.median_ps, usual.median_ps, "as long") * (not is_slow), _where(result, phase)]
            told[phase.id] = ", ".join(word for word in words if word) + _by_op(phase, usual, estimates)
    return told


def _numbers(steps: pa.Table, name: str) -> Floats:
    """A column's numbers `[n_steps]`, NaN where they are not known."""
    if name not in steps.column_names:
        return np.full(steps.num_rows, np.nan)
    return np.asarray(pc.cast(steps.column(name), pa.float64(), safe=False).to_numpy(), np.float64)


def _usual(result: PhaseResult, values: Floats, phase: Phase) -> float:
    """Median of a phase's values; 0 where most of them are not known."""
    known = values[(result.labels == phase.id) & ~np.isnan(values)]
    return median(known) if 2 * len(known) > phase.n_steps else 0.0


def _ratio_text(value: float, usual: float, of: str) -> str:
    """`2.0 × the batch`; nothing where either is not known, or where they hardly differ."""
    if not (value and usual) or max(value / usual, usual / value) < LEAST_RATIO:
        return ""
    ratio = value / usual
    return f"{ratio:.2f} × {of}" if ratio < 1 or abs(ratio - round(ratio, 1)) > 0.02 else f"{ratio:.1f} × {of}"


def _where(result: PhaseResult, phase: Phase) -> str:
    mine = result.segments.phase == phase.id
    first, last = result.segments.first_step[mine], result.segments.last_step[mine]
    if len(first) > 1:
        return f"{format_count(len(first))} stretches from step {format_count(int(first.min()))} on"
    if last[0] == result.steps.max():
        return f"from step {format_count(int(first[0]))} on"
    return f"steps {format_count(int(first[0]))}–{format_count(int(last[0]))}"


def _by_op(phase: Phase, usual: Phase, estimates: Estimates) -> str:
    """The op that explains most of what a step is longer by, if it explains enough of it, beyond what is sure."""
    rise_ps = phase.median_ps - usual.median_ps
    if rise_ps <= 0:
        return ""
    if any(p.id not in estimates.phases or estimates.phases[p.id].basis == FEW for p in (phase, usual)):
        return ""  # then the ops are those of the captured steps alone
    mine, its = (_per_step(estimates.phase_ops.get(p.id, ()), p.n_steps) for p in (phase, usual))
    grown = {}
    for op, (time_ps, half_ps) in mine.items():
        usual_ps, usual_half_ps = its.get(op, (0.0, 0.0))
        if time_ps - usual_ps > np.hypot(half_ps, usual_half_ps):
            grown[op] = time_ps - usual_ps
    most = max(grown, key=lambda op: grown[op], default=None)
    if most is None or grown[most] < LEAST_OF_RISE * rise_ps:
        return ""
    return f": most of it {most} (+{format_ps(round(grown[most]))} a step)"


def _per_step(ops: Sequence[OpTime], steps: int) -> dict[str, tuple[float, float]]:
    """Op → its self time a step, and half the width of its interval, in ps; by its layer where that is known."""
    found: dict[str, tuple[float, float]] = {}
    for op in ops:
        if op.op != "other":
            name = f"{op.op} in {op.layer}" if op.layer else op.op
            time_ps, half_ps = found.get(name, (0.0, 0.0))
            found[name] = (time_ps + op.self_ps / steps, half_ps + (op.high_ps - op.low_ps) / 2 / steps)
    return found
