"""When to open a window, and why: a random sample that keeps estimates unbiased, and a choice of what teaches most.

The random sample. At every step boundary inside a loop at which no window is open, a window opens with a chance that
is known before the step runs and depends on the past alone (costs, time elapsed, typical step time): `probability` in
the `windows` table. It is drawn as a geometric distance; the geometric distribution has no memory, so drawing again
after the chance changed leaves every boundary's chance what it says. Hence, for estimates: windows whose reason is
`sample` are a Bernoulli sample of the boundaries at which the budget allowed one, each included with its
`probability`; within a phase, where the chance hardly moves, they can be taken as a simple random sample of clusters
of `window_steps` neighbouring steps. Not covered: the first seconds, before the budget has paid for entering, and
draws that met an empty account, which are counted (`recorder.draws_unaffordable`).

The choice. `new-program`: something was compiled inside a step. `unseen`: the hint in force, or the present level of
step time, was never captured or not for long. `changed`: the typical step time left every level captured so far. A
wish stays until it is granted; all wishes together use at most half of the budget.

Plans the window of a replay: the steps asked for, whatever they cost, and no others.
"""

import math
import random

from msgspec import Struct

from phasepoint.core.units import PS_PER_MS, PS_PER_S
from phasepoint.recorder.windows.budget import BudgetController, WindowPlan

LOOK_DISTANCE_PS = 500 * PS_PER_MS
"""Time between two looks at the recent steps. A look costs 0.13 ms (its code and data are cold), so looking 0.03 %."""

LEVEL_DISTANCE = 0.25
"""Two step times are different levels when their logarithms differ by more than this (28 %)."""

LOOKS_TO_CONFIRM = 2
"""A new level must last for so many looks before it is a change."""

STALE_PS = 300 * PS_PER_S
"""A level or hint not captured for this long, and for a fifth of the run, is unseen again."""

SETTLED_STEPS = 8
"""Steps from the beginning of a window, of five by default, until nobody waits for who captured in it: the next two
still do, where one rank ends it later than another."""

NEVER = 1 << 62
"""Number of a step that no job reaches."""

_CHOICES = ("new-program", "unseen", "changed")
"""Reasons for a window by choice, the most urgent first."""


class Opening(Struct, frozen=True):
    """A window to be opened at this boundary.

    Attributes:
        reason: as in the `windows` table.
        probability: the chance with which it was drawn; None where it was chosen.
        with_programs: whether the capture must carry the compiled programs.
        plan: how long it may be and what it is predicted to cost; None for windows that were asked for.
        offset: where in a typical step a stretch begins, 0–1; None for windows that begin with a step.
    """

    reason: str
    probability: float | None
    with_programs: bool
    plan: WindowPlan | None = None
    offset: float | None = None


class Situation(Struct, frozen=True):
    """What is known at a step boundary.

    Attributes:
        step: number of the step that is about to begin.
        elapsed_ps: recording's length so far.
        kind: index of the hint in force, -1 for none.
        kind_step_ps: what a step of this kind typically takes now; None where none was seen lately.
        any_step_ps: what a step of any kind typically takes now; None where none was seen.
        fixed_ratio: what step clock and flushing cost, as a share of the time, 0–1.
        cuts: whether a window can begin and end inside a step.
        pace_ps: what the last steps took in the mean: where most are only issued and some wait for the device, no
            single one is typical.
    """

    step: int
    elapsed_ps: int
    kind: int
    kind_step_ps: int | None
    any_step_ps: int | None
    fixed_ratio: float
    cuts: bool = True
    pace_ps: int = 0


class _Level(Struct):
    """A level of step time of one kind that some window captured."""

    kind: int
    dur_ps: int
    seen_ps: int


