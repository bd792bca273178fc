"""A converter beside a long job: one process at idle priority that converts captures, merges parts, and dies with it.

Decoding costs more CPU time than capturing, and starting a process for it about two seconds of CPU (imports, compiled
kernels from the cache). So it is started only when the budget has saved up several times what it is expected to
take, which under 1 % means jobs of half an hour and more; the captures of shorter jobs wait for their first reader.
"""

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress

from phasepoint.core.units import PS_PER_MS, PS_PER_S

START_PRIOR_PS = 3 * PS_PER_S
"""CPU time taken for a converter's start before one was seen; measured 1.2–2.5 s on 2 shared cores."""

WINDOW_PRIOR_PS = 30 * PS_PER_MS
"""CPU time taken for one window's conversion before one was seen."""

SAVINGS = 3
"""A converter starts when the allowance is this many times its expected cost."""

LEAST_WINDOWS = 32
"""Fewer windows are not worth a start."""

LEAST_PARTS = 64
"""Small parts of a table that are merged: with a part every ten seconds, those of ten minutes."""

_PR_SET_PDEATHSIG = 1
"""prctl(2), from linux/prctl.h: a signal for this process when the thread that started it ends."""


class IdleConverter:
    """Starts converters, one at a time. All methods run on the flusher's thread."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._process: subprocess.Popen[bytes] | None = None
        self._windows = 0
        self._waiting = 0
        self._expected_ps = START_PRIOR_PS + LEAST_WINDOWS * WINDOW_PRIOR_PS
        self._is_broken = False

    def add_window(self) -> None:
        """One more capture waits to be converted."""
        self._waiting += 1

    def tend(self, allowance_ps: int) -> int:
        """Reap a converter that ended, or start one if the budget has saved up enough for it.

        Returns:
            CPU time of a converter that ended since the last call, in picoseconds; 0 where none did.
        """
        if self._process is not None:
            return self._reap()
        affordable = allowance_ps >= SAVINGS * self._expected_ps
        if affordable and self._waiting >= LEAST_WINDOWS and not self._is_broken:
            self._windows, self._waiting = self._waiting, 0
            self._process = self._start()
        return 0

    def stop(self) -> int:
        """End a converter that is running: what it has not done, the first reader will.

        Returns:
            CPU time that it took, in picoseconds; 0 where none ran.
        """
        if self._process is None:
            return 0
        self._process.kill()
        return self._reap(0)

    def _start(self) -> subprocess.Popen[bytes]:
        # No preexec_fn: it would fork a process full of the framework's threads.
        return subprocess.Popen(
            [sys.executable, "-m", "phasepoint.recorder.process.idle_converter", self._path, str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"PHASEPOINT_OFF": "1", "PHASEPOINT_AUTORECORD": ""},
        )

    def _reap(self, options: int = os.WNOHANG) -> int:
        assert self._process is not None
        pid, status, usage = os.wait4(self._process.pid, options)
        if pid == 0:
            return 0
        self._process.returncode = os.waitstatus_to_exitcode(status)
        self._is_broken = self._process.returncode != 0
        self._process = None
        cost_ps = int((usage.ru_utime + usage.ru_stime) * PS_PER_S)
        self._expected_ps = cost_ps * max(1, LEAST_WINDOWS) // max(1, min(self._windows, LEAST_WINDOWS))
        return cost_ps


def main(arguments: Sequence[str]) -> int:
    """Convert a run's captures, and end when the process that started this one does."""
    path, parent = arguments
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != int(parent):
        return 0  # it ended before we could ask to be told
    from phasepoint.core.errors import StoreError
    from phasepoint.sources.ingest.convert import main as convert
    from phasepoint.store.compact import compact_run

    exit_code = convert([path])
    if exit_code == 0:
        # Another compaction under way does the same work; what it leaves, the next converter merges.
        with suppress(StoreError):
            compact_run(path, min_parts=LEAST_PARTS)
    return exit_code


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
