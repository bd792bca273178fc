"""Step times that can be held against each other, of a run and of its replays: by step number, the mean over repeats.

Captured steps do not count, nor those that compile, save or still warm up.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from phasepoint.core.arrays import Bools, Int64s
from phasepoint.core.errors import NoDataError, ReplayError
from phasepoint.phases.clock.accounting import split_steps
from phasepoint.phases.clock.steps import RunClock, StepSeries, read_clock
from phasepoint.replay.fidelity.sides import SETTLING_COLUMNS, settled_ps
from phasepoint.replay.folder import ReplayRecord, read_replay
from phasepoint.replay.plan.ways import LEAD_STEPS
from phasepoint.store import Run
from phasepoint.summary.analysis import Analysis


@dataclass(frozen=True, eq=False)
class CleanSteps:
    """A run's steps, with what of them was the step itself.

    Attributes:
        series: the steps.
        own_ps: `[n_steps]`, the step's time less what it compiled and what checkpoints held it.
        clean: `[n_steps]`, whether the step neither compiled, nor held a checkpoint, nor stands in or beside a capture
            window, nor among the first steps of a replay.
        settled: `[n_steps]`, the same with capture windows counted in.
    """

    series: StepSeries
    own_ps: Int64s
    clean: Bools
    settled: Bools


def read_clean_steps(clock: RunClock, tables: Mapping[str, pa.Table], *, lead: bool) -> CleanSteps:
    """The steps of a run.

    Args:
        clock: its steps.
        tables: `windows`, `checkpoints` and `checkpoint_waits` as `Run.table` gives them.
        lead: whether the first steps of each session are left out, as of a replay.
    """
    saved_ps = split_steps(clock, tables).checkpoint_ps
    clean = clock.compile_ps == 0
    for session in clock.sessions if lead else ():
        clean[session.rows] &= ~_lead(clock.compile_ps[session.rows])
    settled = clean & (saved_ps == 0)
    clean = settled & ~_beside_windows(clock, tables["windows"])
    return CleanSteps(clock, clock.dur_ps - clock.compile_ps - saved_ps, clean, settled)


def _lead(compile_ps: Int64s) -> Bools:
    """The first steps, and those after them that compile without a break."""
    settled = np.flatnonzero(compile_ps[LEAD_STEPS:] == 0)
    end = LEAD_STEPS + int(settled[0]) if len(settled) else len(compile_ps)
    return np.arange(len(compile_ps)) < end


def _beside_windows(clock: RunClock, windows: pa.Table) -> Bools:
    """Steps in a capture window or next to one, where opening and closing it fall, and while the capture is written."""
    found = np.zeros(clock.n_steps, bool)
    for row in windows.select(["host", "attempt", "first_step", "last_step", *SETTLING_COLUMNS]).to_pylist():
        session = clock.session(row["host"], row["attempt"])
        if session is not None and row["last_step"] >= row["first_step"]:
            begin, end = np.searchsorted(clock.step[session.rows], (row["first_step"] - 1, row["last_step"] + 2))
            end = max(end, np.searchsorted(clock.start_ps[session.rows], settled_ps(row)))
            found[session.rows][begin:end] = True
    return found


_TABLES = ("steps", "windows", "breakdowns", "ops", "programs", "checkpoints", "checkpoint_waits", "scalars")


@dataclass(frozen=True, eq=False)
class MadeReplay:
    """A replay's run, read.

    Attributes:
        run: the run.
        record: what it was to do; None where it was not made by `replay run`.
        tables: by name.
        clock: its steps.
        steps: the same, with which of them are clean.
    """

    run: Run
    record: ReplayRecord | None
    tables: Mapping[str, pa.Table]
    clock: RunClock
    steps: CleanSteps


def read_made_replay(run: Run) -> MadeReplay:
    """Read a replay.

    Raises:
        ReplayError: the program did not follow the request, or failed.
        NoDataError: it holds no steps.
        StoreError: it cannot be read.
    """
    record = read_replay(run.path)
    if record is not None and record.status in {"ignored", "failed"}:
        what = "failed" if record.status == "failed" else "was ignored by its program"
        reason = f": {record.reason}" if record.reason else ""
        raise ReplayError(f"{run.path}: this replay {what}{reason}; an estimate needs one that was done")
    tables = {name: run.table(name) for name in _TABLES}
    clock = read_clock(tables["steps"], run.shards, {})
    if not clock.n_steps:
        raise NoDataError(f"{run.path}: holds no steps; expected a replay made by `phasepoint replay run`")
    return MadeReplay(run, record, tables, clock, read_clean_steps(clock, tables, lead=True))


def find_replayed_phase(original: Analysis, replay: MadeReplay) -> int:
    """Id of the phase that a replay stands for: the one it was made for, else that of most of its steps.

    Raises:
        NoDataError: the original has no step of the replay's numbers.
    """
    common = np.isin(original.clock.step, replay.clock.step)
    if not common.any():
        theirs, mine = _span(replay.clock), _span(original.clock)
        raise NoDataError(
            f"{replay.run.path}: it has steps {theirs}, {original.run.path} has {mine}: none in common, so it is no "
            "replay of that run; give the run it was made from"
        )
    labels = original.labels[common]
    if replay.record is not None:
        if (labels == replay.record.phase_id).any():
            return replay.record.phase_id
        target = (original.clock.step >= replay.record.target_first) & (
            original.clock.step <= replay.record.target_last
        )
        labels = original.labels[common & target] if (common & target).any() else labels
    numbers, counts = np.unique(labels, return_counts=True)
    return int(numbers[np.argmax(counts)])


def _span(clock: RunClock) -> str:
    return f"{int(clock.step.min())}–{int(clock.step.max())}" if clock.n_steps else "no steps"


@dataclass(frozen=True, eq=False)
class StepMeans:
    """Step times by number.

    Attributes:
        step: `[n]` step numbers, rising.
        own_ps: `[n]`, mean over those who did the step.
    """

    step: Int64s
    own_ps: Int64s

    def at(self, numbers: Int64s) -> "StepMeans":
        """Only the steps of these numbers."""
        kept = np.isin(self.step, numbers)
        return StepMeans(self.step[kept], self.own_ps[kept])


def mean_steps(runs: Sequence[CleanSteps], where: Sequence[Bools] | None = None) -> StepMeans:
    """Clean steps of one run, or of repeats of it.

    Args:
        runs: the repeats.
        where: for each, `[n_steps]`, the steps that count; all clean ones if None.

    Returns:
        A step that a host did twice, because its job was started again, counts as it was done last.
    """
    chosen = [_newest(run, run.clean if where is None else run.clean & where[i]) for i, run in enumerate(runs)]
    step = np.concatenate([run.series.step[rows] for run, rows in zip(runs, chosen, strict=True)])
    own_ps = np.concatenate([run.own_ps[rows] for run, rows in zip(runs, chosen, strict=True)])
    numbers, index, counts = np.unique(step, return_inverse=True, return_counts=True)
    sums = np.zeros(len(numbers), np.int64)
    np.add.at(sums, index, own_ps)
    return StepMeans(numbers, sums // np.maximum(counts, 1))


def _newest(run: CleanSteps, kept: Bools) -> Int64s:
    rows = np.flatnonzero(kept)
    kept_steps = run.series.take(rows)
    order = np.lexsort((kept_steps.attempt, kept_steps.step, kept_steps.host))
    rows, host, step = rows[order], kept_steps.host[order], kept_steps.step[order]
    last = np.append((host[1:] != host[:-1]) | (step[1:] != step[:-1]), True)[: len(rows)]
    return np.asarray(rows[last], np.int64)
