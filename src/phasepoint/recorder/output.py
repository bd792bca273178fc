"""Where the recording goes: the shard of this process, opened late, and what happens when the disk says no.

A full or unwritable disk never reaches the job. Rows that could not be written wait in the store's buffers and the
step clock's ring, both bounded; captures are dropped at once, because they are large. Everything is tried again at
the next flush, and what was lost is counted and becomes a gap.

From what the recorder holds (nanoseconds, indices) to rows of the declared tables (picoseconds, names, nulls).

Arrow columns from Python values and NumPy arrays, made from buffers.

`pyarrow.array` looks whether it was given something of pandas, and imports pandas for that wherever it is installed:
0.5 s of CPU time and a full garbage collection inside the job, for a few rows. `Array.from_buffers` asks nothing.
Casting and dictionary-encoding are avoided too, for they import pyarrow.compute (40 ms).
"""

import errno
from array import array
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from msgspec import Struct
from numpy.typing import NDArray

from phasepoint.core.errors import ShardBusyError, StoreError, TableError
from phasepoint.core.tables import table_from_columns, table_spec
from phasepoint.core.units import PS_PER_NS
from phasepoint.recorder.clock.cost import PURPOSES, RecorderCost
from phasepoint.recorder.clock.epoch import Epoch
from phasepoint.recorder.clock.step_clock import NOT_KNOWN, StepRows
from phasepoint.recorder.windows.runner import CapturedWindow

if TYPE_CHECKING:
    from phasepoint.recorder.process.identity import SignsOfLife
    from phasepoint.store import ShardWriter

_Make = Callable[[Sequence[Any], NDArray[np.bool_], pa.DataType], pa.Array]


