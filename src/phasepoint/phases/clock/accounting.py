"""The clock's account: where the wall time of all sessions went, exactly, from the step clock alone.

It needs no window. Inside a step, waiting for input, compiling and being held by checkpoints come first, all of them
measured; then what other programs on the machine made the step longer by, which is estimated; what is left belongs to
the step's phase. Outside the steps, the recorder's own work at the edges of windows comes first, then checkpoints, the
stretches the user named, and `outside steps`. What recording cost is the recorder's own account, held against its
budget.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phasepoint.core.arrays import Int64s
from phasepoint.core.encoding import renumber
from phasepoint.core.intervals import IntervalSet, covered_ps, partition, subtract, union
from phasepoint.phases.clock.breakdown import AccountPart, Breakdown, ClockAccount
from phasepoint.phases.clock.machine import MachineLoss
from phasepoint.phases.clock.steps import RunClock, SessionClock, is_imported, read_numbers, sum_ps

_PREFIX = "recorder.cost."
"""Counters of the recorder's account: one per purpose, in ps, written when it changed and when the recording ends."""

_PURPOSES = ("entry", "clock", "flush", "start", "slowdown", "stop", "wait", "write", "convert")
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
        wait_ps: what windows of other ranks held this one up by.
        killed_sessions: sessions that ended without closing; their cost is known up to their last flush.
        complete: whether every session has its account; where not, total_ps and share are the least they may be.
        imported: whether another profiler recorded it, whose cost nothing says.
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
    wait_ps: int = 0
    complete: bool = True
    killed_sessions: int = 0
    imported: bool = False


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
    for session, told, mine in zip(clock.sessions, clock.split(counters), clock.split(windows), strict=True):
        spent = _account(told)
        if not spent:
            complete = complete and session.state == "closed"
            spent = {name: int(pc.sum(mine.column(f"{name}_cost_ps")).as_py() or 0) for name in _WINDOW_COLUMNS}
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
        imported=is_imported(windows),
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


def checkpoint_stretches(tables: Mapping[str, pa.Table]) -> pa.Table:
    """When checkpoints held the job, saving them or waiting for one: `host`, `attempt`, `start_ps`, `dur_ps`.

    One row a stretch; they may overlap.

    Args:
        tables: `checkpoints` and `checkpoint_waits` as `Run.table` gives them.
    """
    columns = ["host", "attempt", "start_ps", "dur_ps"]
    return pa.concat_tables([tables[name].select(columns) for name in ("checkpoints", "checkpoint_waits")])


INPUT_WAIT = "input wait"
COMPILING = "compiling"
CHECKPOINT = "checkpoint"
SLOWER = "slower machine"
RECORDING = "recording"
OUTSIDE = "outside steps"
PHASE, NAMED = "phase", "named"
"""Kinds of the account's parts. The first six are known as such: no phase or stretch that is *called* so is one."""


class PartKey(NamedTuple):
    """What a part of the account is.

    Attributes:
        kind: as in `AccountPart`.
        phase: id of the phase, of kind `phase`.
        given: name that the job gave the stretch, of kind `named`.
    """

    kind: str
    phase: int | None = None
    given: str | None = None


_RECORDING_GAP = "window-boundary"
"""Why the recorder writes down the stretches between two steps in which it opens or closes a window."""


_HALF_OF_ALL = 1.96
"""Standard errors on either side in an interval of 95 %, of a sum of many."""


@dataclass(frozen=True, eq=False)
class StepAccount:
    """What each step's time went into, `[n_steps]` ps each; the first five add up to its duration.

    Attributes:
        input_ps: waiting for input.
        compile_ps: compiling.
        checkpoint_ps: held by checkpoints.
        machine_ps: what other programs on the machine made it longer by; an estimate, as its ends are.
        rest_ps: its phase's.
        least_ps: lower end of machine_ps.
        most_ps: upper end of it.
    """

    input_ps: Int64s
    compile_ps: Int64s
    checkpoint_ps: Int64s
    machine_ps: Int64s
    rest_ps: Int64s
    least_ps: Int64s
    most_ps: Int64s


def split_steps(clock: RunClock, tables: Mapping[str, pa.Table], loss: MachineLoss | None = None) -> StepAccount:
    """Split each step's time into what the clock saw.

    Args:
        clock: the run's steps.
        tables: `checkpoints` and `checkpoint_waits` as `Run.table` gives them.
        loss: to other programs; None where nothing is known of them.
    """
    checkpoint_ps = np.zeros(clock.n_steps, np.int64)
    for session, saves in zip(clock.sessions, clock.split(checkpoint_stretches(tables)), strict=True):
        checkpoint_ps[session.rows] = checkpoint_time_in_steps(clock, session, covered_time(saves))
    room_ps = clock.dur_ps - clock.input_ps - clock.compile_ps - checkpoint_ps
    none = np.zeros_like(room_ps)
    machine_ps, least_ps, most_ps = (
        (none, none, none)
        if loss is None
        else (np.minimum(ps, room_ps) for ps in (loss.ps, loss.least_ps, loss.most_ps))
    )
    first = (clock.input_ps, clock.compile_ps, checkpoint_ps, machine_ps)
    return StepAccount(*first, room_ps - machine_ps, least_ps, most_ps)


