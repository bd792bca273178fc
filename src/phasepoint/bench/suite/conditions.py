"""How the machine is while a pair is measured: who else had its cores, how fast they are, how warm."""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from phasepoint.bench.suite.result import Conditions
from phasepoint.core.units import PS_PER_NS
from phasepoint.core.workers import usable_cores
from phasepoint.devices.cpu_now import cpu_celsius, cpu_mhz
from phasepoint.recorder.clock.gpus import READINGS, own_handles
from phasepoint.recorder.clock.machine import Totals, probe_ps, read_totals

ENERGY = Path("/sys/class/powercap/intel-rapl:0/energy_uj")
"""Running total of the first CPU's energy, µJ (Documentation/power/powercap/powercap.rst); readable by root alone."""


@dataclass(frozen=True)
class ConditionsBefore:
    """The machine's counters before a measurement."""

    totals: Totals
    probe_ps: int
    began_ns: int

    @classmethod
    def take(cls) -> "ConditionsBefore":
        """As they are now."""
        return cls(read_totals(), probe_ps(), time.perf_counter_ns())

    def told(self, device: str, threads: int, versions: Mapping[str, str]) -> Conditions:
        """What has been since."""
        after, dur_ps = read_totals(), (time.perf_counter_ns() - self.began_ns) * PS_PER_NS
        cores = usable_cores()

        def added(name: str) -> int | None:
            ends = self.totals.get(name), after.get(name)
            return None if ends[0] is None or ends[1] is None else max(ends[1] - ends[0], 0)

        def ratio(name: str, most: int = 1) -> float | None:
            value = added(name)
            return None if value is None else value / (dur_ps * most)

        return Conditions(
            device=device,
            threads=threads,
            others_ratio=ratio("others", cores),
            waited_ratio=ratio("wait"),
            steal_ratio=ratio("steal", cores),
            throttled_ps=added("throttled"),
            probe_before_ps=self.probe_ps,
            probe_after_ps=probe_ps(),
            mhz=cpu_mhz(),
            celsius=cpu_celsius(),
            versions=dict(versions),
        )


def read_energy_uj(device: str) -> int | str:
    """The running total of a device's energy, or why it cannot be read.

    Args:
        device: `cpu:2` or `cuda:0`.
    """
    kind, _, number = device.partition(":")
    return _gpu_energy_uj(f"gpu:{number or 0}") if kind == "cuda" else _cpu_energy_uj()


def _gpu_energy_uj(name: str) -> int | str:
    try:
        nvml = import_module("pynvml")
    except ImportError:
        return "the GPU's energy is not known: pip install 'phasepoint[gpu]' brings nvidia-ml-py"
    try:
        nvml.nvmlInit()
        handle = own_handles(nvml, os.environ)[name]
        return int(READINGS["gpu.energy", "J"](nvml, handle) * 1e6)
    except (nvml.NVMLError, KeyError) as error:
        return f"the driver does not tell the GPU's energy ({type(error).__name__}: {error})"


def _cpu_energy_uj() -> int | str:
    try:
        return int(ENERGY.read_text())
    except FileNotFoundError:
        return "this CPU, or the hypervisor above it, tells no energy (no RAPL in /sys/class/powercap)"
    except (OSError, ValueError) as error:
        return f"{ENERGY} cannot be read: {error}"
