"""Memory of benchmark jobs that stays with their process, whatever chance does to the C library's heap."""

import os

STEADY_HEAP = {
    "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TOP_PAD_": str(64 << 20),
}
"""The C library keeps the jobs' memory. Else it depends on chance whether large arrays are given back to the system and
touched anew in every step: a PyTorch network took 17.5 or 23.4 ms a step, for minutes, process by process."""


def keep_memory() -> None:
    """Let all processes that this one starts keep their memory."""
    os.environ.update(STEADY_HEAP)
