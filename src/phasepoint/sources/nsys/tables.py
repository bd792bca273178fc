"""Tables of an export of Nsight Systems → events: which hold work of a device, which of the host, which neither."""

from collections.abc import Mapping, Sequence

import numpy as np

from phasepoint.core.arrays import Int64s
from phasepoint.sources.events.names import is_library, read_range
from phasepoint.sources.events.operator_names import category_of_kernel, category_of_op, is_wait
from phasepoint.sources.events.rows import MISSING, EventRows
from phasepoint.sources.events.tables import Account, Kind
from phasepoint.sources.nsys.database import Block, NsysDatabase, NsysNames, name_rows

KERNELS, COPIES = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY"
FILLS, GRAPHS = "CUPTI_ACTIVITY_KIND_MEMSET", "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
DEVICE_TABLES = (KERNELS, COPIES, FILLS, GRAPHS)
NVTX = "NVTX_EVENTS"
MEMORY = "CUDA_GPU_MEMORY_USAGE_EVENTS"
METRICS = "GPU_METRICS"

SKIPPED = {
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": "repeats the time of the call that waits",
    "CUPTI_ACTIVITY_KIND_OVERHEAD": "the profiler's own work",
    "PROFILER_OVERHEAD": "the profiler's own work",
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT": "an instant, no stretch of work",
    "CUDA_GRAPH_NODE_EVENTS": "says where a graph's node was made, no work of a replay",
    "CUDA_GRAPH_EVENTS": "says where a graph was made, no work of a replay",
    "SCHED_EVENTS": "switches of threads between processors are not read",
    "COMPOSITE_EVENTS": "samples of the processor are not read",
    "DIAGNOSTIC_EVENT": "a message, no stretch of work",
}
"""Tables of events that become no span, and why."""

_DETAILS = {
    "bytes": "bytes",
    **{f"{part}{axis.upper()}": f"{part}_{axis}" for part in ("grid", "block") for axis in "xyz"},
    "registersPerThread": "registers",
    "graphId": "graph",
    "graphNodeId": "node",
}
"""Columns of executions, and the details of events that they are."""

_SHARED = ("staticSharedMemory", "dynamicSharedMemory")
_PLACE = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid", "contextId")
_COPY_KINDS = {
    0: "unknown", 1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA",
    8: "DtoD", 9: "HtoH", 10: "PtoP", 11: "unified HtoD", 12: "unified DtoH", 13: "unified DtoD",
}  # fmt: skip
"""Source: `ENUM_CUDA_MEMCPY_OPER` of an export of Nsight Systems 2026.2."""

_PUSH_POP, _START_END, _DOMAIN = (59, 70), (60, 71), 75
_NVTX_REASONS = {
    33: "names a category", 34: "a mark, no stretch of work", 39: "names a thread", 65: "a mark, no stretch of work",
    75: "names a domain", 76: "ends a domain", 97: "names a device", 98: "names a context", 99: "names a stream",
}  # fmt: skip
"""Kinds of NVTX events that are no ranges. Source: `ENUM_NSYS_EVENT_TYPE` of the same export."""


