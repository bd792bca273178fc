"""What importing the recorder cost the job: it belongs to the account, and happens before there is one."""

import time
from importlib import import_module
from types import ModuleType

from phasepoint.recorder.gc_pause import collector_paused

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
