"""rocprofv3's JSON as typed records.

Source of the names: ROCm/rocprofiler-sdk, `source/lib/output/generateJSON.cpp` and `source/include/rocprofiler-sdk/
buffer_tracing.h` (0.4 to 1.1); an output of ROCm 7 (November 2026).
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from phasepoint.core.errors import SourceError
from phasepoint.sources.damaged_json import read_json


class Handle(msgspec.Struct, gc=False):
    """What names an agent, a queue, a stream or a counter."""

    handle: int | None = None


class Ids(msgspec.Struct, gc=False):
    """`internal` is shared by a call and the work that it launches."""

    internal: int | None = None


class Size(msgspec.Struct, gc=False):
    """Work-items in three directions."""

    x: int | None = None
    y: int | None = None
    z: int | None = None


class Dispatch(msgspec.Struct, gc=False):
    """What was launched, where, and how large."""

    agent_id: Handle | None = None
    queue_id: Handle | None = None
    kernel_id: int | str | None = None
    dispatch_id: int | None = None
    group_segment_size: int | None = None
    workgroup_size: Size | None = None
    grid_size: Size | None = None


class Record(msgspec.Struct, gc=False):
    """One record of any section; fields that a section does not have are null."""

    kind: int | None = None
    operation: int | None = None
    thread_id: int | None = None
    correlation_id: Ids | None = None
    start_timestamp: int | None = None
    end_timestamp: int | None = None
    dispatch_info: Dispatch | None = None
    stream_id: Handle | None = None
    agent_id: Handle | None = None
    src_agent_id: Handle | None = None
    dst_agent_id: Handle | None = None
    bytes: int | None = None
    address: int | str | None = None
    allocation_size: int | None = None
    graph_exec_id: int | None = None
    graph_node_id: int | None = None


class Counted(msgspec.Struct, gc=False):
    """One value of a hardware counter."""

    counter_id: Handle | None = None
    value: float | None = None


class Collected(msgspec.Struct, gc=False):
    """Counters of one dispatch."""

    dispatch_data: Record | None = None
    records: list[Counted] = msgspec.field(default_factory=list)


class Process(msgspec.Struct, gc=False):
    """One process of the file; its records are decoded a section at a time."""

    metadata: Any = None
    agents: Any = None
    strings: Any = None
    counters: Any = None
    kernel_symbols: Any = None
    buffer_records: dict[str, msgspec.Raw] = msgspec.field(default_factory=dict)
    callback_records: dict[str, msgspec.Raw] = msgspec.field(default_factory=dict)


class _File(msgspec.Struct, gc=False):
    tool: list[Process] | Process = msgspec.field(name="rocprofiler-sdk-tool")


def read_processes(data: bytes) -> tuple[list[Process], str | None]:
    """The processes of a file, and what was wrong with it.

    Raises:
        SourceError: it is no output of rocprofv3.
    """
    try:
        file: _File
        file, problem = read_json(data, _File)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SourceError(
            f"no output of rocprofv3: {error}; expected a JSON object with 'rocprofiler-sdk-tool', as "
            "`rocprofv3 --output-format json` writes it"
        ) from error
    return (file.tool if isinstance(file.tool, list) else [file.tool]), problem


def read_section(raw: msgspec.Raw, shape: Any) -> tuple[list[Any], int]:
    """Records of one section, and how many of them are not as expected.

    Args:
        raw: the section.
        shape: the records' type.
    """
    try:
        return msgspec.json.decode(raw, type=list[shape] | None) or [], 0
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    loose: Any
    try:  # a record of another shape, or a number beyond every type: record by record
        loose = json.loads(bytes(raw).decode("utf-8", "replace"), strict=False)
    except (ValueError, RecursionError):
        return [], 1
    if not isinstance(loose, list):
        return [], 0
    found = [_converted(one, shape) for one in loose]
    kept = [one for one in found if one is not None]
    return kept, len(found) - len(kept)


def listed(values: Any) -> Iterator[Mapping[str, Any]]:
    """The objects of a list, or of an object's values; nothing of anything else."""
    found = values.values() if isinstance(values, dict) else values if isinstance(values, list) else ()
    return (one for one in found if isinstance(one, dict))


def handle_of(value: Any) -> int | None:
    """The number of `{"handle": number}`."""
    found = value.get("handle") if isinstance(value, dict) else None
    return found if isinstance(found, int) else None


def _converted(value: Any, shape: Any) -> Any:
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError:
        return None
