"""`list_checkpoints`: a run's checkpoints with the phases that are reached from each."""

from dataclasses import dataclass

from phasepoint.core.errors import NoDataError
from phasepoint.phases.analysis import Analysis
from phasepoint.replay.checkpoints import CheckpointIndex, IndexedCheckpoint, index_checkpoints
from phasepoint.replay.plan import plan_phases


@dataclass(frozen=True)
class ListedCheckpoint:
    """A checkpoint and where it leads.

    Attributes:
        checkpoint: as indexed.
        leads_to: names of the phases whose replay starts from it.
    """

    checkpoint: IndexedCheckpoint
    leads_to: tuple[str, ...]


@dataclass(frozen=True)
class CheckpointList:
    """The checkpoints of a run.

    Attributes:
        run: path or URL of the run.
        checkpoints: by start, then host.
        unreached: (phase, why no checkpoint leads to it).
        notes: what limits the list, in words.
    """

    run: str
    checkpoints: tuple[ListedCheckpoint, ...]
    unreached: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]


def list_checkpoints(analysis: Analysis, *, index: CheckpointIndex | None = None) -> CheckpointList:
    """List a run's checkpoints, and plan a replay of every phase to see from which it would start.

    Args:
        analysis: of the run.
        index: its checkpoints; looked at where left out.
    """
    index = index or index_checkpoints(analysis)
    notes = list(index.notes)
    starts: dict[tuple[str, int | None], list[str]] = {}
    unreached: list[tuple[str, str]] = []
    try:
        for one in plan_phases(analysis, index=index) if index.checkpoints else ():
            if one.plan is None or one.plan.checkpoint is None:
                unreached.append((one.phase, one.reason or "its replay starts the job from its beginning"))
            else:
                starts.setdefault((one.plan.checkpoint, one.plan.checkpoint_step), []).append(one.phase)
    except NoDataError as error:
        notes.append(f"which phases they lead to cannot be told: {error}")
    listed = tuple(ListedCheckpoint(one, _leads_to(one, starts)) for one in index.checkpoints)
    return CheckpointList(index.run, listed, tuple(unreached), tuple(notes))


def _leads_to(one: IndexedCheckpoint, starts: dict[tuple[str, int | None], list[str]]) -> tuple[str, ...]:
    if one.state not in {"whole", "unknown"}:  # an earlier write of the same path
        return ()
    return tuple(starts.get((one.path, one.step), ()))
