"""`build_fast_forward`: what a report says of replays: checkpoints, a plan for every phase, the run from few steps.

A report is made in seconds whatever the run's length, so what it looks at is bounded: checkpoints on disk, steps that a
compact is chosen from, and replays beside the run (as `phasepoint replay run` names them), which are held against it.
"""

import glob
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from phasepoint.core.errors import NoDataError, PhasepointError, StoreError, UsageError
from phasepoint.replay.checkpoints import CheckpointIndex, IndexedCheckpoint, find_gone, index_checkpoints
from phasepoint.replay.compact.compact import Compact
from phasepoint.replay.folder import RECORD_NAME, ReplayRecord, read_replay
from phasepoint.replay.plan.plan import PhasePlan, plan_phases
from phasepoint.store import Run
from phasepoint.summary.analysis import Analysis

if TYPE_CHECKING:
    from phasepoint.replay.change.types import Estimate
    from phasepoint.replay.fidelity.fidelity import Fidelity

MOST_REPLAYS = 6
"""Replays compared in a report, the newest: each takes some tenths of a second."""


@dataclass(frozen=True)
class FoundReplay:
    """A replay's folder and what its record says."""

    path: str
    record: ReplayRecord


@dataclass(frozen=True)
class NearbyReplay:
    """A replay of a run, compared with it.

    Attributes:
        path: of the replay's run.
        record: what it is a replay of and how it ended.
        fidelity: the comparison; None where there is none.
        estimate: of a changed replay, the run's time if every step of the phase went so, against the unchanged
            replays of the phase where there are any; None for an unchanged one.
        problem: why the comparison or the estimate is missing; None where neither is.
    """

    path: str
    record: ReplayRecord
    fidelity: "Fidelity | None"
    estimate: "Estimate | None"
    problem: str | None


def find_replays(run: str | PathLike[str]) -> tuple[tuple[FoundReplay, ...], tuple[str, ...]]:
    """The newest replays of a run in `RUN-replay-*` beside it, the oldest of them first, and what could not be read.

    Args:
        run: path of the run; of a run elsewhere (a URL) nothing is found.
    """
    if "://" in str(run):
        return (), ()
    folder = Path(run).absolute()
    beside = folder.parent.glob(f"{glob.escape(folder.name)}-replay-*")
    named = [path for path in beside if (path / RECORD_NAME).is_file()]
    named.sort(key=lambda path: (path / RECORD_NAME).stat().st_mtime_ns)
    found, problems = [], []
    for path in named:
        try:
            record = read_replay(path)
        except StoreError as error:
            problems.append(str(error))
            continue
        if record is not None and _is_same(record.original, folder):
            found.append(FoundReplay(str(path), record))
    return tuple(found[-MOST_REPLAYS:]), tuple(problems)


def hold_against(analysis: Analysis, replays: Sequence[tuple[FoundReplay, Run]]) -> tuple[NearbyReplay, ...]:
    """Compare replays, opened and converted, with their original; then say what those with a change do to the run."""
    compared = [(_compare(analysis, found, run), run) for found, run in replays]
    unchanged = [(one.record.phase_id, run) for one, run in compared if _is_unchanged(analysis, one)]
    return tuple(
        one
        if one.fidelity is None or _is_unchanged(analysis, one)
        else _estimate(analysis, one, run, [base for phase, base in unchanged if phase == one.record.phase_id])
        for one, run in compared
    )


def _compare(analysis: Analysis, found: FoundReplay, run: Run) -> NearbyReplay:
    from phasepoint.replay.fidelity.fidelity import compare_replay

    if found.record.status != "done":
        return NearbyReplay(found.path, found.record, None, None, found.record.reason or found.record.status)
    try:
        return NearbyReplay(found.path, found.record, compare_replay(analysis, run, found.record), None, None)
    except PhasepointError as error:
        return NearbyReplay(found.path, found.record, None, None, str(error))


def _is_unchanged(analysis: Analysis, one: NearbyReplay) -> bool:
    """Whether its command is the original's, by any interpreter; where that is not known, whether it did the same."""
    if one.fidelity is None:
        return False
    command = analysis.run.manifest.command
    return tuple(one.record.command[1:]) == tuple(command[1:]) if command else one.fidelity.faithful


