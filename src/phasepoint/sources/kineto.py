"""Kineto JSON (PyTorch's profiler) → tables.

On a machine without an accelerator the ATen operators are the device's work (`cpu:0`), nested in each other; with one,
they are the host's, and kernels, copies and fills are the device's.
"""

import time

import pyarrow as pa

from phasepoint.sources.capture import Capture
from phasepoint.sources.event_tables import capture_of_events
from phasepoint.sources.kineto_events import gather_events
from phasepoint.sources.kineto_json import parse_kineto
from phasepoint.sources.kineto_steps import find_bounds

PS_PER_NS = 1_000


def read_kineto(
    data: bytes,
    *,
    window: int,
    epoch_unix_ns: int | None = None,
    steps: pa.Table | None = None,
    keep_spans: bool = True,
) -> Capture:
    """Convert one capture of PyTorch's profiler.

    Args:
        data: Kineto's JSON, not compressed.
        window: number of the window.
        epoch_unix_ns: the session's epoch in Unix ns, from which all times count; None to count from the first event.
        steps: rows of `steps` (step, start_ps, dur_ps) from the step clock, for captures that hold no marks.
        keep_spans: whether to build `spans`, by far the largest table.

    Returns:
        Tables as declared; `programs` and `instructions` are empty, PyTorch has none.

    Raises:
        SourceError: the bytes are no trace in Chrome's JSON format.
    """
    started_ns = time.thread_time_ns()
    trace = parse_kineto(data)
    events = gather_events(trace, epoch_unix_ns=epoch_unix_ns)
    bounds = find_bounds(events, steps)
    cost_ps = (time.thread_time_ns() - started_ns) * PS_PER_NS
    return capture_of_events(
        events, bounds, window=window, keep_spans=keep_spans, problem=trace.problem, cost_ps=cost_ps
    )
