"""What a step takes under a change over what it took before, with an interval that holds for neighbours that are alike.

The ratio is that of sums over the same step numbers, changed over reference. What it is unsure of has two parts:

- *within*: the scatter of the differences `changed - ratio × reference` within the stretch. Neighbouring steps are
  alike, so the stretch is cut into batches, whose means are nearly independent (batch means). What both sides share,
  such as the length of a sequence, drops out of the differences.
- *place*: another stretch of the phase would have given another mean. How far the means of stretches of this length lie
  apart, beyond what the scatter within them explains, is seen in the original (one-way analysis of variance). The
  stretch that was compared is one draw from that, and the replay, made at another time, a second one. It counts where
  the F of that analysis is above its upper quartile: else every steady phase would be charged with chance.

A full run's own scatter is in this too: what a stretch misses of its run's mean and what the run misses of the long
run's add up to the same. Not in it is what no single run shows: a machine that is slower today (a baseline tells), and
drift hidden under steps that differ much by their data.

Source: Cochran, *Sampling Techniques* (3rd ed.), ch. 6 (ratio estimates); Schmeiser, "Batch Size Effects in the
Analysis of Simulation Output", Operations Research 30 (1982): more than 30 batches win little, fewer than 10 cost
much; Searle, Casella & McCulloch, *Variance Components* (1992), ch. 3.

Stretches of a replay in which the machine was slow are left out first, and told. On shared machines everything takes
1.2 to 1.4 times as long for seconds at a time. A whole run averages over that, a replay of seconds does not. What a
stretch takes is held against the same step numbers of the original, so that steps which differ by their data do not
look slow; what the replay's fastest stretches take over them is its usual pace.
"""

from dataclasses import dataclass, replace

import numpy as np

from phasepoint.core.arrays import Bools, Floats, Int64s
from phasepoint.core.statistics import satterthwaite_freedom, t_quantile
from phasepoint.phases.clock.steps import sum_ps
from phasepoint.replay.change.clean_steps import CleanSteps, StepMeans

BLOCK_STEPS = 8
"""Steps of a stretch: the median of so many scatters by 4 % where single ones do by 10 %."""

LEAST_BLOCKS = 5
"""Fewer stretches do not show a usual pace."""

SLOW_RATIO = 1.12
"""A stretch is slow above so many times the usual pace: beyond the scatter of medians, below a core's slow seconds
(1.25 to 1.35 times; docs/overhead.md)."""

USUAL_QUANTILE = 0.25
"""Of the stretches' paces, the usual one: up to three quarters of a replay may be slow."""


def without_slow(run: CleanSteps, original: StepMeans) -> CleanSteps:
    """The same steps, of which those in slow stretches are not clean any more.

    Args:
        run: steps of a replay.
        original: step times of the original by number; steps that it lacks are left as they are.
    """
    clean = np.flatnonzero(run.clean)
    place = np.searchsorted(original.step, run.series.step[clean])
    known = (place < len(original.step)) & np.isin(run.series.step[clean], original.step)
    rows, before = clean[known], original.own_ps[place[known]]
    blocks = len(rows) // BLOCK_STEPS
    if blocks < LEAST_BLOCKS:
        return run
    pace = run.own_ps[rows] / np.maximum(before, 1)
    stretches = np.array_split(np.arange(len(rows)), blocks)
    medians = np.array([np.median(pace[one]) for one in stretches])
    slow: Bools = medians > SLOW_RATIO * np.quantile(medians, USUAL_QUANTILE)
    kept = run.clean.copy()
    for one in np.flatnonzero(slow).tolist():
        kept[rows[stretches[one]]] = False
    return replace(run, clean=kept)


BATCHES = 10
"""Stretches that the compared steps are cut into: Schmeiser's least number that does not widen the interval much."""
BATCH_STEPS = 4
"""Steps of a batch at least; short stretches have fewer batches, two at least."""
PLACE_QUANTILE = 0.75
"""Of F, above which stretches are taken to differ by their place.

Simulated runs of 400 to 2,000 steps, 400 each, 2026-11-21: 95 % intervals cover steady ones in 95–98 % (98–99 % were
every excess counted) and drifting ones in 94–98 % either way. Where steps differ by 30 % through their data, drift of
5 % is hardly seen: 79–96 % are covered (90–98 %), by intervals half as wide.
"""


@dataclass(frozen=True)
class ChangeRatio:
    """A ratio of step times with its interval.

    Attributes:
        ratio: changed over reference.
        low: lower end of the interval, None where a single step was compared.
        high: upper end.
        steps: steps compared.
        batches: independent stretches that these were taken for.
        within: standard error from the scatter within the stretch, as a ratio of `ratio`; None as above.
        place: standard error from the choice of the stretch, likewise; None where the phase is no longer than two such.
    """

    ratio: float
    low: float | None
    high: float | None
    steps: int
    batches: int
    within: float | None
    place: float | None


