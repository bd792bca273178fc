"""The budget controller: may a window open now, how long may it be, and with which chance should a random one open?

Pure: it is told times and costs and reads no clock. The rule is one line: a window opens only if everything spent so
far, what closing will cost, and what the window will cost at worst (by how far windows were from their mean) together
stay under nine tenths of `budget` × time elapsed, and under all of it with `BURST` times the mean. A window that would
be too dear is made shorter, down to a stretch of a step. The first window, of which nothing is known, is a short probe.

    C. Wudenhe and H.-W. Tseng, "TPUPoint: Automatic Characterization of Hardware-Accelerated Machine-Learning
    Behavior for Cloud Computing", ISPASS 2021, profiles at fixed intervals; what a window costs is not fed back there.

What a window of a given length is going to cost, learnt from the windows before.

A window costs something however short it is (starting, stopping, writing an empty capture) and something for every
event. Neither profiler tells how many events it holds before it is stopped, so events stand behind the two things that
are known: the time that capture is on, set beforehand, and the bytes of the capture, seen afterwards. Cost and bytes
are taken to grow with the time. Where only longer windows were seen, a shorter one saves no more than what lies
above `FIXED_PS`; where only shorter ones were seen, all of their cost but the start is taken to grow with the time.
"""

from msgspec import Struct

from phasepoint.core.units import PS_PER_MS, PS_PER_S
from phasepoint.recorder.clock.cost import CostAccount

MARGIN = 4
"""A prediction is this many times the mean of what was seen.

So a window in which four times as much happens costs what was predicted, and one in which ten times as much happens (a
burst, another phase of the job) two and a half times.
"""

WORST = 1.25
"""What must be affordable at first, as a multiple of the prediction: five times as many events as were seen in the
mean. A window that meets more than that costs up to three times its prediction, and those after it wait."""

BURST = 10.0
"""In what meets so many times as many events as were seen, the whole keeps to the budget all the same."""

LEAST_WORST = 2.0
"""What must be affordable where windows were alike, as a multiple of the mean: a choice. Of 26 windows of two jobs on
busy cores (2026-11-29) none cost more than 1.9 times the mean before it but the first, which loads the profiler."""

MEMORY = 0.7
"""Weight of a window against the one after it: the last three have two thirds of the weight."""

FIXED_PS = 10 * PS_PER_MS
"""Cost of a window of no length, where it was not seen: assumed, above the 2–6 ms of small windows on 2 cores
(`recorder/profilers/jax.py`, `recorder/profilers/torch/session.py`; of 5 steps of 4 ms 4 to 9 ms, 2026-11-25)."""

FIRST_BYTES_PER_S = 100e6
"""Bytes of capture in a second of the first window, at worst: assumed, 300,000 ops of PyTorch a second at 330 bytes."""


class WindowCost(Struct, frozen=True):
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


class WindowCosts:
    """Learns from windows of one sort (with programs, without).

    Attributes:
        windows: how many were seen.
        worst: what must be affordable for another, as a multiple of the mean: it follows the dearest of late.
    """

    def __init__(self) -> None:
        self.windows = 0
        self.worst = MARGIN * WORST
        self._weight = self._start_ps = self._rest_ps = self._dur_ps = self._bytes = 0.0

    def learn(self, cost: WindowCost, *, dur_ps: int, size_bytes: int) -> None:
        """A window was on for `dur_ps` and gave `size_bytes`."""
        if self.windows:
            seen = cost.total_ps / max(self.mean_ps(dur_ps), 1.0)
            self.worst = min(max(LEAST_WORST, seen, MEMORY * self.worst), MARGIN * WORST)
        self.windows += 1
        new = (1.0, cost.start_ps, cost.total_ps - cost.start_ps, max(1, dur_ps), size_bytes)
        old = (self._weight, self._start_ps, self._rest_ps, self._dur_ps, self._bytes)
        sums = (MEMORY * before + now for before, now in zip(old, new, strict=True))
        self._weight, self._start_ps, self._rest_ps, self._dur_ps, self._bytes = sums

    def mean_ps(self, dur_ps: float) -> float:
        """Expected cost of a window of this length."""
        typical_ps = self._dur_ps / self._weight
        rest_ps = self._rate * dur_ps
        if dur_ps < typical_ps:
            rest_ps = min(self._rate * typical_ps, FIXED_PS + rest_ps)
        return self._start_ps / self._weight + rest_ps

    def predicted_ps(self, dur_ps: float) -> int:
        """Predicted cost of a window of this length, an upper estimate: `MARGIN` times the mean."""
        return int(MARGIN * self.mean_ps(dur_ps))

    def longest_ps(self, mean_ps: float) -> float:
        """The longest window that is expected to cost no more than this; 0 where none is."""
        rest_ps = mean_ps - self._start_ps / self._weight
        rate, typical_ps = self._rate, self._dur_ps / self._weight
        if rest_ps >= rate * typical_ps:
            return rest_ps / max(rate, 1e-12)
        return max(0.0, rest_ps - FIXED_PS) / max(rate, 1e-12)

    @property
    def bytes_per_ps(self) -> float:
        """Bytes of capture in a picosecond, the mean."""
        return self._bytes / self._dur_ps

    @property
    def _rate(self) -> float:
        """Cost but for the start in a picosecond of capture, where all of it grows with the time."""
        return self._rest_ps / self._dur_ps


