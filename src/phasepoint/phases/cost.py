"""What recording cost the job, against its budget."""

import pyarrow as pa
import pyarrow.compute as pc

from phasepoint.phases.clock import RunClock, SessionClock
from phasepoint.phases.summary_types import RecordingCost

_PREFIX = "recorder.cost."
"""Counters of the recorder's account: one per purpose, in ps, written when it changed and when the recording ends."""

_PURPOSES = ("entry", "clock", "flush", "start", "slowdown", "stop", "write", "convert")
_WINDOW_COLUMNS = ("start", "slowdown", "stop", "write")


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
