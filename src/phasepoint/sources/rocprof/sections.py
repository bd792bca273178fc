"""Sections of rocprofv3's records → events: dispatches and copies of devices, calls and markers of the host."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np

from phasepoint.core.arrays import Int64s
from phasepoint.sources.events.operator_names import category_of_kernel, is_wait
from phasepoint.sources.events.rows import LAUNCH_DETAILS, MISSING, EventRows
from phasepoint.sources.events.tables import Account, Kind
from phasepoint.sources.rocprof.records import CountedDispatch, Handle, Process, Record, RocprofNames, read_section

_COPIES = {
    "MEMORY_COPY_HOST_TO_HOST": "Memcpy HtoH",
    "MEMORY_COPY_HOST_TO_DEVICE": "Memcpy HtoD",
    "MEMORY_COPY_DEVICE_TO_HOST": "Memcpy DtoH",
    "MEMORY_COPY_DEVICE_TO_DEVICE": "Memcpy DtoD",
}
_SAMPLED = ("pc_sample_host_trap", "pc_sample_stochastic", "pc_sampling_host_trap")
_MARKS = ("roctxMarkA", "roctxMark")
_ACROSS_THREADS = ("roctxRangeStartA", "roctxRangeStop", "roctxProcessRangeA")


class RocprofSections:
    """Reads the sections of all processes of a file.

    Attributes:
        events: the events.
        apart: what became of the records that are no events of their own.
        allocations: time, device, bytes and address of each allocation and release.
        counters: scope, dispatch, name and value of each hardware counter.
        dispatches: scope, dispatch and row of each dispatch.
    """

    def __init__(self) -> None:
        self.events = EventRows()
        self.apart: list[Account] = []
        self.allocations: list[tuple[int, str, int, int]] = []
        self.counters: list[tuple[int, int, str, float]] = []
        self.dispatches: dict[tuple[int, int], int] = {}
        self._held: dict[tuple[str, int], int] = {}

    def read_process(self, process: Process, names: RocprofNames, scope: int) -> None:
        """All sections of one process."""
        readers: dict[str, Callable[[str, msgspec.Raw, RocprofNames, int], None]] = {
            "kernel_dispatch": self._read_dispatches,
            "memory_copy": self._read_copies,
            "marker_api": self._read_markers,
            "memory_allocation": self._read_allocations,
        }
        for section, raw in process.buffer_records.items():
            if section in _SAMPLED:
                self._skip(section, "samples of the program counter are not read", _length(raw))
            else:
                readers.get(section, self._read_calls)(section, raw, names, scope)
        for section, raw in process.callback_records.items():
            if section == "counter_collection":
                self._read_counters(section, raw, names, scope)
            else:
                self._skip(section, "records that are not read", _length(raw))

    def _skip(self, what: str, reason: str, rows: int) -> None:
        if rows:
            self.apart.append(Account("skipped", what, reason, rows))

    def _records(self, section: str, raw: msgspec.Raw) -> list[Record]:
        records, unreadable = read_section(raw, Record)
        if unreadable:
            self.apart.append(Account("skipped", section, UNREADABLE, unreadable))
        return records

    def _add(
        self,
        section: str,
        records: Sequence[Record],
        kind: Sequence[int],
        track: Sequence[int],
        scope: int,
        **details: Int64s,
    ) -> Int64s:
        times = (
            integers([one.start_timestamp for one in records]),
            integers([one.end_timestamp for one in records]),
        )
        ids = integers([one.correlation_id.internal if one.correlation_id else None for one in records])
        numbers = np.array(kind, np.int64), np.array(track, np.int64)
        return self.events.add(
            section,
            times,
            *numbers,
            correlation=np.where(ids == 0, MISSING, ids),
            scope=scope,
            details=details or None,
        )

    # Work of devices.

    def _read_dispatches(self, section: str, raw: msgspec.Raw, names: RocprofNames, scope: int) -> None:
        records = self._records(section, raw)
        kind, track = [], []
        for one in records:
            info = one.dispatch_info
            device = names.device(_handle(info.agent_id) if info else None)
            name = names.kernel(info.kernel_id if info else None)
            kind.append(self.events.kind(Kind(name, device, "kernel", category_of_kernel(name), True)))
            track.append(self._device_track(device, one))
        rows = self._add(section, records, kind, track, scope, **_launch_details(records, names))
        for row, one in zip(rows.tolist(), records, strict=True):
            if one.dispatch_info and one.dispatch_info.dispatch_id is not None:
                self.dispatches[scope, one.dispatch_info.dispatch_id] = row

    def _device_track(self, device: str, one: Record) -> int:
        stream, queue = _handle(one.stream_id), _handle(one.dispatch_info.queue_id if one.dispatch_info else None)
        name = f"stream {stream}" if stream is not None else f"queue {'?' if queue is None else queue}"
        return self.events.track(f"{device} {name}")

    def _read_copies(self, section: str, raw: msgspec.Raw, names: RocprofNames, scope: int) -> None:
        records = self._records(section, raw)
        kind, track = [], []
        for one in records:
            ends = [names.device(_handle(end)) for end in (one.dst_agent_id, one.src_agent_id) if end is not None]
            # A copy is work of the GPU that receives, else of the one that gives.
            device = next((end for end in ends if end != "host"), "gpu:unknown")
            operation = names.operation(one.kind, one.operation)[1]
            name = _COPIES.get(operation, operation)
            kind.append(self.events.kind(Kind(name, device, "kernel", "data_movement", True)))
            stream = _handle(one.stream_id)
            track.append(self.events.track(f"{device} copies" + ("" if stream is None else f", stream {stream}")))
        self._add(section, records, kind, track, scope, bytes=integers([one.bytes for one in records]))

    # Work of the host.

    def _read_calls(self, section: str, raw: msgspec.Raw, names: RocprofNames, scope: int) -> None:
        records = self._records(section, raw)
        timed = [one for one in records if one.start_timestamp is not None or one.end_timestamp is not None]
        self._skip(section, "records without a time", len(records) - len(timed))
        kind, track = [], []
        for one in timed:
            name = names.operation(one.kind, one.operation)[1]
            kind.append(self.events.kind(Kind(name, "host", "runtime", "host", not is_wait(name))))
            track.append(self._thread(names, one))
        self._add(section, timed, kind, track, scope)

    def _read_markers(self, section: str, raw: msgspec.Raw, names: RocprofNames, scope: int) -> None:
        records = self._records(section, raw)
        operations = [names.operation(one.kind, one.operation)[1] for one in records]
        marks = [operation in _MARKS for operation in operations]
        self._skip(section, "a mark, no stretch of work", sum(marks))
        kept, kind, track = [], [], []
        for one, operation, mark in zip(records, operations, marks, strict=True):
            if mark:
                continue
            text = names.markers.get(one.correlation_id.internal or 0) if one.correlation_id else None
            level = "runtime" if text is None else "layer"
            kept.append(one)
            kind.append(self.events.kind(Kind(operation if text is None else text, "host", level, "host", True)))
            track.append(self._thread(names, one, across=operation in _ACROSS_THREADS))
        self._add(section, kept, kind, track, scope)

    def _thread(self, names: RocprofNames, one: Record, *, across: bool = False) -> int:
        name = f"process {names.pid} thread {'?' if one.thread_id is None else one.thread_id}"
        return self.events.track(f"{name} (start–end ranges)" if across else name)

    # Rows of other tables.

    def _read_allocations(self, section: str, raw: msgspec.Raw, names: RocprofNames, scope: int) -> None:
        del scope
        kept = 0
        records = self._records(section, raw)
        for one in records:
            operation = names.operation(one.kind, one.operation)[1]
            device = names.device(_handle(one.agent_id)) if one.agent_id else "host"
            address = _address(one.address)
            size = one.allocation_size
            if operation.endswith("FREE"):
                size = -self._held.pop((device, address), size or 0)
            elif size is not None:
                self._held[device, address] = size
            if not (_fits(one.start_timestamp) and _fits(size)):
                continue
            kept += 1
            self.allocations.append((one.start_timestamp or 0, device, size or 0, address))
        self._skip(section, "without a time or a size", len(records) - kept)

    def _read_counters(self, section: str, raw: msgspec.Raw, names: RocprofNames, scope: int) -> None:
        collected, unreadable = read_section(raw, CountedDispatch)
        if unreadable:
            self.apart.append(Account("skipped", section, UNREADABLE, unreadable))
        kept = 0
        for one in collected:
            info = one.dispatch_data.dispatch_info if one.dispatch_data else None
            if info is None or info.dispatch_id is None:
                continue
            dispatch = info.dispatch_id
            kept += 1
            sums: dict[str, float] = {}
            for value in one.records:
                handle = _handle(value.counter_id)
                if value.value is not None:
                    name = names.counters.get(handle, f"counter {handle}")
                    sums[name] = sums.get(name, 0.0) + value.value
            self.counters += [(scope, dispatch, name, value) for name, value in sums.items()]
        if kept:
            self.apart.append(Account("merged", section, "rows of metrics", kept))
        self._skip(section, "without a dispatch", len(collected) - kept)


UNREADABLE = "a record that is not as expected"


def integers(values: Sequence[Any]) -> Int64s:
    """Integers, `MISSING` where there is none that fits 64 bits."""
    fits = (value if value is not None and abs(value) < 1 << 63 else MISSING for value in values)
    return np.fromiter(fits, np.int64, len(values))


def _launch_details(records: Sequence[Record], names: RocprofNames) -> dict[str, Int64s]:
    """Launch parameters; rocprofv3 counts a grid in work-items, the table in blocks."""
    found: dict[str, list[int | None]] = {name: [] for name in LAUNCH_DETAILS}
    for one in records:
        info = one.dispatch_info
        block = info.workgroup_size if info else None
        grid = info.grid_size if info else None
        for axis in ("x", "y", "z"):
            threads = getattr(block, axis, None)
            items = getattr(grid, axis, None)
            found[f"block_{axis}"].append(threads)
            found[f"grid_{axis}"].append(None if items is None or not threads else -(-items // threads))
        kernel = info.kernel_id if info else None
        found["registers"].append(None if kernel is None else names.registers.get(kernel))
        found["shared_bytes"].append(info.group_segment_size if info else None)
        found["graph"].append(one.graph_exec_id or None)
        found["node"].append(one.graph_node_id if one.graph_exec_id else None)
    return {name: integers(values) for name, values in found.items()}


def _fits(value: int | None) -> bool:
    return value is not None and abs(value) < 1 << 62


def _handle(handle: Handle | None) -> int | None:
    return None if handle is None else handle.handle


def _address(value: int | str | None) -> int:
    """An address as a number, `MISSING` where there is none."""
    try:
        number = int(value, 0) if isinstance(value, str) else value
    except ValueError:
        number = None
    return number if number is not None and abs(number) < 1 << 63 else MISSING


def _length(raw: msgspec.Raw) -> int:
    found, lost = read_section(raw, msgspec.Raw)
    return len(found) + lost
