"""The replays that stand beside a run, as `phasepoint replay run` names them, held against it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from phasepoint.core.errors import PhasepointError, StoreError
from phasepoint.phases.analysis import Analysis
from phasepoint.replay.record import RECORD_NAME, ReplayRecord, read_replay
from phasepoint.store import Run

if TYPE_CHECKING:  # imported when there is a replay to compare: most reports have none
    from phasepoint.replay.estimate_types import Estimate
    from phasepoint.replay.fidelity import Fidelity

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
    named = [
        path for path in folder.parent.glob(f"{_literally(folder.name)}-replay-*") if (path / RECORD_NAME).is_file()
    ]
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
    from phasepoint.replay.fidelity import compare_replay

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
    from phasepoint.replay.estimate import estimate_change

    try:
        return replace(one, estimate=estimate_change(analysis, [run], baselines=baselines))
    except PhasepointError as error:
        return replace(one, problem=str(error))


def _literally(name: str) -> str:
    """A file's name as a pattern that matches nothing else."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)


def _is_same(original: str, folder: Path) -> bool:
    """Whether a replay's original is this run; one that was moved together with its replays has its name at least."""
    path = Path(original)
    return path.resolve() == folder.resolve() or (path.name == folder.name and not path.exists())
