"""When the host launched each program execution of a CPU device.

A launch returns before its execution begins. Executions of several devices name their run in the launch itself. Those
of one device do not: there the pool task in which an execution's first op ran leads back to the launch that handed it
over; and an execution that had to wait for the one before it (then that one's last task starts it) is the next of its
program in the order of launches, counted from its neighbours that are known.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from phasepoint.core.arrays import Int64s
from phasepoint.core.dense import Numbering, number_keys
from phasepoint.sources.xplane.events import HAS_RUN
from phasepoint.sources.xplane.gather import Events
from phasepoint.sources.xplane.lines import is_launch, is_wait

UNKNOWN_PS = np.iinfo(np.int64).min
"""Launch time of work whose launch is not in the capture."""

_MOST_IN_FLIGHT = 256
"""Executions launched before the capture that may still wait when it begins; JAX keeps fewer in flight on a CPU."""


_CALL = "PjitFunction("
_DEEPEST_CALL = 8
"""A launch is looked for in this many calls that began before it; JAX nests two."""


@dataclass(frozen=True)
class _Launches:
    """Host events that launch, by track and start. `[n_launches]` each; `labels` numbers their functions' names."""

    track: Int64s
    start_ps: Int64s
    end_ps: Int64s
    label: Int64s
    labels: Mapping[str, int]


def find_cpu_launches(events: Events, runs: Numbering, device_code: Int64s, program_name: Mapping[int, str]) -> Int64s:
    """`[n_runs]` when each execution was launched, UNKNOWN_PS where the launch is not in the capture.

    Args:
        events: all events.
        runs: the executions: CPU ops that know their run, numbered by device and run.
        device_code: `[n_kinds]` number of each kind's device.
        program_name: name of each program's module.
    """
    launch_ps = _launch_of_named_runs(events, events.link[runs.first])
    unnamed = np.flatnonzero(launch_ps == UNKNOWN_PS)
    if len(unnamed):
        launches = _find_launches(events)
        earliest = runs.earliest[unnamed]
        device = device_code[events.kind[earliest]]
        anchors = _launch_of_tasks(events, earliest, launches)
        for own, candidates in _by_label(events, earliest, device, launches, program_name):
            launch_ps[unnamed[own]] = _match_in_order(
                events.start_ps[earliest[own]], anchors[own], candidates, launches.start_ps[candidates]
            )
    return launch_ps


def _launch_of_named_runs(events: Events, run: Int64s) -> Int64s:
    """Start of the first host event that works (not: waits) under each run id."""
    has_run = (events.flags & HAS_RUN) != 0
    works = [k.device == "host" and not is_wait(k.name) for k in events.kinds]
    named = events.rows_of(np.array(works, np.bool_) & has_run)
    return earliest_match(run, events.link[named], events.start_ps[named])


def earliest_match(keys: Int64s, known: Int64s, values: Int64s) -> Int64s:
    """Value of each key, the least where a key is known several times, UNKNOWN_PS where it is not."""
    if not len(known):
        return np.full(len(keys), UNKNOWN_PS, np.int64)
    order = np.lexsort((values, known))
    place = np.searchsorted(known[order], keys)
    place[place == len(order)] = 0
    return np.where(known[order][place] == keys, values[order][place], UNKNOWN_PS)


def _find_launches(events: Events) -> _Launches:
    rows = events.rows_of(k.device == "host" and is_launch(k.name) for k in events.kinds)
    track = events.track_of(rows)
    order = np.lexsort((events.start_ps[rows], track))
    rows, track = rows[order], track[order]
    labels = {"": 0}
    names = [_label(k.name[len(_CALL) : -1]) if k.name.startswith(_CALL) else "" for k in events.kinds]
    of_kind = np.array([labels.setdefault(name, len(labels)) for name in names], np.int64)
    call = calls_around(events, rows)
    label = np.where(call >= 0, of_kind[events.kind[call]], 0)
    return _Launches(track, events.start_ps[rows], events.start_ps[rows] + events.dur_ps[rows], label, labels)


