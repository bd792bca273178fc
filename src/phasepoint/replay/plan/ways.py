"""A way to a target: the checkpoint before it, the steps that are run, and what they cost.

Which steps of a phase a replay can compare, and how far it has to run for enough of them.
"""

from dataclasses import dataclass

import numpy as np

from phasepoint.core.arrays import Bools, Int64s
from phasepoint.replay.checkpoints import RestartPoint, RestartPoints
from phasepoint.replay.plan.cost import PlanCost
from phasepoint.replay.plan.targets import BRIDGE, ReplayTarget
from phasepoint.replay.session_steps import SessionSteps


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
        cuts = np.flatnonzero(np.diff(self._rows) > BRIDGE + 1)
        self._lasts: Int64s = np.append(cuts, len(self._rows) - 1).astype(np.int64)

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
