"""The steps of a phase that a replay may capture: stretches of its captured windows, the representative one first."""

from dataclasses import dataclass, replace

import numpy as np

from phasepoint.core.arrays import Bools, Int64s
from phasepoint.phases.detection.result import Phase
from phasepoint.summary.analysis import Analysis
from phasepoint.summary.summary import representative_row

MOST_STEPS = 20
"""Steps captured, where the phase has so many around its window: four of the recorder's own windows. A replay has no
budget to keep, and what ops take in five steps still depends on which were interrupted: two stretches of five steps of
one run had op vectors with a cosine of 0.6 to 0.9 (2 busy cores, 2026-11-21)."""

BRIDGE = 2
"""Steps of another phase that do not end a stretch: a slow or a checkpoint step in the middle of training."""


@dataclass(frozen=True)
class ReplayTarget:
    """Steps of one phase in a row.

    Attributes:
        host: rank whose steps they are.
        attempt: its attempt.
        window: the window that captured them, None where none did.
        first_step: first of them.
        last_step: last of them, inclusive.
        is_representative: whether the phase's representative step is among them.
    """

    host: int
    attempt: int
    window: int | None
    first_step: int
    last_step: int
    is_representative: bool


def find_targets(analysis: Analysis, phase: Phase) -> tuple[ReplayTarget, ...]:
    """The stretches of a phase that windows captured, the representative one first, then in the run's order.

    Where nothing of the phase was captured, the one target is the representative step with those that follow it.
    """
    clock, mine = analysis.clock, analysis.labels == phase.id
    chosen = representative_row(clock, analysis.result, phase, analysis.estimates)
    rows = np.flatnonzero(mine & analysis.estimates.captured)
    if not len(rows):
        return (_uncaptured(analysis, mine, chosen, is_representative=True),)
    targets: list[ReplayTarget] = []
    for first, last in _runs(analysis, rows):
        if first <= chosen <= last:
            ends = _widen(analysis, mine, *_shorten(first, last, chosen))
            targets.insert(0, _target(analysis, *ends, first, is_representative=True))
        else:
            ends = _widen(analysis, mine, *_shorten(first, last, first))
            targets.append(_target(analysis, *ends, first, is_representative=False))
    return tuple(targets)


def uncaptured_targets(
    analysis: Analysis, phase: Phase, key: tuple[int, int], warm_from: Int64s
) -> tuple[ReplayTarget, ...]:
    """Steps of a phase that the clock alone knows: the first of it that run warm after each place to start from.

    Args:
        analysis: of the run.
        phase: the phase.
        key: host and attempt whose steps are looked through.
        warm_from: steps from which on a replay runs warm, one for each checkpoint.

    Returns:
        One target for each place after which the phase comes, of `MOST_STEPS` where it lasts so long, in order.
    """
    clock, session = analysis.clock, analysis.clock.session(*key)
    if session is None:
        return ()
    mine = analysis.labels == phase.id
    rows = np.flatnonzero(mine[session.rows]) + session.first_row
    firsts = np.searchsorted(clock.step[rows], warm_from)
    starts = rows[np.unique(firsts[firsts < len(rows)])]
    return tuple(_uncaptured(analysis, mine, int(row), is_representative=False) for row in starts)


def _runs(analysis: Analysis, rows: Int64s) -> list[tuple[int, int]]:
    """First and last of every run of captured rows that follow each other in one window."""
    clock, window = analysis.clock, analysis.estimates.window
    follows = np.diff(rows) == 1
    for column in (clock.host, clock.attempt, window):
        follows &= column[rows[1:]] == column[rows[:-1]]
    follows &= clock.step[rows[1:]] == clock.step[rows[:-1]] + 1
    cuts = np.flatnonzero(~follows) + 1
    firsts = rows[np.concatenate(([0], cuts))]
    lasts = rows[np.append(cuts - 1, len(rows) - 1)]
    return list(zip(firsts.tolist(), lasts.tolist(), strict=True))


def _shorten(first: int, last: int, around: int) -> tuple[int, int]:
    """At most `MOST_STEPS` of them, with `around` as near their middle as the ends allow."""
    if last - first < MOST_STEPS:
        return first, last
    first = min(max(first, around - MOST_STEPS // 2), last - MOST_STEPS + 1)
    return first, first + MOST_STEPS - 1


def _widen(analysis: Analysis, mine: Bools, first: int, last: int) -> tuple[int, int]:
    """As many more steps of the phase, after the window and then before it, as `MOST_STEPS` leaves room for."""
    clock = analysis.clock
    session = clock.session(int(clock.host[first]), int(clock.attempt[first]))
    if session is None:
        return first, last
    count = int(mine[first : last + 1].sum())
    last, count = _reach(mine, last, session.end_row - 1, 1, count)
    first, _ = _reach(mine, first, session.first_row, -1, count)
    return first, last


def _reach(mine: Bools, row: int, end: int, way: int, count: int) -> tuple[int, int]:
    """The last row of the phase on the way from `row` to `end` before `MOST_STEPS` or more than `BRIDGE` others."""
    at, others = row, 0
    while count < MOST_STEPS and at != end and others <= BRIDGE:
        at += way
        if mine[at]:
            row, count, others = at, count + 1, 0
        else:
            others += 1
    return row, count


def _uncaptured(analysis: Analysis, mine: Bools, chosen: int, *, is_representative: bool) -> ReplayTarget:
    clock = analysis.clock
    session = clock.session(int(clock.host[chosen]), int(clock.attempt[chosen]))
    end = min(chosen + MOST_STEPS, session.end_row if session else chosen + 1)
    steps, own = clock.step[chosen:end], mine[chosen:end]
    goes_on = own & (steps == steps[0] + np.arange(end - chosen))
    stops = np.flatnonzero(~goes_on)
    last = chosen + (int(stops[0]) if len(stops) else end - chosen) - 1
    return replace(_target(analysis, chosen, last, chosen, is_representative=is_representative), window=None)


def _target(analysis: Analysis, first: int, last: int, seen: int, *, is_representative: bool) -> ReplayTarget:
    """Rows of a target, of which a window saw the one at `seen`."""
    clock, window = analysis.clock, int(analysis.estimates.window[seen])
    return ReplayTarget(
        host=int(clock.host[first]),
        attempt=int(clock.attempt[first]),
        window=window if window >= 0 else None,
        first_step=int(clock.step[first]),
        last_step=int(clock.step[last]),
        is_representative=is_representative,
    )