def _estimate(analysis: Analysis, one: NearbyReplay, run: Run, baselines: Sequence[Run]) -> NearbyReplay:
    from phasepoint.replay.change.estimate import estimate_change

    try:
        return replace(one, estimate=estimate_change(analysis, [run], baselines=baselines))
    except PhasepointError as error:
        return replace(one, problem=str(error))


def _is_same(original: str, folder: Path) -> bool:
    """Whether a replay's original is this run; one that was moved together with its replays has its name at least."""
    if "\0" in original:
        return False  # the name of no folder
    path = Path(original)
    return os.path.realpath(path) == os.path.realpath(folder) or (path.name == folder.name and not path.exists())


MOST_LOOKED_AT = 48
"""Checkpoints looked at on disk: a look opens files, and a folder on a network answers in tens of milliseconds."""

_ROUNDS, _OLDER = 4, 5
"""Plans are made so often at most, each time with the checkpoints that the last ones led to and so many before them,
twice as many each time. A plan that then still rests on one that was not looked at says so."""

MOST_COMPACT_STEPS = 40_000
"""Steps of a run that is compacted beside its report: choosing among so many takes 0.15 s (2 cores, November 2026)."""


@dataclass(frozen=True)
class FastForward:
    """What can be replayed, and what few steps say of the whole.

    Attributes:
        run: path of the run.
        command: words with which the job was started; empty where not known.
        checkpoints: in order of time; those that were not looked at are `unknown`.
        plans: of every phase, the longest first; empty where none can be made for the whole run.
        unavailable: why there is no plan at all; None where there are plans.
        compact: few steps that stand for the run; None where it was not made.
        no_compact: why; None where it was made.
        replays: the replays beside the run, compared with it.
        problems: what of them could not be read, in words.
    """

    run: str
    command: tuple[str, ...]
    checkpoints: tuple[IndexedCheckpoint, ...]
    plans: tuple[PhasePlan, ...]
    unavailable: str | None
    compact: Compact | None
    no_compact: str | None
    replays: tuple[NearbyReplay, ...] = ()
    problems: tuple[str, ...] = ()


def build_fast_forward(
    analysis: Analysis, replays: Sequence[tuple[FoundReplay, Run]] = (), *, problems: Sequence[str] = ()
) -> FastForward:
    """Plan every phase of a run and compact it, within what a report may take.

    Args:
        analysis: of the run.
        replays: of it, opened and converted (`replay.nearby_replays.find_replays`).
        problems: what of them could not be read.
    """
    index, plans, unavailable = _plan(analysis)
    compact, no_compact = _compact(analysis)
    command = tuple(analysis.run.manifest.command)
    planned = (analysis.run.path, command, index.checkpoints, plans, unavailable)
    return FastForward(*planned, compact, no_compact, hold_against(analysis, replays), tuple(problems))


def _plan(analysis: Analysis) -> tuple[CheckpointIndex, tuple[PhasePlan, ...], str | None]:
    """Plans from checkpoints that were looked at: all of them, or those that the plans lead to."""
    paths = list(dict.fromkeys(analysis.table("checkpoints").column("path").to_pylist()))
    few = len(paths) <= MOST_LOOKED_AT
    looked, gone = (set(paths), frozenset[str]()) if few else (set[str](), find_gone(paths))
    paths = [path for path in paths if path not in gone]
    place = {path: i for i, path in enumerate(paths)}
    for turn in range(_ROUNDS):
        index = index_checkpoints(analysis, looked_at=looked, gone=gone)
        try:
            plans = plan_phases(analysis, index=index)
        except NoDataError as error:
            return index, (), str(error)
        chosen = {row.plan.checkpoint for row in plans if row.plan is not None and row.plan.checkpoint is not None}
        if chosen <= looked:
            break
        for path in sorted(chosen - looked, key=place.__getitem__):
            newest_first = reversed(paths[max(place[path] - (_OLDER << turn), 0) : place[path] + 1])
            looked |= set(list(newest_first)[: MOST_LOOKED_AT - len(looked)])
    return index, plans, None


def _compact(analysis: Analysis) -> tuple[Compact | None, str | None]:
    n_steps = analysis.clock.n_steps
    if n_steps > MOST_COMPACT_STEPS:
        return None, f"choosing among {n_steps:,} steps takes seconds: phasepoint replay compact does"
    from phasepoint.replay.compact.compact import compact_run

    try:
        return compact_run(analysis), None
    except (NoDataError, UsageError) as error:
        return None, str(error)