class WindowPlanner:
    """Decides at step boundaries whether to open a window.

    Attributes:
        next_look: number of the step before which `look` must be called next.
        draws_unaffordable: random draws that met an empty account.
        window_step: step before which the ranks of this job opened a window last, -1 before the first and where there
            is one rank only.
        mean_delay_ps: by how much a window of the job's ranks delays it, 0 where there is one rank only.
    """

    window_step = -1
    mean_delay_ps = 0.0

    def __init__(self, controller: BudgetController, *, seed: int = 0) -> None:
        self.next_look = 0
        self.draws_unaffordable = 0
        self._controller = controller
        self._random = random.Random(seed)
        self._programs_due = True
        self._wishes: set[str] = set()
        self._levels: list[_Level] = []
        self._strange_looks = 0
        self._probability = 0.0
        self._draw_at = NEVER
        self._check_at = 0

    def note_compile(self) -> None:
        """A program was compiled inside a step: the next window must carry programs, and one is wished for."""
        self._programs_due = True
        self._wishes.add("new-program")
        self.next_look = 0

    def note_kind(self) -> None:
        """The hint in force changed, or nobody has looked for long: look at the next boundary."""
        self._check_at = self.next_look = 0

    def settled(self, delay_ps: int) -> None:
        """By how much a window of the job's ranks has delayed it: for those who plan with others."""

    def look(self, now: Situation) -> Opening | None:
        """Whether a window should open before the step that is about to begin."""
        if self._controller.budget is None:
            return self._opening(now, "continuous", 1.0)
        opening = self._draw(now)
        if now.step >= self._check_at:
            self._check(now)
        opening = opening or self._choose(now)
        self.next_look = self._next_look(now)
        return opening

    def _next_look(self, now: Situation) -> int:
        return min(self._draw_at, self._check_at)

    def captured(self, opening: Opening, elapsed_ps: int, *, kind: int, dur_ps: int | None) -> None:
        """A window was captured: its kind and level are seen, its wish is granted.

        Args:
            opening: what opened it.
            elapsed_ps: recording's length so far.
            kind: index of the hint in force while it was open.
            dur_ps: the level of step time it stands for; None where it is not known.
        """
        if opening.with_programs:
            self._programs_due = False
        self._wishes.discard(opening.reason)
        level = self._nearest(kind, dur_ps)
        if level is None or (dur_ps is not None and _distance(level.dur_ps, dur_ps) > LEVEL_DISTANCE):
            self._levels.append(_Level(kind, dur_ps or 0, elapsed_ps))
        else:
            level.seen_ps = elapsed_ps
            if dur_ps is not None:
                level.dur_ps = dur_ps
        self._strange_looks = 0
        self.next_look = 0

    def _opening(self, now: Situation, reason: str, probability: float | None) -> Opening | None:
        """The window that can be paid for now; a stretch of a step begins anywhere in it."""
        step_ps = now.kind_step_ps or now.any_step_ps
        plan = self._controller.plan(
            now.elapsed_ps, step_ps, with_programs=self._programs_due, by_choice=probability is None, cuts=now.cuts
        )
        if plan is None:
            return None
        offset = self._random.random() if plan.is_stretch else None
        return Opening(reason, probability, self._programs_due, plan, offset)

    def _draw(self, now: Situation) -> Opening | None:
        step = now.step
        if self._draw_at < step:  # it fell into a window: those boundaries were no candidates
            self._set_draw(step, self._probability)
        if step < self._draw_at:
            return None
        probability = self._probability
        self._set_draw(step + 1, probability)
        return self._open_sample(now, probability)

    def _open_sample(self, now: Situation, probability: float) -> Opening | None:
        opening = self._opening(now, "sample", probability)
        if opening is None:
            self.draws_unaffordable += 1
        return opening

    def _set_draw(self, step: int, probability: float) -> None:
        """Draw the next boundary of the random sample; the one before `step` is the first candidate."""
        self._probability = probability
        if probability <= 0:
            self._draw_at = NEVER
        elif probability >= 1:
            self._draw_at = step
        else:
            self._draw_at = step + int(math.log(1.0 - self._random.random()) / math.log1p(-probability))

    def _check(self, now: Situation) -> None:
        step_ps = now.kind_step_ps or now.any_step_ps
        if step_ps is None:
            self._check_at = now.step + 1
            return
        if now.kind_step_ps is not None:  # the first step of a kind compiles, as a rule: no wish before it is over
            self._wish(now.elapsed_ps, now.kind, now.kind_step_ps)
        # The boundary before this step was decided already, by the draw above.
        probability = self._chance(now, step_ps)
        ahead = LOOK_DISTANCE_PS // max(1, step_ps) if now.kind_step_ps is not None else 1
        # A job that runs ahead of its device makes its first steps in no time: no further ahead than it has come.
        ahead = min(ahead, now.step)
        self._check_at = now.step + max(1, ahead)
        self._set_draw(now.step + 1, probability)

    def _chance(self, now: Situation, step_ps: int) -> float:
        """With which a random window should open at each of the next boundaries."""
        return self._controller.sample_probability(
            now.elapsed_ps,
            step_ps,
            now.fixed_ratio,
            pace_ps=now.pace_ps,
            with_programs=self._programs_due,
            cuts=now.cuts,
        )

    def _wish(self, elapsed_ps: int, kind: int, typical_ps: int) -> None:
        level = self._nearest(kind, typical_ps)
        if level is None:
            self._wishes.add("unseen")
        elif _distance(level.dur_ps, typical_ps) > LEVEL_DISTANCE:
            self._strange_looks += 1
            if self._strange_looks >= LOOKS_TO_CONFIRM:
                self._wishes.add("changed")
        else:
            self._strange_looks = 0
            self._wishes.discard("changed")
            if elapsed_ps - level.seen_ps > max(STALE_PS, elapsed_ps // 5):
                self._wishes.add("unseen")
            else:
                self._wishes.discard("unseen")

    def _choose(self, now: Situation) -> Opening | None:
        if not self._wishes:
            return None
        return self._opening(now, self._first_wish(), None)

    def _first_wish(self) -> str:
        return next(choice for choice in _CHOICES if choice in self._wishes)

    def _nearest(self, kind: int, dur_ps: int | None) -> _Level | None:
        mine = [level for level in self._levels if level.kind == kind]
        if dur_ps is None:
            return mine[-1] if mine else None
        return min(mine, key=lambda level: _distance(level.dur_ps, dur_ps), default=None)


def _distance(one_ps: int, other_ps: int) -> float:
    return abs(math.log(max(one_ps, 1) / max(other_ps, 1)))


REASON = "requested"


class RequestedWindow:
    """Decides at step boundaries as `WindowPlanner` does, for the steps of a request alone.

    The steps are one window, but where the profiler was busy or a loop ended inside of them.

    Attributes:
        next_look: number of the step before which `look` must be called next.
        draws_unaffordable: 0; nothing is drawn.
        window_step: -1; no other rank does as this one.
    """

    window_step = -1
    mean_delay_ps = 0.0

    def __init__(self, first_step: int, last_step: int) -> None:
        self.next_look = first_step
        self.draws_unaffordable = 0
        self._first_step = first_step
        self._last_step = last_step

    def note_compile(self) -> None:
        """A program was compiled; the window carries programs in any case."""

    def note_kind(self) -> None:
        """The hint in force changed; the steps stay the same."""

    def look(self, now: Situation) -> Opening | None:
        """A window if the step that is about to begin is one of those asked for."""
        if self._first_step <= now.step <= self._last_step:
            return Opening(REASON, None, True)
        return None

    def settled(self, delay_ps: int) -> None:
        """Nothing: no other rank does as this one."""

    def captured(self, opening: Opening, elapsed_ps: int, *, kind: int, dur_ps: int | None) -> None:
        """A window was captured; what is left of the steps, if anything, is looked at as it comes."""
