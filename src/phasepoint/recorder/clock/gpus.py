"""The job's NVIDIA GPUs while it runs: power, energy, clocks, memory, how busy they are, what holds their clock down.

NVML tells it, through `nvidia-ml-py` (the extra `gpu`): it asks the driver, makes no context on the device and waits
for no work there. The flusher's thread takes a sample a second, after the first hour less often, so that a run of weeks
holds some thirty thousand; energy is the driver's running total, of which nothing is lost between samples.

A process of several on one machine (`LOCAL_RANK`) looks at its own device, another at all that it may see
(`CUDA_VISIBLE_DEVICES`). What a device does not tell is left out, and without library or driver one note says so.

Source: NVML API reference, "Device Queries": nvmlDeviceGetPowerUsage (mW), nvmlDeviceGetTotalEnergyConsumption (mJ
since the driver was loaded), nvmlDeviceGetClockInfo (MHz), nvmlDeviceGetUtilizationRates (% of the last sample period),
nvmlDeviceGetTemperature (°C), nvmlDeviceGetMemoryInfo, nvmlDeviceGetCurrentClocksEventReasons.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

from phasepoint.core.units import PS_PER_S

SAMPLE_PS = PS_PER_S
"""Time between two samples in the first hour."""

SAMPLE_RATIO = 1 / 3600
"""Later samples are this share of the recording's length apart."""

SLOWED = "gpu.slowed"
"""Names of counters that are 1 while something holds the clock down begin so; what it is follows."""

REASONS: Mapping[str, int] = {
    "power": 0x04 | 0x80,  # the software's power cap; the board's power brake
    "heat": 0x20 | 0x40,  # the software's and the hardware's thermal slow-down
    "hardware": 0x08,  # hardware slow-down, for heat or power alike
}
"""What holds a clock down → bits of the driver's mask. Source: nvml.h, nvmlClocksEventReason…, before driver 535
nvmlClocksThrottleReason…. Idling, a clock that the user set, and boosting together with others are no slow-down."""

_Read = Callable[[Any, Any], float]


def _slowed_by(mask: int) -> _Read:
    def read(nvml: Any, handle: Any) -> float:
        """1 where one of the reasons holds, else 0; by the call that this release of the library has."""
        ask = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
        ask = ask or nvml.nvmlDeviceGetCurrentClocksThrottleReasons
        return float(bool(ask(handle) & mask))

    return read


READINGS: Mapping[tuple[str, str], _Read] = {
    ("gpu.power", "W"): lambda nvml, handle: nvml.nvmlDeviceGetPowerUsage(handle) / 1e3,
    ("gpu.energy", "J"): lambda nvml, handle: nvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1e3,
    ("gpu.clock", "MHz"): lambda nvml, handle: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
    ("gpu.clock.most", "MHz"): lambda nvml, handle: nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM),
    ("gpu.memory.clock", "MHz"): lambda nvml, handle: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM),
    ("gpu.busy", "ratio"): lambda nvml, handle: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100,
    ("gpu.memory.busy", "ratio"): lambda nvml, handle: nvml.nvmlDeviceGetUtilizationRates(handle).memory / 100,
    ("gpu.memory.used", "bytes"): lambda nvml, handle: nvml.nvmlDeviceGetMemoryInfo(handle).used,
    ("gpu.temperature", "°C"): lambda nvml, handle: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
    **{(f"{SLOWED}.{why}", "yes"): _slowed_by(mask) for why, mask in REASONS.items()},
}
"""Name and unit of a counter → how it is read."""


class GpuLog:
    """Samples the GPUs, and gives rows of `counters`. All methods run on the flusher's thread.

    Args:
        devices: what the session calls its devices (`gpu:0 NVIDIA H100 80GB HBM3`), once the job uses them.
        note: takes the sentence that says why there are no counters.
        load: gives the library.

    Attributes:
        samples: taken since the rows were.
    """

    def __init__(
        self,
        devices: Callable[[], Sequence[str]],
        note: Callable[[str], object],
        *,
        load: Callable[[], Any] = lambda: import_module("pynvml"),
    ) -> None:
        self._devices, self._note, self._load = devices, note, load
        self._library: Any = None
        self._handles: Mapping[str, Any] | None = None
        self._readings: dict[str, dict[tuple[str, str], _Read]] = {}
        self._due_ps = 0
        self._rows: list[dict[str, Any]] = []
        self.samples = 0

    def tend(self, now_ps: int, *, final: bool = False) -> None:
        """Take a sample where one is due, the last one in any case, if the job uses NVIDIA GPUs.

        Args:
            now_ps: since the session's epoch.
            final: whether the recording ends.
        """
        if now_ps < self._due_ps and not final:
            return
        self._due_ps = now_ps + max(SAMPLE_PS, int(SAMPLE_RATIO * now_ps))
        if self._handles is None:
            if not any(name.startswith("gpu:") and "AMD" not in name for name in self._devices()):
                return
            self._handles = self._open()
        for device, handle in self._handles.items():
            self._sample(device, handle, now_ps)
        self.samples += bool(self._handles)

    def take_rows(self) -> list[dict[str, Any]]:
        """Rows of `counters` since the last call."""
        rows, self._rows, self.samples = self._rows, [], 0
        return rows

    def _open(self) -> Mapping[str, Any]:
        try:
            self._library = self._load()
        except ImportError:
            self._note("power and clocks of the GPU are not known: pip install 'phasepoint[gpu]' brings nvidia-ml-py")
            return {}
        try:
            self._library.nvmlInit()
            handles = own_handles(self._library, os.environ)
        except self._library.NVMLError as error:
            self._note(f"power and clocks of the GPU are not known: the driver does not tell them ({error})")
            return {}
        self._readings = {device: dict(READINGS) for device in handles}
        return handles

    def _sample(self, device: str, handle: Any, now_ps: int) -> None:
        for (name, unit), read in list(self._readings[device].items()):
            try:
                value = float(read(self._library, handle))
            except (self._library.NVMLError, AttributeError):  # this device, or this release, does not tell it
                del self._readings[device][name, unit]
                continue
            self._rows.append({"name": name, "unit": unit, "device": device, "time_ps": now_ps, "value": value})


def own_handles(nvml: Any, environ: Mapping[str, str]) -> Mapping[str, Any]:
    """NVML's handles of the GPUs that this process uses, by the name that a session gives them (`gpu:0`).

    NVML counts all GPUs of the machine by their place on the bus, and knows nothing of CUDA_VISIBLE_DEVICES.

    Args:
        nvml: the library, started.
        environ: of the process.
    """
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    names = [str(i) for i in range(nvml.nvmlDeviceGetCount())] if visible is None else visible.split(",")
    handles = {}
    for place, name in enumerate(names):
        if name.strip().isdigit():
            handles[f"gpu:{place}"] = nvml.nvmlDeviceGetHandleByIndex(int(name))
        elif name.strip().startswith("GPU-"):
            handles[f"gpu:{place}"] = nvml.nvmlDeviceGetHandleByUUID(name.strip())
        else:  # -1 ends the list; a part of a device (MIG) has no power of its own
            break
    rank = f"gpu:{environ.get('LOCAL_RANK', '')}"
    return {rank: handles[rank]} if rank in handles else handles
