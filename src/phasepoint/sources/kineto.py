"""Kineto JSON (PyTorch's profiler) → tables.

On a machine without an accelerator the ATen operators are the device's work (`cpu:0`), nested in each other; with one,
they are the host's, and kernels, copies and fills are the device's.
"""

import time

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from phasepoint.core.intervals import EMPTY, IntervalSet, partition, union
from phasepoint.core.nesting import Nesting, nest_spans
from phasepoint.core.tables import CATEGORIES, TABLES, table_from_columns
from phasepoint.sources.capture import Capture
from phasepoint.sources.dense import number_keys, sum_by
from phasepoint.sources.kineto_events import NO_ID, KinetoEvents, gather_events
from phasepoint.sources.kineto_json import parse_kineto
from phasepoint.sources.kineto_steps import find_bounds
from phasepoint.sources.step_bounds import StepBounds

Int64s = NDArray[np.int64]

PS_PER_NS = 1_000
_LEVEL_AND_CATEGORY = {"level": "level", "category": "category"}


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
    nesting = nest_spans(events.track, events.start_ps, events.end_ps)
    step = _step_of_events(events, bounds)
    spans = _spans(events, nesting, bounds, step, window) if keep_spans else TABLES["spans"].empty()
    ops = _ops(events, nesting, bounds, step, window)
    breakdowns = _breakdowns(events, nesting, bounds, window)
    return Capture(
        spans=spans,
        ops=ops,
        breakdowns=breakdowns,
        programs=TABLES["programs"].empty(),
        instructions=TABLES["instructions"].empty(),
        conversion=table_from_columns(
            "conversions",
            {
                "window": [window],
                "events": [events.found],
                "spans": [len(events.kind)],
                "ignored_events": [events.ignored],
                "dropped_events": [events.dropped],
                "misnested_events": [nesting.misnested],
                "orphan_events": [int(events.orphan.sum())],
                "convert_cost_ps": [(time.thread_time_ns() - started_ns) * PS_PER_NS],
                "problem": [trace.problem],
            },
        ),
        steps=_steps_table(bounds),
    )


def _step_of_events(events: KinetoEvents, bounds: StepBounds) -> Int64s:
    """Index of each event's step: the one in which it began; for work of a device that in which it was launched.

    Work whose launch is not in the capture was launched before it, so in no captured step.
    """
    cause_ps = np.where(events.launch == NO_ID, events.start_ps, events.start_ps[events.launch])
    return np.where(events.orphan, -1, bounds.index_at(cause_ps))


def _spans(events: KinetoEvents, nesting: Nesting, bounds: StepBounds, step: Int64s, window: int) -> pa.Table:
    n_spans = len(events.kind)
    return table_from_columns(
        "spans",
        {
            "window": np.full(n_spans, window, np.int64),
            "span": np.arange(n_spans, dtype=np.int64),
            "parent": _nullable(nesting.parent, nesting.parent < 0),
            **_kind_columns(events, events.kind, {"name": "name", "device": "device", **_LEVEL_AND_CATEGORY}),
            "start_ps": events.start_ps,
            "dur_ps": events.end_ps - events.start_ps,
            "self_ps": nesting.self_ps,
            "track": _dictionary(events.track, events.tracks),
            "step": _step_numbers(bounds, step),
            "correlation": _nullable(events.correlation, events.correlation == NO_ID),
        },
    )


def _ops(events: KinetoEvents, nesting: Nesting, bounds: StepBounds, step: Int64s, window: int) -> pa.Table:
    """Sums per step and op; marks of steps have no row."""
    rows = np.flatnonzero([events.kinds[kind].level != "model" for kind in events.kind])
    numbers, first = number_keys(step[rows], events.kind[rows])
    sample = rows[first]
    return table_from_columns(
        "ops",
        {
            "window": np.full(len(first), window, np.int64),
            "step": _step_numbers(bounds, step[sample]),
            **_kind_columns(events, events.kind[sample], {"device": "device", "op": "name", **_LEVEL_AND_CATEGORY}),
            "count": np.bincount(numbers, minlength=len(first)).astype(np.int64),
            "total_ps": sum_by(numbers, len(first), (events.end_ps - events.start_ps)[rows]),
            "self_ps": sum_by(numbers, len(first), nesting.self_ps[rows]),
        },
    )


def _breakdowns(events: KinetoEvents, nesting: Nesting, bounds: StepBounds, window: int) -> pa.Table:
    """Every instant of a step to one category: what the device does first, else what the host does, else idle."""
    devices = sorted({kind.device for kind in events.kinds} - {"host"}) or ["cpu:0"]
    host = _busy(events, nesting, "host", None)
    rows: dict[str, list[object]] = {name: [] for name in ("window", "step", "device", "category", "wall_ps")}
    for device in devices:
        layers = [_busy(events, nesting, device, category) for category in CATEGORIES[:3]]
        own_host = _busy(events, nesting, device, "host")
        wall_ps = partition([*layers, own_host, host], bounds.start_ps, bounds.end_ps)
        wall_ps = np.column_stack((wall_ps[:, :3], wall_ps[:, 3] + wall_ps[:, 4], wall_ps[:, 5]))
        for i, number in enumerate(bounds.step):
            rows["window"] += [window] * len(CATEGORIES)
            rows["step"] += [int(number)] * len(CATEGORIES)
            rows["device"] += [device] * len(CATEGORIES)
            rows["category"] += CATEGORIES
            rows["wall_ps"] += wall_ps[i].tolist()
    return table_from_columns("breakdowns", rows)


def _busy(events: KinetoEvents, nesting: Nesting, device: str, category: str | None) -> IntervalSet:
    """When the device spends time of its own in a category (None: any): nested work counts where it is nested."""
    wanted = np.array(
        [kind.device == device and kind.works and category in (None, kind.category) for kind in events.kinds], np.bool_
    )
    if not wanted.any():
        return EMPTY
    chosen = wanted[events.kind[nesting.segment_span]]
    return union(nesting.segment_start_ps[chosen], nesting.segment_end_ps[chosen])


def _kind_columns(events: KinetoEvents, kind: Int64s, names: dict[str, str]) -> dict[str, pa.Array]:
    """Columns by name from attributes of the events' kinds."""
    return {column: _dictionary(kind, [getattr(one, name) for one in events.kinds]) for column, name in names.items()}


def _dictionary(indices: Int64s, values: list[str]) -> pa.Array:
    """Texts by index as a dictionary array whose values are distinct."""
    distinct = {value: i for i, value in enumerate(dict.fromkeys(values))}
    renumbered = np.array([distinct[value] for value in values], np.int32)
    codes = renumbered[indices] if len(values) else np.empty(0, np.int32)
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), pa.array(list(distinct), pa.string()))


def _step_numbers(bounds: StepBounds, step: Int64s) -> pa.Array:
    numbers = bounds.step[step] if len(bounds.step) else step
    return _nullable(numbers, step < 0)


def _nullable(values: Int64s, missing: NDArray[np.bool_]) -> pa.Array:
    return pa.array(values, pa.int64(), mask=missing)


def _steps_table(bounds: StepBounds) -> pa.Table:
    return table_from_columns(
        "steps", {"step": bounds.step, "start_ps": bounds.start_ps, "dur_ps": bounds.end_ps - bounds.start_ps}
    )
