"""What the captured steps of every phase did, op by op, as measured: nothing is estimated here."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phasepoint.phases.detect import detect_phases
from phasepoint.store import Run

PHASE_OPS = pa.schema(
    [
        pa.field("phase", pa.int64()),
        pa.field("phase_name", pa.string()),
        pa.field("device", pa.string()),
        pa.field("op", pa.string()),
        pa.field("level", pa.string()),
        pa.field("category", pa.string()),
        pa.field("calls", pa.int64()),
        pa.field("total_ps", pa.int64()),
        pa.field("self_ps", pa.int64()),
        pa.field("self_share", pa.float64()),
    ]
)
"""One row per phase × device × op; `self_share` is a ratio of all self time of the phase on that device."""

SEGMENTS = pa.schema(
    [
        pa.field("segment", pa.int64()),
        pa.field("phase", pa.int64()),
        pa.field("phase_name", pa.string()),
        pa.field("first_step", pa.int64()),
        pa.field("last_step", pa.int64()),
        pa.field("steps", pa.int64()),
    ]
)
"""One row per segment: a maximal stretch of steps of one phase, in the run's order."""

_KEYS = ["phase", "device", "op", "level", "category"]


def measure_phases(run: Run, *, method: str = "recurrent") -> tuple[pa.Table, pa.Table]:
    """Segments, and ops by phase, of a run.

    Args:
        run: an opened run, its windows converted.
        method: of `detect_phases`.

    Returns:
        A table of `SEGMENTS` and one of `PHASE_OPS`, the ops with the most self time first within phase and device.
        Both are empty for a run without steps.
    """
    steps = run.table("steps")
    if not steps.num_rows:
        return SEGMENTS.empty_table(), PHASE_OPS.empty_table()
    ops = run.table("ops")
    result = detect_phases(steps, ops, method=method)
    names = {phase.id: phase.name for phase in result.phases}
    segments = result.segments
    numbers = segments.phase.tolist()
    listed = pa.table(
        [
            np.arange(len(segments), dtype=np.int64),
            segments.phase,
            [names[number] for number in numbers],
            segments.first_step,
            segments.last_step,
            segments.last_index - segments.first_index + 1,
        ],
        schema=SEGMENTS,
    )
    return listed, _ops_by_phase(steps, result.labels, ops, names)


def _ops_by_phase(steps: pa.Table, labels: np.ndarray, ops: pa.Table, names: dict[int, str]) -> pa.Table:
    keys = ["host", "attempt", "step"]
    labelled = steps.select(keys).append_column("phase", pa.array(labels, pa.int64()))
    columns = [*keys, "device", "op", "level", "category", "count", "total_ps", "self_ps"]
    plain = [f.cast(pa.string()) if pa.types.is_dictionary(f.type) else f for f in ops.select(columns).columns]
    inside = pa.table(plain, names=columns).filter(pc.is_valid(ops.column("step")))
    joined = inside.join(labelled, keys, join_type="inner", use_threads=False)
    sums = joined.group_by(_KEYS, use_threads=False).aggregate(
        [("count", "sum"), ("total_ps", "sum"), ("self_ps", "sum")]
    )
    of_device = sums.group_by(["phase", "device"], use_threads=False).aggregate([("self_ps_sum", "sum")])
    whole = sums.join(of_device, ["phase", "device"], use_threads=False)
    whole = whole.sort_by(
        [("phase", "ascending"), ("device", "ascending"), ("self_ps_sum", "descending"), ("op", "ascending")]
    )
    share = np.asarray(whole.column("self_ps_sum")) / np.maximum(np.asarray(whole.column("self_ps_sum_sum")), 1)
    phase = whole.column("phase")
    named = [names[number] for number in phase.to_pylist()]
    sums_of = (whole.column(f"{name}_sum") for name in ("count", "total_ps", "self_ps"))
    described = (whole.column(name) for name in ("device", "op", "level", "category"))
    return pa.table([phase, named, *described, *sums_of, share], schema=PHASE_OPS)