class NsysTables:
    """Reads one export's tables into rows of events.

    Attributes:
        events: the events.
        skipped: what was left out by design: its table and why, and how many rows.
        shapes: shapes of ranges' inputs, numbered.
        has_device: whether the export holds work of a device.
    """

    def __init__(self, database: NsysDatabase, names: NsysNames) -> None:
        self._database = database
        self._names = names
        self.events = EventRows()
        self.skipped: dict[tuple[str, str], int] = {}
        self.shapes: dict[str, int] = {}
        self._contexts: dict[str, dict[tuple[int, int], int]] = {}
        self.has_device = any(database.has(table, "start", "end") for table in DEVICE_TABLES) and any(
            database.count(table) for table in DEVICE_TABLES if table in database.columns
        )

    def accounts(self) -> list[Account]:
        """Accounts of what was left out by design."""
        return [Account("skipped", what, reason, rows) for (what, reason), rows in self.skipped.items()]

    def read_all(self) -> None:
        """All tables that hold events; of a table that nobody knows the rows that say thread, start and end."""
        for table in sorted(self._database.columns):
            if table in DEVICE_TABLES:
                self._read_device(table)
            elif table == NVTX:
                self._read_nvtx()
            elif table in SKIPPED:
                self._skip(table, SKIPPED[table])
            elif self._database.has(table, "start", "end", "globalTid"):
                self._read_host(table)
            elif table not in (MEMORY, METRICS) and self._holds_events(table):
                self._skip(table, "a table that is not read")

    def _holds_events(self, table: str) -> bool:
        columns = self._database.columns[table]
        return bool(columns & {"start", "timestamp", "rawTimestamp"}) and not table.startswith(
            ("ENUM_", "TARGET_INFO_", "META_DATA_", "EXPORT_", "ANALYSIS_")
        )

    def _skip(self, what: str, reason: str, rows: int | None = None) -> None:
        found = self._database.count(what) if rows is None else rows
        if found:
            self.skipped[what, reason] = self.skipped.get((what, reason), 0) + found

    # Work of devices.

    def _read_device(self, table: str) -> None:
        more: Mapping[str, Sequence[str]] = {
            KERNELS: ("demangledName", "shortName", *_SHARED, *list(_DETAILS)[1:]),
            COPIES: ("bytes", "copyKind", "graphNodeId"),
            FILLS: ("bytes", "graphNodeId"),
            GRAPHS: ("graphId",),
        }
        for block in self._database.blocks(table, (*_PLACE, *more[table])):
            place = [block[name] for name in ("globalPid", "deviceId", "streamId", "contextId")]
            self.events.add(
                table,
                (block["start"], block["end"]),
                self._device_kinds(table, block),
                name_rows(self._stream, *place),
                correlation=_identified(block["correlationId"]),
                scope=block["globalPid"],
                details=_device_details(block),
            )

    def _device_kinds(self, table: str, block: Block) -> Int64s:
        nothing = np.full(len(block["start"]), MISSING, np.int64)
        first, second = {
            KERNELS: (block.get("demangledName", nothing), block.get("shortName", nothing)),
            COPIES: (block.get("copyKind", nothing), nothing),
            FILLS: (nothing, nothing),
            GRAPHS: (block.get("graphId", nothing), nothing),
        }[table]

        def number(process: int, ordinal: int, one: int, other: int) -> int:
            name = self._device_name(table, one, other)
            category = "data_movement" if table in (COPIES, FILLS) else category_of_kernel(name)
            return self.events.kind(Kind(name, self._names.device(process, ordinal), "kernel", category, True))

        return name_rows(number, block["globalPid"], block["deviceId"], first, second)

    def _device_name(self, table: str, one: int, other: int) -> str:
        if table == KERNELS:
            return self._names.strings.get(one) or self._names.text(other, "kernel without a name")
        if table == COPIES:
            return f"Memcpy {_COPY_KINDS.get(one, str(one))}"
        return "Memset" if table == FILLS else f"CUDA graph {'' if one == MISSING else one}".rstrip()

    def _stream(self, process: int, ordinal: int, stream: int, context: int) -> int:
        """Streams are numbered within a context; each context that shares a device has tracks of its own."""
        name = f"{self._names.device(process, ordinal)} stream {'?' if stream == MISSING else stream}"
        contexts = self._contexts.setdefault(self._names.device(process, ordinal), {})
        number = contexts.setdefault((process, context), len(contexts))
        return self.events.track(name if not number else f"{name} (context {number})")

    # Work of the host.

    def _read_host(self, table: str) -> None:
        columns = self._database.columns[table]
        named = next((name for name in ("nameId", "textId", "name", "eventKind") if name in columns), "nameId")
        # Only CUDA's calls launch; other libraries number their calls on their own.
        linked = "correlationId" if table.startswith("CUPTI_ACTIVITY_KIND_") else ""
        wanted = ("start", "end", "globalTid", named, *([linked] if linked else []))

        def number(name_id: int) -> int:
            name = self._names.text(name_id, table)
            return self.events.kind(Kind(name, "host", "runtime", "host", not (is_wait(name) or _blocks(name))))

        for block in self._database.blocks(table, wanted):
            self.events.add(
                table,
                (block["start"], block["end"]),
                name_rows(number, block[named]),
                self._threads(block["globalTid"]),
                correlation=_identified(block[linked]) if linked else None,
                scope=_process_of(block["globalTid"]),
            )

    def _threads(self, global_tid: Int64s) -> Int64s:
        return name_rows(lambda thread: self.events.track(self._names.thread(thread)), global_tid)

    # NVTX.

    def _read_nvtx(self) -> None:
        domains = self._domains()
        columns = ("start", "end", "eventType", "globalTid", "domainId", "textId")
        if not self._database.has(NVTX, "start", "end"):
            self._skip(NVTX, "a table without start and end")
            return
        for block, texts in self._database.blocks_with_text(NVTX, columns, "text"):
            self._add_ranges(block, texts, domains)

    def _add_ranges(self, block: Block, texts: Sequence[object], domains: Mapping[tuple[int, int], str]) -> None:
        event_type = block["eventType"]
        other = ~np.isin(event_type, (*_PUSH_POP, *_START_END, MISSING))
        for code, rows in zip(*np.unique(event_type[other], return_counts=True), strict=True):
            reason = _NVTX_REASONS.get(int(code), f"an event of type {code}, no range")
            self._skip(NVTX, reason, int(rows))
        kept = np.flatnonzero(~other)
        process = _process_of(block["globalTid"])
        kind = np.empty(len(kept), np.int64)
        sequence = np.full(len(kept), MISSING, np.int64)
        shapes = np.full(len(kept), MISSING, np.int64)
        of_row = zip(kept.tolist(), block["textId"][kept].tolist(), process[kept].tolist(), strict=True)
        domain_id = block["domainId"]
        for at, (row, text_id, owner) in enumerate(of_row):
            text = texts[row]
            found = read_range(text if isinstance(text, str) else self._names.text(text_id, "range without a text"))
            kind[at] = self._range_kind(found.name, found.is_op, domains.get((owner, int(domain_id[row])), ""))
            if found.sequence is not None:
                sequence[at] = found.sequence
            if found.shape is not None:
                shapes[at] = self.shapes.setdefault(found.shape, len(self.shapes))
        overlapping = np.isin(event_type[kept], _START_END)
        self.events.add(
            NVTX,
            (block["start"][kept], block["end"][kept]),
            kind,
            name_rows(self._range_track, block["globalTid"][kept], overlapping.astype(np.int64)),
            details={"sequence": sequence, "shape": shapes},
        )

    def _range_kind(self, name: str, is_op: bool, domain: str) -> int:
        if is_op and not self.has_device:
            return self.events.kind(Kind(name, "cpu:0", "op", category_of_op(name), True))
        level = "op" if is_op else "runtime" if is_library(domain) else "layer"
        return self.events.kind(Kind(name, "host", level, "host", True))

    def _range_track(self, global_tid: int, overlapping: int) -> int:
        """Ranges from start to end need not nest: they stand on tracks of their own."""
        name = self._names.thread(global_tid)
        return self.events.track(f"{name} (start–end ranges)" if overlapping else name)

    def _domains(self) -> dict[tuple[int, int], str]:
        """Names of NVTX domains by process and number."""
        if not self._database.has(NVTX, "eventType", "domainId"):
            return {}
        found = {}
        columns = ("domainId", "globalTid", "text", "textId")
        for domain, thread, text, text_id in self._database.rows(NVTX, columns, where=("eventType", _DOMAIN)):
            if isinstance(domain, int) and isinstance(thread, int):
                name = text if isinstance(text, str) else self._names.text(text_id or MISSING, "")
                found[thread >> 24 << 24, domain] = name
        return found


