"""Scanned blocks → rows under the numbers of the whole file: kinds, tracks, texts, shapes.

A block's texts are numbered by the scanner; what is the same in many events (kind, thread, shape) is looked up once a
block, so that the work in Python grows with the distinct things of a block and not with its events.

Spans whose beginning and end are events of their own (`B` and `E`; asynchronous: `b` and `e`, `S` and `F`).

Types and shapes of an operator's inputs as one text: `f32[8,128], i64[8]`.

Times of the Chrome trace format that are not plain decimals → integer picoseconds, exactly.
"""

import json
import threading
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phasepoint.core.arrays import Int64s
from phasepoint.core.dense import number_keys
from phasepoint.sources.chrome import scan
from phasepoint.sources.chrome.blocks import TraceBlock
from phasepoint.sources.chrome.convolutions import convolution_result, is_convolution
from phasepoint.sources.chrome.json_bytes import MAX_TEXTS, NO_NUMBER, TEXT_SLOTS
from phasepoint.sources.chrome.kinds import Event, Fate, device_of, fate_of, may_bound_steps
from phasepoint.sources.chrome.rows import group_extras, order_rows, sift_extras, spread
from phasepoint.sources.chrome.spool import SpooledRows

_MOST_DIGITS = 30
"""Above the decimal point; more are no time, and take memory as they are written out."""


def exact_ps(text: bytes) -> int | None:
    """Microseconds as text (`4373768380195.680`, `1.2e3`, quoted or not) in ps, of any size.

    Nothing goes through a float; what is below the picosecond is rounded half to even. None for what is no number.
    """
    try:
        number = Decimal(text.decode("ascii").strip().strip('"'))
        if not number.is_finite() or number.adjusted() > _MOST_DIGITS:
            return None
        return int((number * 1_000_000).to_integral_value(ROUND_HALF_EVEN))
    except (InvalidOperation, UnicodeDecodeError):
        return None


_TYPES = {
    "float": "f32",
    "double": "f64",
    "c10::half": "f16",
    "c10::bfloat16": "bf16",
    "c10::float8_e4m3fn": "f8e4m3fn",
    "c10::float8_e5m2": "f8e5m2",
    "long int": "i64",
    "long": "i64",
    "int": "i32",
    "short int": "i16",
    "short": "i16",
    "signed char": "i8",
    "unsigned char": "u8",
    "bool": "pred",
    "c10::complex<float>": "c64",
    "c10::complex<double>": "c128",
}
"""C++ types as torch writes them → the element types of HLO."""

_NO_TENSOR = frozenset({"", "scalar", "scalarlist"})


def shape_text(dims: bytes, types: bytes) -> str:
    """Inputs that are tensors, in their order; empty where nothing is known of any.

    Args:
        dims: JSON of `Input Dims`: a list of shapes, or of lists of shapes.
        types: JSON of `Input type`: a list of types; may be empty.
    """
    shapes, names = _list(dims), _list(types)
    texts = []
    for i, shape in enumerate(shapes):
        name = str(names[i]) if i < len(names) else ""
        if names and name.lower() in _NO_TENSOR:
            continue
        if isinstance(shape, list) and shape and all(isinstance(one, list) for one in shape):
            texts.append(f"({', '.join(_one('?' if 'list' in name.lower() else name, one) for one in shape)})")
        elif isinstance(shape, list) and (shape or names):
            texts.append(_one(name, shape))
    return ", ".join(texts).encode("utf-8", "replace").decode("utf-8")  # an escape may be half a character


def _one(name: str, shape: list[Any]) -> str:
    return f"{_TYPES.get(name.lower(), name or '?')}[{','.join(map(str, shape))}]"


def _list(text: bytes) -> list[Any]:
    if not text:
        return []
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return []
    return value if isinstance(value, list) else []


