"""What recording cost the job, against its budget."""

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from phasepoint.phases.clock import RunClock, SessionClock

_PREFIX = "recorder.cost."
"""Counters of the recorder's account: one per purpose, in ps, written when it changed and when the recording ends."""

_PURPOSES = ("entry", "clock", "flush", "start", "slowdown", "stop", "write", "convert")
_WINDOW_COLUMNS = ("start", "slowdown", "stop", "write")


@dataclass(frozen=True)
class RecordingCost:
    """What recording cost the job: the recorder's own account, or the windows' where it left none (killed, live).

    Attributes:
        start_ps: opening profiler sessions.
        slowdown_ps: excess of captured steps over their neighbours, where measured.
        stop_ps: closing sessions.
        write_ps: CPU time of writing raw captures, off the job's thread.
        convert_ps: CPU time of converting them beside the job.
        total_ps: all parts added up.
        share: total_ps as a ratio of the job's time (all hosts); None where that is 0.
        budget: ratio the user allowed, None for continuous capture or where unknown.
        within_budget: share ≤ budget, None where either is unknown, or where the account has holes and what is known
            of it stays below the budget.
        entry_ps: imports and opening the run.
        clock_ps: the step clock and the planning of windows.
        flush_ps: writing rows in the background.
        killed_sessions: sessions that ended without closing; their cost is known up to their last flush.
        complete: whether every session has its account; where not, total_ps and share are the least they may be.
    """

    start_ps: int
    slowdown_ps: int
    stop_ps: int
    write_ps: int
    convert_ps: int
    total_ps: int
    share: float | None
    budget: float | None
    within_budget: bool | None
    entry_ps: int = 0
    clock_ps: int = 0
    flush_ps: int = 0
    complete: bool = True
    killed_sessions: int = 0


def recording_cost(clock: RunClock, windows: pa.Table, counters: pa.Table, budget: float | None) -> RecordingCost:
    """What recording cost, added over hosts and attempts.

    Args:
        clock: the run's steps and sessions.
        windows: `Run.table("windows")`; their costs stand in for sessions that left no account.
        counters: `Run.table("counters")`.
        budget: share of the job's time allowed; None for continuous capture or where unknown.
    """
    totals = dict.fromkeys(_PURPOSES, 0)
    complete = True
    for session in clock.sessions:
        spent = _account(_of_session(counters, session))
        if not spent:
            complete = complete and session.state == "closed"
            spent = _from_windows(_of_session(windows, session))
        for purpose, cost_ps in spent.items():
            totals[purpose] += cost_ps
    total_ps = sum(totals.values())
    share = total_ps / clock.wall_ps if clock.wall_ps else None
    return RecordingCost(
        **{f"{purpose}_ps": cost_ps for purpose, cost_ps in totals.items()},
        total_ps=total_ps,
        share=share,
        budget=budget,
        within_budget=_within(share, budget, complete),
        complete=complete,
        killed_sessions=sum(session.state == "killed" for session in clock.sessions),
    )


def _within(share: float | None, budget: float | None, complete: bool) -> bool | None:
    """What is known of the cost may exceed the budget already; that it stays within it takes the whole account."""
    if share is None or budget is None:
        return None
    return False if share > budget else (True if complete else None)


def _account(counters: pa.Table) -> dict[str, int]:
    """The newest value of each purpose; empty where the recorder left none."""
    mine = counters.filter(pc.starts_with(counters.column("name").cast(pa.string()), _PREFIX))
    rows = sorted(mine.select(["name", "time_ps", "value"]).to_pylist(), key=lambda row: row["time_ps"])
    newest = {row["name"].removeprefix(_PREFIX): round(row["value"]) for row in rows}
    return {purpose: newest[purpose] for purpose in _PURPOSES if purpose in newest}


def _from_windows(windows: pa.Table) -> dict[str, int]:
    return {name: int(pc.sum(windows.column(f"{name}_cost_ps")).as_py() or 0) for name in _WINDOW_COLUMNS}


def _of_session(table: pa.Table, session: SessionClock) -> pa.Table:
    mine = pc.and_(pc.equal(table.column("host"), session.host), pc.equal(table.column("attempt"), session.attempt))
    return table.filter(mine)
