"""The step clock of a whole run: every step of every host and attempt, and the sessions they stand in.

A session that never closed lasted until it was last heard of, by a step or by anything else that was recorded.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby, pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phasepoint.core.arrays import Bools, Int64s
from phasepoint.core.encoding import renumber
from phasepoint.store import Session, Shard

CLOCK_COLUMNS = ("host", "attempt", "step", "start_ps", "dur_ps", "input_ps", "compile_ps")
"""Columns of the steps table that a series holds."""

LAST_SEEN = ("windows", "hints", "checkpoints", "checkpoint_waits", "gaps")
"""Tables of stretches, whose ends say how long a session lasted."""


def last_seen_ps(tables: Mapping[str, pa.Table]) -> dict[tuple[int, int], int]:
    """By host and attempt, the latest end of anything but steps, in ps of the session.

    Args:
        tables: those of `LAST_SEEN`, as `Run.table` gives them.
    """
    latest: dict[tuple[int, int], int] = {}
    for name in LAST_SEEN:
        table = tables[name]
        ends = pc.add(table.column("start_ps"), table.column("dur_ps")).to_pylist()
        keys = zip(table.column("host").to_pylist(), table.column("attempt").to_pylist(), strict=True)
        for key, end_ps in zip(keys, ends, strict=True):
            latest[key] = max(latest.get(key, 0), end_ps or 0)
    return latest


_INT64_MAX = np.iinfo(np.int64).max
_BLOCK = 4096
"""Values added up in int64 at a time, which they stay within up to 37 minutes each."""


@dataclass(frozen=True, eq=False)
class SessionClock:
    """One process's session and its place in the steps table.

    Attributes:
        host: rank.
        attempt: restarts before it.
        state: closed, live or killed.
        offset_ps: its epoch, from the epoch of the host's first attempt in the history.
        wall_ps: how long it lasted; of a session that did not close, up to the last thing recorded.
        first_row: its first row in the steps table.
        end_row: one past its last row.
    """

    host: int
    attempt: int
    state: str
    offset_ps: int
    wall_ps: int
    first_row: int
    end_row: int

    @property
    def rows(self) -> slice:
        """Its rows of the steps table."""
        return slice(self.first_row, self.end_row)

    def own(self, table: pa.Table) -> pa.Table:
        """Its rows of any table, by `host` and `attempt`."""
        of_host = pc.equal(table.column("host"), self.host)
        return table.filter(pc.and_(of_host, pc.equal(table.column("attempt"), self.attempt)))


@dataclass(frozen=True, eq=False)
class StepSeries:
    """Steps with what the step clock knows of each, `[n_steps]` each; unknown waits count as 0.

    Attributes:
        host: rank.
        attempt: restarts before it.
        step: step number within host and attempt.
        start_ps: from the session's epoch.
        dur_ps: step time.
        input_ps: waiting for the next batch, at most dur_ps.
        compile_ps: compiling, at most what input_ps leaves of dur_ps.
        input_known: whether any step has its wait for input.
        compile_known: whether any step has its compilation.
    """

    host: Int64s
    attempt: Int64s
    step: Int64s
    start_ps: Int64s
    dur_ps: Int64s
    input_ps: Int64s
    compile_ps: Int64s
    input_known: bool
    compile_known: bool

    @property
    def n_steps(self) -> int:
        """Steps on all hosts."""
        return len(self.step)

    @property
    def inside_ps(self) -> int:
        """Time inside steps, all hosts."""
        return sum_ps(self.dur_ps)

    def take(self, rows: Int64s | slice) -> "StepSeries":
        """Some of the steps, in this order."""
        columns = {name: getattr(self, name)[rows] for name in CLOCK_COLUMNS}
        return StepSeries(**columns, input_known=self.input_known, compile_known=self.compile_known)

    def rows_of(self, table: pa.Table) -> Int64s:
        """The step that each row of another table belongs to `[n]`; -1 where it is null or none of these.

        Args:
            table: column `step`; `host` and `attempt`, 0 without.
        """
        if not self.n_steps:
            return np.full(table.num_rows, -1, np.int64)
        hosts, attempts, n_numbers, order, keys = self._sorted
        host, attempt = read_numbers(table, "host"), read_numbers(table, "attempt")
        step = read_numbers(table, "step", missing=-1)
        place = np.minimum(np.searchsorted(hosts, host), len(hosts) - 1)
        start = np.minimum(np.searchsorted(attempts, attempt), len(attempts) - 1)
        known = (hosts[place] == host) & (attempts[start] == attempt) & (step >= 0) & (step < n_numbers)
        wanted = np.where(known, (place * len(attempts) + start) * n_numbers + step, -1)
        at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        return np.where(known & (keys[at] == wanted), at if order is None else order[at], -1)

    @cached_property
    def _sorted(self) -> tuple[Int64s, Int64s, int, Int64s | None, Int64s]:
        """The hosts; the attempts; how many step numbers there are; the order of the keys, None where they stand in
        it; the keys."""
        (hosts, place), (attempts, start) = renumber(self.host), renumber(self.attempt)
        n_numbers = int(self.step.max()) + 1
        keys = (place * len(attempts) + start) * n_numbers + self.step
        if bool((keys[1:] > keys[:-1]).all()):
            return hosts, attempts, n_numbers, None, keys
        order = np.argsort(keys, kind="stable")
        return hosts, attempts, n_numbers, order, keys[order]


@dataclass(frozen=True, eq=False)
class RunClock(StepSeries):
    """The steps of every host and attempt of a run, by host, attempt and step, and the sessions they stand in.

    Attributes:
        sessions: by host and attempt; their rows tile the series.
    """

    sessions: tuple[SessionClock, ...]

    @property
    def wall_ps(self) -> int:
        """Time of all sessions."""
        return sum(session.wall_ps for session in self.sessions)

    def split(self, table: pa.Table) -> list[pa.Table]:
        """The rows of any table that belong to each of the sessions, by `host` and `attempt`."""
        host, attempt = read_numbers(table, "host"), read_numbers(table, "attempt")
        order = np.lexsort((attempt, host))
        if (np.diff(order) < 0).any():
            table, host, attempt = table.take(pa.array(order)), host[order], attempt[order]
        places = _stretches(host, attempt)
        nothing = (0, 0)
        spans = (places.get((session.host, session.attempt), nothing) for session in self.sessions)
        return [table.slice(first, end - first) for first, end in spans]

    def of_host(self, host: int) -> tuple[SessionClock, ...]:
        """The sessions of one host, by attempt."""
        return self._by_host.get(host, ())

    def session(self, host: int, attempt: int) -> SessionClock | None:
        """One session, None where the history has none such."""
        return next((session for session in self.of_host(host) if session.attempt == attempt), None)

    @cached_property
    def _by_host(self) -> dict[int, tuple[SessionClock, ...]]:
        return {host: tuple(own) for host, own in groupby(self.sessions, key=lambda session: session.host)}


def read_series(steps: pa.Table) -> StepSeries:
    """The steps of a table: of the columns of `CLOCK_COLUMNS` those that it has, 0 for the others and for null."""
    columns = {name: read_numbers(steps, name) for name in CLOCK_COLUMNS}
    columns["input_ps"] = np.minimum(columns["input_ps"], columns["dur_ps"])
    columns["compile_ps"] = np.minimum(columns["compile_ps"], columns["dur_ps"] - columns["input_ps"])
    return StepSeries(**columns, input_known=_known(steps, "input_ps"), compile_known=_known(steps, "compile_ps"))


def read_clock(steps: pa.Table, shards: Sequence[Shard], last_seen_ps: dict[tuple[int, int], int]) -> RunClock:
    """The clock of a run.

    Args:
        steps: `Run.table("steps")`.
        shards: `Run.shards`.
        last_seen_ps: by host and attempt, the latest end of anything else recorded (windows, gaps, checkpoints).
    """
    series = read_series(steps)
    return RunClock(**vars(series), sessions=_sessions(series, shards, last_seen_ps))


def is_imported(windows: pa.Table) -> bool:
    """Whether the rows of `windows` are of a trace that another profiler recorded."""
    return "imported" in windows.column("reason").to_pylist()


def sum_ps(values: Int64s) -> int:
    """The exact sum of non-negative picoseconds, beyond int64 where need be (107 days add up to that)."""
    if len(values) and int(values.max()) <= _INT64_MAX // _BLOCK:
        return sum(np.add.reduceat(values, np.arange(0, len(values), _BLOCK)).tolist())
    return (int((values >> 32).sum()) << 32) + int((values & 0xFFFFFFFF).sum())


def _sessions(
    series: StepSeries, shards: Sequence[Shard], last_seen_ps: dict[tuple[int, int], int]
) -> tuple[SessionClock, ...]:
    shards = sorted(shards, key=lambda s: (s.host, s.attempt))
    places = _stretches(series.host, series.attempt)
    first_epoch_ns: dict[int, int] = {}
    sessions = []
    for shard in shards:
        key = (shard.host, shard.attempt)
        epoch_ns = shard.session.epoch_unix_ns
        first, end = places.get(key, (0, 0))
        ends = series.start_ps[first:end] + series.dur_ps[first:end]
        seen = [last_seen_ps.get(key, 0), int(ends.max()) if len(ends) else 0, _told_wall_ps(shard.session)]
        inside_ps = sum_ps(series.dur_ps[first:end])
        after_ps = (epoch_ns - first_epoch_ns.setdefault(shard.host, epoch_ns)) * 1000
        offset_ps = min(max(after_ps, 0), _INT64_MAX // 2)  # what a run says of itself is not trusted
        wall_ps = max(*seen, inside_ps)
        sessions.append(SessionClock(*key, shard.state, offset_ps, wall_ps, first, end))
    return tuple(sessions)


def _stretches(host: Int64s, attempt: Int64s) -> dict[tuple[int, int], tuple[int, int]]:
    """By host and attempt, their first row and one past their last, of rows sorted by both."""
    changes = (np.flatnonzero((np.diff(host) != 0) | (np.diff(attempt) != 0)) + 1).tolist()
    edges = [0, *changes, len(host)] if len(host) else []
    keys = zip(host[edges[:-1]].tolist(), attempt[edges[:-1]].tolist(), strict=True)
    return dict(zip(keys, pairwise(edges), strict=True))


def _told_wall_ps(session: Session) -> int:
    """How long a session says it lasted; 0 where it does not say, or says what cannot be.

    By the recorder's own clock where it is there: the machine's may have been set meanwhile.
    """
    told_ps = session.tally.get("wall_ps")
    if told_ps is None and session.closed_unix_ns is not None:
        told_ps = (session.closed_unix_ns - session.epoch_unix_ns) * 1000
    return told_ps if told_ps is not None and 0 <= told_ps <= _INT64_MAX else 0


def read_numbers(table: pa.Table, name: str, *, missing: int = 0) -> Int64s:
    """A column of integers `[n]`, with `missing` for null, and in every row where the table lacks the column."""
    if name not in table.column_names:
        return np.zeros(table.num_rows, np.int64)
    return np.asarray(pc.fill_null(table.column(name), missing).to_numpy(), np.int64)


def _known(table: pa.Table, name: str) -> bool:
    return name in table.column_names and bool(table.column(name).null_count < table.num_rows)


@dataclass(frozen=True)
class Stretch:
    """Rows `first`–`last` (inclusive) of the clock, within one session."""

    session: SessionClock
    first: int
    last: int

    @property
    def rows(self) -> slice:
        """Its rows of the steps table."""
        return slice(self.first, self.last + 1)

    def start_ps(self, clock: RunClock) -> int:
        """When it began, on the host's strip."""
        return self.session.offset_ps + int(clock.start_ps[self.first])

    def dur_ps(self, clock: RunClock) -> int:
        """From its first step's start to its last step's end."""
        return int(clock.start_ps[self.last] + clock.dur_ps[self.last] - clock.start_ps[self.first])

    def named(self, clock: RunClock) -> str:
        """`step 7` or `steps 7–12`."""
        first, last = int(clock.step[self.first]), int(clock.step[self.last])
        return f"step {first}" if first == last else f"steps {first}–{last}"


def find_stretches(clock: RunClock, holds: Bools, *, bridge: int = 0) -> list[Stretch]:
    """Maximal stretches of steps for which `holds` `[n_steps]` is true, in order, never across sessions.

    Args:
        clock: the run's steps.
        holds: what is looked for, per row of the clock.
        bridge: up to so many steps in a row may fail it inside a stretch.
    """
    found = []
    for session in clock.sessions:
        where = np.flatnonzero(holds[session.rows]) + session.first_row
        if not len(where):
            continue
        cuts = np.flatnonzero(np.diff(where) > bridge + 1)
        firsts = where[np.concatenate(([0], cuts + 1))]
        lasts = where[np.append(cuts, len(where) - 1)]
        found += [Stretch(session, int(a), int(b)) for a, b in zip(firsts, lasts, strict=True)]
    return found
