"""The steps of a phase that a replay may capture: stretches of its captured windows, the representative one first."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from phasepoint.phases.analysis import Analysis
from phasepoint.phases.clock import Int64s
from phasepoint.phases.phase_summary import representative_row
from phasepoint.phases.result import Phase

Bools = NDArray[np.bool_]

MOST_STEPS = 20
"""Steps captured at most: a run may be one window from end to end, and what a phase's ops take is settled long before:
four of the recorder's own windows."""

UNCAPTURED_STEPS = 5
"""Steps captured where the phase has no captured window to follow: as many as the recorder takes by itself."""

BRIDGE = 2
"""Steps of another phase that do not end a stretch: a slow or a checkpoint step in the middle of training."""


@dataclass(frozen=True)
class Target:
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


def find_targets(analysis: Analysis, phase: Phase) -> tuple[Target, ...]:
    """The stretches of a phase that windows captured, the representative one first, then in the run's order.

    Where nothing of the phase was captured, the one target is the representative step with those that follow it.
    """
    clock, mine = analysis.clock, analysis.labels == phase.id
    chosen = representative_row(clock, analysis.result, phase, analysis.estimates)
    rows = np.flatnonzero(mine & analysis.estimates.captured)
    if not len(rows):
        return (_uncaptured(analysis, mine, chosen, is_representative=True),)
    targets: list[Target] = []
    for first, last in _runs(analysis, rows):
        if first <= chosen <= last:
            targets.insert(0, _target(analysis, *_shorten(first, last, chosen), is_representative=True))
        else:
            targets.append(_target(analysis, *_shorten(first, last, first), is_representative=False))
    return tuple(targets)


def uncaptured_targets(analysis: Analysis, phase: Phase, key: tuple[int, int], warm_from: Int64s) -> tuple[Target, ...]:
    """Steps of a phase that the clock alone knows: the first of it that run warm after each place to start from.

    Args:
        analysis: of the run.
        phase: the phase.
        key: host and attempt whose steps are looked through.
        warm_from: steps from which on a replay runs warm, one for each checkpoint.

    Returns:
        One target for each place after which the phase comes, of `UNCAPTURED_STEPS` where it lasts so long, in order.
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


def _uncaptured(analysis: Analysis, mine: Bools, chosen: int, *, is_representative: bool) -> Target:
    clock = analysis.clock
    session = clock.session(int(clock.host[chosen]), int(clock.attempt[chosen]))
    end = min(chosen + UNCAPTURED_STEPS, session.end_row if session else chosen + 1)
    steps, own = clock.step[chosen:end], mine[chosen:end]
    goes_on = own & (steps == steps[0] + np.arange(end - chosen))
    stops = np.flatnonzero(~goes_on)
    last = chosen + (int(stops[0]) if len(stops) else end - chosen) - 1
    return replace(_target(analysis, chosen, last, is_representative=is_representative), window=None)


def _target(analysis: Analysis, first: int, last: int, *, is_representative: bool) -> Target:
    clock, window = analysis.clock, int(analysis.estimates.window[first])
    return Target(
        host=int(clock.host[first]),
        attempt=int(clock.attempt[first]),
        window=window if window >= 0 else None,
        first_step=int(clock.step[first]),
        last_step=int(clock.step[last]),
        is_representative=is_representative,
    )