_BLOCKING = (
    *("poll", "epoll_wait", "select", "sem_wait", "sem_timedwait", "pthread_cond_wait", "pthread_cond_timedwait"),
    *("nanosleep", "usleep", "sleep", "futex", "pthread_join", "sigtimedwait", "accept", "recv", "waitpid"),
)


def _blocks(name: str) -> bool:
    """Whether a call of the operating system waits instead of working."""
    return name.startswith(_BLOCKING)


def _device_details(block: Block) -> dict[str, Int64s]:
    """Bytes and launch parameters, as far as the table has them."""
    details = {detail: block[name] for name, detail in _DETAILS.items() if name in block}
    if _SHARED[0] in block:
        static, dynamic = (block[name] for name in _SHARED)
        known = (static != MISSING) & (dynamic != MISSING)
        details["shared_bytes"] = np.where(known, static + dynamic, MISSING)
    return details


def _identified(correlation: Int64s) -> Int64s:
    """CUDA numbers its calls from 1; older exports write 0 where there is no number."""
    return np.where(correlation == 0, MISSING, correlation)


def _process_of(global_tid: Int64s) -> Int64s:
    """A thread's process: its global id without the last 24 bits."""
    return np.where(global_tid == MISSING, MISSING, global_tid >> 24 << 24)
