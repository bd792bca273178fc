"""When the ranks of one job open windows: at the same steps, without a word between them.

In a synchronous job every stop of a rank delays all of them. Planned by each rank for itself, the windows of 32 ranks
slow the job down by fourteen times the budget that each of them keeps. So they follow one schedule that every rank can
work out: whether a window opens before a step follows from the run's seed and the step's number, and so does which
ranks capture in it, `MOST_CAPTURING` at most, others at every window. What a window costs the job is what it costs the
slowest of those who capture: every rank sees that as steps that last longer than usual, whether it captures or not
(`SharedDelays` charges it as `wait`), so every rank's account is that of the job's critical path; their chances agree.

A window begins only when the one before is over and its delay known: where most ranks wait for a slow one, their
windows cost nothing, and chances that follow what was seen would rise until windows overlapped and no delay could be
told.

Chances are rounded down to powers of `CHANCE_STEP`, since ranks whose accounts differ a little must mean the same
steps. Where they do not, the windows of the greater chance hold those of the smaller.

The hash is that of splitmix64.

Source: Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014, for the hash.
"""

import math

from phasepoint.core.units import PS_PER_MS, PS_PER_S
from phasepoint.recorder.clock.cost import CostAccount
from phasepoint.recorder.windows.budget import LEAST_DISTANCE_PS, MOST_OVER, SPENDABLE, THINNING, BudgetController
from phasepoint.recorder.windows.planner import (
    NEVER,
    SETTLED_STEPS,
    Opening,
    RequestedWindow,
    Situation,
    WindowPlanner,
)

MOST_CAPTURING = 4
"""Ranks that capture in one window. The slowest of them delays the job: of four whose costs vary by a third, 1.3 times
the mean; of a thousand, twice."""

CHANCE_STEP = 2**0.5
"""A choice: accounts that differ by a tenth mean the same chance in seven of ten cases; a sixth of the windows is given
up by rounding down, until what was saved raises the chance."""

CHOICE_PS = 2 * PS_PER_S
"""Windows by choice open before steps whose number divides by a power of two, so many that they last about this long:
ranks that find out a little apart then mean the same step."""

MEAN_WINDOWS = 30
"""The mean delay is that of about so many windows. A choice: it follows a job that changes within minutes."""

UNSEEN_WINDOW_PS = 50 * PS_PER_MS
"""What a window is taken to delay the job by before any was seen, and what one of other ranks costs at most a multiple
of while this one has had none. A choice, as dear as a first window."""

_MASK = (1 << 64) - 1
"""The hash's numbers have 64 bits."""


def draw_number(seed: int, step: int, stream: int) -> float:
    """A number from 0 to 1 that every rank draws alike."""
    value = (seed * 0x9E3779B97F4A7C15 + step * 0xD1B54A32D192ED03 + stream) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return ((value ^ (value >> 31)) >> 11) / (1 << 53)


