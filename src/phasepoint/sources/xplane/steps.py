"""Which step an event belongs to: the step whose code launched it, where the trace says who launched what.

Work runs later than the code that asks for it. An execution's launch is found by its correlation id (GPU), by its run
id (TPU), or as `xplane_launches` says (CPU).
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from phasepoint.core.arrays import Int64s
from phasepoint.core.dense import number_chosen, spread_numbers
from phasepoint.core.units import PS_PER_NS
from phasepoint.sources.events.step_bounds import StepBounds, order_bounds
from phasepoint.sources.xplane.decode import Scratch
from phasepoint.sources.xplane.events import HAS_CORRELATION, HAS_RUN, IS_ROOT
from phasepoint.sources.xplane.gather import Events
from phasepoint.sources.xplane.launches import UNKNOWN_PS, calls_around, find_cpu_launches, launches_at
from phasepoint.sources.xplane.lines import MODULES_LINE, STEP_MARK, STEPS_LINE


@dataclass(frozen=True)
class Attribution:
    """What belongs to which step.

    Attributes:
        step: `[n_events]` index into the bounds, -1 for work of no captured step.
        orphan_events: device events whose launch is not in the capture.
        launch: `[n_events]` host event that launched it, -1 where none is known; None where no accelerator worked.
        calls: `[n, 2]` call of a compiled function on the host, and an event of what it launched.
    """

    step: NDArray[np.int32]
    orphan_events: int
    launch: Int64s | None
    calls: Int64s


_STARTS = re.compile(r"\$profiler\.py:\d+ start_trace")
"""The frame in which JAX starts its profiler, as the Python tracer writes it."""


def skip_profiler_start(events: Events) -> int:
    """Count times from when the profiler had started, in place, and return by how many ns they were moved.

    Starting takes seconds where the device's tracer is loaded (1.6 and 9.7 s on two MI300, which then ran steps for 13
    and 34 ms); the job would not have spent them. What began before counts from there.
    """
    rows = events.rows_of(kind.device == "host" and _STARTS.match(kind.name) is not None for kind in events.kinds)
    if not len(rows):
        return 0
    started_ps = int((events.start_ps[rows] + events.dur_ps[rows]).min()) // PS_PER_NS * PS_PER_NS
    end_ps = np.maximum(events.start_ps + events.dur_ps - started_ps, 0)
    events.start_ps[:] = np.maximum(events.start_ps - started_ps, 0)
    events.dur_ps[:] = end_ps - events.start_ps
    events.records[:, 2] = np.maximum(events.records[:, 2] - started_ps, 0)
    return started_ps // PS_PER_NS


def find_bounds(events: Events, steps: pa.Table | None, offset_ps: int) -> StepBounds:
    """The steps of a capture: the recorder's marks of the given steps, else these, else what the trace shows by itself.

    Args:
        events: the events.
        steps: rows of `steps` from the step clock, used where the trace holds no marks.
        offset_ps: the profile's start from the session's epoch, ps.
    """
    kind = events.kind[events.marks[:, 0]]
    marks = events.marks[np.array([k.name == STEP_MARK for k in events.kinds], np.bool_)[kind]]
    if len(marks):
        return _bounds_of_marks(events, marks).among(steps)
    if steps is not None and steps.num_rows:
        start = steps.column("start_ps").to_numpy() - offset_ps
        return order_bounds(steps.column("step").to_numpy(), start, start + steps.column("dur_ps").to_numpy())
    return _foreign_bounds(events)


def attribute_events(
    events: Events, bounds: StepBounds, program_name: Mapping[int, str], scratch: Scratch
) -> Attribution:
    """Give every event its step: by its launch where the capture knows it, else by when it started.

    Args:
        events: the events.
        bounds: the steps.
        program_name: name of each program's module.
        scratch: memory for what is put together here.
    """
    step = bounds.index_at(events.start_ps)
    if not len(step):
        return Attribution(step, 0, None, np.empty((0, 2), np.int64))
    on_device = np.array([kind.device != "host" for kind in events.kinds], np.bool_)
    orphans, launch, calls = 0, None, []
    for rows, found in (
        _launched_by_correlation(events, on_device),
        _launched_by_run(events, on_device, _device_codes(events)),
    ):
        if not len(rows):
            continue
        launch = np.full(len(step), -1, np.int64) if launch is None else launch
        launch[rows] = found
        launch_ps = np.where(found < 0, UNKNOWN_PS, events.start_ps[found])
        orphans += _place_by_launch(step, rows, launch_ps, bounds)
        calls.append(_calls(events, rows, found))
    room = scratch.take(len(step), np.int32)
    lost, of_cpu = _place_cpu_runs(events, step, bounds, program_name, room)
    return Attribution(step, orphans + lost, launch, np.concatenate([*calls, of_cpu]))


def _calls(events: Events, rows: Int64s, launch: Int64s) -> Int64s:
    """`[n, 2]` the call around each launch, and the event that was launched; without those outside of calls."""
    rows, launch = rows[launch >= 0], launch[launch >= 0]
    found = calls_around(events, launch)
    return np.stack((found, rows), axis=1)[found >= 0]


def _place_by_launch(step: NDArray[np.int32], rows: Int64s, launch_ps: Int64s, bounds: StepBounds) -> int:
    """Give executions the step of their launch; how many have none. Where no launch is known at all, the step in which
    each began stays."""
    known = launch_ps != UNKNOWN_PS
    if known.any() and not bounds.of_device:
        step[rows[known]] = bounds.index_at(launch_ps[known])
        step[rows[~known]] = -1
    return int((~known).sum())


def _place_cpu_runs(
    events: Events,
    step: NDArray[np.int32],
    bounds: StepBounds,
    program_name: Mapping[int, str],
    room: NDArray[np.int32],
) -> tuple[int, Int64s]:
    """Give the ops of each execution on the CPU the step of its launch; how many ops have none, and `_calls`."""
    device_code = _device_codes(events)
    is_op = np.array([k.level == "op" and k.device.startswith("cpu:") for k in events.kinds], np.bool_)
    code = np.where(is_op & ((events.flags & HAS_RUN) != 0), device_code, -1).astype(np.int32)
    runs = number_chosen(events.kind, code, events.link, events.start_ps, room)
    if not len(runs.first):
        return 0, np.empty((0, 2), np.int64)
    launch_ps = find_cpu_launches(events, runs, device_code, program_name)
    known = launch_ps != UNKNOWN_PS
    calls = _calls(events, runs.first, launches_at(events, launch_ps))
    if not known.any():
        return 0, calls
    if not bounds.of_device:
        step_of_run = np.where(known, bounds.index_at(launch_ps), np.int32(-1))
        spread_numbers(events.kind, code, runs.number, step_of_run, step)
    return 0 if known.all() else int(np.count_nonzero(~known[runs.number])), calls


def _device_codes(events: Events) -> Int64s:
    devices = sorted({kind.device for kind in events.kinds})
    return np.array([devices.index(kind.device) for kind in events.kinds], np.int64)


def _bounds_of_marks(events: Events, marks: Int64s) -> StepBounds:
    rows = marks[:, 0]
    return order_bounds(marks[:, 1], events.start_ps[rows], events.start_ps[rows] + events.dur_ps[rows])


def _foreign_bounds(events: Events) -> StepBounds:
    """Steps of a trace that the recorder did not mark; see `capture.find_steps` for the order of preference."""
    kind = events.kind[events.marks[:, 0]]
    roots = np.flatnonzero(events.flags[kind] & IS_ROOT)
    names = Counter(events.kinds[i].name for i in kind[roots])
    if names:
        name = names.most_common(1)[0][0]
        return _bounds_of_marks(events, events.marks[[i for i in roots if events.kinds[kind[i]].name == name]])
    for line in (STEPS_LINE, MODULES_LINE):
        bounds = _bounds_of_line(events, line)
        if len(bounds.step) > 1:
            return replace(bounds, of_device=True)
    return _bounds_of_numbered(events) or _bounds_of_launches(events)


def _bounds_of_numbered(events: Events) -> StepBounds | None:
    """Bounds from events with a step number that are no roots, of the name that has most numbers; None below two."""
    names = [events.kinds[kind].name.partition("#")[0] for kind in events.kind[events.marks[:, 0]].tolist()]
    numbers: dict[str, set[int]] = {}
    for one, number in zip(names, events.marks[:, 1].tolist(), strict=True):
        numbers.setdefault(one, set()).add(number)
    name = max(sorted(numbers), key=lambda one: len(numbers[one]), default="")
    if len(numbers.get(name, ())) < 2:
        return None
    return _bounds_of_marks(events, events.marks[[one == name for one in names]])


def _bounds_of_line(events: Events, line: str) -> StepBounds:
    """Bounds from the `Steps` or `XLA Modules` line of the first device that has one."""
    tracks = [i for i, name in enumerate(events.tracks) if name.endswith(f" {line}")]
    present = [i for i in tracks if events.first[i + 1] > events.first[i]]
    if not present:
        return _numbered(np.empty(0, np.int64), np.empty(0, np.int64))
    rows = np.arange(events.first[present[0]], events.first[present[0] + 1])
    names = [events.kinds[kind].name for kind in events.kind[rows]]
    if line == STEPS_LINE:
        rows = rows[[name.isdecimal() and len(name) < 19 for name in names]]
        number = np.array([int(events.kinds[kind].name) for kind in events.kind[rows]], np.int64)
        return order_bounds(number, events.start_ps[rows], events.start_ps[rows] + events.dur_ps[rows])
    total: Counter[str] = Counter()
    for name, dur_ps in zip(names, events.dur_ps[rows].tolist(), strict=True):
        total[name] += dur_ps
    dominant = max(sorted(total), key=lambda name: total[name])
    rows = rows[[name == dominant for name in names]]
    return _numbered(events.start_ps[rows], events.start_ps[rows] + events.dur_ps[rows])


def _bounds_of_launches(events: Events) -> StepBounds:
    """Bounds from the repeated launches of the program that took most device time: `PjitFunction(step)`.

    A step lasts from its launch to the next one; the last to the end of the devices' work.
    """
    launches = _launch_rows(events)
    if not len(launches):
        return _numbered(np.empty(0, np.int64), np.empty(0, np.int64))
    start = np.sort(events.start_ps[launches])
    last = np.append(events.rows_of(kind.device != "host" for kind in events.kinds), launches)
    end = np.append(start[1:], (events.start_ps + events.dur_ps)[last].max())
    return _numbered(start, end)


def _launch_rows(events: Events) -> Int64s:
    """Outermost `PjitFunction` events of the function that took most time between its launches' starts."""
    host_of = {i: kind.name for i, kind in enumerate(events.kinds) if kind.name.startswith("PjitFunction(")}
    best, best_ps = np.empty(0, np.int64), 0
    for name in sorted(set(host_of.values())):
        ids = {i for i, found in host_of.items() if found == name}
        rows = events.rows_of(i in ids for i in range(len(events.kinds)))
        rows = rows[np.argsort(events.start_ps[rows], kind="stable")]
        reach = np.maximum.accumulate(events.start_ps[rows] + events.dur_ps[rows])
        rows = rows[np.append(True, events.start_ps[rows][1:] >= reach[:-1])]
        total_ps = _work_ps(events, name)
        if len(rows) > 1 and total_ps > best_ps:
            best, best_ps = rows, total_ps
    return best


