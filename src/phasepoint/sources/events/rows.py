"""Events as a reader finds them, block by block, in any order → arrays in the order of `TraceEvents`.

What has no start or end, ends before it starts, or lies too far from the rest to be placed is dropped and counted.

Launch parameters as integers → columns of `launches`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from phasepoint.core.arrays import Int64s
from phasepoint.core.dense import first_by, number_keys
from phasepoint.core.units import PS_PER_NS
from phasepoint.sources.events.tables import NO_ID, Account, Kind, TraceEvents, start_order, text_column

MISSING = int(np.iinfo(np.int64).min)
"""Stands for null in the integer columns that readers hand over."""

LIMIT_NS = (1 << 61) // PS_PER_NS
"""26 days: farther from the middle event a time does not fit 64 bits of ps."""

_UNTIMED, _REVERSED, _FAR = (
    "without a start or an end",
    "ends before it starts",
    "more than 26 days from the other events",
)


@dataclass(frozen=True)
class PlacedEvents:
    """Events that could be placed, in order. Arrays are `[n_events]` where nothing else is said.

    Attributes:
        kind, track, correlation: as in `TraceEvents`.
        start_ps, end_ps: from the origin.
        launch: index of the first host event with its correlation id in its scope, `NO_ID` where there is none.
        on_device: whether it is an execution on an accelerator.
        place: `[n_rows]` each row's event, `NO_ID` for what was dropped; rows stand as they were added.
        origin_ns: the instant from which times count, on the file's clock.
        start_unix_ns: the same in Unix ns, None where the file does not say.
        notes: what is wrong with the times, in words.
        kept: accounts of what is kept.
        dropped: accounts of what is not.
    """

    kind: Int64s
    track: Int64s
    start_ps: Int64s
    end_ps: Int64s
    correlation: Int64s
    launch: Int64s
    on_device: NDArray[np.bool_]
    place: Int64s
    origin_ns: int
    start_unix_ns: int | None
    notes: tuple[str, ...]
    kept: tuple[Account, ...]
    dropped: tuple[Account, ...]


class EventRows:
    """Collects blocks of events.

    Attributes:
        kinds: the kinds, numbered as they first appear.
        tracks: the tracks' names, numbered likewise.
        rows: events added so far.
    """

    def __init__(self) -> None:
        self.kinds: dict[Kind, int] = {}
        self.tracks: dict[str, int] = {}
        self.rows = 0
        self._blocks: list[tuple[Int64s, ...]] = []
        self._what: list[tuple[str, int]] = []
        self._details: list[tuple[int, int, Mapping[str, Int64s]]] = []

    def kind(self, kind: Kind) -> int:
        """Number of a kind."""
        return self.kinds.setdefault(kind, len(self.kinds))

    def track(self, name: str) -> int:
        """Number of a track."""
        return self.tracks.setdefault(name, len(self.tracks))

    def add(
        self,
        what: str,
        times: tuple[Int64s, Int64s],
        kind: Int64s,
        track: Int64s,
        *,
        correlation: Int64s | None = None,
        scope: Int64s | int = 0,
        details: Mapping[str, Int64s] | None = None,
    ) -> Int64s:
        """Add a block of events.

        Args:
            what: the events' kind as the format calls it, for the accounts.
            times: `[n]` starts and ends, ns; `MISSING` where not known.
            kind: `[n]` numbers from `kind`.
            track: `[n]` numbers from `track`.
            correlation: `[n]` ids shared by launches and executions, `MISSING` where there is none; None for no ids.
            scope: `[n]` within which the ids are unique: the process.
            details: `[n]` more columns, which `detail` gives back.

        Returns:
            `[n]` the rows' numbers.
        """
        n = len(times[0])
        ids = np.full(n, MISSING, np.int64) if correlation is None else correlation
        scopes = np.full(n, scope, np.int64) if isinstance(scope, int) else scope
        self._blocks.append(tuple(np.asarray(column, np.int64) for column in (*times, kind, track, ids, scopes)))
        self._what.append((what, n))
        if details:
            self._details.append((self.rows, n, details))
        self.rows += n
        return np.arange(self.rows - n, self.rows, dtype=np.int64)

    def detail(self, *names: str) -> tuple[Int64s, tuple[Int64s, ...]]:
        """Rows of the blocks that gave any of these columns, and the columns, `MISSING` where a block did not."""
        blocks = [block for block in self._details if not block[2].keys().isdisjoint(names)]
        rows = [np.arange(first, first + n, dtype=np.int64) for first, n, _ in blocks]
        columns = [[given.get(name, np.full(n, MISSING, np.int64)) for _, n, given in blocks] for name in names]
        return _joined(rows), tuple(_joined(column) for column in columns)

    def first_ns(self) -> int:
        """The first event's start on the file's clock; 0 where there is no event."""
        starts = [start_ns[start_ns != MISSING] for start_ns, *_ in self._blocks]
        return min((int(start_ns.min()) for start_ns in starts if len(start_ns)), default=0)

    def finish(self, clock: tuple[int, int] | None, epoch_unix_ns: int | None) -> PlacedEvents:
        """Sort, and find launches.

        Args:
            clock: an instant on the file's clock, and the same in Unix ns; None where the file does not say.
            epoch_unix_ns: the epoch from which times count, Unix ns; None for the first event's start.
        """
        columns = [_joined(list(column)) for column in zip(*self._blocks, strict=True)] if self._blocks else []
        start_ns, end_ns, kind, track, correlation, scope = columns or [np.empty(0, np.int64)] * 6
        reason = _reasons(start_ns, end_ns)
        good = np.flatnonzero(reason < 0)
        first_ns = int(start_ns[good].min()) if len(good) else 0
        origin_ns, notes = _origin(first_ns, clock, epoch_unix_ns)
        start_ps, end_ps = ((column[good] - origin_ns) * PS_PER_NS for column in (start_ns, end_ns))
        order = start_order(start_ps, end_ps)
        rows = good[order]
        place = np.full(self.rows, NO_ID, np.int64)
        place[rows] = np.arange(len(rows))
        on_device = np.array([one.device not in ("host", "cpu:0") for one in self.kinds], np.bool_)
        on_device = on_device[kind[rows]] if len(on_device) else np.empty(0, np.bool_)
        kept, dropped = self._accounts(reason)
        return PlacedEvents(
            kind=kind[rows],
            track=track[rows],
            start_ps=start_ps[order],
            end_ps=end_ps[order],
            correlation=np.where(correlation[rows] == MISSING, NO_ID, correlation[rows]),
            launch=match_launches(correlation[rows], scope[rows], on_device),
            on_device=on_device,
            place=place,
            origin_ns=origin_ns,
            start_unix_ns=None if clock is None else clock[1] + origin_ns - clock[0],
            notes=notes,
            kept=kept,
            dropped=dropped,
        )

    def _accounts(self, reason: Int64s) -> tuple[tuple[Account, ...], tuple[Account, ...]]:
        counts: dict[tuple[str, int], int] = {}
        begin = 0
        for what, n in self._what:
            for code, rows in enumerate(np.bincount(reason[begin : begin + n] + 1, minlength=4).tolist()):
                counts[what, code] = counts.get((what, code), 0) + rows
            begin += n
        kept = [Account("kept", what, "", rows) for (what, code), rows in counts.items() if rows and not code]
        texts = ("", _UNTIMED, _REVERSED, _FAR)
        lost = [Account("skipped", what, texts[code], rows) for (what, code), rows in counts.items() if rows and code]
        return tuple(kept), tuple(lost)


def spread(rows: EventRows, placed: PlacedEvents, name: str) -> Int64s:
    """`[n_events]` a column of details over all events, `MISSING` where it was not given."""
    values = np.full(len(placed.kind), MISSING, np.int64)
    given, (column,) = rows.detail(name)
    at = placed.place[given]
    values[at[at >= 0]] = column[at >= 0]
    return values


def events_of_rows(
    rows: EventRows,
    placed: PlacedEvents,
    kinds: list[Kind],
    apart: Sequence[Account],
    *,
    damaged: int = 0,
    parent: Int64s | None = None,
    columns: Mapping[str, pa.Array],
    tables: Mapping[str, Mapping[str, Any]],
) -> TraceEvents:
    """The events of a file, with what became of all that it holds.

    Args:
        rows: the events as they were found.
        placed: the same, in order.
        kinds: the kinds, by number.
        apart: what became of the file's other events.
        damaged: how many of those could not be read, and so were dropped.
        parent: `[n_events]` the event that encloses each by the format's own ids; None where time decides.
        columns, tables: as in `TraceEvents`.
    """
    dropped = sum(account.events for account in placed.dropped) + damaged
    ignored = sum(account.events for account in apart) - damaged
    return TraceEvents(
        kind=placed.kind,
        track=placed.track,
        start_ps=placed.start_ps,
        end_ps=placed.end_ps,
        correlation=placed.correlation,
        launch=placed.launch,
        parent=np.full(len(placed.kind), NO_ID, np.int64) if parent is None else parent,
        kinds=kinds,
        tracks=list(rows.tracks),
        found=len(placed.kind) + ignored + dropped,
        ignored=ignored,
        dropped=dropped,
        orphan=placed.on_device & (placed.launch == NO_ID),
        accounts=[*placed.kept, *placed.dropped, *apart],
        columns=columns,
        tables=tables,
    )


def match_launches(correlation: Int64s, scope: Int64s, on_device: NDArray[np.bool_]) -> Int64s:
    """`[n_events]` the first host event that has an execution's id, `NO_ID` where there is none.

    Args:
        correlation: `[n_events]` ids, `MISSING` where there is none; events stand in the order of time.
        scope: `[n_events]` within which ids are unique.
        on_device: `[n_events]` which events are executions.
    """
    launch = np.full(len(correlation), NO_ID, np.int64)
    known = np.flatnonzero(correlation != MISSING)
    if not len(known):
        return launch
    number, first = number_keys(correlation[known], scope[known])
    on_host = ~on_device[known]
    of_host = np.where(on_host, number, -1).astype(np.int32)
    earliest = first_by(of_host, len(first), known)
    at = earliest[number]
    found = ~on_host & (at >= 0)
    launch[known[found]] = known[at[found]]
    return launch


def _reasons(start_ns: Int64s, end_ns: Int64s) -> Int64s:
    """`[n_rows]` why a row cannot be placed: -1 where it can."""
    reason = np.full(len(start_ns), -1, np.int64)
    timed = (start_ns != MISSING) & (end_ns != MISSING)
    reason[~timed] = 0
    if not timed.any():
        return reason
    reason[timed & (end_ns < start_ns)] = 1
    middle = int(np.median(start_ns[timed]))
    low, high = max(middle - LIMIT_NS, MISSING + 1), min(middle + LIMIT_NS, -(MISSING + 1))
    reason[timed & ((start_ns < low) | (end_ns > high) | (start_ns > high) | (end_ns < low))] = 2
    return reason


def _origin(first_ns: int, clock: tuple[int, int] | None, epoch_unix_ns: int | None) -> tuple[int, tuple[str, ...]]:
    """The instant of the file's clock from which times count, and what is wrong with it."""
    if epoch_unix_ns is None:
        return first_ns, ()
    if clock is None:
        return first_ns, ("the file does not say when it began; its times count from its first event",)
    origin_ns = clock[0] + epoch_unix_ns - clock[1]
    if abs(origin_ns - first_ns) > LIMIT_NS:
        return first_ns, ("the file began more than 26 days from the epoch; its times count from its first event",)
    return origin_ns, ()


