"""Which rank the others wait for, as each rank's own looks at itself show it: no window is needed.

Two or more looks a second say how long a rank's job stood in calls that wait for the others (`machine.sync_ps`), ran,
and waited for a core (`run_ps`, `wait_ps`). Put on one time, stretch by stretch, the late rank is the one that waits
least for the others; or, where its work goes on inside such a call (a compiled program), the one that runs and queues
most, as those that wait do neither. It may be late from some time on only, or until then: levels of the difference
before and after the likeliest change are compared, too.
"""

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from phasepoint.core.arrays import Bools, Floats, Int64s
from phasepoint.core.statistics import MAD_TO_SIGMA
from phasepoint.core.units import PS_PER_S
from phasepoint.findings.view import FindingsView
from phasepoint.phases.clock.steps import SessionClock, read_numbers

STRETCH_PS = PS_PER_S
"""Ranks are compared second by second: each has two looks in it, as a rule."""

MOST_STRETCHES = 1000
"""Stretches of a long run, each the longer: a choice; a change of a thousandth of the run is seen."""

LEAST_STRETCHES = 8
"""Stretches of a level that say something; with fewer its scatter is not known."""

LEAST_SIDE = 4
"""Stretches before the lateness began, or after it ended, from which on that counts as a change."""

LEAST_LATE = 0.05
"""Of a step. As between hosts' own parts: what is less is within what hosts differ by anyway."""

LEAST_BUSY = 0.1
"""The same for running and queueing: of ranks with equal work on two cores that others used, one queued for up to 6 %
of the time more than another over 30 s (2026-11-25)."""

LEAST_CROWDED = 0.35
"""Of the time: threads that wait for a core so much longer than those of other ranks do for the same work have a
neighbour there. Ranks that shared theirs: 0.5 to 1.1; clean ranks below 0.05, ranks that are late otherwise up to 0.3
(50 jobs on two cores, 2026-11-25)."""

LEAST_RAN = 0.02
"""Of the time: a rank that ran less says nothing of how its work waits for a core."""

STANDARD_ERRORS = 4
"""By which a rank must stand out: one in 30,000 by chance, where some hundred changes and ranks are looked at."""

GONE = 0.5
"""A change counts where the lateness on its other side is less than this part of it."""

MOST_OF_IT = 0.5
"""A part that explains half of the lateness is what makes the rank late: a choice."""

NEARLY_ALL = 0.8
"""Running and queueing must explain so much of it: ranks that slept for half a step and ran no more than others queued
more, too, for 0.7 of what they were late by (2 cores that others used, 2026-11-25)."""

MORE = 1.5
"""Running and queueing, which scatter more, tell of a rank that calls that wait tell of, too, where they say so much
more: its core is shared, and what it does inside such calls takes longer."""

_CLIP = 3.0
"""Differences are clipped at so many robust standard deviations from their median: a checkpoint of one rank."""


@dataclass(frozen=True, eq=False)
class RankTimes:
    """What the ranks did over time, as ratios of it, `[n_ranks, n_stretches]` each; stretches that all ranks have.

    Attributes:
        host: `[n_ranks]`.
        edge_ps: `[n_stretches, 2]`, since the first session's epoch.
        outside: not in calls that wait.
        ran: its threads on a core.
        queued: its threads waiting for one.
        input: waiting for the next batch; 0 where that is not known.
    """

    host: Int64s
    edge_ps: Int64s
    outside: Floats
    ran: Floats
    queued: Floats
    input: Floats


@dataclass(frozen=True, eq=False)
class LateRank:
    """A rank that the others wait for.

    Attributes:
        host: the rank.
        share: of the steps' time that the others wait for it, more than for the next latest.
        error: standard error of it.
        first_ps: from when, since the first session's epoch; None from the run's start on.
        last_ps: until when; None up to its end.
        part: input, compute, core or host: what it does meanwhile.
        waits: ratio of the time that the others stand in calls that wait, in the middle, and it.
    """

    host: int
    share: float
    error: float
    first_ps: int | None
    last_ps: int | None
    part: str
    waits: tuple[float, float]