def account_time(
    clock: RunClock,
    labels: Int64s,
    names: Mapping[int, str],
    tables: Mapping[str, pa.Table],
    parts: StepAccount | None = None,
) -> ClockAccount:
    """Split the sessions' wall time into what the clock saw.

    Args:
        clock: the run's steps.
        labels: `[n_steps]` phase id per row of the clock.
        names: phase id → name.
        tables: `checkpoints`, `checkpoint_waits`, `hints` and `gaps` as `Run.table` gives them; `checkpoints` may have
            the column `error_ps`.
        parts: `split_steps` of the same run, with what is known of its machine.

    Returns:
        Parts, largest first; they add up to the wall time to the picosecond.
    """
    parts = split_steps(clock, tables) if parts is None else parts
    totals: dict[PartKey, int] = {}
    for key, time_ps in _inside_parts(parts, labels):
        _add(totals, key, time_ps)
    for session, of_session in split_stretches(clock, tables):
        _add_outside(totals, clock, session, of_session)
    return measured_account(clock.wall_ps, totals, names, _margins(parts, labels, tables["checkpoints"]))


def _margins(parts: StepAccount, labels: Int64s, checkpoints: pa.Table) -> dict[PartKey, tuple[int, int]]:
    """By estimated part, how much less and how much more it may be."""
    errors_ps = read_numbers(checkpoints, "error_ps").astype(np.float64)  # 0 where the table has no such column
    half_ps = _HALF_OF_ALL * float(np.sqrt((errors_ps**2).sum()))
    saved = half_ps * parts.checkpoint_ps / max(sum_ps(parts.checkpoint_ps), 1)
    less_ps, more_ps = parts.machine_ps - parts.least_ps, parts.most_ps - parts.machine_ps
    margins = {PartKey(CHECKPOINT): (round(half_ps),) * 2, PartKey(SLOWER): (sum_ps(less_ps), sum_ps(more_ps))}
    for phase in np.unique(labels[less_ps + more_ps + saved > 0]).tolist():
        mine = labels == phase
        both_ps = round(float(saved[mine].sum()))
        margins[PartKey(PHASE, phase)] = (sum_ps(more_ps[mine]) + both_ps, sum_ps(less_ps[mine]) + both_ps)
    return margins


def measured_account(
    total_ps: int,
    totals: Mapping[PartKey, int],
    names: Mapping[int, str],
    margins: Mapping[PartKey, tuple[int, int]] = MappingProxyType({}),
) -> ClockAccount:
    """The parts of a total, largest first; they must add up to it.

    Args:
        total_ps: the sessions' wall time.
        totals: time by part.
        names: phase id → name.
        margins: how much less and how much more a part may be; those that have none are exact.

    Raises:
        AssertionError: they do not: a fault of ours, never of the data.
    """
    parts = []
    for key, time_ps in sorted(totals.items(), key=lambda item: (-item[1], _part_name(item[0], names))):
        less_ps, more_ps = margins.get(key, (0, 0))
        low_ps, high_ps = max(time_ps - less_ps, 0), min(time_ps + more_ps, max(total_ps, time_ps))
        share, basis = time_ps / max(total_ps, 1), "estimated" if low_ps < high_ps else "measured"
        part = AccountPart(_part_name(key, names), time_ps, low_ps, high_ps, share, basis, key.kind, key.phase)
        if time_ps:
            parts.append(part)
    return closed(ClockAccount(total_ps, tuple(parts)))


def _part_name(key: PartKey, names: Mapping[int, str]) -> str:
    """`train`, `compiling`, `eval, outside steps`; a phase that is called like a measured part is told from it."""
    if key.phase is None:
        return key.kind if key.given is None else f"{key.given}, {OUTSIDE}"
    name = names[key.phase]
    return f"{name} steps" if name in (INPUT_WAIT, COMPILING, CHECKPOINT, SLOWER, RECORDING, OUTSIDE) else name


_SomeBreakdown = TypeVar("_SomeBreakdown", bound=Breakdown)


def closed(breakdown: _SomeBreakdown) -> _SomeBreakdown:
    """The same breakdown, once its parts are seen to add up to its total.

    Raises:
        AssertionError: they do not: a fault of ours, never of the data.
    """
    found_ps = sum(part.total_ps for part in breakdown.parts)
    if found_ps != breakdown.total_ps:
        names = ", ".join(f"{part.name} {part.total_ps}" for part in breakdown.parts)
        raise AssertionError(f"parts add up to {found_ps} ps, not to {breakdown.total_ps} ps: {names}")
    return breakdown


