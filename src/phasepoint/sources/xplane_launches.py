"""When the host launched each program execution of a CPU device.

A launch returns before its execution begins. Executions of several devices name their run in the launch itself. Those of
one device do not: there the pool task in which an execution's first op ran leads back to the launch that handed it over;
and an execution that had to wait for the one before it (then that one's last task starts it) is the next of its program
in the order of launches, counted from its neighbours that are known.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from phasepoint.sources.dense import first_by, number_keys
from phasepoint.sources.wire import Int64s
from phasepoint.sources.xplane_events import HAS_RUN, RECORD, REGION
from phasepoint.sources.xplane_gather import Events
from phasepoint.sources.xplane_lines import is_launch, is_wait

UNKNOWN_PS = np.iinfo(np.int64).min
"""Launch time of work whose launch is not in the capture."""

_MOST_IN_FLIGHT = 256
"""Executions launched before the capture that may still wait when it begins; JAX keeps fewer in flight on a CPU."""


_LAID_DOWN = -2
"""Task of an edge at which a thread is done with its task; -1 is a task without a number."""


@dataclass(frozen=True)
class _Launches:
    """Host events that launch, by track and start. `[n_launches]` each."""

    track: Int64s
    start_ps: Int64s
    end_ps: Int64s
    label: list[str]


def find_cpu_launches(events: Events, rows: Int64s, device_code: Int64s, program_name: Mapping[int, str]) -> Int64s:
    """`[n_rows]` when each op's execution was launched, UNKNOWN_PS where the launch is not in the capture.

    Args:
        events: all events.
        rows: CPU ops that know their run.
        device_code: `[n_rows]` number of each op's device.
        program_name: name of each program's module.
    """
    runs, first = number_keys(events.run[rows])
    named = _launch_of_named_runs(events, events.run[rows[first]])
    if (named != UNKNOWN_PS).all():
        return named[runs]
    launches = _find_launches(events)
    runs_of_device, first = number_keys(events.run[rows], device_code)
    earliest = rows[first_by(runs_of_device, len(first), events.start_ps[rows])]
    anchors = _launch_of_tasks(events, earliest, launches)
    launch_ps = np.full(len(first), UNKNOWN_PS, np.int64)
    for own, candidates in _by_label(events, earliest, device_code[first], launches, program_name):
        launch_ps[own] = _match_in_order(
            events.start_ps[earliest[own]], anchors[own], candidates, launches.start_ps[candidates]
        )
    known_by_name = named[runs]
    return np.where(known_by_name != UNKNOWN_PS, known_by_name, launch_ps[runs_of_device])


def _launch_of_named_runs(events: Events, run: Int64s) -> Int64s:
    """Start of the first host event that works (not: waits) under each run id."""
    works = np.array([k.device == "host" and not is_wait(k.name) for k in events.kinds], np.bool_)
    named = np.flatnonzero(works[events.kind] & ((events.flags & HAS_RUN) != 0))
    return earliest_match(run, events.run[named], events.start_ps[named])


def earliest_match(keys: Int64s, known: Int64s, values: Int64s) -> Int64s:
    """Value of each key, the least where a key is known several times, UNKNOWN_PS where it is not."""
    if not len(known):
        return np.full(len(keys), UNKNOWN_PS, np.int64)
    order = np.lexsort((values, known))
    place = np.searchsorted(known[order], keys)
    place[place == len(order)] = 0
    return np.where(known[order][place] == keys, values[order][place], UNKNOWN_PS)


def _find_launches(events: Events) -> _Launches:
    launching = np.array([k.device == "host" and is_launch(k.name) for k in events.kinds], np.bool_)
    calling = np.array([k.name.startswith("PjitFunction(") for k in events.kinds], np.bool_)
    rows = np.flatnonzero(launching[events.kind]) if len(launching) else np.empty(0, np.int64)
    rows = rows[np.lexsort((events.start_ps[rows], events.track[rows]))]
    calls = np.flatnonzero(calling[events.kind]) if len(calling) else np.empty(0, np.int64)
    labels = [""] * len(rows)
    for track in np.unique(events.track[rows]):
        own = np.flatnonzero(events.track[rows] == track)
        around = calls[events.track[calls] == track]
        for i, call in zip(own, _innermost(events, around, events.start_ps[rows[own]]), strict=True):
            labels[i] = _label(events.kinds[events.kind[call]].name[len("PjitFunction(") : -1]) if call >= 0 else ""
    return _Launches(
        events.track[rows].astype(np.int64), events.start_ps[rows], events.start_ps[rows] + events.dur_ps[rows], labels
    )


def _innermost(events: Events, around: Int64s, time_ps: Int64s) -> list[int]:
    """For each instant the last started of some events that still runs, -1 if none does."""
    around = around[np.argsort(events.start_ps[around], kind="stable")]
    end_ps = events.start_ps[around] + events.dur_ps[around]
    found = []
    for place, at in zip(np.searchsorted(events.start_ps[around], time_ps, side="right") - 1, time_ps, strict=True):
        inside = [int(around[i]) for i in range(place, max(place - 8, -1), -1) if end_ps[i] > at]
        found.append(inside[0] if inside else -1)
    return found


def _label(name: str) -> str:
    """What a function and the module compiled from it have in common: `<lambda>` and `jit__lambda_` are `lambda`."""
    return re.sub(r"\W+", "_", re.sub(r"^p?jit_", "", name)).strip("_")


def _launch_of_tasks(events: Events, rows: Int64s, launches: _Launches) -> Int64s:
    """`[n]` index of the launch that ran or handed over the task of each event, -1 where the trace does not say.

    One hand-over is followed and no more: behind a second one stands the execution that was waited for.
    """
    kind, track, time_ps, task = events.flow.T
    records = np.flatnonzero(kind == RECORD)
    records = records[np.argsort(task[records], kind="stable")]
    edges = np.flatnonzero(kind != RECORD)
    edges = edges[np.lexsort((time_ps[edges], track[edges]))]
    edge_ps, edge_task = time_ps[edges], np.where(kind[edges] == REGION, task[edges], _LAID_DOWN)
    record_task = task[records]
    first_edge = np.searchsorted(track[edges], np.arange(len(events.tracks) + 1))
    found = np.full(len(rows), -1, np.int64)
    for i, row in enumerate(rows):
        on, at = int(events.track[row]), int(events.start_ps[row])
        low, high = first_edge[on], first_edge[on + 1]
        place = low + np.searchsorted(edge_ps[low:high], at, side="right") - 1
        if place >= low and edge_task[place] != _LAID_DOWN:
            record = np.searchsorted(record_task, edge_task[place])
            if record == len(records) or record_task[record] != edge_task[place]:
                continue
            on, at = int(track[records[record]]), int(time_ps[records[record]])
        found[i] = _launch_at(launches, on, at)
    return found


def _launch_at(launches: _Launches, track: int, time_ps: int) -> int:
    low, high = np.searchsorted(launches.track, [track, track + 1])
    place = int(low + np.searchsorted(launches.start_ps[low:high], time_ps, side="right") - 1)
    return place if place >= low and launches.end_ps[place] >= time_ps else -1


def _by_label(
    events: Events, earliest: Int64s, device_code: Int64s, launches: _Launches, program_name: Mapping[int, str]
) -> Iterator[tuple[Int64s, Int64s]]:
    """Executions and launches of the same function, each in order of time, a device at a time.

    Executions of programs without a name, or with one that no launch has, go with the launches that have none.
    """
    known = set(launches.label)
    labels = [_label(program_name.get(_program(events, row), "")) for row in earliest.tolist()]
    labels = [label if label in known else "" for label in labels]
    launch_order = np.argsort(launches.start_ps, kind="stable")
    keys = sorted(set(zip(labels, device_code.tolist(), strict=True)))
    for label, device in keys:
        own = _where([a == label and b == device for a, b in zip(labels, device_code.tolist(), strict=True)])
        own = own[np.argsort(events.start_ps[earliest[own]], kind="stable")]
        candidates = launch_order[[launches.label[i] == label for i in launch_order]] if len(launch_order) else own[:0]
        yield own, candidates


def _program(events: Events, row: int) -> int:
    program = events.kinds[events.kind[row]].program
    return -1 if program is None else program


def _where(mask: Sequence[bool]) -> Int64s:
    return np.flatnonzero(np.array(mask, np.bool_))


def _match_in_order(start_ps: Int64s, anchors: Int64s, candidates: Int64s, launch_ps: Int64s) -> Int64s:
    """Pair executions with launches, both in order of time, so that pairs known beforehand hold.

    Args:
        start_ps: `[n]` when the executions began.
        anchors: `[n]` index of the launch where it is known, else -1.
        candidates: `[n_launches]` indices of the launches of the same program.
        launch_ps: `[n_launches]` when they were.

    Returns:
        `[n]` launch times; UNKNOWN_PS for executions launched before the capture.
    """
    place_of = {int(index): place for place, index in enumerate(candidates)}
    known = [place_of.get(int(anchor), -1) for anchor in anchors]
    result = np.full(len(start_ps), UNKNOWN_PS, np.int64)
    anchored = [i for i, place in enumerate(known) if place >= 0]
    shift = anchored[0] - known[anchored[0]] if anchored else _least_shift(start_ps, launch_ps)
    following = -shift  # the launch of execution 0; below 0 while executions were launched before the capture
    for i in range(len(start_ps)):
        place = known[i] if known[i] >= 0 else following
        if 0 <= place < len(launch_ps) and launch_ps[place] <= start_ps[i]:
            result[i] = launch_ps[place]
            following = place + 1
        else:
            following += place < 0
    return result


def _least_shift(start_ps: Int64s, launch_ps: Int64s) -> int:
    """How many executions at least were launched before the capture: none begins before its launch."""
    for shift in range(min(len(start_ps), _MOST_IN_FLIGHT)):
        paired = min(len(start_ps) - shift, len(launch_ps))
        if (start_ps[shift : shift + paired] >= launch_ps[:paired]).all():
            return shift
    return len(start_ps)
