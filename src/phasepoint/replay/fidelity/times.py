"""Step times of the replay against the original's: a median with its interval, and how noisy the original is itself.

Steps are compared number by number where there are enough of them, so that batches of unlike size do not matter. Steps
to which a capture window stood in the same way on both sides are compared, as capturing costs time; where there are
none, the ratio is given and nothing concluded from it.
"""

from dataclasses import dataclass

import numpy as np

from phasepoint.core.arrays import Bools, Floats, Int64s
from phasepoint.core.statistics import median
from phasepoint.replay.fidelity.sides import AFTER, CAPTURED, CLEAR, CommonSteps, SideTables, window_states

ENOUGH_STEPS = 6
"""Steps from which on they are compared number by number: the fewest whose extremes hold the median in 95 %."""

_COMPILES = 0.05
"""A step that compiled for more than this share of itself on one side alone is left out."""

_DRAWS = 2_000
"""Medians drawn for an interval: a choice of time for precision, its ends (2.5 %) scatter by 0.35 % of the ranks."""
_MOST_STRETCHES = 2_000
"""Stretches whose medians are taken, evenly spread over the phase; of more, neighbours share nearly all their steps."""


@dataclass(frozen=True)
class StepTimeMatch:
    """How long the replay's steps of the phase took, over the original's.

    Attributes:
        ratio: median of the steps' ratios, or ratio of the medians; null where nothing can be compared.
        low, high: its 95 % interval; null where there are too few steps.
        steps: steps of the replay that it is made of.
        paired: whether they are compared with the same step numbers; else with all the original's steps of the phase.
        captured: whether captured steps are among them, because too few others are of the phase.
        apart: whether they were captured on one side alone, because there are no others; then nothing follows from it.
        original_ps, replay_ps: median step time on both sides.
        noise_ratio: by how much stretches of as many steps of the phase differ from its median within the original, in
            95 % of cases; null where it has too few.
        reason: why there is no ratio.
    """

    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    steps: int = 0
    paired: bool = True
    captured: bool = False
    apart: bool = False
    original_ps: int | None = None
    replay_ps: int | None = None
    noise_ratio: float | None = None
    reason: str | None = None


def match_times(base: SideTables, replay: SideTables, common: CommonSteps, phase_rows: Int64s) -> StepTimeMatch:
    """Compare the step times of the replayed phase.

    Args:
        base: the run that is replayed.
        replay: the replay.
        common: their common steps.
        phase_rows: rows of all steps of the phase in the original.
    """
    usable = common.of_phase & common.warm & ~_compiles_apart(base, replay, common)
    alike = usable & common.alike & (common.replay_state != AFTER)
    plain = alike & (common.replay_state == CLEAR)
    chosen = next((one for one in (plain, alike) if one.sum() >= ENOUGH_STEPS), None)
    chosen = next((one for one in (alike, usable) if one.any()), None) if chosen is None else chosen
    if chosen is None:
        none_of_phase = "no step of the replay is one of the phase's in the original"
        unusable = "all steps of the phase in the replay were its first, or compiled on one side alone"
        return StepTimeMatch(reason=unusable if common.of_phase.any() else none_of_phase)
    states = tuple(np.unique(common.original_state[chosen]).tolist())
    before = base.steps.dur_ps[common.original[chosen]]
    after = replay.steps.dur_ps[common.replay[chosen]]
    like = _of_phase(base, phase_rows, states)
    paired = len(after) >= ENOUGH_STEPS
    if paired:
        ratios = after / np.maximum(before, 1)
        ratio, (low, high) = median(ratios), median_interval(ratios) or (None, None)
    else:
        ratio, low, high = _unpaired(like, after)
    return StepTimeMatch(
        ratio=ratio,
        low=low,
        high=high,
        steps=len(after),
        paired=paired,
        captured=bool((common.replay_state[chosen] == CAPTURED).any()),
        apart=not common.alike[chosen].all(),
        original_ps=round(median(before if paired else like)),
        replay_ps=round(median(after)),
        noise_ratio=stretch_noise(like, len(after)),
    )


def stretch_noise(dur_ps: Int64s, length: int) -> float | None:
    """By how much the medians of stretches differ from the median of all steps, in 95 % of cases.

    Args:
        dur_ps: `[n]`, in the order of the run.
        length: steps of a stretch, 1 or more.

    Returns:
        A ratio, 0.03 for 3 %; None where there are fewer than three stretches.
    """
    if len(dur_ps) < 3 * length:
        return None
    starts = np.unique(np.linspace(0, len(dur_ps) - length, _MOST_STRETCHES).astype(np.int64))
    stretches = dur_ps[starts[:, None] + np.arange(length)]
    return float(np.quantile(np.abs(np.median(stretches, axis=1) / median(dur_ps) - 1), 0.95))


def median_interval(values: Floats) -> tuple[float, float] | None:
    """The 95 % interval of the median of `values` `[n]`, from ranks alone; None for fewer than six values.

    Source: Conover, *Practical Nonparametric Statistics* (3rd ed.), 3.2: ranks by the binomial distribution.
    """
    if len(values) < ENOUGH_STEPS:
        return None
    from scipy.special import bdtr

    ranks = np.arange(len(values) // 2)
    below = int(np.count_nonzero(bdtr(ranks, len(values), 0.5) <= 0.025))
    ordered = np.sort(values)
    return float(ordered[below - 1]), float(ordered[len(values) - below])


def _unpaired(like: Int64s, after: Int64s) -> tuple[float, float | None, float | None]:
    """Ratio of the medians; the interval is what medians of as many of the original's own steps scatter by."""
    middle = median(like)
    ratio = median(after) / middle
    if len(like) < ENOUGH_STEPS:
        return ratio, None, None
    drawn = np.random.default_rng(0).choice(like, (_DRAWS, len(after)))
    low, high = np.quantile(np.median(drawn, axis=1) / middle, (0.025, 0.975))
    return ratio, ratio / float(high), ratio / float(low)


def _of_phase(base: SideTables, rows: Int64s, states: tuple[int, ...]) -> Int64s:
    """Durations of the phase's steps in the original, by how windows stand to them; all where none stands so."""
    alike = rows[np.isin(window_states(base.steps, base.tables["windows"])[rows], states)]
    return base.steps.dur_ps[alike if len(alike) else rows]


def _compiles_apart(base: SideTables, replay: SideTables, common: CommonSteps) -> Bools:
    """Steps in which one side compiled and the other did not, `[n]`."""
    return np.asarray(_compiles(base)[common.original] != _compiles(replay)[common.replay], np.bool_)


def _compiles(side: SideTables) -> Bools:
    return np.asarray(side.steps.compile_ps > _COMPILES * side.steps.dur_ps, np.bool_)
