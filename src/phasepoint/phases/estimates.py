"""Whole-run totals from the windows: time per category and per op, each with a 95 % interval.

See `phases/captured.py` for what the time of a captured step is split into, `phases/sampling.py` for how the others
are estimated, and `docs/estimates.md` for both in words, with the coverage that was measured.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from phasepoint.phases.captured import PARTS, Captured, StepKeys, read_captured, step_keys
from phasepoint.phases.clock import sum_ps
from phasepoint.phases.op_columns import OpColumns, OpKey, read_op_columns
from phasepoint.phases.sampling import Clusters, Stratum
from phasepoint.phases.strata import (
    StepTimes,
    assign_strata,
    cut_clusters,
    describe_strata,
    estimate_strata,
    with_extras,
)
from phasepoint.phases.summary_types import Breakdown, OpTime
from phasepoint.phases.totals import Totals

Int64s = NDArray[np.int64]
Floats = NDArray[np.float64]

TOP_OPS = 10
"""Ops listed for the run and for each phase; the others are added up under `other`."""
SLOWDOWN_NOTED = 0.01
"""A slow-down of captured steps from 1 % on is told with the estimates."""


@dataclass(frozen=True, eq=False)
class Estimates:
    """Whole-run totals, and those of each phase.

    Attributes:
        categories: all time inside steps.
        phases: phase id → the time of its steps.
        ops: of the run, by self time, `other` last; empty where no op was captured.
        phase_ops: phase id → likewise.
        captured: `[n_steps]`, whether a converted window saw the step.
        window: `[n_steps]`, which; -1 where none did.
    """

    categories: Breakdown
    phases: Mapping[int, Breakdown]
    ops: tuple[OpTime, ...]
    phase_ops: Mapping[int, tuple[OpTime, ...]]
    captured: NDArray[np.bool_]
    window: Int64s


def estimate_totals(
    steps: pa.Table,
    windows: pa.Table,
    breakdowns: pa.Table,
    labels: Int64s,
    *,
    ops: pa.Table | None = None,
    programs: pa.Table | None = None,
    names: Mapping[int, str] | None = None,
    confidence: float = 0.95,
) -> Estimates:
    """Whole-run totals from the captured steps, by stratified cluster sampling with the phases as strata.

    Args:
        steps: `step`, `dur_ps`; optionally `input_ps`, `compile_ps`, `host`, `attempt`.
        windows: `window`, `probability`; `host` and `attempt` like steps; `slowdown_cost_ps` for a note.
        breakdowns: `window`, `step`, `device`, `category`, `wall_ps`; `host` and `attempt` like steps.
        labels: `[n_steps]` phase id per row of steps.
        ops: `step`, `op`, `count`, `self_ps`; optionally `window`, `device`, `level`, `category`, `layer`, `program`.
        programs: `program`, `name`, to name the ops' programs.
        names: phase id → name, for the notes.
        confidence: of the intervals, between 0 and 1.

    Returns:
        Totals in ps that close: parts add up to the time of the steps exactly. With every step captured all of them
        are exact and every interval is nil.

    Raises:
        ValueError: labels of another length than steps, or a category that is none of the declared.

    Source: see `phases/sampling.py`.
    """
    if len(labels) != steps.num_rows:
        raise ValueError(f"{len(labels)} labels for {steps.num_rows} steps; one per row is needed")
    sample = _align(steps, windows, breakdowns, labels)
    columns = None if ops is None else read_op_columns(ops, programs, sample.keys, sample.captured)
    extra = _op_extras(sample, columns)
    rests = estimate_strata(sample.strata, with_extras(sample.clusters, sample.owner, extra.of_cluster), names or {})
    totals = Totals(sample.strata, rests, sample.seen_parts(), extra.of_stratum, extra.keys, confidence)
    notes = (*rests.notes, *_slowdown_notes(windows, sum_ps(sample.times.dur_ps[sample.captured.row])))
    phases = np.unique(labels).tolist()
    window = np.full(steps.num_rows, -1, np.int64)
    window[sample.captured.row] = sample.captured.window
    return Estimates(
        categories=totals.breakdown(None, sample.counts(None), notes),
        phases={phase: totals.breakdown(phase, sample.counts(phase), ()) for phase in phases},
        ops=totals.top_ops(None, TOP_OPS),
        phase_ops={phase: totals.top_ops(phase, TOP_OPS) for phase in phases},
        captured=window >= 0,
        window=window,
    )


@dataclass(frozen=True, eq=False)
class _Sample:
    """The tables, aligned: the step clock, the captured steps, strata, and clusters of captured steps."""

    keys: StepKeys
    times: StepTimes
    captured: Captured
    strata: tuple[Stratum, ...]
    stratum: Int64s
    cluster: Int64s
    owner: Int64s
    clusters: list[Clusters]

    def seen_parts(self) -> Int64s:
        """Parts of the captured steps of every stratum, exact `[n_strata, len(PARTS)]`."""
        seen = np.zeros((len(self.strata), len(PARTS)), np.int64)
        np.add.at(seen, self.stratum, self.captured.parts_ps)
        return seen

    def counts(self, phase: int | None) -> tuple[int, int]:
        """Windows and captured steps of a phase, or of the run."""
        mine = np.isin(self.stratum, [i for i, s in enumerate(self.strata) if phase in (None, s.phase)])
        row = self.captured.row[mine]
        names = [self.keys.host[row], self.keys.attempt[row], self.captured.window[mine]]
        return len(np.unique(np.column_stack(names), axis=0)), len(row)


@dataclass(frozen=True, eq=False)
class _OpExtras:
    """Self time and executions of the picked ops: `[…, 2 * n_picked]`, first all self times, then all executions."""

    keys: tuple[OpKey, ...]
    of_cluster: Floats
    of_stratum: Int64s


def _align(steps: pa.Table, windows: pa.Table, breakdowns: pa.Table, labels: Int64s) -> _Sample:
    keys = step_keys(steps)
    captured = read_captured(keys, steps, windows, breakdowns)
    dur_ps, input_ps, compile_ps = (_column(steps, name) for name in ("dur_ps", "input_ps", "compile_ps"))
    input_ps = np.minimum(input_ps, dur_ps)
    times = StepTimes(dur_ps, input_ps, np.minimum(compile_ps, dur_ps - input_ps))
    stratum, hosts, phases = assign_strata(keys, labels)
    seen = np.zeros(len(dur_ps), bool)
    seen[captured.row] = True
    strata = describe_strata(times, seen, stratum, hosts, phases)
    cluster, owner, clusters = cut_clusters(keys, times, captured, stratum, len(strata))
    return _Sample(keys, times, captured, strata, stratum[captured.row], cluster, owner, clusters)


def _op_extras(sample: _Sample, columns: OpColumns | None) -> _OpExtras:
    n_clusters, n_strata = len(sample.owner), len(sample.strata)
    if columns is None or not len(columns.index):
        return _OpExtras((), np.zeros((n_clusters, 0)), np.zeros((n_strata, 0), np.int64))
    picked = columns.picked(_pick(sample, columns.sums(sample.stratum, n_strata, columns.self_ps)))
    both = (picked.self_ps, picked.count)
    of_cluster = np.hstack([picked.sums(sample.cluster, n_clusters, values) for values in both])
    of_stratum = np.hstack([picked.sums(sample.stratum, n_strata, values) for values in both])
    return _OpExtras(picked.keys, of_cluster.astype(np.float64), of_stratum)


def _pick(sample: _Sample, seen: Int64s) -> Int64s:
    """Ops that may be among the largest of the run or of a phase, by their captured time raised to the whole."""
    raised = np.array([s.total_ps / s.seen_ps if s.seen_ps else 0.0 for s in sample.strata])
    likely = seen * raised[:, None]
    phases = np.array([s.phase for s in sample.strata])
    rows = [likely.sum(axis=0), *(likely[phases == phase].sum(axis=0) for phase in np.unique(phases))]
    best = [np.argsort(-row, kind="stable")[: 2 * TOP_OPS] for row in rows]
    picked = np.unique(np.concatenate(best))
    return np.asarray(picked[likely[:, picked].any(axis=0)], np.int64)


def _slowdown_notes(windows: pa.Table, seen_ps: int) -> tuple[str, ...]:
    """The bias that capture itself brings, where the recorder measured it."""
    if "slowdown_cost_ps" not in windows.column_names or not seen_ps:
        return ()
    slower = (pc.sum(windows.column("slowdown_cost_ps")).as_py() or 0) / seen_ps
    if slower < SLOWDOWN_NOTED:
        return ()
    return (
        f"captured steps ran {100 * slower:.0f} % slower than their neighbours; shares are those of captured steps",
    )


def _column(table: pa.Table, name: str) -> Int64s:
    if name not in table.column_names:
        return np.zeros(table.num_rows, np.int64)
    return np.asarray(pc.fill_null(table.column(name), 0).to_numpy(), np.int64)
