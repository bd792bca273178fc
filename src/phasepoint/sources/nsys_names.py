"""What an export of Nsight Systems calls its processes, threads, devices, streams and functions."""

from collections.abc import Callable

import numpy as np

from phasepoint.core.arrays import Int64s
from phasepoint.sources.dense import number_keys
from phasepoint.sources.event_rows import MISSING
from phasepoint.sources.nsys_database import NsysDatabase

_THREAD_BITS = 24
_PID_MASK = (1 << _THREAD_BITS) - 1
_UNIX_NS = 10**17
"""Times beyond are Unix times: of an export with normalised time."""


class NsysNames:
    """Names of an export.

    Attributes:
        strings: texts of `StringIds`.
        devices: `gpu:0 NVIDIA H100`, … of the GPUs that the export describes.
    """

    def __init__(self, database: NsysDatabase) -> None:
        self.strings = database.texts("StringIds", "id", "value")
        self._threads = self._thread_names(database)
        self._gpus = _gpus_by_process(database)
        names = database.texts("TARGET_INFO_GPU", "id", "name")
        self.devices = tuple(f"gpu:{number} {name}" for number, name in sorted(names.items()))

    def text(self, number: int, otherwise: str) -> str:
        """A text of `StringIds`; `otherwise` where the export does not have it."""
        return self.strings.get(number) or otherwise

    def thread(self, global_tid: int) -> str:
        """Name of a thread's track."""
        if global_tid == MISSING:
            return "unknown thread"
        known = self._threads.get(global_tid)
        pid, tid = (global_tid >> _THREAD_BITS) & _PID_MASK, global_tid & _PID_MASK
        return known or f"process {pid} thread {tid}"

    def device(self, process: int, ordinal: int) -> str:
        """A device's name: by the number of the GPU where processes number their GPUs differently."""
        if ordinal == MISSING:
            return "gpu:unknown"
        pid = (process >> _THREAD_BITS) & _PID_MASK if process != MISSING else 0
        return f"gpu:{self._gpus.get((pid, ordinal), ordinal)}"

    def _thread_names(self, database: NsysDatabase) -> dict[int, str]:
        """Names made unique: threads of one name stay tracks of their own."""
        names: dict[int, str] = {}
        if database.has("ThreadNames", "nameId", "globalTid"):
            for block in database.blocks("ThreadNames", ("globalTid", "nameId")):
                for thread, name in zip(block["globalTid"].tolist(), block["nameId"].tolist(), strict=True):
                    if name in self.strings and thread != MISSING:
                        names.setdefault(thread, self.strings[name])
        taken: dict[str, int] = {}
        for name in names.values():
            taken[name] = taken.get(name, 0) + 1
        return {
            thread: name
            if taken[name] == 1
            else f"{name} of process {(thread >> _THREAD_BITS) & _PID_MASK}, {thread & _PID_MASK}"
            for thread, name in names.items()
        }


def name_rows(name: Callable[..., int], *keys: Int64s) -> Int64s:
    """`[n_rows]` numbers of rows from their keys; `name` is asked once for each distinct key.

    Args:
        name: gives the number of a key.
        keys: one to four columns, `[n_rows]` each.
    """
    numbers, first = number_keys(*keys)
    named = np.array([name(*row) for row in zip(*(key[first].tolist() for key in keys), strict=True)], np.int64)
    return named[numbers] if len(named) else np.empty(0, np.int64)


def start_unix_ns(database: NsysDatabase, first_ns: int) -> tuple[int, int] | None:
    """An instant on the file's clock and the same in Unix ns; None where the export does not say.

    Args:
        database: the export.
        first_ns: time of some event.
    """
    if first_ns > _UNIX_NS:
        return 0, 0
    unix_ns = database.value("TARGET_INFO_SESSION_START_TIME", "utcEpochNs")
    if unix_ns is None or unix_ns < _UNIX_NS:
        return None
    started_ns = database.value("ANALYSIS_DETAILS", "startTime")
    if started_ns is None:
        started_ns = database.value("TARGET_INFO_SESSION_START_TIME", "systemClockNs")
    return started_ns or 0, unix_ns


def _gpus_by_process(database: NsysDatabase) -> dict[tuple[int, int], int]:
    """GPU of each process's device number; empty where all processes number alike."""
    found: dict[tuple[int, int], int] = {}
    if database.has("TARGET_INFO_CUDA_DEVICE", "gpuId", "cudaId", "pid"):
        for block in database.blocks("TARGET_INFO_CUDA_DEVICE", ("pid", "cudaId", "gpuId")):
            rows = zip(*(block[name].tolist() for name in ("pid", "cudaId", "gpuId")), strict=True)
            found |= {(pid, ordinal): gpu for pid, ordinal, gpu in rows if MISSING not in (pid, ordinal, gpu)}
    of_ordinal: dict[int, set[int]] = {}
    for (_, ordinal), gpu in found.items():
        of_ordinal.setdefault(ordinal, set()).add(gpu)
    return found if any(len(gpus) > 1 for gpus in of_ordinal.values()) else {}