def read_rank_times(view: FindingsView) -> RankTimes | None:
    """None where not every rank has looked at itself, or for too short a time together."""
    clock, machine = view.clock, view.table("machine")
    epochs = {(shard.host, shard.attempt): shard.session.epoch_unix_ns for shard in view.analysis.run.shards}
    first_ns = min(epochs.values(), default=0)
    ranks: dict[int, list[_Totals]] = {}
    for session, rows in zip(clock.sessions, clock.split(machine), strict=True):
        known = "sync_ps" in rows.column_names and rows.column("sync_ps").null_count < rows.num_rows
        if known and session.end_row > session.first_row:
            later_ps = (epochs[session.host, session.attempt] - first_ns) * 1000
            ranks.setdefault(session.host, []).append(_Totals.read(view, session, rows, later_ps))
    if len(ranks) < 2 or len(ranks) < len({session.host for session in clock.sessions}):
        return None
    edges = _edges([rank for own in ranks.values() for rank in own])
    length = np.diff(edges)
    tables = np.array([np.sum([one.between(edges) for one in own], axis=0) for own in ranks.values()])
    covered = (tables[:, 0] >= 0.99 * length).all(axis=0)
    if covered.sum() < LEAST_STRETCHES:
        return None
    _, sync, ran, queued, waiting = (tables[:, index][:, covered] / length[covered] for index in range(5))
    both = np.column_stack((edges[:-1], edges[1:]))[covered].astype(np.int64)
    return RankTimes(np.array(list(ranks)), both, 1 - sync, ran, queued, waiting)


@dataclass(frozen=True, eq=False)
class _Totals:
    """Running totals of one session at the ends of its looks, since the first session's epoch."""

    at_ps: Floats
    totals: tuple[Floats, ...]
    steps_ps: Floats
    input_ps: Floats

    @classmethod
    def read(cls, view: FindingsView, session: SessionClock, rows: pa.Table, later_ps: int) -> "_Totals":
        start, dur = (read_numbers(rows, name) for name in ("start_ps", "dur_ps"))
        mine, clock = session.rows, view.clock
        second = min(mine.start + 1, mine.stop - 1)  # the first step compiles, on all ranks
        begins = (clock.start_ps[second], clock.start_ps[mine.stop - 1] + clock.dur_ps[mine.stop - 1])
        inside = (start >= begins[0]) & (start + dur <= begins[1])
        at = np.repeat(start[inside], 2)
        at[1::2] += dur[inside]
        totals = [np.repeat(0.0, 2 * inside.sum()) for _ in range(4)]
        for total, name in zip(totals, ("dur_ps", "sync_ps", "run_ps", "wait_ps"), strict=True):
            total[1::2] = read_numbers(rows, name)[inside]
        steps_ps = np.append(clock.start_ps[mine], begins[1]).astype(np.float64) + later_ps
        input_ps = np.concatenate(([0.0], np.cumsum(clock.input_ps[mine], dtype=np.float64)))
        return cls(at.astype(np.float64) + later_ps, tuple(map(np.cumsum, totals)), steps_ps, input_ps)

    def between(self, edges: Floats) -> Floats:
        """Time seen, in calls that wait, running, queueing, waiting for input, `[5, n_stretches]`."""
        if not len(self.at_ps):
            return np.zeros((5, len(edges) - 1))
        places = [(self.at_ps, total) for total in self.totals] + [(self.steps_ps, self.input_ps)]
        return np.diff([np.interp(edges, at, total) for at, total in places], axis=1)