def checkpoint_time_in_steps(clock: RunClock, session: SessionClock, written: IntervalSet) -> Int64s:
    """Time of each step `[n]` of a session that went into checkpoints, beside waiting for input and compiling."""
    start, dur = clock.start_ps[session.rows], clock.dur_ps[session.rows]
    free = dur - clock.input_ps[session.rows] - clock.compile_ps[session.rows]
    return np.asarray(np.minimum(covered_ps(written, start, start + dur), free), np.int64)


def outside_steps(clock: RunClock, session: SessionClock) -> IntervalSet:
    """The time of a session that no step covers."""
    start, dur = clock.start_ps[session.rows], clock.dur_ps[session.rows]
    whole = union(np.array([0]), np.array([session.wall_ps]))
    return subtract(whole, union(start, start + dur))


def split_stretches(
    clock: RunClock, tables: Mapping[str, pa.Table]
) -> Iterator[tuple[SessionClock, Mapping[str, pa.Table]]]:
    """Each session with its rows of `hints` and `gaps`, and of `checkpoints`: the stretches in which they held the job.

    Args:
        clock: the run's steps and sessions.
        tables: `checkpoints`, `checkpoint_waits`, `hints` and `gaps` as `Run.table` gives them.
    """
    whole = {"hints": tables["hints"], "gaps": tables["gaps"], "checkpoints": checkpoint_stretches(tables)}
    by_session = zip(*map(clock.split, whole.values()), strict=True)
    for session, mine in zip(clock.sessions, by_session, strict=True):
        yield session, dict(zip(whole, mine, strict=True))


def unexplained_outside(clock: RunClock, session: SessionClock, tables: Mapping[str, pa.Table]) -> IntervalSet:
    """The time of a session that no step, checkpoint, stretch with a name or work of the recorder covers.

    Args:
        clock: the run's steps and sessions.
        session: one of them.
        tables: its own, of `split_stretches`.
    """
    left = outside_steps(clock, session)
    for one in (tables["checkpoints"], tables["hints"], recorder_work(tables["gaps"])):
        left = subtract(left, covered_time(one))
    return left


def _inside_parts(parts: StepAccount, labels: Int64s) -> Iterable[tuple[PartKey, int]]:
    yield PartKey(INPUT_WAIT), sum_ps(parts.input_ps)
    yield PartKey(COMPILING), sum_ps(parts.compile_ps)
    yield PartKey(CHECKPOINT), sum_ps(parts.checkpoint_ps)
    yield PartKey(SLOWER), sum_ps(parts.machine_ps)
    for phase in renumber(labels)[0].tolist():
        yield PartKey(PHASE, phase), sum_ps(parts.rest_ps[labels == phase])


def _add_outside(
    totals: dict[PartKey, int], clock: RunClock, session: SessionClock, tables: Mapping[str, pa.Table]
) -> None:
    outside, hints, gaps = outside_steps(clock, session), tables["hints"], tables["gaps"]
    names = sorted(set(hints.column("name").to_pylist()))
    layers = [covered_time(recorder_work(gaps)), covered_time(tables["checkpoints"])]
    layers += [covered_time(hints.filter(_equal(hints, "name", name))) for name in names]
    split = partition(layers, outside.start_ps, outside.end_ps)
    kinds = [PartKey(RECORDING), PartKey(CHECKPOINT), *(PartKey(NAMED, given=name) for name in names)]
    parts = [*kinds, PartKey(OUTSIDE)]
    outside_ps = session.wall_ps - sum_ps(clock.dur_ps[session.rows])
    left_ps = outside_ps - int(split.sum())
    for key, column in zip(parts, split.T, strict=True):
        _add(totals, key, int(column.sum()))
    # Steps that overlap (a clock that went back) cover less wall time than they add up to: the difference is taken
    # from the time outside steps, which is then no longer known, so that the account closes on what was recorded.
    if left_ps < 0:
        for key in reversed(parts):
            taken = min(totals.get(key, 0), -left_ps)
            _add(totals, key, -taken)
            left_ps += taken
    else:
        _add(totals, PartKey(OUTSIDE), left_ps)


def recorder_work(gaps: pa.Table) -> pa.Table:
    """Stretches in which the recorder itself worked, at the edges of windows."""
    return gaps.filter(pc.and_(_equal(gaps, "why", _RECORDING_GAP), pc.is_valid(gaps.column("dur_ps"))))


def _add(totals: dict[PartKey, int], key: PartKey, time_ps: int) -> None:
    totals[key] = totals.get(key, 0) + time_ps


def covered_time(table: pa.Table) -> IntervalSet:
    """The time that the rows of a table cover, by `start_ps` and `dur_ps`."""
    start = np.asarray(table.column("start_ps").to_numpy(), np.int64)
    return union(start, start + np.asarray(table.column("dur_ps").to_numpy(), np.int64))


def _equal(table: pa.Table, column: str, text: str) -> pa.ChunkedArray:
    return pc.equal(table.column(column).cast(pa.string()), text)
