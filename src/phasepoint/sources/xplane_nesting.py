"""Which event encloses which, and the busy time that a step's breakdown is made of."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phasepoint.core.arrays import Int64s
from phasepoint.core.nesting import Nesting, nest_spans
from phasepoint.core.tables import CATEGORIES
from phasepoint.sources.scratch import Scratch
from phasepoint.sources.xplane_described import Described
from phasepoint.sources.xplane_gather import Kind
from phasepoint.sources.xplane_lines import is_wait

_BUSY = CATEGORIES[:3]
"""Categories in which a device works."""

Segments = tuple[NDArray[np.int32], Int64s, Int64s]
"""Labels, starts and ends of stretches of time."""


def nest_events(described: Described, scratch: Scratch) -> tuple[NDArray[np.int32], Nesting, Segments]:
    """Each event's track, how the events nest, and labelled busy time: on the tracks, and asynchronously after.

    Args:
        described: the events.
        scratch: memory for what is put together here, the stretches among it.
    """
    events, n = described.events, len(described.events.kind)
    label = _segment_labels(events.kinds, described.category)
    track = np.empty(n, np.int32)
    for i, (begin, end) in enumerate(pairwise(events.first.tolist())):
        track[begin:end] = i
    end_ps = np.add(events.start_ps, events.dur_ps, out=scratch.take(n, np.int64))
    runs_nothing = np.array([kind.level not in ("op", "kernel") for kind in events.kinds], np.bool_)
    row, tail_ps = described.tails.T
    size = 2 * n + len(row)
    room = scratch.take(size, np.int32), scratch.take(size, np.int64), scratch.take(size, np.int64)
    nesting = nest_spans(
        track,
        events.start_ps,
        end_ps,
        subordinate=_of_kind(runs_nothing, events.kind, scratch),
        label=_of_kind(label, events.kind, scratch),
        room=room,
    )
    begin, order = len(nesting.segment_span), np.argsort(described.tail_start_ps, kind="stable")
    start_ps = described.tail_start_ps[order]
    tails = label[events.kind[row[order]]], start_ps, start_ps + tail_ps[order]
    stop = begin + len(row)
    for array, values in zip(room, tails, strict=True):
        array[begin:stop] = values
    return track, nesting, (room[0][:stop], room[1][:stop], room[2][:stop])


def _of_kind(values: NDArray[Any], kind: NDArray[np.int32], scratch: Scratch) -> NDArray[Any]:
    into = scratch.take(len(kind), values.dtype)
    return values.take(kind, out=into, mode="clip") if len(kind) else into


def working_devices(kinds: Sequence[Kind]) -> list[str]:
    """The devices on which ops or kernels ran, sorted: a label's number is three times a device's place, and more."""
    return sorted({k.device for k in kinds if k.level in ("op", "kernel")} - {"host"})


def _segment_labels(kinds: Sequence[Kind], category: Sequence[str]) -> NDArray[np.int16]:
    """`[n_kinds]` which set of busy time a kind's own time falls into, -1 for none.

    Three for each device (compute, communication, data movement; its ops and kernels), then the host's work; marks and
    waits are no work.
    """
    devices = working_devices(kinds)
    labels = np.full(len(kinds), -1, np.int16)
    for i, (kind, one) in enumerate(zip(kinds, category, strict=True)):
        if kind.level in ("op", "kernel") and kind.device != "host" and one in _BUSY:
            labels[i] = 3 * devices.index(kind.device) + _BUSY.index(one)
        elif (kind.device == "host" and kind.level != "model" and not is_wait(kind.name)) or kind.tf_op:
            labels[i] = 3 * len(devices)
    return labels
