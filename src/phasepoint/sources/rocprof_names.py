"""What rocprofv3's numbers of kernels, agents, operations and markers stand for."""

from typing import Any

from phasepoint.sources.rocprof_records import Process, handle_of, listed

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