class RankedPlanner(WindowPlanner):
    """A `WindowPlanner` of one rank among several.

    Args:
        controller: as for `WindowPlanner`.
        rank: number of this one.
        ranks: how many there are.
        seed: of the schedule, the same for all ranks.
    """

    def __init__(self, controller: BudgetController, rank: int, ranks: int, *, seed: int = 0) -> None:
        super().__init__(controller, seed=seed)
        self._rank, self._ranks = rank, ranks
        self._seed = seed
        self._share = min(1.0, MOST_CAPTURING / ranks)
        self._windows, self.mean_delay_ps = 1, float(UNSEEN_WINDOW_PS)

    def settled(self, delay_ps: int) -> None:
        """By how much a window of the job's ranks has delayed it, the same on all of them."""
        self._windows += 1
        self.mean_delay_ps += (delay_ps - self.mean_delay_ps) / min(self._windows, MEAN_WINDOWS)

    def _chance(self, now: Situation, step_ps: int) -> float:
        """What all ranks know alike decides: budget, step time, delay by a window; the own account may forbid it."""
        chance = super()._chance(now, step_ps)
        budget = self._controller.budget
        if chance <= 0 or budget is None:
            return chance
        thinnest = step_ps / max(LEAST_DISTANCE_PS, now.elapsed_ps / THINNING)
        return min(SPENDABLE * budget * step_ps / max(self.mean_delay_ps, 1.0), thinnest)

    def captures(self, step: int) -> bool:
        """Whether this rank is one of those that capture in a window before this step."""
        first = int(draw_number(self._seed, step, 2) * self._ranks)
        return (self._rank - first) % self._ranks < MOST_CAPTURING

    def _set_draw(self, step: int, probability: float) -> None:
        """The next step of the schedule, looked for up to the next look alone: then the chance may be another."""
        chance = max(0.0, min(1.0, probability))
        if 0 < chance < 1:
            chance = float(CHANCE_STEP ** math.floor(math.log(chance, CHANCE_STEP) + 1e-9))
        self._probability = chance
        first = step if self.window_step < 0 else max(step, self.window_step + SETTLED_STEPS)
        last = max(self._check_at, first + 1)
        steps = range(first, last) if chance > 0 else range(0)
        self._draw_at = next((s for s in steps if draw_number(self._seed, s, 1) < chance), NEVER)

    def _open_sample(self, now: Situation, probability: float) -> Opening | None:
        self.window_step = now.step
        self._set_draw(now.step + 1, self._probability)  # not before this one is over
        if not self.captures(now.step):
            return None
        return super()._open_sample(now, probability * self._share)

    def _choose(self, now: Situation) -> Opening | None:
        if not self._wishes or now.step % _choice_steps(now.any_step_ps):
            return None
        if self.captures(now.step):
            opening = super()._choose(now)
            if opening is not None:
                self.window_step = now.step
            return opening
        # Others capture it, at the same time: the ranks of a job do the same.
        self.window_step = now.step
        reason = self._first_wish()
        self.captured(Opening(reason, None, False), now.elapsed_ps, kind=now.kind, dur_ps=now.kind_step_ps)
        return None

    def _next_look(self, now: Situation) -> int:
        first = super()._next_look(now)
        if now.step < self.window_step + SETTLED_STEPS:
            first = min(first, self.window_step + SETTLED_STEPS)
        if not self._wishes:
            return first
        every = _choice_steps(now.any_step_ps)
        return min(first, (now.step // every + 1) * every)


class SharedDelays:
    """Charges what windows of a job's ranks hold this one up by, beyond what its own take.

    Windows so soon after one another that they cannot be told apart are charged together. What is charged is what the
    delays so far add up to, those below 0 too, so that chance cancels: where steps vary by half, the greatest sum on
    the way is many times the last. A window counts no more than `MOST_OVER` times the mean of the own ones or of those
    seen, whichever is more, as an evaluation or a checkpoint may have come in between. The own ones alone would not do:
    among hundreds of ranks most have none, and those seen are first ones, which bring programs and cost the most.

    Args:
        account: where it is charged.
        planner: that opens the windows, and is told of each one's delay.
    """

    def __init__(self, account: CostAccount, planner: WindowPlanner | RequestedWindow) -> None:
        self._account, self._planner = account, planner
        self._first_step = self._last_step = self._windows = self._began_ps = self._spent_ps = 0
        self._waited_ps = 0

    def note(self, step: int, now_ps: int) -> None:
        """The planner was asked before a step; perhaps a window of the ranks begins there."""
        if self._planner.window_step != step:
            return
        if not self._windows:
            self._first_step, self._began_ps, self._spent_ps = step, now_ps, self._account.windows_ps
        self._last_step = step
        self._windows += 1

    def settle(self, step: int, now_ps: int, usual_ps: int | None) -> None:
        """Charge the windows that began, where they are over by this step.

        Args:
            step: number of the step that is about to begin.
            now_ps: the time.
            usual_ps: what a step takes now; None where that is not known, or other things than steps came in between.
        """
        if not self._windows or step - self._last_step < SETTLED_STEPS:
            return
        windows, self._windows = self._windows, 0
        if usual_ps is None:
            return
        own_ps = self._account.windows_ps
        mean_ps = own_ps // max(self._account.windows, 1) or UNSEEN_WINDOW_PS
        delay_ps = now_ps - self._began_ps - (step - self._first_step) * usual_ps
        delay_ps = min(delay_ps, windows * MOST_OVER * max(mean_ps, round(self._planner.mean_delay_ps)))
        for _ in range(windows):
            self._planner.settled(delay_ps // windows)
        self._waited_ps += delay_ps - (own_ps - self._spent_ps)
        self._account.restate("wait", self._waited_ps)


def _choice_steps(step_ps: int | None) -> int:
    if step_ps is None or step_ps >= CHOICE_PS:
        return 1
    return 1 << math.ceil(math.log2(CHOICE_PS / max(step_ps, 1)))