FIRST_BYTES_PER_PS = FIRST_BYTES_PER_S / PS_PER_S


CREDIT_PS = 20 * PS_PER_S
"""Time that counts as elapsed from the start, so that the first window opens while the job warms up.

At a budget of 1 % this lends 0.18 s, entering included, which every job of 20 s or more has paid back; a shorter one
can cost more than its budget, but no more than that.
"""

PROBE_PS = 50 * PS_PER_MS
"""Length of the first window, of which nothing is known: at 200,000 events a second, the most that one thread of a
framework makes, 10,000 events. It is shorter where what they may cost (`FIRST_COST_RATIO`) is not there to spend."""

FIRST_COST_RATIO = 5
"""Cost of the first window at worst, as a multiple of the time that it is on: PyTorch's smallest ops, 130,000 a second,
on two cores that others kept busy: 0.24 s for 46 ms, most of it for stopping and writing (measured 2026-11-23; 0.1 s
when they were quiet)."""

LEAST_FIRST_PS = 15 * PS_PER_MS
"""The first window is no shorter; a moment later there is more to spend."""

MOST_OVER = 3
"""No window costs more than so many times what was predicted."""

REACH = 8
"""A window whose steps take longer than they were expected to ends after this many times the time expected: without
more events a second its cost stays near what was predicted."""

SOFT_LIMIT_PS = 2 * PS_PER_S
"""A window does not begin another step after this long."""

LEAST_STRETCH_PS = 20 * PS_PER_MS
"""Windows inside steps are no shorter: the moment at which they end is kept to some milliseconds only."""

WAIT_PS = 60 * PS_PER_S
"""Where the budget of this long, or of half of the time so far, pays for a window of one whole step, stretches inside
steps are not captured instead."""

CAPTURE_BYTES = 256 << 20
"""Bytes that one capture may hold; windows are made short enough for that, at `MARGIN` times the bytes seen."""

HELD_BYTES = 256 << 20
"""No window opens while captures of so many bytes wait to be written."""

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


class WindowPlan(Struct, frozen=True):
    """How long the next window may be, and what it is predicted to cost.

    Attributes:
        limit_ps: how long it may be on, whatever the job does; None for as long as its steps take.
        predicted_ps: predicted cost, an upper estimate; None where no window was seen and nothing is limited.
        expected_ps: expected cost, the mean.
        worst_ps: what it costs at worst, as far as windows before it tell.
        is_stretch: whether it is too short for a step, and is to begin anywhere inside one.
        size_bytes: bytes of capture to be ready for.
    """

    limit_ps: int | None
    predicted_ps: int | None
    expected_ps: float
    worst_ps: float
    is_stretch: bool
    size_bytes: int