def _innermost(events: Events, around: Int64s, time_ps: Int64s) -> Int64s:
    """For each instant the last started of some events that still runs, -1 if none does; calls nest a few deep."""
    around = around[np.argsort(events.start_ps[around], kind="stable")]
    end_ps = events.start_ps[around] + events.dur_ps[around]
    found = np.full(len(time_ps), -1, np.int64)
    place = np.searchsorted(events.start_ps[around], time_ps, side="right") - 1
    for _ in range(_DEEPEST_CALL):
        inside = np.flatnonzero((found < 0) & (place >= 0))
        inside = inside[end_ps[place[inside]] > time_ps[inside]]
        found[inside] = around[place[inside]]
        place -= 1
    return found


def calls_around(events: Events, rows: Int64s) -> Int64s:
    """`[n]` the innermost call of a compiled function around the start of each event, on its track; -1 in none."""
    calls = events.rows_of(k.name.startswith(_CALL) for k in events.kinds)
    calls_track, track = events.track_of(calls), events.track_of(rows)
    found = np.full(len(rows), -1, np.int64)
    for one in np.unique(track):
        own = np.flatnonzero(track == one)
        found[own] = _innermost(events, calls[calls_track == one], events.start_ps[rows[own]])
    return found


def launches_at(events: Events, launch_ps: Int64s) -> Int64s:
    """`[n]` the host's event that launched an execution at each instant, -1 where it is not known."""
    rows = events.rows_of(
        kind.device == "host" and not is_wait(kind.name) and (is_launch(kind.name) or bool(flags & HAS_RUN))
        for kind, flags in zip(events.kinds, events.flags.tolist(), strict=True)
    )
    found = earliest_match(launch_ps, events.start_ps[rows], rows)
    return np.where(found == UNKNOWN_PS, -1, found)


def _label(name: str) -> str:
    """What a function and the module compiled from it have in common: `<lambda>` and `jit__lambda_` are `lambda`."""
    return re.sub(r"\W+", "_", re.sub(r"^p?jit_", "", name)).strip("_")


def _launch_of_tasks(events: Events, rows: Int64s, launches: _Launches) -> Int64s:
    """`[n]` index of the launch that ran or handed over the task of each event, -1 where the trace does not say.

    One hand-over is followed and no more: behind a second one stands the execution that was waited for.
    """
    task = np.full(len(rows), -1, np.int64)
    entered = events.entries[np.argsort(events.entries[:, 0], kind="stable")]
    if len(entered):
        place = np.minimum(np.searchsorted(entered[:, 0], rows), len(entered) - 1)
        task = np.where(entered[place, 0] == rows, entered[place, 1], -1)
    track, time_ps = events.track_of(rows), events.start_ps[rows]
    lost = np.zeros(len(rows), np.bool_)
    if len(events.records):
        record = events.records[np.argsort(events.records[:, 0], kind="stable")]
        place = np.minimum(np.searchsorted(record[:, 0], task), len(record) - 1)
        known = (task >= 0) & (record[place, 0] == task)
        lost = (task >= 0) & ~known
        track = np.where(known, record[place, 1], track)
        time_ps = np.where(known, record[place, 2], time_ps)
    return np.where(lost, -1, _launch_at(launches, track, time_ps))


def _launch_at(launches: _Launches, track: Int64s, time_ps: Int64s) -> Int64s:
    found = np.full(len(track), -1, np.int64)
    for one in np.unique(launches.track):
        low, high = np.searchsorted(launches.track, [one, one + 1])
        own = np.flatnonzero(track == one)
        place = low + np.searchsorted(launches.start_ps[low:high], time_ps[own], side="right") - 1
        inside = (place >= low) & (launches.end_ps[place] >= time_ps[own])
        found[own[inside]] = place[inside]
    return found


def _by_label(
    events: Events, earliest: Int64s, device_code: Int64s, launches: _Launches, program_name: Mapping[int, str]
) -> Iterator[tuple[Int64s, Int64s]]:
    """Executions and launches of the same function, each in order of time, a device at a time.

    Executions of programs without a name, or with one that no launch has, go with the launches that have none.
    """
    names = [program_name.get(k.program, "") if k.program is not None else "" for k in events.kinds]
    of_kind = np.array([launches.labels.get(_label(name), 0) for name in names], np.int64)
    label = of_kind[events.kind[earliest]]
    order = np.argsort(events.start_ps[earliest], kind="stable")
    launch_order = np.argsort(launches.start_ps, kind="stable")
    keys, first = number_keys(label, device_code)
    for key, sample in enumerate(first):
        candidates = launch_order[launches.label[launch_order] == label[sample]]
        yield order[keys[order] == key], candidates


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
