"""What importing the recorder cost the job: it belongs to the account, and happens before there is one.

No garbage collection while the recorder is imported and assembled: what that makes lives as long as the job.

Its ten thousand objects would set off some twenty collections, and one of them may be a full one, which holds a job
with a million objects for 0.1–0.5 s. Instead young collections look at them once, 2–3 ms each time, and the job's next
full one comes when it would have come.

Its own file: it is imported before all else of the recorder, and imports nothing of it.
"""

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType


@contextmanager
def collector_paused() -> Iterator[None]:
    """Python's collector rests inside, unless the job has switched it off anyway."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.collect(0)
        gc.enable()


spent_ns = 0
"""CPU nanoseconds spent in `timed_import`, and before any recording by `inject/sitecustomize.py`, in this process."""


def timed_import(name: str) -> ModuleType:
    """Import a module and add the CPU time that took to `spent_ns`."""
    global spent_ns  # noqa: PLW0603 - one process, one sum
    began_ns = time.thread_time_ns()
    with collector_paused():
        module = import_module(name)
    spent_ns += time.thread_time_ns() - began_ns
    return module
