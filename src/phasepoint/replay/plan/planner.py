"""The planner of a run's replays: which captured steps of a phase, from which checkpoint, at which cost."""

from collections.abc import Mapping

import numpy as np

from phasepoint.core.arrays import Int64s
from phasepoint.core.errors import NoDataError, PhasepointError, ReplayError, UsageError
from phasepoint.core.units import PS_PER_S, format_ps
from phasepoint.phases.detection.result import Phase
from phasepoint.recorder.autosteps.late_recording import STEPS_FROM
from phasepoint.recorder.clock import epoch as process_age
from phasepoint.replay.checkpoints import CheckpointIndex, index_checkpoints
from phasepoint.replay.plan.cost import CostBook, write_rate, write_time_ps
from phasepoint.replay.plan.starts import BEFORE_ALL, count_refused, find_restart_points, steps_of_session
from phasepoint.replay.plan.ways import (
    LEAD_STEPS,
    ComparedSteps,
    ReplayTarget,
    Way,
    find_targets,
    timed_targets,
    uncaptured_targets,
)
from phasepoint.replay.plan.words import advise_interval, name_count
from phasepoint.summary.analysis import Analysis
from phasepoint.summary.enough import advise_capture

COMPARED_STEPS = 40
"""Steps of the phase that are run without capture beyond the lead, where the phase has them: with 5 % noise the
standard error of their median is 1 % (1.25 × 5 % / √40)."""

MOST_STARTUP_PS = 600 * PS_PER_S
"""A process that is older when recording begins did other things first: a notebook, a server."""

_MOST_DIGITS = 19
"""Digits of the largest int64; fewer than so many are read as a number, since a run is untrusted input."""


