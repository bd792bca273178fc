"""`build_fast_forward`: what a report says of replays: checkpoints, a plan for every phase, the run from few steps.

A report is made in seconds whatever the run's length, so what it looks at is bounded: checkpoints on disk, and steps
that a compact is chosen from.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from phasepoint.core.errors import NoDataError, UsageError
from phasepoint.phases.analysis import Analysis
from phasepoint.replay.checkpoints import CheckpointIndex, IndexedCheckpoint, index_checkpoints
from phasepoint.replay.compact_result import Compact
from phasepoint.replay.folder_listing import find_gone
from phasepoint.replay.nearby_replays import FoundReplay, NearbyReplay, hold_against
from phasepoint.replay.plan import PhasePlan, plan_phases
from phasepoint.store import Run

MOST_LOOKED_AT = 48
"""Checkpoints looked at on disk: a look opens files, and a folder on a network answers in tens of milliseconds."""

_ROUNDS, _OLDER = 4, 5
"""Plans are made so often at most, each time with the checkpoints that the last ones led to and so many before them,
twice as many each time. A plan that then still rests on one that was not looked at says so."""

MOST_COMPACT_STEPS = 40_000
"""Steps of a run that is compacted beside its report: choosing among so many takes 0.15 s (2 cores, November 2026)."""

NOT_LOOKED_AT = "not looked at: a report looks at few; phasepoint replay RUN looks at all"

GONE = "gone: its folder holds others, and not this one"


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
        index = _look_at(analysis, looked, gone)
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


def _look_at(analysis: Analysis, paths: set[str], gone: frozenset[str]) -> CheckpointIndex:
    """The index of all checkpoints, of which those at some paths alone are looked at, and some are known to be gone."""
    table = analysis.table("checkpoints")
    if not gone and len(paths) >= len(table):
        return index_checkpoints(analysis)
    chosen = pc.is_in(table.column("path"), value_set=pa.array(sorted(paths), pa.string()))
    seen = index_checkpoints(replace(analysis, tables={**analysis.tables, "checkpoints": table.filter(chosen)}))
    rest = _unseen(analysis, table.filter(pc.invert(chosen)), gone)
    both = sorted((*seen.checkpoints, *rest), key=lambda one: (one.start_ps, one.host))
    return CheckpointIndex(analysis.run.path, tuple(both), seen.notes)


def _unseen(analysis: Analysis, table: pa.Table, gone: frozenset[str]) -> Sequence[IndexedCheckpoint]:
    rows, at = table.to_pylist(), analysis.keys.rows_of(table).tolist()
    return [
        IndexedCheckpoint(
            **{name: row[name] for name in ("host", "attempt", "step", "path", "framework", "dur_ps", "asynchronous")},
            **{name: row[name] for name in ("has_iterator", "iterator_state")},
            phase=analysis.names[int(analysis.labels[step_row])] if step_row >= 0 else None,
            start_ps=row["start_ps"] + (session.offset_ps if session else 0),
            size_bytes=row["bytes"],
            state="missing" if row["path"] in gone else "unknown",
            problem=GONE if row["path"] in gone else NOT_LOOKED_AT,
            format=None,
            has_model=None,
            has_optimizer=None,
            has_prng=None,
        )
        for row, step_row in zip(rows, at, strict=True)
        for session in (analysis.clock.session(row["host"], row["attempt"]),)
    ]


def _compact(analysis: Analysis) -> tuple[Compact | None, str | None]:
    n_steps = analysis.clock.n_steps
    if n_steps > MOST_COMPACT_STEPS:
        return None, f"choosing among {n_steps:,} steps takes seconds: phasepoint replay compact does"
    from phasepoint.replay.compact import compact_run

    try:
        return compact_run(analysis), None
    except (NoDataError, UsageError) as error:
        return None, str(error)
