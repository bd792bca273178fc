"""CSV tables for spreadsheets: phases, segments, ops by phase and over the run, windows.

They answer what TPUPoint's `TPUPointOPs_*_Phases`, `TPUPointOPs_*_Overview` and `TPUPoint_Profile_Times` files
answer. Every column that holds a quantity carries its unit in its name, and holds that unit.
"""

import pyarrow as pa
import pyarrow.compute as pc

from phasepoint.core.tables import array_of, table_spec
from phasepoint.phases.clock.breakdown import FEW
from phasepoint.store import Run
from phasepoint.summary.roofline import PHASE_OPS, measure_phases
from phasepoint.summary.types import RunSummary

CSV_TABLES = {
    "phases": "one row per phase",
    "segments": "one row per maximal stretch of one phase",
    "phase_ops": "phase × device × op, as measured in the captured steps",
    "phase_ops_estimated": "the ops with the most self time, estimated for all steps of the phase, 95 % intervals",
    "run_ops": "device × op, as measured in all captured steps",
    "windows": "one row per capture window, with what it cost",
}
"""Every file that a CSV export writes, with what its rows are."""

_PHASE_COLUMNS = (
    ("id", "phase", pa.int64()),
    ("name", "phase_name", pa.string()),
    ("steps", "steps", pa.int64()),
    ("segments", "segments", pa.int64()),
    ("total_ps", "total_ps", pa.int64()),
    ("share", "share_ratio", pa.float64()),
    ("median_ps", "median_ps", pa.int64()),
    ("p05_ps", "p05_ps", pa.int64()),
    ("p95_ps", "p95_ps", pa.int64()),
    ("input_ps", "input_ps", pa.int64()),
    ("compile_ps", "compile_ps", pa.int64()),
    ("period_steps", "period_steps", pa.float64()),
    ("captured_steps", "captured_steps", pa.int64()),
    ("captured_windows", "captured_windows", pa.int64()),
    ("representative_window", "representative_window", pa.int64()),
    ("representative_step", "representative_step", pa.int64()),
    ("weight", "weight_ratio", pa.float64()),
    ("restart_from", "restart_from", pa.string()),
)


def csv_tables(run: Run, summary: RunSummary) -> dict[str, pa.Table]:
    """The tables of `CSV_TABLES` by name."""
    segments, phase_ops = measure_phases(run, method=summary.method)
    return {
        "phases": pa.table(
            {
                name: array_of(name, [getattr(phase, field) for phase in summary.phases], kind)
                for field, name, kind in _PHASE_COLUMNS
            }
        ),
        "segments": segments,
        "phase_ops": phase_ops,
        "phase_ops_estimated": _estimated(summary),
        "run_ops": _run_ops(phase_ops),
        "windows": run.table("windows", columns=[c.name for c in table_spec("windows").columns]),
    }


def _estimated(summary: RunSummary) -> pa.Table:
    """Of the phases that have windows enough: the ops of the others are of their captured steps alone."""
    known = [phase for phase in summary.phases if phase.breakdown.basis != FEW]
    rows = [(phase.id, phase.name, op) for phase in known for op in phase.top_ops]
    return pa.table(
        {
            "phase": pa.array([phase for phase, _, _ in rows], pa.int64()),
            "phase_name": pa.array([name for _, name, _ in rows], pa.string()),
            **{
                name: array_of(name, [getattr(op, field) for *_, op in rows], kind) for field, name, kind in _OP_COLUMNS
            },
        }
    )


_OP_COLUMNS: tuple[tuple[str, str, pa.DataType], ...] = (
    ("op", "op", pa.string()),
    ("category", "category", pa.string()),
    ("layer", "layer", pa.string()),
    ("count", "calls", pa.int64()),
    ("self_ps", "self_ps", pa.int64()),
    ("low_ps", "self_low_ps", pa.int64()),
    ("high_ps", "self_high_ps", pa.int64()),
    ("share", "self_share", pa.float64()),
)


def _run_ops(phase_ops: pa.Table) -> pa.Table:
    """The same over all phases."""
    keys = ["device", "op", "level", "category"]
    sums = phase_ops.group_by(keys, use_threads=False).aggregate(
        [("calls", "sum"), ("total_ps", "sum"), ("self_ps", "sum")]
    )
    sums = sums.sort_by([("device", "ascending"), ("self_ps_sum", "descending"), ("op", "ascending")])
    of_device = sums.group_by("device", use_threads=False).aggregate([("self_ps_sum", "sum")])
    totals = dict(zip(*(of_device.column(name).to_pylist() for name in ("device", "self_ps_sum_sum")), strict=True))
    whole = pa.array([float(max(totals[device], 1)) for device in sums.column("device").to_pylist()], pa.float64())
    share = pc.divide(sums.column("self_ps_sum").cast(pa.float64(), safe=False), whole)  # damaged sums exceed 2^53
    columns = [*(sums.column(name) for name in [*keys, "calls_sum", "total_ps_sum", "self_ps_sum"]), share]
    return pa.table(columns, names=PHASE_OPS.names[2:])