def _edges(sessions: list[_Totals]) -> Floats:
    seen = [one.at_ps for one in sessions if len(one.at_ps)]
    if not seen:
        return np.zeros(1)
    first, last = min(at[0] for at in seen), max(at[-1] for at in seen)
    count = int(np.clip((last - first) // STRETCH_PS, 1, MOST_STRETCHES))
    return np.linspace(first, last, count + 1)


def find_late_rank(times: RankTimes) -> LateRank | None:
    """The rank that the others wait for; None where none stands out."""
    found = _latest(times, times.outside, LEAST_LATE)
    busy = times.ran + times.queued
    busier = _latest(times, busy, LEAST_BUSY)
    busier = None if busier is None else _once(times, busier)
    crowded = _crowded(times)
    if found is None and crowded is not None:
        found = crowded
    elif found is None or (busier is not None and busier.host == found.host and busier.cost > MORE * found.cost):
        found = busier
    if found is None:
        return None
    period = slice(found.first, found.end)
    waits = 1 - np.median(times.outside[:, period], axis=1)
    late = times.host == found.host
    return LateRank(
        host=found.host,
        share=found.share,
        error=found.error,
        first_ps=int(times.edge_ps[found.first, 0]) if found.first else None,
        last_ps=int(times.edge_ps[found.end - 1, 1]) if found.end < times.outside.shape[1] else None,
        part="core" if crowded is not None and crowded.host == found.host else _part(times, late, period, found.share),
        waits=(float(np.median(waits[~late])), float(waits[late][0])),
    )


def _crowded(times: RankTimes) -> "_Lateness | None":
    """The rank whose work waits for a core much longer than the same work does on others; by how much it queues more.

    Where a step is longer, all ranks run less of the time. What a thread waits for each second that it runs does not
    depend on that: it grows with the threads of the rank itself, which the others have, too, and with a neighbour's.
    """
    ratio = times.queued / np.maximum(times.ran, LEAST_RAN)
    others = np.array([np.median(np.delete(ratio, rank, axis=0), axis=0) for rank in range(len(ratio))])
    found = _latest(times, times.queued - times.ran * others, LEAST_CROWDED)
    if found is None:
        return None
    rank = int(np.flatnonzero(times.host == found.host)[0])
    level = _level(times.queued, rank, found.first, found.end)
    if level is None or level[0] < LEAST_LATE:
        return None
    return _once(times, replace(found, share=level[0], error=level[1]))


def _once(times: RankTimes, found: "_Lateness") -> "_Lateness":
    """The lateness of a step: threads that are busy, or wait, together make it longer once."""
    busy = (times.ran + times.queued)[times.host == found.host, found.first : found.end]
    threads = max(float(np.median(busy)), 1.0)
    return replace(found, share=found.share / threads, error=found.error / threads)


@dataclass(frozen=True)
class _Lateness:
    """Stretches `first` to `end` (exclusive) in which a rank has more of something than any other rank."""

    host: int
    first: int
    end: int
    share: float
    error: float

    @property
    def cost(self) -> float:
        return self.share * (self.end - self.first)


def _latest(times: RankTimes, measure: Floats, least: float) -> _Lateness | None:
    """The rank that has most more of a measure than the next one, in all of the run or in the part that costs most."""
    n_stretches, found = measure.shape[1], []
    middle = np.median(measure, axis=0) if len(measure) > 2 else None
    for rank, host in enumerate(times.host.tolist()):
        against = middle if middle is not None else measure[1 - rank]
        for first, end in _periods(measure[rank] - against, n_stretches):
            level = _level(measure, rank, first, end)
            if level is None or level[0] < max(least, STANDARD_ERRORS * level[1]):
                continue
            found.append(_Lateness(host, first, end, *level))
    return max(found, key=lambda level: level.cost, default=None)


def _level(measure: Floats, rank: int, first: int, end: int) -> tuple[float, float] | None:
    """How much more a rank has than the next one, and the standard error of it."""
    part = measure[:, first:end]
    levels = np.median(part, axis=1)
    levels[rank] = -np.inf
    more = part[rank] - part[int(np.argmax(levels))]
    return float(np.median(more)), _error(more)


def _error(values: Floats) -> float:
    """Standard error of a median of values of which neighbours are alike."""
    rest = _clipped(values) - np.median(values)
    power = float((rest**2).sum())
    alike = float(np.clip((rest[1:] * rest[:-1]).sum() / max(power, 1e-300), 0, 0.9))
    return 1.2533 * float(np.sqrt(power / max(len(rest) - 1, 1) / len(rest) * (1 + alike) / (1 - alike)))


def _clipped(values: Floats) -> Floats:
    middle = float(np.median(values))
    spread = _CLIP * MAD_TO_SIGMA * float(np.median(np.abs(values - middle)))
    # Where most values are equal, nothing is known of their scatter.
    return np.clip(values, middle - spread, middle + spread) if spread > 0 else values


def _periods(more: Floats, n_stretches: int) -> list[tuple[int, int]]:
    """All of the run; and what lies before or after the likeliest change, where the other side is much less."""
    whole = [(0, n_stretches)]
    if n_stretches < LEAST_STRETCHES + LEAST_SIDE:
        return whole
    cuts = np.arange(LEAST_SIDE, n_stretches - LEAST_SIDE + 1)
    total = np.concatenate(([0.0], np.cumsum(_clipped(more))))
    before, after = total[cuts] / cuts, (total[-1] - total[cuts]) / (n_stretches - cuts)
    gain = (after - before) ** 2 * cuts * (n_stretches - cuts) / n_stretches
    cut = int(cuts[int(np.argmax(gain))])
    sides = (more[:cut], more[cut:])
    levels = [float(np.median(side)) for side in sides]
    error = float(np.hypot(_error(sides[0]), _error(sides[1])))
    if abs(levels[1] - levels[0]) < STANDARD_ERRORS * error:
        return whole
    if levels[0] < GONE * levels[1] and n_stretches - cut >= LEAST_STRETCHES:
        return [(cut, n_stretches)]
    return [(0, cut)] if levels[1] < GONE * levels[0] and cut >= LEAST_STRETCHES else whole


def _part(times: RankTimes, late: Bools, period: slice, share: float) -> str:
    """What the late rank does more than the others do.

    More work takes more of both, running and queueing, as all work on this machine does; a neighbour on the same core
    adds queueing alone.
    """
    waiting, ran, queued = (
        float(np.median(values[late][0, period]) - np.median(np.median(values[~late][:, period], axis=1)))
        for values in (times.input, times.ran, times.queued)
    )
    if waiting >= MOST_OF_IT * share:
        return "input"
    if ran + queued < NEARLY_ALL * share:
        return "host"
    run, queue = (float(np.median(values[~late][:, period])) for values in (times.ran, times.queued))
    return "compute" if ran >= MOST_OF_IT * share * run / max(run + queue, 1e-9) else "core"
