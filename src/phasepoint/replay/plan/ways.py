"""The steps of a phase that a replay may capture, and the ways to them: which checkpoint, how far, at what price."""

from dataclasses import dataclass, replace

import numpy as np

from phasepoint.core.arrays import Bools, Int64s
from phasepoint.phases.detection.result import Phase
from phasepoint.replay.plan.cost import PlanCost
from phasepoint.replay.plan.starts import RestartPoint, RestartPoints, SessionSteps
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
    rows = _rows_of_phase(analysis, phase, key)
    mine, starts = analysis.labels == phase.id, _first_places(analysis, rows, warm_from)
    return tuple(_uncaptured(analysis, mine, row, is_representative=False) for row in rows[starts].tolist())


MOST_STRETCHES = 200
"""A choice: of a phase in more stretches, the first so many are looked at."""


def timed_targets(
    analysis: Analysis, phase: Phase, key: tuple[int, int], warm_from: Int64s
) -> tuple[ReplayTarget, ...]:
    """Single steps behind which others of their phase are timed: where it comes first, and where its stretches begin.

    Args:
        analysis: of the run.
        phase: the phase.
        key: host and attempt whose steps they are.
        warm_from: steps from which on a replay runs warm, one for each place to start from.
    """
    rows = _rows_of_phase(analysis, phase, key)
    firsts = _first_places(analysis, rows, warm_from)
    begins = _breaks(rows) + 1
    begins = begins[begins > firsts.min(initial=len(rows))][:MOST_STRETCHES]
    chosen = rows[np.union1d(firsts, begins)]
    return tuple(_target(analysis, row, row, row, is_representative=False) for row in chosen.tolist())


def _rows_of_phase(analysis: Analysis, phase: Phase, key: tuple[int, int]) -> Int64s:
    """The steps of a phase that one host and attempt made, as rows of the clock."""
    session = analysis.clock.session(*key)
    if session is None:
        return np.empty(0, np.int64)
    return (np.flatnonzero(analysis.labels[session.rows] == phase.id) + session.first_row).astype(np.int64)


def _first_places(analysis: Analysis, rows: Int64s, warm_from: Int64s) -> Int64s:
    """Places among the rows of the first steps from each of `warm_from` on, each once, in order."""
    places = np.unique(np.searchsorted(analysis.clock.step[rows], warm_from))
    return places[places < len(rows)].astype(np.int64)


def _breaks(rows: Int64s) -> Int64s:
    """Places among a phase's rows behind which more than `BRIDGE` steps of others follow."""
    return np.flatnonzero(np.diff(rows) > BRIDGE + 1).astype(np.int64)


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


@dataclass(frozen=True)
class Compared:
    """What is run so that step times can be compared.

    Attributes:
        last_step: the last step to run.
        steps: steps of the phase that run warm and without capture.
        captured: how many of these the original captured, which slowed them.
    """

    last_step: int
    steps: int
    captured: int


class ComparedSteps:
    """The steps of one phase in one session."""

    def __init__(self, session: SessionSteps, mine: Bools, captured: Bools) -> None:
        """Take the session's steps, which of them `[n]` are of the phase, and which were captured."""
        self._session = session
        self._all, self._plain = _running_count(mine), _running_count(mine & ~captured)
        self._rows: Int64s = np.flatnonzero(mine).astype(np.int64)
        # Positions in `_rows` of the last step before more than `BRIDGE` others, and of the last of all.
        self._lasts: Int64s = np.append(_breaks(self._rows), len(self._rows) - 1).astype(np.int64)

    def extend(self, from_step: int, target: ReplayTarget, wanted: int) -> Compared:
        """How far to run: for steps that the original did not capture, or, where these are too few, for any.

        Args:
            from_step: first step that runs warm.
            target: steps that are captured and therefore not compared.
            wanted: steps to compare; the stretch of the phase that holds the target is not left for more.
        """
        session = self._session
        begin, end = session.index_of(target.first_step), session.end_of(target.last_step)
        first = min(session.index_of(from_step), begin)
        stop = self._end_of_stretch(end - 1)
        steps = last = 0
        for counts in (self._plain, self._all):
            before = int(counts[begin] - counts[first])
            after = min(max(wanted - before, 0), int(counts[stop] - counts[end]))
            last = int(np.searchsorted(counts, counts[end] + after)) if after else end
            steps = before + after
            if steps >= wanted:
                break
        plain = int(self._plain[begin] - self._plain[first] + self._plain[last] - self._plain[end])
        return Compared(int(session.step[last - 1]), steps, steps - plain)

    def _end_of_stretch(self, row: int) -> int:
        """One past the last step of the phase that is reached from one with no more than `BRIDGE` others between."""
        place = int(np.searchsorted(self._rows, row))
        return int(self._rows[self._lasts[np.searchsorted(self._lasts, place)]]) + 1


def _running_count(which: Bools) -> Int64s:
    return np.concatenate(([0], np.cumsum(which))).astype(np.int64)


LEAD_STEPS = 10
"""Steps that a restored program runs before the target: the first ones compile (again for donated buffers, and for each
length of sequences that comes), and the next touch memory for the first time. Where targets began after three steps,
ops of the first captured step took 2 to 50 times as long as in the original (2 cores, JAX 0.10.2, 2026-11-21). From the
start of the job there is no lead: the original warmed up in the same steps."""


@dataclass(frozen=True)
class Way:
    """How a target is reached.

    Attributes:
        target: steps to capture.
        representative: steps that stand for the phase; the target itself, if it can be reached well.
        point: checkpoint to restore, None from the start of the job.
        passed_by: that attempt's checkpoints, used or not.
        first_step: the first step that is run.
        compared: the last one, and the steps whose time is compared.
        cost: what that takes.
    """

    target: ReplayTarget
    representative: ReplayTarget
    point: RestartPoint | None
    passed_by: RestartPoints
    first_step: int
    compared: Compared
    cost: PlanCost

    @property
    def last_step(self) -> int:
        """The last step that is run."""
        return self.compared.last_step

    @property
    def after_step(self) -> int | None:
        """The step after which its checkpoint stands, None from the start."""
        return self.point.after_step if self.point else None