class Pairs:
    """Matches ends with beginnings: on a thread the last begun ends first; asynchronous ones go by name and id.

    Source: Trace Event Format, "Duration events" and "Async events": times of one thread rise through the file.
    """

    def __init__(self) -> None:
        self._open: dict[tuple[Any, ...], list[tuple[int | None, int, int]]] = {}
        self._done: list[tuple[int, int, int, int]] = []
        self._lost: dict[int, int] = {}

    def take(self, phase: str, key: tuple[Any, ...], time_ps: int | None, kind: int, track: int) -> None:
        """Take one event, in the file's order.

        Args:
            phase: B, E, b, e, S or F.
            key: what a beginning and its end share.
            time_ps: when; None where it cannot be read.
            kind: number of its kind.
            track: number of its track.
        """
        if phase in "BbS":
            self._open.setdefault((phase, *key), []).append((time_ps, kind, track))
            return
        begun = self._open.get(({"E": "B", "e": "b", "F": "S"}[phase], *key))
        if not begun:
            self._lose(kind)
            return
        start_ps, its_kind, its_track = begun.pop()
        if start_ps is None or time_ps is None or time_ps < start_ps:
            self._lose(kind)
            self._lose(its_kind)
            return
        self._done.append((start_ps, time_ps - start_ps, its_kind, its_track))

    def done(self) -> list[tuple[int, int, int, int]]:
        """Start, duration, kind and track of the spans that have ended since the last call."""
        done, self._done = self._done, []
        return done

    def lost(self) -> dict[int, int]:
        """Per kind, how many beginnings and ends have no partner so far."""
        lost = dict(self._lost)
        for begun in self._open.values():
            for _, kind, _ in begun:
                lost[kind] = lost.get(kind, 0) + 1
        return lost

    def _lose(self, kind: int) -> None:
        self._lost[kind] = self._lost.get(kind, 0) + 1


_EVENTS_ROOM = 1 << 17  # events of a call of the scanner: a block of 8 MB has some 25,000 of 330 bytes
_EXTRAS_ROOM = 1 << 20  # their arguments, eight an event; what does not fit is left for the next call
_LIMIT_PS = 1 << 62  # 53 days: so that the difference of two times fits 64 bits
_SLOTS = scan.slot_table()
_scratch = threading.local()


@dataclass(frozen=True, eq=False)
class GatheredPiece:
    """What one call of the scanner gave: rows, arguments, and the texts that they number."""

    events: Int64s
    extras: Int64s
    texts: list[bytes]


@dataclass(frozen=True, eq=False)
class Scanned:
    """A block as far as it could be scanned: pieces, how the last call ended, and where."""

    pieces: list[GatheredPiece]
    state: int
    stop: int


def scan_block(block: TraceBlock, start: int, origin_us: int) -> Scanned:
    """Scan a block from a place between events. May be called from any thread.

    Args:
        block: the bytes.
        start: where to begin.
        origin_us: whole microseconds from which times count.
    """
    if not hasattr(_scratch, "table"):
        _scratch.table = np.empty(TEXT_SLOTS, np.int64)
        _scratch.texts = np.empty(1 + 2 * MAX_TEXTS, np.int64)
        _scratch.events = np.empty((_EVENTS_ROOM, scan.N_COLUMNS), np.int64)
        _scratch.extras = np.empty((_EXTRAS_ROOM, 2), np.int64)
    table, texts, events, extras = _scratch.table, _scratch.texts, _scratch.events, _scratch.extras
    pieces = []
    state, stop = scan.FULL, start
    while state == scan.FULL:
        table.fill(-1)
        texts[0] = 0
        addresses = (_SLOTS.ctypes.data, table.ctypes.data, texts.ctypes.data)
        state, stop, n, m = scan.scan_events(
            block.data.ctypes.data, stop, block.size, origin_us, *addresses, events, extras
        )
        if n:
            found = events[:n].copy()
            _read_slow_times(block, found, origin_us)
            where = texts[1 : 1 + 2 * texts[0]].reshape(-1, 2).tolist()
            view = memoryview(block.data)  # type: ignore[arg-type]
            pieces.append(GatheredPiece(found, extras[:m].copy(), [bytes(view[at : at + size]) for at, size in where]))
    return Scanned(pieces, state, stop)


def _read_slow_times(block: TraceBlock, events: Int64s, origin_us: int) -> None:
    """Times that the scanner left: exponents, digits below the picosecond, numbers far away."""
    for column, slow, known, origin in (
        (scan.START, scan.SLOW_START, scan.KNOWS_START, origin_us),
        (scan.DUR, scan.SLOW_DUR, scan.KNOWS_DUR, 0),
    ):
        for row in np.flatnonzero(events[:, scan.STATE] & slow).tolist():
            where = int(events[row, column])
            place, size = where & ((1 << 40) - 1), where >> 40
            time_ps = exact_ps(block.text(place, place + size))
            events[row, column] = 0
            if time_ps is not None and abs(time_ps - origin * 1_000_000) < _LIMIT_PS:
                events[row, column] = time_ps - origin * 1_000_000
                events[row, scan.STATE] |= known