def _joined(arrays: Sequence[Int64s]) -> Int64s:
    return np.concatenate(arrays) if arrays else np.empty(0, np.int64)


LAUNCH_DETAILS = (
    *("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"),
    *("registers", "shared_bytes", "graph", "node"),
)
"""Details of executions from which `launches_of` makes rows of `launches`."""


def launches_of(rows: EventRows, placed: PlacedEvents) -> Mapping[str, Any]:
    """Columns of `launches`, from details of events; see `launch_columns`."""
    given, columns = rows.detail(*LAUNCH_DETAILS)
    of = dict(zip(LAUNCH_DETAILS, columns, strict=True))
    return launch_columns(
        placed.place[given],
        grid=[of[f"grid_{axis}"] for axis in "xyz"],
        block=[of[f"block_{axis}"] for axis in "xyz"],
        registers=of["registers"],
        shared_bytes=of["shared_bytes"],
        graph=[of["graph"], of["node"]],
    )


def launch_columns(
    span: Int64s,
    *,
    grid: Sequence[Int64s],
    block: Sequence[Int64s],
    registers: Int64s,
    shared_bytes: Int64s,
    graph: Sequence[Int64s],
) -> Mapping[str, Any]:
    """Columns of `launches`, without the rows of which nothing is known.

    Args:
        span: `[n]` the executions' events, below 0 where an event was dropped.
        grid: blocks, `[n]` in each of three directions; `MISSING` where not known, as in all that follow.
        block: threads of a block, `[n]` in each of three directions.
        registers: `[n]` registers of a thread.
        shared_bytes: `[n]` shared memory of a block.
        graph: `[n]` graph, and `[n]` node in it, of a graph's replay.
    """
    columns = (*grid, *block, registers, shared_bytes, *graph)
    known = np.any([column != MISSING for column in columns], axis=0) if len(span) else np.empty(0, np.bool_)
    rows = np.flatnonzero(known & (span >= 0))
    rows = rows[np.argsort(span[rows], kind="stable")]
    return {
        "span": span[rows],
        "grid": _joined_texts([column[rows] for column in grid], ","),
        "block": _joined_texts([column[rows] for column in block], ","),
        "registers": integer_column(registers[rows]),
        "shared_bytes": integer_column(shared_bytes[rows]),
        "graph": _joined_texts([column[rows] for column in graph], ":", all_known=False),
    }


def integer_column(values: Int64s) -> pa.Array:
    """Integers that are null where `MISSING`."""
    return pa.array(values, pa.int64(), mask=values == MISSING)


def _joined_texts(columns: Sequence[Int64s], separator: str, *, all_known: bool = True) -> pa.Array:
    """Numbers as texts: `32,1,1`; null where one is missing, or with `all_known` False where all are."""
    numbers, first = number_keys(*columns)
    texts = []
    for row in zip(*(column[first].tolist() for column in columns), strict=True):
        known = [str(value) for value in row if value != MISSING]
        texts.append(separator.join(known) if known and (len(known) == len(row) or not all_known) else None)
    return text_column(numbers, texts)
