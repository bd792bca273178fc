"""The budget controller: may a window open now, and with which chance should a random one?

Pure: it is told times and costs and reads no clock. The rule is one line: a window opens only if everything spent so
far, what closing will cost, and the window's own projected cost together stay under nine tenths of `budget` × time
elapsed. So the total can pass the budget only by what one window cost more than was projected, and the next window
then waits longer.

    C. Wudenhe and H.-W. Tseng, "TPUPoint: Automatic Characterization of Hardware-Accelerated Machine-Learning
    Behavior for Cloud Computing", ISPASS 2021, profiles at fixed intervals; what a window costs is not fed back there.
"""

from dataclasses import dataclass

from phasepoint.core.units import PS_PER_MS, PS_PER_S
from phasepoint.recorder.cost import CostAccount

CREDIT_PS = 30 * PS_PER_S
"""Time that counts as elapsed from the start, so that the first window opens while the job warms up.

At a budget of 1 % this lends 0.27 s, which every job of 30 s or more has paid back; a shorter one can cost more than
its budget.
"""

SPENDABLE = 0.9
"""Share of the budget that is planned with.

The rest stands for what recording costs and no clock here sees: caches that the background thread makes cold, threads
that libraries start (0.05 s of CPU time a recording, measured).
"""

CHOICE_SHARE = 0.5
"""Share of the budget that windows opened by choice may use; the rest is left to the random sample."""

CLOSING_RESERVE_PS = 40 * PS_PER_MS
"""Kept back for closing the recording: last parts, session.json, an open window. Measured: 10–25 ms of CPU time."""

HORIZON_PS = 20 * PS_PER_S
"""Unspent budget is meant to be spent by the random sample over this long."""

THINNING = 500
"""Windows after which the sample gets thinner: the mean distance of random windows is at least elapsed / THINNING.

Precision grows with the square root of their number, files and conversion with the number itself: a day at 1 % then
has some 3,000 windows and not 86,400.
"""

LEAST_DISTANCE_PS = PS_PER_S // 4
"""Random windows are at least this far apart in the mean: a job of seconds with a large budget is seen four times a
second and not captured back to back, where one window would disturb the next."""


@dataclass(frozen=True)
class WindowCost:
    """What one window cost, or is expected to cost, in picoseconds.

    Attributes:
        start_ps, stop_ps: opening and closing the profiler, on the job's thread.
        slowdown_ps: the captured steps' excess over their neighbours, all steps together.
        write_ps: CPU time of rendering, compressing and writing.
        convert_ps: CPU time of its conversion, 0 where that happens on another machine or after the job.
    """

    start_ps: int
    slowdown_ps: int
    stop_ps: int
    write_ps: int
    convert_ps: int = 0

    @property
    def total_ps(self) -> int:
        """The sum."""
        return self.start_ps + self.slowdown_ps + self.stop_ps + self.write_ps + self.convert_ps


class _Level:
    """A running upper estimate of a noisy cost: mean + 2 × mean deviation of about the last ten; first the prior."""

    def __init__(self, prior_ps: int) -> None:
        self._mean = float(prior_ps)
        self._deviation = 0.0
        self._n = 0

    def learn(self, cost_ps: int) -> None:
        self._n += 1
        weight = max(1 / self._n, 0.1)
        self._deviation += weight * (abs(cost_ps - self._mean) - self._deviation) if self._n > 1 else 0.0
        self._mean += weight * (cost_ps - self._mean)

    @property
    def upper_ps(self) -> int:
        return int(self._mean + 2 * self._deviation)

    @property
    def mean_ps(self) -> float:
        return self._mean


class BudgetController:
    """Holds what was spent against the budget and learns what windows cost.

    Args:
        budget: share of the job's time that recording may cost, 0–1; None for no limit.
        account: where every cost is added up.
        prior: what a window is taken to cost before the first was seen; a dear guess only delays the first.
    """

    def __init__(self, budget: float | None, account: CostAccount, prior: WindowCost) -> None:
        self.budget = budget
        self._account = account
        self._choice_ps = 0
        self._fixed_ps = 0
        self._plain = _Level(prior.total_ps)
        self._with_programs = _Level(prior.total_ps)

    def learn(self, cost: WindowCost, *, with_programs: bool, by_choice: bool) -> None:
        """A window's whole cost is known. It was spent already; here the estimates learn from it."""
        (self._with_programs if with_programs else self._plain).learn(cost.total_ps)
        if by_choice:
            self._choice_ps += cost.total_ps

    def projected_ps(self, *, with_programs: bool) -> int:
        """An upper estimate of the next window's cost."""
        return (self._with_programs if with_programs else self._plain).upper_ps

    def allowance_ps(self, elapsed_ps: int) -> int:
        """What may still be spent after `elapsed_ps`, closing set aside; negative where recording is in debt."""
        if self.budget is None:
            return 1 << 62
        lent_ps = max(elapsed_ps, CREDIT_PS)
        return int(SPENDABLE * self.budget * lent_ps) - self._account.total_ps - self._reserve_ps()

    def affords(self, elapsed_ps: int, *, with_programs: bool, by_choice: bool) -> bool:
        """Whether a window may open now."""
        if self.budget is None:
            return True
        projected_ps = self.projected_ps(with_programs=with_programs)
        if projected_ps > self.allowance_ps(elapsed_ps):
            return False
        choice_limit_ps = CHOICE_SHARE * SPENDABLE * self.budget * max(elapsed_ps, CREDIT_PS)
        return not by_choice or self._choice_ps + projected_ps <= choice_limit_ps

    def sample_probability(
        self, elapsed_ps: int, step_ps: int, fixed_ratio: float, *, with_programs: bool = False
    ) -> float:
        """Chance with which a random window should open at each of the next step boundaries.

        It spends the income that is left after the fixed costs, plus what was saved up over `HORIZON_PS`.

        Args:
            elapsed_ps: recording's length so far.
            step_ps: a typical step's duration now.
            fixed_ratio: share of time that step clock and flushing cost, 0–1.
            with_programs: whether the window would have to carry the programs.

        Returns:
            A probability, 0–1; 0 while there is not enough to spend.
        """
        if self.budget is None or step_ps <= 0:
            return 0.0
        allowance_ps = self.allowance_ps(elapsed_ps)
        if allowance_ps < self.projected_ps(with_programs=with_programs):
            return 0.0
        income = max(0.0, SPENDABLE * self.budget - fixed_ratio) + allowance_ps / HORIZON_PS
        wanted = income * step_ps / max(1.0, self._plain.mean_ps)
        thinnest = step_ps / max(LEAST_DISTANCE_PS, elapsed_ps / THINNING)
        return min(wanted, thinnest, 1.0)

    def _reserve_ps(self) -> int:
        return CLOSING_RESERVE_PS if self.budget else 0
