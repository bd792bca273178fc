"""How long the process has run: what a job has paid for starting, imports and all, when its recording begins."""

import os
import time
from pathlib import Path

from phasepoint.core.units import PS_PER_NS, PS_PER_S

NOTE = "process_age_ps"
"""Name of the session's note that holds it."""


def process_age_ps() -> int | None:
    """Since the process's start, to a clock tick (10 ms); None without /proc.

    Source: proc(5), field 22 of /proc/PID/stat: start time in clock ticks since boot, suspension counted.
    """
    try:
        stat = Path("/proc/self/stat").read_text(encoding="utf-8", errors="replace")
        start_ticks = int(stat.rpartition(")")[2].split()[19])
        since_boot_ps = time.clock_gettime_ns(time.CLOCK_BOOTTIME) * PS_PER_NS
        return max(since_boot_ps - start_ticks * PS_PER_S // os.sysconf("SC_CLK_TCK"), 0)
    except (OSError, AttributeError, ValueError, IndexError):  # no Linux, or a sandbox without that file
        return None
