"""rocprofv3's JSON as typed records.

Source of the names: ROCm/rocprofiler-sdk, `source/lib/output/generateJSON.cpp` and `source/include/rocprofiler-sdk/
buffer_tracing.h` (0.4 to 1.1); an output of ROCm 7 (November 2026).

What rocprofv3's numbers of kernels, agents, operations and markers stand for.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from phasepoint.core.errors import SourceError
from phasepoint.sources.events.damaged_json import read_json


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


class CountedDispatch(msgspec.Struct, gc=False):
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
    """A value as a record; None where it does not fit."""
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError:
        return None


_GPU = 2
"""Source: ROCm/rocprofiler-sdk, `rocprofiler_agent_type_t`."""

_KERNEL_NAMES = ("formatted_kernel_name", "demangled_kernel_name", "kernel_name", "truncated_kernel_name")


class RocprofNames:
    """Names of one process.

    Attributes:
        pid: the process.
        agents: `gpu:0`, … of each GPU agent's handle.
        devices: `gpu:0 AMD Instinct MI350X`, ….
        registers: vector registers of a thread by kernel.
        counters: names of hardware counters by handle.
        markers: texts of markers by correlation id.
    """

    def __init__(self, process: Process) -> None:
        metadata = process.metadata if isinstance(process.metadata, dict) else {}
        strings = process.strings if isinstance(process.strings, dict) else {}
        self.pid = metadata["pid"] if isinstance(metadata.get("pid"), int) else 0
        self.agents, self.devices = _gpus(process.agents)
        self._kernels: dict[int | str, str] = {}
        self.registers: dict[int | str, int] = {}
        for symbol in listed(process.kernel_symbols):
            self._add_kernel(symbol.get("kernel_id"), symbol)
        if isinstance(process.kernel_symbols, dict):
            for number, symbol in process.kernel_symbols.items():
                self._add_kernel(number, symbol)
        self.counters = {handle_of(one.get("id")): str(one.get("name")) for one in listed(process.counters)}
        marked = ((one.get("key"), one.get("value")) for one in listed(strings.get("marker_api")))
        self.markers = {key: str(text) for key, text in marked if isinstance(key, int)}
        self._operations = _operations(strings.get("buffer_records"))

    def kernel(self, number: int | str | None) -> str:
        """A kernel's name."""
        return "kernel without a name" if number is None else self._kernels.get(number, f"kernel {number}")

    def device(self, handle: int | None) -> str:
        """An agent's device; `host` for a processor."""
        return self.agents.get(handle, "gpu:unknown")

    def operation(self, kind: int | None, operation: int | None) -> tuple[str, str]:
        """Names of a kind of record and of its operation: `("HIP_RUNTIME_API", "hipLaunchKernel")`."""
        name, operations = self._operations.get(kind, (f"kind {kind}", ()))
        known = operation is not None and 0 <= operation < len(operations)
        return name, operations[operation] if known and operation is not None else f"{name} {operation}"

    def _add_kernel(self, number: Any, symbol: Any) -> None:
        if not isinstance(number, int | str) or not isinstance(symbol, dict):
            return
        texts = [symbol.get(key) for key in _KERNEL_NAMES]
        self._kernels[number] = next((text for text in texts if isinstance(text, str) and text), f"kernel {number}")
        registers = symbol.get("arch_vgpr_count")
        if isinstance(registers, int) and registers > 0:
            self.registers[number] = registers


def _gpus(agents: Any) -> tuple[dict[int | None, str], tuple[str, ...]]:
    """Devices by the agents' handles; GPUs are numbered in the order of their nodes."""
    known = [one for one in listed(agents) if handle_of(one.get("id")) is not None]
    gpus = [one for one in known if one.get("type") == _GPU]
    nodes = [one.get("node_id") for one in gpus]
    if all(isinstance(node, int) for node in nodes):
        gpus.sort(key=lambda one: one["node_id"])
    devices: dict[int | None, str] = {handle_of(one["id"]): "host" for one in known}
    devices |= {handle_of(one["id"]): f"gpu:{number}" for number, one in enumerate(gpus)}
    names = [one.get("product_name") or one.get("name") or "" for one in gpus]
    return devices, tuple(f"gpu:{number} {name}".rstrip() for number, name in enumerate(names))


def _operations(kinds: Any) -> dict[int | None, tuple[str, tuple[str, ...]]]:
    found: dict[int | None, tuple[str, tuple[str, ...]]] = {}
    for number, one in enumerate(listed(kinds)):
        operations = one.get("operations")
        texts = tuple(str(name) for name in operations) if isinstance(operations, list) else ()
        found[number] = (str(one.get("kind", f"kind {number}")), texts)
    return found
