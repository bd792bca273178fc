"""A replay as the estimate reads it, and which phase of the original it stands for."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from phasepoint.core.errors import NoDataError, ReplayError
from phasepoint.phases.analysis import Analysis
from phasepoint.phases.clock import RunClock, read_clock
from phasepoint.replay.clean_steps import CleanSteps, read_clean_steps
from phasepoint.replay.record import ReplayRecord, read_replay
from phasepoint.store import Run

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
        named = [number for number, name in original.names.items() if name == replay.record.phase]
        if named and (labels == named[0]).any():
            return named[0]
        target = (original.clock.step >= replay.record.target_first) & (
            original.clock.step <= replay.record.target_last
        )
        labels = original.labels[common & target] if (common & target).any() else labels
    numbers, counts = np.unique(labels, return_counts=True)
    return int(numbers[np.argmax(counts)])


def _span(clock: RunClock) -> str:
    return f"{int(clock.step.min())}–{int(clock.step.max())}" if clock.n_steps else "no steps"
