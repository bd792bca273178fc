"""What the system tells of this CPU: its name, its clock, how warm it is. The standard library alone.

Its own file: it also goes into a packed benchmark, which runs where nothing is installed.
"""

import contextlib
import platform
from pathlib import Path

_CLOCK = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq")  # kHz
_HEAT = Path("/sys/class/thermal")  # m°C


def cpu_model() -> str:
    """The model's name from `/proc/cpuinfo`, or what Python knows where it is not there."""
    lines: list[str] = []
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    fields = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    return fields.get("model name") or platform.processor() or platform.machine() or "CPU"


def cpu_mhz() -> float | None:
    """The first core's clock, by its driver or as the kernel last saw it."""
    with contextlib.suppress(OSError, ValueError):
        return int(_CLOCK.read_text()) / 1000
    with contextlib.suppress(OSError, ValueError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next((float(line.partition(":")[2]) for line in lines if line.startswith("cpu MHz")), None)
    return None


def cpu_celsius() -> float | None:
    """The warmest sensor; None where there is none."""
    found = []
    for zone in _HEAT.glob("thermal_zone*/temp"):
        with contextlib.suppress(OSError, ValueError):
            found.append(int(zone.read_text()) / 1000)
    return max(found, default=None)