def column_of_values(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Values of one column as an Arrow array of a declared type; None is null.

    Args:
        values: integers, floats, booleans, texts, bytes, or lists of texts, as the type asks, `[n]`.
        kind: any type that `core.tables` declares.

    Raises:
        TableError: the type is none of those.
        TypeError, OverflowError: a value does not fit the type.
    """
    known = np.fromiter((value is not None for value in values), np.bool_, len(values))
    if not known.any():
        return pa.nulls(len(values), kind)
    for is_kind, make in _MAKERS:
        if is_kind(kind):
            return make(values, known, kind)
    raise TableError(f"no column of type {kind} is made from values; add it here")


def int64_column(values: NDArray[np.int64], known: NDArray[np.bool_] | None = None) -> pa.Array:
    """Integers `[n]` as an Arrow array that shares their memory; null where `known` `[n]` is false."""
    return _numbers(np.ascontiguousarray(values, np.int64), known, pa.int64())


def name_column(indices: NDArray[np.int64], names: Sequence[str]) -> pa.Array:
    """Names by index `[n]` as a dictionary array; null where the index is below 0."""
    known = indices >= 0
    codes = np.where(known, indices, 0).astype(np.int32)
    encoded = _texts([_encoded(name) for name in names], None, pa.string())
    return pa.DictionaryArray.from_arrays(_numbers(codes, known, pa.int32()), encoded)


def _numbers(values: Any, known: NDArray[np.bool_] | None, kind: pa.DataType) -> pa.Array:
    """`values` has a buffer of the type's own width."""
    return pa.Array.from_buffers(kind, len(values), [_validity(known), pa.py_buffer(values)])


def _integers(values: Sequence[Any], known: NDArray[np.bool_], kind: pa.DataType) -> pa.Array:
    return _numbers(array("q", (0 if value is None else value for value in values)), known, kind)


def _floats(values: Sequence[Any], known: NDArray[np.bool_], kind: pa.DataType) -> pa.Array:
    return _numbers(array("d", (0.0 if value is None else value for value in values)), known, kind)


def _booleans(values: Sequence[Any], known: NDArray[np.bool_], kind: pa.DataType) -> pa.Array:
    bits = np.fromiter((bool(value) for value in values), np.bool_, len(values))
    return pa.Array.from_buffers(kind, len(values), [_validity(known), _bits(bits)])


def _strings(values: Sequence[Any], known: NDArray[np.bool_], kind: pa.DataType) -> pa.Array:
    return _texts([b"" if value is None else _encoded(value) for value in values], known, kind)


def _texts(encoded: Sequence[bytes], known: NDArray[np.bool_] | None, kind: pa.DataType) -> pa.Array:
    buffers = [_validity(known), _offsets([len(text) for text in encoded]), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(kind, len(encoded), buffers)


def _names(values: Sequence[Any], known: NDArray[np.bool_], kind: pa.DataType) -> pa.Array:
    places: dict[str, int] = {}
    codes = array("i", (0 if value is None else places.setdefault(value, len(places)) for value in values))
    encoded = _texts([_encoded(name) for name in places], None, kind.value_type)
    return pa.DictionaryArray.from_arrays(_numbers(codes, known, kind.index_type), encoded)


def _lists(values: Sequence[Any], known: NDArray[np.bool_], kind: pa.DataType) -> pa.Array:
    lists = [() if value is None else value for value in values]
    items = column_of_values([item for items in lists for item in items], kind.value_type)
    buffers = [_validity(known), _offsets([len(items) for items in lists])]
    return pa.Array.from_buffers(kind, len(lists), buffers, children=[items])


def _offsets(lengths: Sequence[int]) -> pa.Buffer:
    """Where each of variable-length values begins, and the end of the last."""
    return pa.py_buffer(np.cumsum([0, *lengths]).astype(np.int32))


def _validity(known: NDArray[np.bool_] | None) -> pa.Buffer | None:
    return None if known is None or known.all() else _bits(known)


def _bits(values: NDArray[np.bool_]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(values, bitorder="little"))


def _encoded(text: Any) -> bytes:
    """UTF-8. What a path holds that is no text (lone surrogates) becomes an escape: `\\udcff`."""
    return bytes(text) if isinstance(text, bytes) else text.encode("utf-8", "backslashreplace")


_MAKERS: tuple[tuple[Callable[[pa.DataType], bool], _Make], ...] = (
    (pa.types.is_int64, _integers),
    (pa.types.is_float64, _floats),
    (pa.types.is_boolean, _booleans),
    (pa.types.is_string, _strings),
    (pa.types.is_binary, _strings),
    (pa.types.is_dictionary, _names),
    (pa.types.is_list, _lists),
)


Row = dict[str, Any]
StepColumns = dict[str, NDArray[np.int64]]


class MemorySample(Struct, frozen=True):
    """Memory at one moment: `now_ns` on the session's clock, bytes; None where not known."""

    now_ns: int
    rss_bytes: int | None
    device_bytes: int | None


def table_of_rows(name: str, rows: Sequence[Row]) -> pa.Table:
    """Rows to a table of the declared schema, like `core.tables.table_from_rows`, but without importing anything."""
    spec = table_spec(name)
    return table_from_columns(
        name, {c.name: column_of_values([row.get(c.name) for row in rows], c.type) for c in spec.columns}
    )


def step_columns(rows: StepRows, samples: Sequence[MemorySample], epoch: Epoch) -> StepColumns:
    """Columns of `steps` as integers `[n]`, `NOT_KNOWN` for null, `kind` as an index. A memory sample goes to the step
    in which it was taken, the others have none."""
    dur_ns = rows.end_ns - rows.start_ns
    unseen = rows.got_ns == NOT_KNOWN
    input_ns = np.where(unseen, 0, np.minimum(rows.got_ns - rows.start_ns, dur_ns))
    return {
        "step": rows.step,
        "start_ps": (rows.start_ns - epoch.now_ns) * PS_PER_NS,
        "dur_ps": dur_ns * PS_PER_NS,
        "input_ps": np.where(unseen, NOT_KNOWN, input_ns * PS_PER_NS),
        "dispatch_ps": (dur_ns - input_ns) * PS_PER_NS,
        "compile_ps": rows.compile_ns * PS_PER_NS,
        "kind": rows.kind,
        "host_rss_bytes": _place(rows, [(s.now_ns, s.rss_bytes) for s in samples]),
        "batch_elements": rows.elements,
        "graph_nodes": rows.nodes,
        "device_memory_bytes": _place(rows, [(s.now_ns, s.device_bytes) for s in samples]),
    }


def steps_table(columns: StepColumns, kinds: Sequence[str]) -> pa.Table:
    """The `steps` table of `step_columns`."""
    arrays = {name: int64_column(values, values != NOT_KNOWN) for name, values in columns.items() if name != "kind"}
    return table_from_columns("steps", {**arrays, "kind": name_column(columns["kind"], kinds)})


def window_row(window: CapturedWindow, *, write_ps: int, raw: str, size: int, format: str, epoch: Epoch) -> Row:
    """One row of `windows`."""
    known = (window.start_ps, window.slowdown_ps or 0, window.stop_ps, write_ps)
    return {
        "window": window.window,
        "first_step": window.first_step,
        "last_step": window.last_step,
        "start_ps": epoch.to_ps(window.start_ns),
        "dur_ps": (window.end_ns - window.start_ns) * PS_PER_NS,
        "reason": window.opening.reason,
        "probability": window.opening.probability,
        "start_cost_ps": window.start_ps,
        "slowdown_cost_ps": window.slowdown_ps,
        "stop_cost_ps": window.stop_ps,
        "write_cost_ps": write_ps,
        "capture_cost_ps": sum(known),
        "predicted_cost_ps": None if window.opening.plan is None else window.opening.plan.predicted_ps,
        "ended_by": window.ended_by,
        "cut_step": window.cut_step,
        "format": format,
        "raw": raw,
        "bytes": size,
    }


def gap_row(
    why: str,
    unknown: str,
    *,
    epoch: Epoch,
    start_ns: int | None = None,
    end_ns: int | None = None,
    steps: tuple[int, int] | None = None,
) -> Row:
    """One row of `gaps`; `unknown` says in one sentence what is not known because of it."""
    first_step, last_step = steps if steps is not None else (None, None)
    return {
        "why": why,
        "start_ps": None if start_ns is None else epoch.to_ps(start_ns),
        "dur_ps": None if start_ns is None or end_ns is None else (end_ns - start_ns) * PS_PER_NS,
        "first_step": first_step,
        "last_step": last_step,
        "unknown": unknown,
    }


def cost_rows(cost: RecorderCost, time_ps: int, counts: dict[str, int]) -> list[Row]:
    """Rows of `counters` that say what recording cost: `recorder.cost.<purpose>` in ps, and its counts."""
    values = {f"recorder.cost.{purpose}": (getattr(cost, f"{purpose}_ps"), "ps") for purpose in PURPOSES}
    values["recorder.cost.total"] = (cost.total_ps, "ps")
    values["recorder.elapsed"] = (cost.elapsed_ps, "ps")
    values |= {f"recorder.{name}": (count, "count") for name, count in counts.items()}
    return [
        {"name": name, "unit": unit, "device": "host", "time_ps": time_ps, "value": float(value)}
        for name, (value, unit) in values.items()
    ]


def _place(rows: StepRows, samples: Sequence[tuple[int, int | None]]) -> NDArray[np.int64]:
    values = np.full(len(rows.step), NOT_KNOWN)
    for now_ns, value in samples:
        at = int(np.searchsorted(rows.start_ns, now_ns, side="right")) - 1
        if value is not None and at >= 0 and now_ns <= rows.end_ns[at]:
            values[at] = value
    return values


class RunOutput:
    """One shard, written by the flusher's thread alone.

    Attributes:
        failures: writes that failed.
        problem: what the last failed write said; None where the last one succeeded.
        last_problem: the same, whether or not one succeeded since.
        backlog: whether rows wait in the store's buffers because they could not be written.
        notes: what is to be known about the session, written when the shard is closed.
    """

    def __init__(self, open_writer: Callable[[], "ShardWriter"], signs: "SignsOfLife | None" = None) -> None:
        self.failures = 0
        self.problem: str | None = None
        self.last_problem: str | None = None
        self.backlog = False
        self.notes: dict[str, str] = {}
        self._open_writer = open_writer
        self._signs = signs
        self._writer: ShardWriter | None = None

    @property
    def is_open(self) -> bool:
        """Whether the shard was opened."""
        return self._writer is not None

    @property
    def host(self) -> int | None:
        """Rank of the shard; None before it was opened."""
        return None if self._writer is None else self._writer.session.host

    def open(self) -> None:
        """Create the run and become its writer, once.

        Raises:
            StoreError: the run or the shard cannot be created, or another process writes it.
        """
        if self._writer is None:
            self._writer = self._open_writer()

    def try_open(self, *, final: bool = False) -> bool:
        """Open, unless the disk is full or the last attempt's writer may live elsewhere: that may pass, so the next
        round tries again. Returns whether it is open.

        Args:
            final: whether there is no next round: an attempt that shows no sign of life is taken for dead.

        Raises:
            StoreError: as `open`, for every other reason.
        """
        if final and self._signs is not None:
            self._signs.is_last_call = True
        try:
            self.open()
        except StoreError as error:
            if isinstance(error, ShardBusyError) and error.may_pass:
                self.problem = str(error)
                return False
            if not _may_pass(error):
                raise
            self._note(error)
            return False
        self.problem = None
        return True

    def waiting_rows(self, name: str) -> int:
        """Rows of a table that were taken and are not written."""
        return 0 if self._writer is None else self._writer.waiting_rows(name)

    def add_rows(self, name: str, rows: list[Row]) -> None:
        """Take rows of one table."""
        if rows:
            self.add_table(name, table_of_rows(name, rows))

    def add_table(self, name: str, table: "pa.Table") -> None:
        """Take a table of rows."""
        assert self._writer is not None
        self._writer.append(name, table)

    def append_tails(self, steps: Sequence[StepColumns], kinds: Sequence[str], rows: Mapping[str, list[Row]]) -> bool:
        """Write what is in no file yet to tails; False where parts are wanted, or the disk would not.

        Args:
            steps: of `step_columns`, one after another.
            kinds: names of their kinds.
            rows: of other tables.
        """
        from phasepoint.store.tail import encode_rows, encode_steps  # the store is loaded when a run is opened

        assert self._writer is not None
        if not self._writer.takes_tails:
            return False
        tails = {}
        if steps:
            columns = {name: np.concatenate([one[name] for one in steps]) for name in steps[0]}
            tails["steps"] = len(columns["step"]), encode_steps(columns, kinds)
        try:
            tails |= {name: (len(new), encode_rows(new)) for name, new in rows.items() if new}
        except (TypeError, ValueError, OverflowError):  # what no column takes is refused with its table's name
            return False
        return self._try(partial(self._writer.append_tails, tails))

    def write_raw(self, relative_path: str, data: bytes | Path) -> bool:
        """Write a raw capture; False where the disk would not take it."""
        assert self._writer is not None
        return self._try(partial(self._writer.write_raw, relative_path, data))

    def flush(self, *, is_awaited: bool = False) -> bool:
        """Write all rows taken so far; False where the disk would not take them. Awaited: as `ShardWriter.flush`."""
        assert self._writer is not None
        return self._write_all(partial(self._writer.flush, is_awaited=is_awaited))

    def close(self, status: str, tally: Mapping[str, int]) -> None:
        """Write the rest and mark the shard closed; where that fails, the shard stays as a killed one would be."""
        if self._writer is not None:
            self._write_all(partial(self._writer.close, status, notes=self.notes, tally=tally))

    def _write_all(self, write: Callable[[], object]) -> bool:
        """Write what waits, and note whether anything still does."""
        self.backlog = not self._try(write)
        if not self.backlog:
            self.problem = None
        return not self.backlog

    def _try(self, write: Callable[[], object]) -> bool:
        try:
            return write() is not False
        except StoreError as error:
            self._note(error)
            return False

    def _note(self, error: StoreError) -> None:
        self.failures += 1
        self.problem = self.last_problem = str(error)


def _may_pass(error: StoreError) -> bool:
    """Whether somebody may free space while the job runs."""
    return isinstance(error.__cause__, OSError) and error.__cause__.errno in {errno.ENOSPC, errno.EDQUOT}
