"""From a detected phase to its row in the summary."""

from collections.abc import Sequence

import numpy as np

from phasepoint.core.statistics import quantile_ps
from phasepoint.phases.clock import RunClock, sum_ps
from phasepoint.phases.estimates import Estimates
from phasepoint.phases.result import Phase, PhaseResult
from phasepoint.phases.summary_types import CheckpointSummary, PhaseSummary


def summarize_phases(
    clock: RunClock,
    result: PhaseResult,
    estimates: Estimates,
    checkpoints: Sequence[CheckpointSummary],
) -> tuple[PhaseSummary, ...]:
    """One row per phase, largest share of the time inside steps first."""
    rows = [_summarize(clock, result, phase, estimates, checkpoints) for phase in result.phases]
    return tuple(sorted(rows, key=lambda row: (-row.total_ps, row.id)))


def _summarize(
    clock: RunClock,
    result: PhaseResult,
    phase: Phase,
    estimates: Estimates,
    checkpoints: Sequence[CheckpointSummary],
) -> PhaseSummary:
    mine = result.labels == phase.id
    dur_ps = clock.dur_ps[mine]
    total_ps, inside_ps = sum_ps(dur_ps), clock.inside_ps
    row = representative_row(clock, result, phase, estimates)
    host, attempt, step = int(clock.host[row]), int(clock.attempt[row]), int(clock.step[row])
    window = int(estimates.window[row])
    restart = _restart_from(checkpoints, attempt, step)
    return PhaseSummary(
        id=phase.id,
        name=phase.name,
        steps=int(mine.sum()),
        segments=phase.n_segments,
        total_ps=total_ps,
        share=total_ps / inside_ps if inside_ps else 0.0,
        median_ps=quantile_ps(dur_ps, 0.5),
        p05_ps=quantile_ps(dur_ps, 0.05),
        p95_ps=quantile_ps(dur_ps, 0.95),
        period_steps=phase.period_steps,
        representative_window=window if window >= 0 else None,
        representative_step=step,
        representative_host=host,
        representative_attempt=attempt,
        weight=total_ps / clock.wall_ps if clock.wall_ps else 0.0,
        captured_steps=int((mine & estimates.captured).sum()),
        captured_windows=_count_windows(clock, mine & estimates.captured, estimates),
        input_ps=sum_ps(clock.input_ps[mine]) if clock.input_known else None,
        compile_ps=sum_ps(clock.compile_ps[mine]) if clock.compile_known else None,
        restart_from=restart.path if restart else None,
        restart_step=restart.step if restart else None,
        top_ops=estimates.phase_ops.get(phase.id, ()),
        breakdown=estimates.phases[phase.id],
    )


def representative_row(clock: RunClock, result: PhaseResult, phase: Phase, estimates: Estimates) -> int:
    """A row of the phase at its representative step number, a captured one before others."""
    rows = np.flatnonzero((result.labels == phase.id) & (clock.step == phase.representative))
    captured = rows[estimates.captured[rows]]
    return int((captured if len(captured) else rows)[0])


def _count_windows(clock: RunClock, rows: "np.ndarray[tuple[int], np.dtype[np.bool_]]", estimates: Estimates) -> int:
    keys = np.column_stack([clock.host[rows], clock.attempt[rows], estimates.window[rows]])
    return len(np.unique(keys, axis=0)) if len(keys) else 0


def _restart_from(checkpoints: Sequence[CheckpointSummary], attempt: int, step: int) -> CheckpointSummary | None:
    """The newest checkpoint before the step: of its attempt, else of an attempt before."""
    before = [c for c in checkpoints if c.attempt < attempt or (c.attempt == attempt and (c.step or 0) <= step)]
    before = [c for c in before if c.step is not None]
    return max(before, key=lambda c: (c.attempt, c.step or 0, -c.host), default=None)