def _work_ps(events: Events, launcher: str) -> int:
    """Time of the executions that a function launches, else of its launches themselves."""
    function = launcher.removeprefix("PjitFunction(").removesuffix(")")
    modules = [i for i, k in enumerate(events.kinds) if k.level == "model" and k.name.startswith(f"jit_{function}")]
    own = [i for i, kind in enumerate(events.kinds) if kind.name == launcher]
    rows = np.isin(events.kind, modules or own)
    return int(events.dur_ps[rows].sum()) + 1


def _numbered(start_ps: Int64s, end_ps: Int64s) -> StepBounds:
    return order_bounds(np.arange(len(start_ps), dtype=np.int64), start_ps, end_ps)


def _launched_by_correlation(events: Events, on_device: NDArray[np.bool_]) -> tuple[Int64s, Int64s]:
    """Device events and the first host event that has their correlation id, -1 where none has."""
    has = (events.flags & HAS_CORRELATION) != 0
    rows, launches = events.rows_of(has & on_device), events.rows_of(has & ~on_device)
    return rows, _earliest_row(events, events.link[rows], launches)


def _earliest_row(events: Events, keys: Int64s, candidates: Int64s) -> Int64s:
    """`[n_keys]` the earliest of some events that has each id, -1 where none has."""
    if not len(candidates):
        return np.full(len(keys), -1, np.int64)
    ordered = candidates[np.lexsort((events.start_ps[candidates], events.link[candidates]))]
    place = np.searchsorted(events.link[ordered], keys)
    place[place == len(ordered)] = 0
    return np.where(events.link[ordered][place] == keys, ordered[place], -1)


