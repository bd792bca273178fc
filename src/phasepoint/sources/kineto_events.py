"""Kineto's events as arrays: what each is, where it ran, when, and what launched it."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phasepoint.sources.event_tables import NO_ID, Kind, TraceEvents
from phasepoint.sources.kineto_json import Event, KinetoTrace, whole_number
from phasepoint.sources.kineto_names import (
    PROFILER_STEP,
    STEP_MARK,
    Place,
    category_of_kernel,
    category_of_op,
    is_step_mark,
    is_wait,
    place_and_level,
)
from phasepoint.sources.kineto_time import least_microseconds_ps, microseconds_to_ps

Int64s = NDArray[np.int64]

PS_PER_NS = 1_000


def gather_events(trace: KinetoTrace, *, epoch_unix_ns: int | None) -> TraceEvents:
    """Place the events of a file.

    Args:
        trace: the file.
        epoch_unix_ns: the session's epoch; None to count from the first event.
    """
    timed = [event for event in trace.events if event.ph == "X" and place_and_level(event.cat)[0] != "ignored"]
    offset_ps = _offset_ps(timed, trace.base_ns, epoch_unix_ns)
    start_ps, known = microseconds_to_ps([event.ts for event in timed], offset_ps=offset_ps)
    dur_ps, finished = microseconds_to_ps([event.dur for event in timed])
    kept = np.flatnonzero(known & finished & (dur_ps >= 0))
    kept = kept[np.lexsort((-dur_ps[kept], start_ps[kept]))]
    start_ps, dur_ps = start_ps[kept], dur_ps[kept]
    numbering = _Numbering(trace.events, [timed[i] for i in kept])
    launch = _launches(numbering)
    on_device = np.array([place == "device" for place in numbering.places], np.bool_)
    return TraceEvents(
        kind=np.array(numbering.kind, np.int64),
        track=np.array(numbering.track, np.int64),
        start_ps=start_ps,
        end_ps=start_ps + dur_ps,
        correlation=np.array(numbering.correlation, np.int64),
        launch=launch,
        parent=np.full(len(kept), NO_ID, np.int64),
        kinds=list(numbering.kinds),
        tracks=list(numbering.tracks),
        found=len(trace.events) + trace.unreadable,
        ignored=len(trace.events) - len(timed),
        dropped=len(timed) - len(kept) + trace.unreadable,
        orphan=on_device & (launch == NO_ID),
    )


def _offset_ps(timed: Sequence[Event], base_ns: int, epoch_unix_ns: int | None) -> int:
    if epoch_unix_ns is None:
        return -least_microseconds_ps([event.ts for event in timed])
    return (base_ns - epoch_unix_ns) * PS_PER_NS


class _Numbering:
    """Numbers kinds and tracks in the order in which they appear."""

    def __init__(self, everything: Sequence[Event], events: Sequence[Event]) -> None:
        self.kinds: dict[Kind, int] = {}
        self.tracks: dict[str, int] = {}
        self.places: list[Place] = [place_and_level(event.cat)[0] for event in events]
        self.kind: list[int] = []
        self.track: list[int] = []
        self.correlation: list[int] = []
        self._threads = _thread_names(everything)
        self._known: dict[tuple[Any, ...], int] = {}
        self._has_device = "device" in self.places
        for event, place in zip(events, self.places, strict=True):
            device = _device(event) if place == "device" else ""
            self.kind.append(self._kind(event, place, device))
            track = self._track(event, device)
            self.track.append(self.tracks.setdefault(track, len(self.tracks)))
            found = whole_number(event.args.correlation) if event.args else None
            self.correlation.append(found if found and 0 < found < 2**63 else NO_ID)

    def _kind(self, event: Event, place: Place, device: str) -> int:
        key = (event.cat, event.name, device)
        try:
            number = self._known.get(key)
        except TypeError:  # a name that is no text
            key = (event.cat, str(event.name), device)
            number = self._known.get(key)
        if number is None:
            kind = _describe(event, place, device, has_device=self._has_device)
            number = self._known[key] = self.kinds.setdefault(kind, len(self.kinds))
        return number

    def _track(self, event: Event, device: str) -> str:
        if device:
            stream = event.args.stream if event.args else None
            return f"{device} stream {event.tid if stream is None else stream}"
        return self._threads.get((str(event.pid), str(event.tid))) or f"process {event.pid} thread {event.tid}"


def _thread_names(events: Sequence[Event]) -> dict[tuple[str, str], str]:
    """Names of threads, made unique by process and thread: two threads of one name stay two tracks."""
    names: dict[tuple[str, str], str] = {}
    for event in events:
        if event.ph == "M" and event.name == "thread_name" and event.args and event.args.name:
            names[str(event.pid), str(event.tid)] = str(event.args.name)
    taken: dict[str, int] = {}
    for name in names.values():
        taken[name] = taken.get(name, 0) + 1
    return {key: name if taken[name] == 1 else f"{name} of process {key[0]}, {key[1]}" for key, name in names.items()}


def _device(event: Event) -> str:
    number = whole_number(event.args.device) if event.args else None
    if number is None:
        number = whole_number(event.pid)
    family = "mtia" if event.cat.startswith("mtia") else "gpu"
    return f"{family}:{number if number is not None else 0}"


def _describe(event: Event, place: Place, device: str, *, has_device: bool) -> Kind:
    name = str(event.name)
    level = place_and_level(event.cat)[1]
    if place == "device":
        return Kind(name, device, level, category_of_kernel(name), True)
    if place == "cpu" and not has_device:
        return Kind(name, "cpu:0", level, category_of_op(name), True)
    if place == "host" and is_step_mark(name):
        return Kind(name, "host", "model", "host", False)
    return Kind(name, "host", level, "host", level != "runtime" or not is_wait(name))


def _launches(numbering: _Numbering) -> Int64s:
    """The host event of the same correlation id, for every event of a device; `NO_ID` for all else."""
    by_id = {
        correlation: i
        for i, correlation in enumerate(numbering.correlation)
        if correlation != NO_ID and numbering.places[i] != "device"
    }
    found = [
        by_id.get(correlation, NO_ID) if place == "device" else NO_ID
        for correlation, place in zip(numbering.correlation, numbering.places, strict=True)
    ]
    return np.array(found, np.int64)


def step_number(name: str) -> int | None:
    """Number of the step that an annotation marks; None for any other name."""
    match = STEP_MARK.fullmatch(name) or PROFILER_STEP.fullmatch(name)
    return int(match[1]) if match and len(match[1]) < 19 else None