def compare_steps(
    changed_ps: Int64s, reference_ps: Int64s, phase_ps: Int64s, *, confidence: float = 0.95
) -> ChangeRatio:
    """The ratio of step times over a stretch, with its interval.

    Args:
        changed_ps: `[n]`, n ≥ 1, step times under the change, in order.
        reference_ps: `[n]`, of the same step numbers without it; their sum above 0.
        phase_ps: `[n_phase]`, step times of the phase in the original, in order: how much the place matters.
        confidence: of the interval, between 0 and 1.

    Returns:
        The ratio; its interval is Student's on the logarithm, so that it stays above 0.

    Raises:
        ValueError: no step, other lengths, or a reference without time.
    """
    if not len(changed_ps) or len(changed_ps) != len(reference_ps):
        raise ValueError(f"{len(changed_ps)} changed steps against {len(reference_ps)}; expected as many, 1 or more")
    before_ps = sum_ps(reference_ps)
    if before_ps <= 0:
        raise ValueError("the reference's steps have no time")
    n, ratio = len(changed_ps), sum_ps(changed_ps) / before_ps
    batches = max(min(BATCHES, n // BATCH_STEPS), min(n, 2))
    scattered = scatter_of_place(phase_ps, n, batches)
    place = None if scattered is None else float(np.sqrt(scattered.excess))
    if batches < 2 or ratio <= 0:
        return ChangeRatio(ratio, None, None, n, batches, None, place)
    rest = (changed_ps - ratio * reference_ps) / (ratio * before_ps / n)
    within = float(np.var(_batch_means(rest[None, :], batches), ddof=1) / batches)
    half = _half_width(within, batches - 1, scattered, confidence)
    low, high = ratio * float(np.exp(-half)), ratio * float(np.exp(half))
    return ChangeRatio(ratio, low, high, n, batches, float(np.sqrt(within)), place)


@dataclass(frozen=True)
class PlaceScatter:
    """How far the means of a phase's stretches scatter.

    Attributes:
        between: twice the variance of a stretch's mean, relative to the square of the phase's: for the stretch that was
            compared, and for the replay.
        within: what that would be by the scatter within stretches alone.
        between_freedom: degrees of freedom of the one.
        within_freedom: of the other.
    """

    between: float
    within: float
    between_freedom: float
    within_freedom: float

    @property
    def excess(self) -> float:
        """What the place adds to the ratio's relative variance, 0 where chance explains it."""
        from scipy.special import fdtri

        limit = float(fdtri(self.between_freedom, self.within_freedom, PLACE_QUANTILE))
        return self.between - self.within if self.between > limit * self.within else 0.0


def scatter_of_place(phase_ps: Int64s, n: int, batches: int) -> PlaceScatter | None:
    """How far the means of stretches of `n` steps scatter.

    Args:
        phase_ps: `[n_phase]` step times in order.
        n: steps of a stretch.
        batches: parts into which each is cut.

    Returns:
        None where the phase holds fewer than two stretches, or a stretch is a single step.
    """
    blocks = len(phase_ps) // n
    if blocks < 2 or batches < 2:
        return None
    stretches = phase_ps[: blocks * n].reshape(blocks, n) / max(float(phase_ps.mean()), 1.0)
    means = _batch_means(stretches, batches)
    between = 2 * float(np.var(means.mean(axis=1), ddof=1))
    within = 2 * float(np.var(means, axis=1, ddof=1).mean()) / batches
    return PlaceScatter(between, within, blocks - 1.0, blocks * (batches - 1.0))


def _half_width(within: float, within_freedom: float, scattered: PlaceScatter | None, confidence: float) -> float:
    """Half the interval of the ratio's logarithm."""
    variances, freedom = [within], [float(within_freedom)]
    if scattered is not None and scattered.excess:
        variances += [scattered.between, -scattered.within]
        freedom += [scattered.between_freedom, scattered.within_freedom]
    if sum(variances) <= 0:
        return 0.0
    free = float(satterthwaite_freedom(np.array(variances)[:, None], np.array(freedom))[0])
    return t_quantile((1 + confidence) / 2, max(free, 1.0)) * float(np.sqrt(sum(variances)))


def _batch_means(rows: Floats, batches: int) -> Floats:
    """Means of `batches` stretches of each row `[k, n]`, as equal in length as can be: `[k, batches]`."""
    edges = np.arange(batches) * rows.shape[1] // batches
    lengths = np.diff(np.append(edges, rows.shape[1]))
    return np.add.reduceat(rows, edges, axis=1) / lengths
