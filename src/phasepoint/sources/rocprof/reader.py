"""rocprofv3's JSON (`rocprofv3 --output-format json`) → tables.

Kernel dispatches and copies are the devices' work; HIP, HSA and RCCL calls and ROCTX ranges are the host's. The file
does not say when it was recorded: its clock counts from the machine's start, so machines are not aligned.
"""

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from phasepoint.core.units import PS_PER_NS
from phasepoint.sources.events.capture import Capture, CaptureRequest
from phasepoint.sources.events.layers import layer_paths
from phasepoint.sources.events.names import bounds_of_kinds, collectives_of_kernels, mark_steps
from phasepoint.sources.events.rows import (
    LIMIT_NS,
    MISSING,
    PlacedEvents,
    events_of_rows,
    integer_column,
    launches_of,
    spread,
)
from phasepoint.sources.events.tables import NO_ID, Account, Kind, TraceEvents, capture_of_events, text_column
from phasepoint.sources.rocprof.records import RocprofNames, read_processes
from phasepoint.sources.rocprof.sections import UNREADABLE, RocprofSections


def read_rocprof(data: bytes, request: CaptureRequest) -> Capture:
    """Convert one output.

    Args:
        data: the JSON.
        request: what else is known of the window; the file cannot be held against the epoch, which is said.

    Returns:
        Tables as declared; `programs` and `instructions` are empty.

    Raises:
        SourceError: it is no output of rocprofv3.
    """
    started_ns = time.thread_time_ns()
    processes, problem = read_processes(data)
    sections = RocprofSections()
    devices: tuple[str, ...] = ()
    for scope, process in enumerate(processes):
        names = RocprofNames(process)
        sections.read_process(process, names, scope)
        devices = devices or names.devices
    placed = sections.events.finish(None, request.epoch_unix_ns)
    kinds, marks = mark_steps(sections.events.kinds)
    capture = capture_of_events(
        _trace_events(sections, placed, kinds),
        bounds_of_kinds(placed, marks, request.steps),
        request,
        problem="; ".join(text for text in (problem, *placed.notes) if text) or None,
        cost_ps=(time.thread_time_ns() - started_ns) * PS_PER_NS,
    )
    return replace(capture, devices=devices)


def _trace_events(sections: RocprofSections, placed: PlacedEvents, kinds: list[Kind]) -> TraceEvents:
    allocations, of_allocations = _allocations(sections, placed)
    apart = [*sections.apart, *of_allocations]
    damaged = sum(account.events for account in apart if account.reason == UNREADABLE)
    columns = {"bytes": integer_column(spread(sections.events, placed, "bytes"))}
    layer = layer_paths(placed, kinds)
    return events_of_rows(
        sections.events,
        placed,
        kinds,
        apart,
        damaged=damaged,
        columns=columns if layer is None else columns | {"layer": layer},
        tables={
            "launches": launches_of(sections.events, placed),
            "collectives": collectives_of_kernels(kinds, placed.kind),
            "allocations": allocations,
            "metrics": _metrics(sections, placed),
        },
    )


def _allocations(sections: RocprofSections, placed: PlacedEvents) -> tuple[Mapping[str, Any], list[Account]]:
    """Columns of `allocations`, and what became of the records."""
    near = [row for row in sections.allocations if abs(row[0] - placed.origin_ns) < LIMIT_NS]
    lost = len(sections.allocations) - len(near)
    time_ns, device, size, address = zip(*near, strict=True) if near else ((),) * 4
    addresses = np.array(address, np.int64)
    rows = {
        "time_ps": (np.array(time_ns, np.int64) - placed.origin_ns) * PS_PER_NS,
        "device": list(device),
        "bytes": np.array(size, np.int64),
        "address": pa.array(addresses, pa.int64(), mask=addresses == MISSING),
    }
    accounts = [Account("merged", "memory_allocation", "a row of allocations", len(near))] if near else []
    far = [Account("skipped", "memory_allocation", "too far from the events to be placed", lost)] if lost else []
    return rows, accounts + far


def _metrics(sections: RocprofSections, placed: PlacedEvents) -> Mapping[str, Any]:
    """Hardware counters of dispatches; of one that is not among the kernels the dispatch's number stands for it."""
    rows = [sections.dispatches.get((scope, dispatch), NO_ID) for scope, dispatch, _, _ in sections.counters]
    spans = np.array([placed.place[row] if row != NO_ID else NO_ID for row in rows], np.int64)
    names = [name for _, _, name, _ in sections.counters]
    texts = dict.fromkeys(names)
    number = {text: i for i, text in enumerate(texts)}
    of = [None if span >= 0 else f"dispatch {one[1]}" for span, one in zip(spans, sections.counters, strict=True)]
    return {
        "span": pa.array(spans, pa.int64(), mask=spans < 0),
        "name": text_column(np.array([number[name] for name in names], np.int64), list(texts)),
        "unit": text_column(np.zeros(len(names), np.int64), [""]),
        "value": np.array([value for *_, value in sections.counters], np.float64),
        "of": pa.array(of, pa.string()),
    }
