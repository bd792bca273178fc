"""What a recording holds, what it did not see, and whether that is enough: no gate may pass on a run that says nothing.

Nothing is analysed or converted for it: the run's own tables are counted. Where more should have been captured, the
advice goes by the noted budget and by whether the job has ended.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phasepoint.core.arrays import Bools
from phasepoint.core.intervals import covered_ps
from phasepoint.core.units import PS_PER_S, format_counted, format_ps, format_ratio
from phasepoint.phases.clock.accounting import recording_cost, split_stretches, unexplained_outside
from phasepoint.phases.clock.steps import LAST_SEEN, RunClock, is_imported, last_seen_ps, read_clock, sum_ps
from phasepoint.store import Run
from phasepoint.summary.types import GapSummary, NotSeen, Recorded, Shortfall


def count_not_seen(
    clock: RunClock,
    captured: Bools,
    *,
    windows: pa.Table,
    conversions: pa.Table,
    gaps: pa.Table,
    problems: Sequence[str],
) -> NotSeen:
    """Everything that was not observed.

    Args:
        clock: the run's steps.
        captured: `[n_steps]`, whether a converted window saw the step in full.
        windows: `Run.table("windows")`.
        conversions: `Run.table("conversions")`.
        gaps: `Run.table("gaps")`.
        problems: what could not be read, in words.
    """
    inside_ps, keys = clock.inside_ps, ["host", "attempt", "window"]
    done = {tuple(row.values()) for row in conversions.select(keys).to_pylist()}
    found = [text for text in conversions.column("problem").to_pylist() if text is not None]
    return NotSeen(
        gaps=merge_gaps(gaps),
        steps=clock.n_steps,
        missing_steps=_missing_steps(clock),
        captured_steps=int(captured.sum()),
        captured_step_share=float(captured.mean()) if len(captured) else 0.0,
        captured_time_share=sum_ps(clock.dur_ps[captured]) / inside_ps if inside_ps else 0.0,
        windows=windows.num_rows,
        pending_windows=sum(tuple(row.values()) not in done for row in windows.select(keys).to_pylist()),
        empty_windows=_total(pc.less(windows.column("last_step"), windows.column("first_step"))),
        events=_total(conversions.column("events")),
        dropped_events=_total(conversions.column("dropped_events")),
        ignored_events=_total(conversions.column("ignored_events")),
        orphan_events=_total(conversions.column("orphan_events")),
        misnested_events=_total(conversions.column("misnested_events")),
        problems=(
            *problems,
            *(f"{text} ({format_counted(found.count(text), 'window')})" for text in dict.fromkeys(found)),
        ),
    )


def merge_gaps(gaps: pa.Table) -> tuple[GapSummary, ...]:
    """Gaps by reason, longest first."""
    merged: dict[str, list[dict[str, object]]] = {}
    for row in gaps.select(["why", "dur_ps", "first_step", "last_step", "unknown"]).to_pylist():
        merged.setdefault(row["why"], []).append(row)
    summaries = [_merge(why, rows) for why, rows in merged.items()]
    return tuple(sorted(summaries, key=lambda gap: (-(gap.total_ps or 0), gap.why)))


def _merge(why: str, rows: list[dict[str, object]]) -> GapSummary:
    lengths = [row["dur_ps"] for row in rows if isinstance(row["dur_ps"], int)]
    steps = [
        row["last_step"] - row["first_step"] + 1
        for row in rows
        if isinstance(row["first_step"], int) and isinstance(row["last_step"], int)
    ]
    texts = {str(row["unknown"]): None for row in rows}
    unknown = next(iter(texts)) + (f" (and {len(texts) - 1} more)" if len(texts) > 1 else "")
    return GapSummary(why, len(rows), sum(lengths) if lengths else None, sum(steps) if steps else None, unknown)


def _missing_steps(clock: RunClock) -> int:
    missing = 0
    for session in clock.sessions:
        steps = clock.step[session.rows]
        missing += int(steps[-1] - steps[0]) + 1 - len(steps) if len(steps) else 0
    return missing


def _total(column: pa.ChunkedArray) -> int:
    return int(pc.sum(column).as_py() or 0)


LEAST_STEPS = 20
"""Below so many steps no rule that compares steps can say anything: of 20, the usual one is known and a slow one not
yet the usual."""

MOST_OUTSIDE = 0.5
"""Ratio of the time outside steps beyond which steps were probably missed: a loop spends most of its time in steps."""

LEAST_OUTSIDE_PS = 2 * PS_PER_S
"""Less time outside steps says nothing, whatever its share: starting workers, opening and closing took up to 1.2 s of
a job of 60 short steps on two busy cores (22 November 2026)."""

ALMOST_NO_STEPS = 3
"""With fewer steps the time before the first counts too: nothing says that the loop began with it."""

RECORD_THE_LOOP = (
    'Record the loop itself: `with phasepoint.record("RUN") as run:` around it, and `for batch in run.steps(loader):` '
    "instead of `for batch in loader:`"
)
"""The two lines that record what cannot be followed from outside."""

_NOT_WRITTEN = ("recorder-off", "lost-part")
"""Gaps that say that rows are missing: the recorder gave up, or a part could not be written or read."""


def find_shortfall(run: Run, clock: RunClock, tables: Mapping[str, pa.Table]) -> Shortfall | None:
    """Why a run is no ground for a verdict, the gravest reason first; None where it is one.

    Args:
        run: the run.
        clock: its steps and sessions.
        tables: `windows`, `checkpoints`, `checkpoint_waits`, `hints` and `gaps` as `Run.table` gives them.

    Returns:
        No steps; most time outside steps; rows that could not be written or read; killed; too few steps. Imported
        traces are as long as they are: of them only the first and the third are asked.
    """
    imported = is_imported(tables["windows"])
    if not clock.n_steps:
        return _no_steps(clock, [*_unwritten(tables["gaps"]), *session_notes(run, "steps_unfollowed")])
    outside_ps, total_ps = (0, 0) if imported else outside_time(clock, tables)
    if outside_ps > MOST_OUTSIDE * total_ps and outside_ps >= LEAST_OUTSIDE_PS:
        return _missed(clock, outside_ps / total_ps)
    if lost := _unwritten(tables["gaps"]):
        remedy = "Make room, or choose a place that can be written, and record again"
        return Shortfall("not-written", f"rows of the run are missing: {lost[0]}", remedy)
    states = newest_states(clock)
    if "killed" in states:
        text = "the run has no end: the job was killed, or lost its recorder; what came after the last flush is missing"
        return Shortfall("killed", text, "Let the job end by itself, with fewer steps if need be, and record again")
    if clock.n_steps < LEAST_STEPS and not imported:
        text = f"{format_counted(clock.n_steps, 'step')} recorded, and at least {LEAST_STEPS} are needed to judge steps"
        wait = "Ask again when the job has made more steps" if "live" in states else "Record a job of more steps"
        return Shortfall("too-short", text, wait)
    return None


def outside_time(clock: RunClock, tables: Mapping[str, pa.Table]) -> tuple[int, int]:
    """Time from the first step on that no step, checkpoint or named stretch explains, and all time from then on, in ps.

    Args:
        clock: the run's steps and sessions.
        tables: `checkpoints`, `checkpoint_waits`, `hints` and `gaps` as `Run.table` gives them.
    """
    total_ps = outside_ps = 0
    for session, of_session in split_stretches(clock, tables):
        n_steps = session.end_row - session.first_row
        begin_ps = int(clock.start_ps[session.first_row]) if n_steps >= ALMOST_NO_STEPS else 0
        unexplained = unexplained_outside(clock, session, of_session)
        total_ps += session.wall_ps - begin_ps
        outside_ps += int(covered_ps(unexplained, np.array([begin_ps]), np.array([session.wall_ps]))[0])
    return outside_ps, total_ps


def newest_states(clock: RunClock) -> tuple[str, ...]:
    """How the newest attempt of each process ended: closed, live or killed."""
    return tuple(clock.of_host(host)[-1].state for host in sorted({session.host for session in clock.sessions}))


def shortfall_of(run: Run) -> Shortfall | None:
    """As `find_shortfall`, of a run that nobody has analysed.

    Raises:
        StoreError: its tables cannot be read.
    """
    tables = {name: run.table(name) for name in ("steps", "windows", *LAST_SEEN)}
    return find_shortfall(run, read_clock(tables["steps"], run.shards, last_seen_ps(tables)), tables)


def count_recorded(run: Run) -> Recorded:
    """Count what a recording holds, the moment it ends.

    Raises:
        StoreError: its tables cannot be read.
    """
    tables = {name: run.table(name) for name in ("steps", "counters", *LAST_SEEN)}
    clock = read_clock(tables["steps"], run.shards, last_seen_ps(tables))
    return Recorded(
        steps=clock.n_steps,
        windows=tables["windows"].num_rows,
        processes=len({shard.host for shard in run.shards}),
        machines=max(len(run.hostnames), 1),
        cost=recording_cost(clock, tables["windows"], tables["counters"], noted_budget(run)),
        not_enough=find_shortfall(run, clock, tables),
    )


def session_notes(run: Run, name: str) -> tuple[str, ...]:
    """What the sessions note under a name, each text once."""
    notes: Iterable[str | None] = (shard.session.notes.get(name) for shard in run.shards)
    return tuple(dict.fromkeys(text for text in notes if text))


def _no_steps(clock: RunClock, causes: Sequence[str]) -> Shortfall:
    states = newest_states(clock)
    if not states:
        text = "no training step was recorded: no process of the job made one that could be followed"
    else:
        text = f"no training step was recorded in {format_ps(clock.wall_ps)}"
        text += ", and the job was killed" if "killed" in states else ""
    if causes:
        text = f"{text}: {'; '.join(causes)}"
    wait = "The job is still running: ask again later. " if "live" in states else ""
    return Shortfall("no-steps", text, wait + RECORD_THE_LOOP)


def _missed(clock: RunClock, share: float) -> Shortfall:
    text = (
        f"most time passed outside steps: steps were probably missed ({format_ratio(share)} of the time lies outside "
        f"the {format_counted(clock.n_steps, 'recorded step')})"
    )
    return Shortfall("steps-missed", text, RECORD_THE_LOOP)


def _unwritten(gaps: pa.Table) -> list[str]:
    mine = gaps.filter(pc.is_in(gaps.column("why").cast(pa.string()), value_set=pa.array(_NOT_WRITTEN)))
    return list(dict.fromkeys(mine.column("unknown").to_pylist()))


SHORT_PS = 120 * PS_PER_S
"""A job of less than two minutes may be captured without a limit: what that costs is over soon, and a budget of 1 %
of it, 1.2 s, is less than the windows that are wanted."""

USUAL_BUDGET = 0.01
"""Share of the job's time that is advised where capture was forbidden: the recorder's default."""
_STEP_UP = 4
"""A larger budget is worth advising where it brings intervals half as wide: four times the windows."""


def noted_budget(run: Run) -> float | None:
    """The budget that the recorder noted; None for continuous capture, or where none was noted."""
    for shard in run.shards:
        with suppress(KeyError, ValueError):  # a run is untrusted input: what is no number is not known
            return float(shard.session.notes["budget"])
    return None


def advise_capture(run: Run, clock: RunClock) -> str:
    """How to capture more of such a job, without a full stop.

    Args:
        run: the run.
        clock: its steps and sessions.
    """
    budget = noted_budget(run)
    if budget == 0:
        return f"record with capture windows, which a budget of 0 forbids: record(…, budget={USUAL_BUDGET:g})"
    if "live" in newest_states(clock):
        return "leave the job running: windows come as time passes"
    larger = _STEP_UP * budget if budget else None
    if budget is None:
        return "record a longer job, with capture windows: record(…, budget=None) captures as much as it can"
    if larger is None or larger > 1 or clock.wall_ps < SHORT_PS:
        than = f"a larger budget than {format_ratio(budget)}"
        return f"record a longer job, or with {than}: record(…, budget=None) captures as much as it can"
    return f"record a longer job, or with a larger budget than {format_ratio(budget)}: record(…, budget={larger:g})"