class BudgetController:
    """Holds what was spent against the budget and learns what windows cost.

    Args:
        budget: share of the job's time that recording may cost, 0–1; None for no limit.
        account: where every cost is added up.
        prior: what the first window is taken to cost; a dear guess only delays it.
        window_steps: steps that a window should hold.

    Attributes:
        held_bytes: bytes of captures that wait to be written, as far as they are known.
    """

    def __init__(self, budget: float | None, account: CostAccount, prior: WindowCost, *, window_steps: int) -> None:
        self.budget = budget
        self.held_bytes = 0
        self._account = account
        self._prior = prior
        self._window_steps = window_steps
        self._choice_ps = 0
        self._plain = WindowCosts()
        self._without_programs = WindowCosts()
        self._with_programs = WindowCosts()

    def learn(
        self,
        cost: WindowCost,
        *,
        dur_ps: int,
        size_bytes: int,
        program_bytes: int = 0,
        with_programs: bool,
        by_choice: bool,
        holds_steps: bool = True,
    ) -> None:
        """A window's whole cost is known. It was spent already; here the estimates learn from it.

        Where a capture is programs for the most part, the like of it without them is taken to cost what its events do,
        and `FIXED_PS`, until one was seen: programs cost once, and grown to the length of a window 8 ms of them made
        the next one unaffordable for most of a minute (2026-11-25).

        What ended within milliseconds, inside a step, tells of starting and stopping alone: grown to the length of a
        step, 5 ms for 0.6 made windows of 0.3 s unaffordable for a whole job (2026-11-23).
        """
        if holds_steps or dur_ps >= LEAST_FIRST_PS:
            (self._with_programs if with_programs else self._plain).learn(cost, dur_ps=dur_ps, size_bytes=size_bytes)
            if 2 * program_bytes > size_bytes:
                share = 1 - program_bytes / size_bytes
                parts = (cost.slowdown_ps, round(share * cost.stop_ps), round(share * cost.write_ps))
                events = WindowCost(cost.start_ps + FIXED_PS, *parts)
                self._without_programs.learn(events, dur_ps=dur_ps, size_bytes=size_bytes - program_bytes)
        if by_choice:
            self._choice_ps += cost.total_ps

    def allowance_ps(self, elapsed_ps: int, spendable: float = SPENDABLE) -> int:
        """What may still be spent after `elapsed_ps`, closing set aside; negative where recording is in debt."""
        if self.budget is None:
            return 1 << 62
        lent_ps = max(elapsed_ps, CREDIT_PS)
        return int(spendable * self.budget * lent_ps) - self._account.total_ps - self._reserve_ps()

    def plan(
        self, elapsed_ps: int, step_ps: int | None, *, with_programs: bool, by_choice: bool, cuts: bool = True
    ) -> WindowPlan | None:
        """The window that may open now; None where none can be paid for.

        Args:
            elapsed_ps: recording's length so far.
            step_ps: a typical step's duration now; None where that is not known.
            with_programs: whether the window must carry the programs.
            by_choice: whether it is opened by choice.
            cuts: whether it can end inside a step.
        """
        costs = self._costs(with_programs)
        room_ps = self._room_ps(costs, cuts)
        if self.budget is None:
            limit_ps = int(room_ps) if cuts else None
            return WindowPlan(limit_ps, None, 0.0, 0.0, False, self._size_bytes(costs, room_ps)) if room_ps else None
        purse_ps = self._purse_ps(elapsed_ps, by_choice)
        if costs is None:
            affordable_ps = (MOST_OVER * purse_ps - self._prior.total_ps) / FIRST_COST_RATIO
            longest_ps = min(PROBE_PS, room_ps, affordable_ps)
            fits = longest_ps >= LEAST_FIRST_PS if cuts else step_ps is not None and step_ps <= longest_ps
            return self._planned(None, longest_ps, step_ps, reach=1) if fits else None
        least_ps = step_ps if step_ps is not None else PROBE_PS
        wanted_ps = min(self._window_steps * least_ps, SOFT_LIMIT_PS + least_ps)
        whole_ps = self.allowance_ps(elapsed_ps, spendable=1.0)
        mean_ps = max(purse_ps / (MARGIN * WORST), min(purse_ps / costs.worst, whole_ps / BURST))
        longest_ps = min(costs.longest_ps(mean_ps), room_ps)
        if longest_ps >= wanted_ps:
            return self._planned(costs, wanted_ps, step_ps, reach=min(REACH, room_ps / wanted_ps))
        is_worth_it = longest_ps >= least_ps or (
            cuts and longest_ps >= LEAST_STRETCH_PS and not self._pays_soon(costs, least_ps, room_ps, elapsed_ps)
        )
        return self._planned(costs, longest_ps, step_ps, reach=1) if is_worth_it else None

    def sample_probability(
        self,
        elapsed_ps: int,
        step_ps: int,
        fixed_ratio: float,
        *,
        pace_ps: int = 0,
        with_programs: bool = False,
        cuts: bool = True,
    ) -> float:
        """Chance with which a random window should open at each of the next step boundaries.

        It spends the income that is left after the fixed costs, plus what was saved up over `HORIZON_PS`.

        Args:
            elapsed_ps: recording's length so far.
            step_ps: a typical step's duration now.
            fixed_ratio: share of time that step clock and flushing cost, 0–1.
            pace_ps: what a step takes in the mean, where that is more: the budget grows with it.
            with_programs: whether the window would have to carry the programs.
            cuts: whether it can end inside a step.

        Returns:
            A probability, 0–1; 0 while there is not enough to spend.
        """
        if self.budget is None or step_ps <= 0:
            return 0.0
        plan = self.plan(elapsed_ps, step_ps, with_programs=with_programs, by_choice=False, cuts=cuts)
        if plan is None or plan.predicted_ps is None:
            return 0.0
        saved_ps = max(0.0, self.allowance_ps(elapsed_ps) - plan.worst_ps)
        income = max(0.0, SPENDABLE * self.budget - fixed_ratio) + saved_ps / HORIZON_PS
        pace_ps = max(pace_ps, step_ps)
        wanted = income * pace_ps / max(1.0, plan.expected_ps)
        thinnest = pace_ps / max(LEAST_DISTANCE_PS, elapsed_ps / THINNING)
        return min(wanted, thinnest, 1.0)

    def _costs(self, with_programs: bool) -> WindowCosts | None:
        """What is known of such windows, else of the other sort; None before the first window."""
        sorts = (self._with_programs, self._plain) if with_programs else (self._plain, self._without_programs)
        return next((costs for costs in (*sorts, self._with_programs) if costs.windows), None)

    def _purse_ps(self, elapsed_ps: int, by_choice: bool) -> float:
        """What one window may cost at worst."""
        assert self.budget is not None
        purse_ps: float = self.allowance_ps(elapsed_ps)
        if by_choice:
            choice_limit_ps = CHOICE_SHARE * SPENDABLE * self.budget * max(elapsed_ps, CREDIT_PS)
            purse_ps = min(purse_ps, choice_limit_ps - self._choice_ps)
        return purse_ps

    def _room_ps(self, costs: WindowCosts | None, cuts: bool) -> float:
        """How long a window may be for its bytes; 0 where captures that wait leave no room."""
        if self.held_bytes >= HELD_BYTES:
            return 0.0
        if not cuts:
            return 1 << 62
        if costs is None:
            return CAPTURE_BYTES / FIRST_BYTES_PER_PS
        return CAPTURE_BYTES / max(MARGIN * costs.bytes_per_ps, 1e-12)

    def _size_bytes(self, costs: WindowCosts | None, dur_ps: float) -> int:
        bytes_per_ps = FIRST_BYTES_PER_PS if costs is None else MARGIN * costs.bytes_per_ps
        return int(min(CAPTURE_BYTES, bytes_per_ps * dur_ps))

    def _planned(self, costs: WindowCosts | None, dur_ps: float, step_ps: int | None, *, reach: float) -> WindowPlan:
        predicted_ps = self._first_ps(dur_ps) if costs is None else costs.predicted_ps(dur_ps)
        limit_ps = int(reach * dur_ps)
        return WindowPlan(
            limit_ps,
            predicted_ps,
            self._prior.total_ps if costs is None else costs.mean_ps(dur_ps),
            WORST * predicted_ps if costs is None else costs.worst * costs.mean_ps(dur_ps),
            step_ps is not None and limit_ps < step_ps,
            self._size_bytes(costs, limit_ps),
        )

    def _first_ps(self, dur_ps: float) -> int:
        """Predicted cost of a first window of this length: at worst it costs `MOST_OVER` times as much."""
        return int(max(self._prior.total_ps, (self._prior.total_ps + FIRST_COST_RATIO * dur_ps) / MOST_OVER))

    def _pays_soon(self, costs: WindowCosts, step_ps: int, room_ps: float, elapsed_ps: int) -> bool:
        """Whether the budget will soon pay for a whole step."""
        assert self.budget is not None
        soon_ps = SPENDABLE * self.budget * max(WAIT_PS, elapsed_ps / 2)
        return step_ps <= room_ps and WORST * costs.predicted_ps(step_ps) <= soon_ps

    def _reserve_ps(self) -> int:
        return CLOSING_RESERVE_PS if self.budget else 0
