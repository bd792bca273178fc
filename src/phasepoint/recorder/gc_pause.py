"""No garbage collection while the recorder is imported and assembled: what that makes lives as long as the job.

Its ten thousand objects would set off some twenty collections, and one of them may be a full one, which holds a job
with a million objects for 0.1–0.5 s. Instead young collections look at them once, 2–3 ms each time, and the job's next
full one comes when it would have come.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


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
