"""Slices of time → rows of tables, with what is still running carried from slice to slice.

A span's row is written when nothing can change it any more: once it has ended. Its launch is looked for among the
calls before it and those of the next slice, for clocks of devices may run ahead. So memory holds two slices, the
running spans and the newest launches, whatever the file's size.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from phasepoint.core.arrays import Int64s
from phasepoint.core.dense import number_keys, sum_by
from phasepoint.core.tables import TABLES, table_from_columns
from phasepoint.sources.chrome.details import (
    Arguments,
    Launches,
    SliceLayers,
    allocations_table,
    bandwidth_rows,
    collectives_rows,
    counters_table,
    launches_rows,
    metrics_table,
)
from phasepoint.sources.chrome.kinds import Event, Fate, fate_of
from phasepoint.sources.chrome.rows import sweep_slice
from phasepoint.sources.chrome.scan import SLOTS
from phasepoint.sources.chrome.spool import SpooledRows
from phasepoint.sources.events.layers import DIRECTIONS, is_layer_mark
from phasepoint.sources.events.stages import FORWARD, StagedTime, codes_of_kinds, give_to_forward, staged, stages_table
from phasepoint.sources.events.step_bounds import StepBounds
from phasepoint.sources.events.tables import (
    LEVEL_AND_CATEGORY,
    NO_ID,
    Kind,
    breakdowns_table,
    devices_of,
    kind_columns,
    nullable,
    step_numbers,
    text_column,
)

LOOK_BACK_ROWS = 1 << 18
"""A step is closed so many rows behind its end: what was launched in it has begun by then, for a device's queue holds a
thousand launches."""

_CALL_DEPTH = 6
"""Between a collective's launch and the call that knows its parameters stand the library's own annotations."""

_NEVER = np.iinfo(np.int64).max
_NOTHING = np.iinfo(np.int64).min


@dataclass(frozen=True, kw_only=True)
class TraceFacts:
    """What is known of the whole file before its slices are read.

    Attributes:
        events: kinds of events, by number.
        kinds: kinds of the spans that they become, by number.
        tracks: names of the tracks, by number.
        texts: texts of arguments, by number.
        shapes: texts of types and shapes, by number.
        bounds: the steps, from the epoch.
        offset_ps: from the rows' times to the epoch.
        window: number of the window.
        keep_spans: whether rows of single events are wanted.
        device_collectives: whether executions carry the parameters of collectives; else the host's calls do.
    """

    events: Sequence[Event]
    kinds: Sequence[Kind]
    tracks: Sequence[str]
    texts: Sequence[str]
    shapes: Sequence[str]
    bounds: StepBounds
    offset_ps: int
    window: int
    keep_spans: bool
    device_collectives: bool


@dataclass(eq=False)
class _Work:
    """SpooledRows in work: those held from before, then the slice's own. Arrays are `[n]`, by start.

    Attributes:
        arguments: their arguments.
        columns: span (number, -1 for what is none), start, end, correlation, kind, track, shape, parent (number), self,
            launch (number), cause (start of the launch, else of the row), layer and direction (numbers).
    """

    arguments: Arguments
    columns: dict[str, NDArray[Any]]

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.columns[name]


class Slices:
    """Turns slices into tables, in the order of time.

    Attributes:
        spans: spans so far.
        misnested: spans so far that outlive the one in which they started.
        orphans: executions so far whose launch is not in the file.
    """

    def __init__(self, facts: TraceFacts) -> None:
        self.spans = self.misnested = self.orphans = 0
        self._facts = facts
        fates = [fate_of(event) for event in facts.events]
        self._fate = np.array(fates, np.int8)
        self._on_device = np.array([bool(event.device) for event in facts.events], np.bool_)
        self._communicates = np.array(
            [
                kind.category == "communication" and bool(event.device)
                for event, kind in zip(facts.events, facts.kinds, strict=True)
            ],
            np.bool_,
        )
        self._is_mark = np.array([k.level == "model" or is_layer_mark(k.name) for k in facts.kinds], np.bool_)
        self._is_op = np.array([kind.level in ("op", "kernel") for kind in facts.kinds], np.bool_)
        self._layers = SliceLayers([event.name for event in facts.events], facts.texts)
        self._tops = np.full(len(facts.tracks), -1, np.int64)
        self._nows = np.zeros(len(facts.tracks), np.int64)
        used = [kind for kind, fate in zip(facts.kinds, fates, strict=True) if fate in (Fate.SPAN, Fate.BEGIN)]
        self._devices = devices_of(used)
        bounds = facts.bounds
        self._times = [StagedTime(bounds.start_ps, bounds.end_ps) for _ in self._devices]
        self._codes = [codes_of_kinds(facts.kinds, device) for device in self._devices]
        self._ops: list[NDArray[Any]] = []
        self._launches = Launches(("grid", "block", "shared", "bytes"))
        self._held: _Work | None = None
        self._low_ps = -_NEVER
        self._cuts: deque[tuple[int, int]] = deque([(-_NEVER, 0)])  # until when, and rows up to then
        self._seen_rows = 0

    def tables(self, slices: Iterator[tuple[SpooledRows, int | None]]) -> Iterator[dict[str, pa.Table]]:
        """Tables with rows of single events, slice by slice."""
        current: tuple[_Work, int | None] | None = None
        for rows, until_ps in slices:
            following = self._prepare(rows), until_ps if until_ps is None else until_ps + self._facts.offset_ps
            if current is not None:
                yield self._finish(*current)
            current = following
        if current is not None:
            yield self._finish(*current)

    def ops(self) -> pa.Table:
        """SpooledRows of `ops` that no slice has given: sums per step and op; marks of steps have no row."""
        return self._ops_table(self._merged_ops())

    def _ops_table(self, sums: NDArray[Any]) -> pa.Table:
        facts = self._facts
        step, kind, layer, count, total_ps, self_ps = sums
        return table_from_columns(
            "ops",
            {
                "window": np.full(len(step), facts.window, np.int64),
                "step": step_numbers(facts.bounds, step),
                **kind_columns(facts.kinds, kind, {"device": "device", "op": "name", **LEVEL_AND_CATEGORY}),
                "layer": text_column(layer, self._layers.paths),
                "count": count,
                "total_ps": total_ps,
                "self_ps": self_ps,
            },
        )

    def breakdowns(self) -> dict[str, pa.Table]:
        """Rows of `breakdowns` and of `stages`."""
        step, window = self._facts.bounds.step, self._facts.window
        wall_ps = np.stack([time.wall_ps for time in self._times])
        if wall_ps[:, :, :, FORWARD].any():
            give_to_forward(wall_ps)
        return {
            "breakdowns": breakdowns_table(self._devices, wall_ps.sum(axis=3), step, window),
            "stages": stages_table(self._devices, wall_ps, step, window),
        }

    def _prepare(self, rows: SpooledRows) -> _Work:
        """Number the spans of a slice and note the calls in it, before anything is made of the slice before."""
        n, offset_ps = len(rows.start), self._facts.offset_ps
        fate = self._fate[rows.kind]
        is_span = (fate == Fate.SPAN) | (fate == Fate.BEGIN)
        span = np.where(is_span, np.cumsum(is_span) + (self.spans - 1), NO_ID)
        self.spans += int(np.count_nonzero(is_span))
        start = rows.start + offset_ps
        work = _Work(
            Arguments(rows.keys, rows.values, n, self._facts.texts),
            {
                "span": span,
                "start": start,
                "end": start + rows.dur,
                "correlation": rows.correlation,
                "kind": rows.kind,
                "track": rows.track,
                "shape": rows.shape,
                "parent": np.full(n, NO_ID, np.int64),
                "self": np.zeros(n, np.int64),
                "launch": np.full(n, NO_ID, np.int64),
                "cause": start.copy(),
                "layer": np.full(n, NO_ID, np.int64),
                "direction": np.full(n, NO_ID, np.int64),
            },
        )
        on_device = self._on_device[rows.kind]
        calls = np.flatnonzero(is_span & ~on_device & (rows.correlation != NO_ID))
        if self._on_device.any():
            size = work.arguments.column("bytes", calls)
            self._launches.add(
                {
                    "correlation": rows.correlation[calls],
                    "span": span[calls],
                    "start": start[calls],
                    "grid": _or_none(work.arguments.column("grid", calls)),
                    "block": _or_none(work.arguments.column("block", calls)),
                    "shared": _or_none(work.arguments.column("shared memory", calls)),
                    "bytes": _or_none(size),
                }
            )
        return work

    def _finish(self, work: _Work, until_ps: int | None) -> dict[str, pa.Table]:
        """The tables of the rows that are final when a slice ends."""
        first = 0 if self._held is None else len(self._held["span"])
        work = work if self._held is None else _join(self._held, work)
        self._seen_rows += len(work["span"]) - first
        running, segments = self._sweep(work, first, _NEVER if until_ps is None else until_ps)
        self._resolve(work)
        self._layers.fill(work.columns, work.arguments, first, self._on_device[work["kind"]])
        self._add_walls(work, segments, until_ps)
        tables = self._tables_of_instants(work)
        final = np.flatnonzero(~running & (work["span"] != NO_ID))
        if self._facts.keep_spans:
            more = self._tables_of_spans(work, final)
            if "metrics" in tables and "metrics" in more:
                more["metrics"] = pa.concat_tables((tables["metrics"], more["metrics"])).unify_dictionaries()
            tables |= more
        self._add_ops(work, final)
        held = np.flatnonzero(running)
        if until_ps is not None:
            tables["ops"] = self._take_final_ops(work, held)
        self._hold(work, held)
        return tables

    def _sweep(
        self, work: _Work, first: int, until_ps: int
    ) -> tuple[NDArray[np.bool_], tuple[NDArray[Any], Int64s, Int64s]]:
        n = len(work["span"])
        below, running = np.full(n, -1, np.int64), np.zeros(n, np.int8)
        if self._held is not None:
            below[:first], running[:first] = self._held["below"], self._held["running"]
        parent = np.full(n, -1, np.int64)
        room = 2 * (n - first) + first + len(self._tops)
        segments = np.empty(room, np.int32), np.empty(room, np.int64), np.empty(room, np.int64)
        rows = (work["track"], work["start"], work["end"], work["span"] != NO_ID, parent, work["self"])
        size, misnested = sweep_slice(rows, self._tops, self._nows, (below, running, first), until_ps, segments)
        self.misnested += misnested
        own = parent[first:]
        within = np.flatnonzero(own >= 0)
        work["parent"][first + within] = work["span"][own[within]]
        self._set_parents(work, first)
        work.columns |= {"below": below, "running": running}
        return running != 0, (segments[0][:size], segments[1][:size], segments[2][:size])

    def _set_parents(self, work: _Work, first: int) -> None:
        """Parents that the file gives by ids of their own, of Python's frames."""
        if SLOTS["Python parent id"] not in work.arguments.slots:
            return
        rows = np.arange(len(work["span"]))
        ids = work.arguments.column("Python id", rows)
        named = np.flatnonzero(ids != _NOTHING)
        if not len(named):
            return
        wanted = work.arguments.column("Python parent id", rows)
        children = np.flatnonzero(wanted[first:] != _NOTHING) + first
        named = named[np.argsort(ids[named], kind="stable")]
        place = np.minimum(np.searchsorted(ids[named], wanted[children]), len(named) - 1)
        there = ids[named[place]] == wanted[children]
        work["parent"][children[there]] = work["span"][named[place[there]]]

    def _add_walls(self, work: _Work, segments: tuple[NDArray[Any], Int64s, Int64s], until_ps: int | None) -> None:
        row, start_ps, end_ps = segments
        kind, stage = work["kind"][row], work["direction"][row]
        high_ps = _NEVER if until_ps is None else until_ps
        for time, codes in zip(self._times, self._codes, strict=True):
            time.add((staged(codes[kind], stage), start_ps, end_ps), self._low_ps, high_ps)
        self._low_ps = high_ps
        self._cuts.append((high_ps, self._seen_rows))

    def _resolve(self, work: _Work) -> None:
        """Find the launches of what ran on devices."""
        rows = np.flatnonzero(self._is_execution(work, slice(None)) & (work["launch"] == NO_ID))
        rows = rows[work["correlation"][rows] != NO_ID]
        found = self._launches.find(work["correlation"][rows])
        launched = found["span"] >= 0
        work["launch"][rows[launched]] = found["span"][launched]
        work["cause"][rows[launched]] = found["start"][launched]

    def _is_execution(self, work: _Work, rows: Any) -> NDArray[np.bool_]:
        return np.asarray((work["span"][rows] != NO_ID) & self._on_device[work["kind"][rows]])

    def _is_orphan(self, work: _Work, rows: Int64s) -> NDArray[np.bool_]:
        return np.asarray(self._is_execution(work, rows) & (work["launch"][rows] == NO_ID))

    def _hold(self, work: _Work, rows: Int64s) -> None:
        place = np.full(len(work["span"]) + 1, -1, np.int64)  # the last place is that of no row, -1
        place[rows] = np.arange(len(rows))
        columns = {name: column[rows] for name, column in work.columns.items()}
        columns["below"] = place[columns["below"]]
        self._tops = place[self._tops]
        keys, values = work.arguments.of_rows(place)
        self._held = _Work(Arguments(keys, values, len(rows), self._facts.texts), columns)
        self._launches.forget()

    def _step_of(self, work: _Work, rows: Int64s) -> Int64s:
        index = self._facts.bounds.index_at(work["cause"][rows]).astype(np.int64)
        return index if self._facts.bounds.is_whole else np.where(self._is_orphan(work, rows), -1, index)

    def _add_ops(self, work: _Work, rows: Int64s) -> None:
        self.orphans += int(np.count_nonzero(self._is_orphan(work, rows)))
        rows = rows[~self._is_mark[work["kind"][rows]]]
        step, kind = self._step_of(work, rows), work["kind"][rows].astype(np.int64)
        layer, count = np.where(self._is_op[kind], work["layer"][rows], NO_ID), np.ones(len(rows), np.int64)
        sums = _sum_ops(np.stack((step, kind, layer, count, (work["end"] - work["start"])[rows], work["self"][rows])))
        self._ops.append(sums)

    def _take_final_ops(self, work: _Work, running: Int64s) -> pa.Table:
        """SpooledRows of `ops` of the steps to which nothing can be added: long over, with no span still running."""
        bounds = self._facts.bounds
        while len(self._cuts) > 1 and self._seen_rows - self._cuts[1][1] >= LOOK_BACK_ROWS:
            self._cuts.popleft()
        is_over = bounds.end_ps <= self._cuts[0][0]
        open_steps = self._step_of(work, running)
        is_over[open_steps[open_steps >= 0]] = False
        sums = self._merged_ops()
        final = (sums[0] >= 0) & is_over[sums[0]] if len(is_over) else np.zeros(sums.shape[1], np.bool_)
        self._ops = [sums[:, ~final]]
        return self._ops_table(sums[:, final])

    def _merged_ops(self) -> NDArray[Any]:
        return _sum_ops(np.concatenate(self._ops, axis=1)) if self._ops else np.empty((6, 0), np.int64)

    def _tables_of_instants(self, work: _Work) -> dict[str, pa.Table]:
        facts, arguments = self._facts, work.arguments
        fate = np.where(work["span"] == NO_ID, self._fate[work["kind"]], Fate.SPAN)
        tables = {}
        rows = np.flatnonzero(fate == Fate.ALLOCATION)
        if len(rows) and facts.keep_spans:
            tables["allocations"] = allocations_table(
                arguments, rows, work["start"][rows], work["parent"][rows], facts.window
            )
        if (fate == Fate.METRICS).any() and facts.keep_spans:
            tables["metrics"] = metrics_table(arguments, fate == Fate.METRICS, work["kind"], facts.events, facts.window)
        if (fate == Fate.COUNTER).any():
            tables["counters"] = counters_table(
                arguments, fate == Fate.COUNTER, (work["kind"], facts.events), work["start"]
            )
        return tables

    def _tables_of_spans(self, work: _Work, rows: Int64s) -> dict[str, pa.Table]:
        facts = self._facts
        device = rows[self._on_device[work["kind"][rows]]]
        calls = {name: np.empty(0, np.int64) for name in ("grid", "block", "shared", "bytes")}
        if len(device):
            calls = self._launches.find(np.where(work["launch"][device] >= 0, work["correlation"][device], _NEVER))
        tables = {"spans": self._spans(work, rows, device, calls["bytes"])}
        columns, kept = launches_rows(work.arguments, device, calls)
        tables["launches"] = _numbered("launches", columns, work["span"][device[kept]], facts.window)
        source, owner = self._collectives(work, rows, device)
        columns, kept = collectives_rows(work.arguments, source)
        tables["collectives"] = _numbered("collectives", columns, work["span"][owner[kept]], facts.window)
        columns, kept = bandwidth_rows(work.arguments, device)
        tables["metrics"] = _numbered("metrics", columns, work["span"][device[kept]], facts.window)
        return {name: table for name, table in tables.items() if table.num_rows}

    def _collectives(self, work: _Work, rows: Int64s, device: Int64s) -> tuple[Int64s, Int64s]:
        """SpooledRows whose arguments may tell of a collective, and the rows that execute it.

        An execution tells itself; where none does (torch before 2.3), the call tells in which it was launched; and
        where nothing communicates on a device, the calls are the executions.
        """
        if self._facts.device_collectives:
            return device, device
        if not self._communicates.any():
            return rows, rows
        executions = device[self._communicates[work["kind"][device]] & (work["launch"][device] != NO_ID)]
        spans = np.flatnonzero(work["span"] != NO_ID)
        numbers = work["span"][spans]
        telling = np.zeros(len(work["span"]), np.bool_)
        telling[work.arguments.rows_with("Collective name")] = True
        found, at = np.full(len(executions), -1, np.int64), work["launch"][executions]
        for _ in range(_CALL_DEPTH):
            place = np.minimum(np.searchsorted(numbers, at), len(numbers) - 1)
            row = np.where((at != NO_ID) & (numbers[place] == at), spans[place], -1)
            found = np.where((found < 0) & (row >= 0) & telling[row], row, found)
            at = np.where(row >= 0, work["parent"][row], NO_ID)
        return found[found >= 0], executions[found >= 0]

    def _spans(self, work: _Work, rows: Int64s, device: Int64s, launched_bytes: Int64s) -> pa.Table:
        facts = self._facts
        kind, parent = work["kind"][rows], work["parent"][rows]
        correlation, launch = work["correlation"][rows], work["launch"][rows]
        size = work.arguments.column("bytes", rows)
        if len(device):  # of older ROCm only the call knows how much it copies
            place = np.searchsorted(rows, device)
            of_call = np.where(self._is_copy(work, device) & (launched_bytes >= 0), launched_bytes, _NOTHING)
            size[place] = np.where(size[place] == _NOTHING, of_call, size[place])
        return table_from_columns(
            "spans",
            {
                "window": np.full(len(rows), facts.window, np.int64),
                "span": work["span"][rows],
                "parent": nullable(parent, parent < 0),
                **kind_columns(facts.kinds, kind, {"name": "name", "device": "device", **LEVEL_AND_CATEGORY}),
                "start_ps": work["start"][rows],
                "dur_ps": (work["end"] - work["start"])[rows],
                "self_ps": work["self"][rows],
                "track": text_column(work["track"][rows], facts.tracks),
                "step": step_numbers(facts.bounds, self._step_of(work, rows)),
                "correlation": nullable(correlation, correlation == NO_ID),
                "launch": nullable(launch, launch == NO_ID),
                "layer": text_column(work["layer"][rows], self._layers.paths),
                "direction": text_column(work["direction"][rows], DIRECTIONS),
                "shape": text_column(work["shape"][rows], facts.shapes),
                "bytes": nullable(size, size == _NOTHING),
            },
        )

    def _is_copy(self, work: _Work, rows: Int64s) -> NDArray[np.bool_]:
        cats = np.array(["mem" in event.cat for event in self._facts.events], np.bool_)
        return np.asarray(cats[work["kind"][rows]])


def _or_none(values: Int64s) -> Int64s:
    return np.where(values == _NOTHING, -1, values)


def _join(held: _Work, work: _Work) -> _Work:
    """SpooledRows held from before, then a slice's own."""
    first, n = len(held["span"]), len(held["span"]) + len(work["span"])
    columns = {name: np.concatenate((held[name], column)) for name, column in work.columns.items()}
    keys = np.concatenate((held.arguments.keys, work.arguments.keys + (first << 8)))
    values = np.concatenate((held.arguments.values, work.arguments.values))
    return _Work(Arguments(keys, values, n, work.arguments.texts), columns)


def _sum_ops(rows: NDArray[Any]) -> NDArray[Any]:
    """SpooledRows of equal step, kind and layer as one; columns are step, kind, layer, count, total, self."""
    numbers, first = number_keys(rows[0], rows[1], rows[2])
    sums = [sum_by(numbers, len(first), np.ascontiguousarray(column)) for column in rows[3:]]
    return np.stack((*rows[:3, first], *sums))


def _numbered(name: str, columns: dict[str, Any], span: Int64s, window: int) -> pa.Table:
    if not len(span):
        return TABLES[name].empty
    return table_from_columns(name, {"window": np.full(len(span), window, np.int64), "span": span, **columns})