def _launched_by_run(events: Events, on_device: NDArray[np.bool_], device_code: Int64s) -> tuple[Int64s, Int64s]:
    """Device events inside a program execution whose run id a host event carries too (TPU)."""
    has = (events.flags & HAS_RUN) != 0
    is_module = np.array([k.level == "model" and k.device != "host" for k in events.kinds], np.bool_)
    modules, launches = events.rows_of(has & is_module), events.rows_of(has & ~on_device)
    if not len(modules) or not len(launches):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    launch_of = dict(zip(modules.tolist(), _earliest_row(events, events.link[modules], launches).tolist(), strict=True))
    rows, found = [], []
    for code in np.unique(device_code[events.kind[modules]]):
        own = modules[device_code[events.kind[modules]] == code]
        own = own[np.argsort(events.start_ps[own], kind="stable")]
        inside = events.rows_of(on_device & (device_code == code))
        place = np.searchsorted(events.start_ps[own], events.start_ps[inside], side="right") - 1
        fits = (place >= 0) & (events.start_ps[inside] < (events.start_ps + events.dur_ps)[own[place]])
        rows.append(inside[fits])
        found.append(np.array([launch_of[i] for i in own.tolist()], np.int64)[place[fits]])
    return np.concatenate(rows), np.concatenate(found)