class Planner:
    """Plans of one run's phases, with what they share read once.

    Attributes:
        run: path of the run.
        index: its checkpoints.
        steps: steps to compare.
        is_automatic: whether `phasepoint record -- …` saw the steps, so that the program can restore nothing.
    """

    def __init__(
        self,
        analysis: Analysis,
        index: CheckpointIndex | None,
        *,
        steps: int,
        from_start: bool,
        times_only: bool = False,
    ) -> None:
        """Args as `replay.plan.plan_replay`; raises what it raises for the whole run."""
        if steps < 0:
            raise UsageError(f"--steps {steps}: expected 0 or more")
        self.run, self.steps = analysis.run.path, steps
        _check(analysis, captured=not times_only)
        self.index = index_checkpoints(analysis) if index is None else index
        self.is_automatic = any(STEPS_FROM in one.session.notes for one in analysis.run.shards)
        self._analysis, self._times_only = analysis, times_only
        self._from_start = from_start or self.is_automatic
        self._sessions = {
            (session.host, session.attempt): steps_of_session(analysis.clock, session)
            for session in analysis.clock.sessions
            if session.end_row > session.first_row
        }
        self._points = find_restart_points(self.index.checkpoints, self._sessions)
        self._last: tuple[tuple[tuple[int, int], int], ComparedSteps] | None = None
        rate = write_rate(self.index.checkpoints)
        self._ages = {(one.host, one.attempt): _process_age_ps(one.session.notes) for one in analysis.run.shards}
        self._books = {
            key: CostBook(steps, rate, LEAD_STEPS, self._ages.get(key)) for key, steps in self._sessions.items()
        }

    def choose(self, phase: Phase) -> Way:
        """The way to a phase; raises as `replay.plan.plan_replay`."""
        targets = find_targets(self._analysis, phase)
        timed = self._timed_ways(phase, targets[0]) if self._times_only else []
        if timed:
            return min(timed, key=lambda way: (max(self.steps - way.compared.steps, 0), way.cost.cost_ps))
        first = self._way(phase, targets[0], targets[0])
        if first is not None and first.after_step == self._nearest(targets[0]):
            return first
        others = (self._way(phase, target, targets[0]) for target in targets[1:])
        ways = [way for way in (first, *others) if way is not None]
        if not ways and not self._from_start:
            ways = self._uncaptured_ways(phase, targets[0])
        if not ways:
            raise self._refuse(phase, targets[0])
        return min(ways, key=lambda way: way.cost.cost_ps)  # of equals the first, which is the representative

    def full_ps(self, host: int) -> int:
        """What the whole run took on a host, its starts included as far as they are known."""
        sessions = self._analysis.clock.of_host(host)
        return sum(one.wall_ps + (self._ages.get((one.host, one.attempt)) or 0) for one in sessions)

    def _nearest(self, target: ReplayTarget) -> int | None:
        """After which step the newest usable checkpoint before a target stands, however near; None from the start."""
        point = None if self._from_start else self._points[target.host, target.attempt].newest_before(target.first_step)
        return point.after_step if point else None

    def _uncaptured_ways(self, phase: Phase, representative: ReplayTarget) -> list[Way]:
        """Ways to steps of the phase that no window captured: the longest targets alone."""
        targets: list[ReplayTarget] = []
        for key in self._points:
            targets += uncaptured_targets(self._analysis, phase, key, self._warm_from(key))
        longest = max(map(_length, targets), default=0)
        ways = (self._way(phase, target, representative) for target in targets if _length(target) == longest)
        return [way for way in ways if way is not None]

    def _timed_ways(self, phase: Phase, representative: ReplayTarget) -> list[Way]:
        """Ways to steps of the phase that are timed: no window need be among them."""
        ways = (
            self._way(phase, target, representative)
            for key in self._sessions
            for target in timed_targets(self._analysis, phase, key, self._warm_from(key))
        )
        return [way for way in ways if way is not None]

    def _warm_from(self, key: tuple[int, int]) -> Int64s:
        """The step from which on a replay of a session runs warm, for each place that it may start from."""
        starts = [BEFORE_ALL] if self._from_start else [point.after_step for point in self._points[key].usable]
        return np.array(starts, np.int64) + 1 + LEAD_STEPS

    def _way(self, phase: Phase, target: ReplayTarget, representative: ReplayTarget) -> Way | None:
        """How a target is reached, None where it is not."""
        key = target.host, target.attempt
        points = self._points[key]
        point = None if self._from_start else points.newest_before(target.first_step - LEAD_STEPS)
        # Where a restarted attempt began is its program's affair: it has no start of its own to go back to.
        if point is None and (not self._from_start or target.attempt):
            return None
        first_step = point.after_step + 1 if point else 0
        lead = LEAD_STEPS if point or self._times_only else 0
        compared = self._compared(key, phase).extend(first_step + lead, target, self.steps)
        cost = self._books[key].price(point, first_step, compared.last_step)
        return Way(target, representative, point, points, first_step, compared, cost)

    def _compared(self, key: tuple[int, int], phase: Phase) -> ComparedSteps:
        """Those of a phase in one session; the last ones asked for are kept, since a phase has many targets."""
        if self._last is None or self._last[0] != (key, phase.id):
            steps = self._sessions[key]
            rows = steps.session.rows
            mine = self._analysis.labels[rows] == phase.id
            captured = self._analysis.estimates.captured[rows] & (not self._times_only)  # held against nothing
            self._last = (key, phase.id), ComparedSteps(steps, mine, captured)
        return self._last[1]

    def _refuse(self, phase: Phase, target: ReplayTarget) -> PhasepointError:
        """Why a phase cannot be replayed, and what to do."""
        points = self._points[target.host, target.attempt]
        where = f"{self.run}: phase {phase.name!r} (from step {target.first_step})"
        if self.is_automatic:
            return NoDataError(
                f"{where}: a restarted attempt did it, and without its lines of Phasepoint (docs/replay.md) the job "
                "can be replayed from its start alone"
            )
        if self._from_start:
            return NoDataError(
                f"{where}: a restarted attempt did it, so its steps are not the job's first; plan without --from-start"
            )
        start = self._from_start_instead(phase)
        broken = points.refused_between(BEFORE_ALL - 1, target.first_step)
        near = points.newest_before(target.first_step)
        if broken and near is None:
            newest = broken[-1].checkpoint
            return ReplayError(
                f"{where}: none of the {len(broken)} checkpoints before it can be used ({count_refused(broken)}); "
                f"the newest, {newest.path}: {newest.problem or newest.state}; put one of them back, {start}"
            )
        what = "no checkpoint was written before it"
        if near is not None:
            what = (
                f"the only checkpoint before it, after step {near.after_step}, leaves no {LEAD_STEPS} steps to warm up"
            )
        return NoDataError(f"{where}: {what}; {self._advice()}; {start}")

    def _from_start_instead(self, phase: Phase) -> str:
        try:
            way = Planner(self._analysis, self.index, steps=self.steps, from_start=True).choose(phase)
        except NoDataError:
            return "or choose another phase"
        steps, cost = name_count(way.last_step - way.first_step + 1), format_ps(way.cost.cost_ps)
        return f"or start from the beginning with --from-start ({steps}, {cost})"

    def _advice(self) -> str:
        run_ps = max(self.full_ps(session.host) for session in self._analysis.clock.sessions)
        most_steps = max(steps.n_steps for steps in self._sessions.values())
        return advise_interval(write_time_ps(self.index.checkpoints), run_ps, most_steps)


def _process_age_ps(notes: Mapping[str, str]) -> int | None:
    """What the recorder noted; a run is untrusted input, so what is no number is not known."""
    text = notes.get(process_age.NOTE, "")
    age_ps = int(text) if text.isascii() and text.isdigit() and len(text) < _MOST_DIGITS else None
    return None if age_ps is None or age_ps > MOST_STARTUP_PS else age_ps


def _length(target: ReplayTarget) -> int:
    return target.last_step - target.first_step + 1


def _check(analysis: Analysis, *, captured: bool) -> None:
    """Refuse a run of which no phase can be replayed."""
    run = analysis.run.path
    if not analysis.clock.n_steps:
        raise NoDataError(f"{run}: no steps were recorded, so there is no phase to replay; record the job first")
    if captured and not analysis.estimates.captured.any():
        raise NoDataError(
            f"{run}: no step was captured, so nothing says what its phases did and a replay could be compared with "
            f"nothing; {advise_capture(analysis.run, analysis.clock)}"
        )
