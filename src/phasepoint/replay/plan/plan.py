"""`plan_replay`: from a phase to the checkpoint, the steps, and what running them again will cost.

A plan also names the folders that its replay may not write. `list_checkpoints` asks the other way round: which phases
are reached from each checkpoint.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from phasepoint.core.errors import NoDataError, PhasepointError, UsageError
from phasepoint.phases.detection.result import Phase
from phasepoint.replay.checkpoints import USABLE, CheckpointIndex, IndexedCheckpoint, index_checkpoints
from phasepoint.replay.plan.planner import COMPARED_STEPS, Planner
from phasepoint.replay.plan.starts import BEFORE_ALL
from phasepoint.replay.plan.words import tell_what_for, write_notes
from phasepoint.summary.analysis import Analysis

_MOST_PLACES = 8
"""Folders named one by one; the list travels in an environment variable."""


def protected_places(run: str, checkpoints: Iterable[str]) -> tuple[str, ...]:
    """The run's folder and the folders in which its checkpoints stand, as few as name them all.

    A folder is protected, not a checkpoint alone, because managers of checkpoints delete old ones beside the new. Where
    every step has a folder of its own, the one above stands for them.

    Args:
        run: path of the run.
        checkpoints: their paths.
    """
    folders = {_folder(path) for path in checkpoints}
    while len(folders) > _MOST_PLACES:
        above = {_folder(folder) for folder in folders}
        if len(above) == len(folders) or above & {"", ".", "/"}:
            break
        folders = above
    return tuple(sorted({run, *folders}))


def _folder(path: str) -> str:
    return path.rstrip("/").rpartition("/")[0] or ("/" if path.startswith("/") else ".")


@dataclass(frozen=True)
class ReplayPlan:
    """How a phase is reached again.

    Attributes:
        run: path of the run.
        phase_id, phase: the phase, by id and name.
        host, attempt: whose steps they are.
        window: the captured window that the target follows; None where the phase has none.
        target_first, target_last: steps to capture.
        checkpoint: path of the checkpoint to restore; None: from the start of the job.
        checkpoint_step: the step after which it stands; None from the start, or where it was written before the first.
        iterator_state: the loader's state as it was recorded with the checkpoint, as JSON; None where it was not.
        first_step, last_step: steps that are run.
        forward_steps: how many these are.
        compared_steps: steps of the phase among them that run warm and without capture: their time is compared.
        startup_ps, compile_ps, restore_ps, skip_ps: see `replay.plan_cost.PlanCost`; None where not known.
        forward_ps: the steps `first_step`–`last_step` at their measured times.
        outside_ps: time between these steps that belongs to none.
        cost_ps: the known parts added up.
        full_ps: what the whole run took, from the start of its processes where that is known.
        ratio: cost_ps over full_ps.
        basis: (part of the cost, where its number comes from).
        tells: what the replay will tell, in words.
        notes: what the reader must know, in words.
        protected: folders and files of the run and of its checkpoints, which the replay may not write.
        is_automatic: whether `phasepoint record -- …` saw the steps of a program without lines of Phasepoint.
    """

    run: str
    phase_id: int
    phase: str
    host: int
    attempt: int
    window: int | None
    target_first: int
    target_last: int
    checkpoint: str | None
    checkpoint_step: int | None
    iterator_state: str | None
    first_step: int
    last_step: int
    forward_steps: int
    compared_steps: int
    startup_ps: int | None
    compile_ps: int | None
    restore_ps: int | None
    skip_ps: int | None
    forward_ps: int
    outside_ps: int
    cost_ps: int
    full_ps: int
    ratio: float
    basis: tuple[tuple[str, str], ...]
    tells: tuple[str, ...]
    notes: tuple[str, ...]
    protected: tuple[str, ...]
    is_automatic: bool = False


@dataclass(frozen=True)
class PhasePlan:
    """A phase with its plan, or with the reason why there is none.

    Attributes:
        phase_id, phase: the phase.
        plan: None where it cannot be replayed.
        reason: why; None where it can.
    """

    phase_id: int
    phase: str
    plan: ReplayPlan | None
    reason: str | None


def plan_replay(
    analysis: Analysis,
    phase: str,
    *,
    index: CheckpointIndex | None = None,
    from_start: bool = False,
    steps: int = COMPARED_STEPS,
    times_only: bool = False,
) -> ReplayPlan:
    """Which checkpoint and which steps reach a phase again, and what that costs.

    The target is the phase's representative window. Where the newest usable checkpoint before it leaves no lead of
    `LEAD_STEPS`, an older checkpoint or another captured window of the phase is taken, whichever costs less.

    Args:
        analysis: of the run.
        phase: name or id of the phase.
        index: the run's checkpoints (`replay.checkpoints.index_checkpoints`), made if None.
        from_start: start the job from its beginning instead of restoring a checkpoint.
        steps: steps of the phase to run without capture, beyond the lead, where it has them.
        times_only: whether times of steps are all that is asked for: the run needs no captured window then, and the
            target is a single step, wherever `steps` of the phase are reached soonest.

    Raises:
        UsageError: no such phase, or several of that name.
        NoDataError: no steps, no captured window, or no checkpoint before the phase.
        ReplayError: there were checkpoints before the phase, and none can be used.
    """
    chosen = find_phase(analysis, phase)
    planner = Planner(analysis, index, steps=steps, from_start=from_start, times_only=times_only)
    return _describe(planner, chosen)


def plan_phases(
    analysis: Analysis, *, index: CheckpointIndex | None = None, from_start: bool = False, steps: int = COMPARED_STEPS
) -> tuple[PhasePlan, ...]:
    """A plan for every phase, or the reason why there is none, the longest phase first.

    Raises:
        UsageError: `steps` is below 0.
        NoDataError: the run has no steps, or no captured window.
    """
    planner = Planner(analysis, index, steps=steps, from_start=from_start)
    rows = []
    for phase in sorted(analysis.result.phases, key=lambda p: (-p.total_ps, p.id)):
        try:
            rows.append(PhasePlan(phase.id, phase.name, _describe(planner, phase), None))
        except PhasepointError as error:
            rows.append(PhasePlan(phase.id, phase.name, None, str(error)))
    return tuple(rows)


def find_phase(analysis: Analysis, phase: str) -> Phase:
    """The phase of that name or id.

    Raises:
        UsageError: there is none, or there are several of that name.
        NoDataError: the run has no steps, hence no phases.
    """
    phases = analysis.result.phases
    if not phases:
        raise NoDataError(
            f"{analysis.run.path}: no steps were recorded, so there is no phase to replay; record a run first"
        )
    named = [one for one in phases if one.name == phase]
    if len(named) > 1:
        ids = ", ".join(str(one.id) for one in named)
        raise UsageError(f"{len(named)} phases are named {phase!r}; give the id of one of them: {ids}")
    found = named or [one for one in phases if str(one.id) == phase]
    if not found:
        known = ", ".join(f"{one.name} ({one.id})" for one in phases)
        raise UsageError(f"{analysis.run.path}: no phase {phase!r}; its phases (with their ids) are {known}")
    return found[0]


WITHOUT_LINES = (
    "the job was recorded without lines of Phasepoint, which could restore a checkpoint (docs/replay.md): it starts "
    "from its beginning"
)


def _describe(planner: Planner, phase: Phase) -> ReplayPlan:
    way = planner.choose(phase)
    target, cost, full_ps = way.target, way.cost, planner.full_ps(way.target.host)
    point = way.point
    return ReplayPlan(
        run=planner.run,
        phase_id=phase.id,
        phase=phase.name,
        host=target.host,
        attempt=target.attempt,
        window=target.window,
        target_first=target.first_step,
        target_last=target.last_step,
        checkpoint=None if point is None else point.checkpoint.path,
        checkpoint_step=None if point is None or point.after_step == BEFORE_ALL else point.after_step,
        iterator_state=None if point is None else point.checkpoint.iterator_state,
        first_step=way.first_step,
        last_step=way.last_step,
        forward_steps=way.last_step - way.first_step + 1,
        compared_steps=way.compared.steps,
        **vars(cost),
        cost_ps=cost.cost_ps,
        full_ps=full_ps,
        ratio=cost.cost_ps / full_ps if full_ps else 0.0,
        tells=tell_what_for(phase.name, way),
        notes=(
            *([WITHOUT_LINES] if planner.is_automatic else []),
            *write_notes(phase.name, way, planner.steps, full_ps),
            *planner.index.notes,
        ),
        protected=protected_places(planner.run, [one.path for one in planner.index.checkpoints]),
        is_automatic=planner.is_automatic,
    )


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
    listed = tuple(
        # A checkpoint that is none any more may be an earlier write of the same path.
        ListedCheckpoint(one, tuple(starts.get((one.path, one.step), ())) if one.state in USABLE else ())
        for one in index.checkpoints
    )
    return CheckpointList(index.run, listed, tuple(unreached), tuple(notes))