class Gatherer:
    """Gives the file's numbers to the rows of its blocks, one block after another.

    Attributes:
        kinds: the kinds of events, by number.
        texts: the distinct texts of arguments, by number.
        shapes: texts of types and shapes, by number.
        marks: start, duration and kind of the spans by which steps may be found.
        first_ps, last_ps: earliest start and latest end of the spans; None where there is none.
        device_collectives: whether executions carry the parameters of collectives.
        timeless: spans that take no time and are too far from the others to be placed: they have none.
    """

    def __init__(self) -> None:
        self.timeless = 0
        self.kinds: list[Event] = []
        self.texts: list[str] = []
        self.shapes: list[str] = []
        self.marks: list[tuple[int, int, int]] = []
        self.first_ps: int | None = None
        self.last_ps: int | None = None
        self.device_collectives = False
        self.pairs = Pairs()
        self._text_ids: dict[bytes, int] = {}
        self._kind_ids: dict[Event, int] = {}
        self._shape_ids: dict[tuple[str | bytes, ...], int] = {}
        self._track_ids: dict[tuple[str, ...], int] = {}
        self._thread_names: dict[tuple[str, str], str] = {}
        self._fates = np.empty(0, np.int8)
        self._bounds_steps = np.empty(0, np.bool_)
        self._on_device = np.empty(0, np.bool_)
        self._convolves = np.empty(0, np.bool_)
        self._counts = np.empty((2, 0), np.int64)

    @property
    def counts(self) -> tuple[list[int], list[int]]:
        """Per kind, how many events became what its fate says, and how many could not be placed."""
        lost = self._counts[1].copy()
        for kind, count in self.pairs.lost().items():
            lost[kind] += count
        return (self._counts[0] - lost).tolist(), lost.tolist()

    @property
    def has_device(self) -> bool:
        """Whether anything ran on a device."""
        return any(event.device and fate_of(event) == Fate.SPAN for event in self.kinds)

    def rows_of(self, piece: GatheredPiece) -> SpooledRows:
        """The rows of some events, sorted, under the file's numbers."""
        events, n = piece.events, len(piece.events)
        text_ids = np.array([self._text_id(text) for text in piece.texts] + [-1], np.int64)
        kind = self._kinds_of(piece)
        fate = self._fates[kind]
        track = self._tracks_of(piece, kind)
        shape = self._shapes_of(piece, kind)
        self._note_names(piece, np.flatnonzero(fate == Fate.NAME))
        known = (events[:, scan.STATE] & scan.KNOWS_START) != 0
        lasts = (events[:, scan.STATE] & scan.KNOWS_DUR != 0) & (events[:, scan.DUR] >= 0)
        self.timeless += int(np.count_nonzero(~known & lasts & (events[:, scan.DUR] == 0) & (fate == Fate.SPAN)))
        placed = known & (lasts | (fate != Fate.SPAN))
        lost = (fate <= Fate.METRICS) & ~placed
        self._counts[0] += np.bincount(kind, minlength=len(self.kinds))
        self._counts[1] += np.bincount(kind[lost], minlength=len(self.kinds))
        row = np.flatnonzero((fate <= Fate.METRICS) & placed)
        place = np.full(n, -1, np.int64)
        place[row] = np.arange(len(row))
        dur = np.where(fate == Fate.SPAN, events[:, scan.DUR], 0)
        correlation = events[:, scan.CORRELATION]
        columns = [
            events[row, scan.START],
            dur[row],
            np.where(correlation > 0, correlation, -1)[row],
            kind[row],
            track[row],
            shape[row],
        ]
        paired = np.flatnonzero((fate == Fate.BEGIN) | (fate == Fate.FINISH))
        if len(paired):
            columns = self._with_pairs(columns, piece, paired, kind, track)
        keys, values = np.empty((2, len(piece.extras)), np.int64)
        size = sift_extras(piece.extras, place, text_ids, keys, values)
        rows = _in_order(columns, keys[:size], values[:size])
        self._note(rows)
        return rows

    def tracks(self) -> list[str]:
        """Names of the tracks, by number; threads of one name are told apart."""
        taken: dict[str, int] = {}
        for key, name in self._thread_names.items():
            if ("thread", *key) in self._track_ids:
                taken[name] = taken.get(name, 0) + 1
        names = []
        for what, *parts in self._track_ids:
            if what != "thread":
                names.append(parts[0])
                continue
            pid, tid = parts
            given = self._thread_names.get((pid, tid))
            if given is None:
                names.append(f"process {pid} thread {tid}")
            else:
                names.append(f"{given} of process {pid}, {tid}" if taken[given] > 1 else given)
        return names

    def _text_id(self, text: bytes) -> int:
        number = self._text_ids.get(text)
        if number is None:
            number = self._text_ids[text] = len(self.texts)
            self.texts.append(decode_text(text))
        return number

    def _kinds_of(self, piece: GatheredPiece) -> NDArray[np.int32]:
        events = piece.events
        what = (events[:, scan.PHASE] + 1) << 32 | (events[:, scan.CAT] + 1)
        numbers, first = number_keys(what, events[:, scan.NAME], events[:, scan.DEVICE], events[:, scan.PID])
        known = len(self.kinds)
        ids = []
        for phase, cat, name, device, pid in events[first][
            :, [scan.PHASE, scan.CAT, scan.NAME, scan.DEVICE, scan.PID]
        ].tolist():
            category = self._known(piece, cat)
            number = None if device == NO_NUMBER else device
            found = device_of(category, number, self._known(piece, pid))
            event = Event(chr(phase) if 32 < phase < 127 else "", category, self._known(piece, name), found)
            ids.append(self._kind_ids.setdefault(event, len(self._kind_ids)))
            if ids[-1] == len(self.kinds):
                self.kinds.append(event)
        if len(self.kinds) > known:
            new = self.kinds[known:]
            self._fates = np.append(self._fates, np.array([fate_of(event) for event in new], np.int8))
            self._bounds_steps = np.append(self._bounds_steps, np.array([may_bound_steps(e) for e in new], np.bool_))
            self._on_device = np.append(self._on_device, np.array([bool(e.device) for e in new], np.bool_))
            self._convolves = np.append(self._convolves, np.array([is_convolution(e.name) for e in new], np.bool_))
            self._counts = np.column_stack((self._counts, np.zeros((2, len(new)), np.int64)))
        return np.array(ids, np.int32)[numbers] if len(numbers) else np.empty(0, np.int32)

    def _known(self, piece: GatheredPiece, text: int) -> str:
        return self.texts[self._text_id(piece.texts[text])] if text >= 0 else ""

    def _tracks_of(self, piece: GatheredPiece, kind: NDArray[np.int32]) -> NDArray[np.int32]:
        events = piece.events
        on_device = self._on_device[kind]
        stream = np.where(on_device, events[:, scan.STREAM], NO_NUMBER)
        where = np.where(on_device, kind, -1)
        numbers, first = number_keys(events[:, scan.PID], events[:, scan.TID], stream, where)
        ids = []
        for i in first.tolist():
            pid, tid = (self._known(piece, int(events[i, column])) for column in (scan.PID, scan.TID))
            key: tuple[str, ...] = ("thread", pid, tid)
            if on_device[i]:
                number = int(events[i, scan.STREAM])
                line = tid if number == NO_NUMBER else str(number)
                key = ("stream", f"{self.kinds[kind[i]].device} stream {line}")
            ids.append(self._track_ids.setdefault(key, len(self._track_ids)))
        return np.array(ids, np.int32)[numbers] if len(numbers) else np.empty(0, np.int32)

    def _shapes_of(self, piece: GatheredPiece, kind: NDArray[np.int32]) -> NDArray[np.int32]:
        n = len(piece.events)
        dims, types, concrete = np.full((3, n), -1, np.int64)
        if not spread(piece.extras, scan.SLOTS["Input Dims"], dims):
            return np.full(n, -1, np.int32)
        spread(piece.extras, scan.SLOTS["Input type"], types)
        spread(piece.extras, scan.SLOTS["Concrete Inputs"], concrete)
        concrete[~self._convolves[kind]] = -1
        numbers, first = number_keys(dims, types, concrete, np.where(concrete >= 0, kind, -1))
        ids = []
        for row in first.tolist():
            parts = tuple(piece.texts[text] if text >= 0 else b"" for text in (dims[row], types[row], concrete[row]))
            name = self.kinds[kind[row]].name if concrete[row] >= 0 else ""
            number = self._shape_ids.get((name, *parts))
            if number is None:
                text = shape_text(parts[0], parts[1])
                if name and (gives := convolution_result(name, parts[0], parts[2])):
                    element, _, _ = text.partition("[")
                    text += f" -> {', '.join(_one(element, shape) for shape in gives)}"
                number = self._shape_ids[name, *parts] = len(self.shapes) if text else -1
                self.shapes += [text] if text else []
            ids.append(number)
        return np.array(ids, np.int32)[numbers]

    def _note_names(self, piece: GatheredPiece, rows: Int64s) -> None:
        if not len(rows):
            return
        names = np.full(len(piece.events), -1, np.int64)
        spread(piece.extras, scan.SLOTS["name"], names)
        for i in rows.tolist():
            pid, tid = (self._known(piece, int(piece.events[i, column])) for column in (scan.PID, scan.TID))
            name = self._known(piece, int(names[i]))
            if name and self._known(piece, int(piece.events[i, scan.NAME])) == "thread_name":
                self._thread_names[pid, tid] = name

    def _with_pairs(
        self, columns: list[Any], piece: GatheredPiece, rows: Int64s, kind: NDArray[np.int32], track: NDArray[np.int32]
    ) -> list[Any]:
        """The rows, and those of spans whose begin and end are events of their own."""
        for i in rows.tolist():
            event = self.kinds[kind[i]]
            known = bool(piece.events[i, scan.STATE] & scan.KNOWS_START)
            where, lane = event.phase in "bSeF", int(track[i])
            key: tuple[Any, ...] = (lane,)
            if where:
                ident = self._known(piece, int(piece.events[i, scan.ID]))
                lane = self._track_ids.setdefault(("async", f"async {event.cat} {ident}"), len(self._track_ids))
                key = (event.cat, event.name, ident)
            time = int(piece.events[i, scan.START]) if known else None
            self.pairs.take(event.phase, key, time, int(kind[i]), lane)
        done = np.array(self.pairs.done(), np.int64).reshape(-1, 4)
        empty = np.full(len(done), -1, np.int64)
        more = [done[:, 0], done[:, 1], empty, done[:, 2], done[:, 3], empty]
        return [np.concatenate(both) for both in zip(columns, more, strict=True)]

    def _note(self, rows: SpooledRows) -> None:
        named = rows.keys[rows.keys & 255 == scan.SLOTS["Collective name"]] >> 8
        self.device_collectives |= bool(self._on_device[rows.kind[named]].any())
        is_span = self.is_span(rows.kind)
        if not is_span.any():
            return
        first = int(rows.start[is_span].min())
        last = int((rows.start + rows.dur)[is_span].max())
        self.first_ps = first if self.first_ps is None else min(self.first_ps, first)
        self.last_ps = last if self.last_ps is None else max(self.last_ps, last)
        found = np.flatnonzero(self._bounds_steps[rows.kind] & is_span)
        self.marks += zip(rows.start[found].tolist(), rows.dur[found].tolist(), rows.kind[found].tolist(), strict=True)

    def is_span(self, kind: NDArray[np.int32]) -> NDArray[np.bool_]:
        """`[n]` whether rows of these kinds are spans."""
        fate = self._fates[kind]
        return np.asarray((fate == Fate.SPAN) | (fate == Fate.BEGIN))


def decode_text(text: bytes) -> str:
    """The text of a JSON string's content, whatever its escapes; always text that can be written again."""
    plain = text.decode("utf-8", "replace")
    if "\\" not in plain:
        return plain
    import json

    try:
        value = json.loads(f'"{plain}"', strict=False)
    except ValueError:
        return plain
    return str(value).encode("utf-8", "replace").decode("utf-8")


def _in_order(columns: list[Any], keys: Int64s, values: Int64s) -> SpooledRows:
    order = order_rows(np.ascontiguousarray(columns[0]), np.ascontiguousarray(columns[1]))
    if order is not None:
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        columns = [column[order] for column in columns]
        new_keys, new_values = np.empty((2, len(keys)), np.int64)
        group_extras(keys, values, place, len(order), new_keys, new_values)
        keys, values = new_keys, new_values
    start, dur, correlation, kind, track, shape = columns
    return SpooledRows(start, dur, correlation, kind, track, shape, keys, values)
