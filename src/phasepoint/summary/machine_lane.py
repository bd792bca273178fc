"""How the machine treated the job, over time: the part of its threads' time spent waiting for cores, a core's speed.

On the time of the strip, in at most `MOST_POINTS` stretches.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from phasepoint.core.arrays import Floats, Int64s
from phasepoint.phases.clock.machine import machine_looks
from phasepoint.phases.clock.steps import RunClock
from phasepoint.store import Shard

MOST_POINTS = 600
"""Stretches drawn: about one per two pixels of a page."""


@dataclass(frozen=True)
class MachineLane:
    """A host's machine by stretches of time `[n]`, from `start_ps` to `end_ps`: the means of `MachineLooks`' columns of
    the same names, as ratios; None is not known.
    """

    start_ps: tuple[int, ...]
    end_ps: tuple[int, ...]
    waiting: tuple[float | None, ...]
    crowded: tuple[float | None, ...]
    held: tuple[float | None, ...]
    speed: tuple[float | None, ...]


def build_machine_lane(
    clock: RunClock, machine: pa.Table, shards: Sequence[Shard], host: int, end_ps: int
) -> MachineLane | None:
    """The lane of one host; None where nobody looked at its machine.

    Args:
        clock: the run's steps.
        machine: `Run.table("machine")`.
        shards: of the run.
        host: the host.
        end_ps: length of the time axis, from 0.
    """
    looks = [(session.offset_ps, one) for session, one in machine_looks(clock, machine, shards) if session.host == host]
    if not looks or end_ps <= 0:
        return None
    start_ps = np.concatenate([offset_ps + one.start_ps for offset_ps, one in looks])
    dur_ps = np.concatenate([one.dur_ps for _, one in looks])
    cell = np.arange(len(start_ps)) if len(start_ps) <= MOST_POINTS else (start_ps / end_ps * MOST_POINTS).astype(int)
    begins = np.flatnonzero(np.diff(cell, prepend=-1))
    ends = np.maximum.reduceat(start_ps + dur_ps, begins)
    values = {name: np.concatenate([getattr(one, name) for _, one in looks]) for name in _COLUMNS}
    means = {name: _means(column, dur_ps, begins) for name, column in values.items()}
    return MachineLane(tuple(start_ps[begins].tolist()), tuple(ends.tolist()), **means)


_COLUMNS = ("waiting", "crowded", "held", "speed")


def _means(values: Floats, dur_ps: Int64s, begins: Int64s) -> tuple[float | None, ...]:
    """Mean over each stretch, weighted by time; what is not known takes no part."""
    weight = np.where(np.isnan(values), 0.0, np.maximum(dur_ps, 1))
    total = np.add.reduceat(np.nan_to_num(values) * weight, begins)
    known = np.add.reduceat(weight, begins)
    return tuple(round(t / w, 4) if w else None for t, w in zip(total.tolist(), known.tolist(), strict=True))
