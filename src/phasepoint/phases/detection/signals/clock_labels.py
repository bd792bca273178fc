"""Labels from the step clock alone, for steps that hints and ops do not already tell apart.

Three things are known beside the levels. Stretches in which steps wait for data are seen on the loader's own clock,
whatever the step's length does. In a run whose first step is known to have compiled, a step about as long as that one,
where the level changes, compiled again. The change is then known to the step: it need not be looked for among all
steps, so less evidence is enough, and a boundary that noise had moved comes back.
"""

from dataclasses import dataclass, field

import numpy as np

from phasepoint.core.arrays import Bools, Floats, Int64s
from phasepoint.core.statistics import median
from phasepoint.phases.detection.signals.alternation import find_alternation
from phasepoint.phases.detection.signals.changepoints import (
    CAP,
    Levels,
    estimate_noise,
    fit_both,
    fit_levels,
    least_gap,
    long_price,
    segment_starts,
    switch_price,
)
from phasepoint.phases.detection.signals.drift import find_drifts, is_ramp
from phasepoint.phases.detection.signals.events import find_events

_RECOMPILE_LONG = float(np.log(8))
"""Log duration over its level from which on a step may have compiled: longer than most outliers."""

_LIKE_FIRST = float(np.log(2))
"""A step that compiled again lasts at least half as long as the first one."""

_LEAST_SIDE = 8
"""Steps on either side of a recompilation for a change to be looked for there: as few as have phases at all."""

_MOST = 16
"""Steps looked at one by one, the longest: a run that compiles more often has these in its levels."""


def find_recompiles(
    values: Floats, label: Int64s, level: Floats, first: float, *, sigma: float, gap: float
) -> tuple[Int64s, Int64s]:
    """Positions of the steps that compiled again, and labels `[n]` that change there.

    Args:
        values: log durations of the steps on the run's levels, `[n]`.
        label: level of each, from 0.
        level: log duration of that level.
        first: log duration of the run's first step.
        sigma: standard deviation of a value.
        gap: least difference between levels.
    """
    label, level = label.copy(), level.copy()
    found = set()
    far = np.flatnonzero((values - level > _RECOMPILE_LONG) & (values > first - _LIKE_FIRST))
    for at in far[np.argsort(-values[far], kind="stable")][:_MOST]:
        if _moved(values, label, level, int(at), sigma) or _split(values, label, level, int(at), sigma=sigma, gap=gap):
            found.add(int(at))
    for change in segment_starts(label)[1:]:
        around = np.arange(max(change - 2, 0), min(change + 2, len(values)))
        longest = int(around[values[around].argmax()])
        others = max(level[max(change - 3, 0)], level[min(change + 3, len(values) - 1)])
        if values[longest] - others > _RECOMPILE_LONG:
            found.add(longest)
    return np.array(sorted(found), np.int64), label


def _moved(values: Floats, label: Int64s, level: Floats, at: int, sigma: float) -> bool:
    """Move the nearest change to `at` where the steps between argue against it by less than a change's price."""
    starts = segment_starts(label)[1:]
    if len(starts) == 0:
        return False
    change = int(starts[np.abs(starts - at).argmin()])
    low, high = min(change, at), max(change, at)
    taken = change if change > at else change - 1
    others = np.concatenate([np.arange(low, at), np.arange(at + 1, high)])
    new = level[taken]
    worse = np.minimum((values[others] - new) ** 2 / (2 * sigma**2), CAP).sum()
    worse -= np.minimum((values[others] - level[others]) ** 2 / (2 * sigma**2), CAP).sum()
    if worse >= switch_price(len(values)):
        return False
    label[low:high] = label[taken]
    level[low:high] = new
    return True


def _split(values: Floats, label: Int64s, level: Floats, at: int, *, sigma: float, gap: float) -> bool:
    """Split the segment at `at` where its two sides differ by three standard errors: the place was not chosen."""
    bounds = np.append(segment_starts(label), len(label))
    segment = int(np.searchsorted(bounds, at, side="right")) - 1
    begin, end = int(bounds[segment]), int(bounds[segment + 1])
    if min(at - begin, end - at - 1) < _LEAST_SIDE:
        return False
    limit = 3 * sigma
    before, after = (
        float(level[at] + np.clip(part - level[at], -limit, limit).mean())
        for part in (values[begin:at], values[at + 1 : end])
    )
    error = sigma * (1 / (at - begin) + 1 / (end - at - 1)) ** 0.5
    if abs(after - before) < max(gap, 3 * error):
        return False
    level[begin:at], level[at:end] = before, after
    label[at:end] = label.max() + 1
    return True


_WAITING = 0.2
"""Part of a step from which on waiting for data is worth a name."""

_LEAST_RISE = 0.15
"""Part of a step by which waiting must exceed the rest of the run's: as in naming, less is how this job works."""

_SCALE = 0.08
"""Standard deviation of a step's waiting part about its level: a choice, it is bounded by 0 and 1 on either side."""

_LEAST_STEPS = 8
"""Steps that must wait, and that must not, for two levels to be fitted."""


def find_input_stalls(dur_ps: Int64s, input_ps: Int64s) -> Bools:
    """Steps in stretches of waiting, `[n]`: a two-level fit of the waiting part of each step.

    Args:
        dur_ps: step durations.
        input_ps: waiting for data, part of the duration.
    """
    from phasepoint.phases.detection.signals.kernels import cheapest_levels

    share = np.minimum(input_ps / np.maximum(dur_ps, 1), 1.0)
    high = share >= _WAITING
    if min(int(high.sum()), int((~high).sum())) < _LEAST_STEPS:
        return np.zeros(len(share), bool)
    levels = np.array([median(share[~high]), median(share[high])])
    if levels[1] - levels[0] < _LEAST_RISE:
        return np.zeros(len(share), bool)
    path = cheapest_levels(share, levels, _SCALE, switch_price(len(share)), CAP)
    return np.asarray(path == 1) if int((path == 1).sum()) >= _LEAST_STEPS else np.zeros(len(share), bool)


LEAST_STEPS = 8
"""Fewer steps than this are one phase: there is nothing to tell their scatter from a change."""

_LEAST_SPLIT = 40
"""Steps from which on a class of events may itself have levels, and the noise is measured anew without events."""

_APART = 0.25
"""Least log difference of such levels: changes of a quarter are what a user is to see (benchmarks/phases.py)."""

_FIRST_STEP_LONG = float(np.log(3))
"""Log duration over the next steps from which on the run's first step is taken to have compiled (docs/phases.md)."""


@dataclass(frozen=True, eq=False)
class ClockLabels:
    """Labels of a sequence of steps.

    Attributes:
        label: `[n]`.
        slow: steps far longer than their phase, `[n]`.
        event: steps of cycles, schedules and compilation, `[n]`; the others are on the run's levels.
        roles: what a label is known to be.
    """

    label: Int64s
    slow: Bools
    event: Bools
    roles: dict[int, str] = field(default_factory=dict)


def label_by_clock(values: Floats, *, starts_run: bool) -> ClockLabels:
    """Label log durations `[n]`.

    The order is: a first level fit; cycles and scheduled events as what departs from it; levels again without
    them; drifts among those levels. Each step helps the next, and every one leaves outliers where they are.

    Args:
        values: log durations.
        starts_run: whether the first value is the run's first step, which may have compiled.
    """
    n = len(values)
    if n < LEAST_STEPS:
        return one_phase(n, np.zeros(n, bool))
    first = np.zeros(n, bool)
    first[0] = starts_run and values[0] - np.median(values[1:LEAST_STEPS]) > _FIRST_STEP_LONG
    sigma = estimate_noise(values[~first])
    plain = ~first
    turn, event = _events(values, plain, sigma)
    base = plain & (turn == 0) & (event == 0)
    if (~base).sum() > first.sum() and base.sum() >= _LEAST_SPLIT:
        sigma = estimate_noise(values[base])
    label, roles, fitted = _base_labels(values, base, sigma)
    where = np.flatnonzero(base)
    if first.any() and len(where) >= LEAST_STEPS:
        gap = least_gap(values[where], sigma)
        again, label[where] = find_recompiles(
            values[where], label[where], fitted[where], float(values[0]), sigma=sigma, gap=gap
        )
        first[where[again]] = True
    label = _extra_labels(label, turn, values, sigma)
    label = _extra_labels(label, event, values, sigma)
    if first.any():
        label[first] = label.max() + 1
        roles[int(label.max())] = "compile"
    slow = base & ~first & (values - fitted > max(4 * sigma, float(np.log(2))))
    return ClockLabels(label, slow, ~base | first, roles)


def one_phase(n: int, slow: Bools) -> ClockLabels:
    """All of `n` steps alike."""
    return ClockLabels(np.zeros(n, np.int64), slow, np.zeros(n, bool))


def _events(values: Floats, plain: Bools, sigma: float) -> tuple[Int64s, Int64s]:
    """Members of cycles and classes of events, `[n]` each, 0 for neither."""
    turn, event = np.zeros(len(values), np.int64), np.zeros(len(values), np.int64)
    turn[plain] = find_alternation(values[plain], sigma, max(least_gap(values[plain], sigma), 0.1))
    rest = plain & (turn == 0)
    n_rest = int(rest.sum())
    if n_rest < LEAST_STEPS:
        return turn, event
    residual = np.zeros(len(values))
    residual[rest] = values[rest] - fit_levels(values[rest], sigma, price=long_price(n_rest)).fitted
    return turn, np.where(rest, find_events(residual, sigma), 0)


def _base_labels(values: Floats, base: Bools, sigma: float) -> tuple[Int64s, dict[int, str], Floats]:
    """Levels and drifts of the steps in `base`; label 0 for the others. Also every step's level, `[n]`."""
    label, fitted = np.zeros(len(values), np.int64), values.copy()
    roles: dict[int, str] = {}
    if base.sum() < LEAST_STEPS:
        return label, roles, fitted
    levels = _levels(values[base], sigma)
    mine = levels.label.copy()
    next_label = len(levels.centre)
    for group in _components(levels.centre, sigma):
        members = np.flatnonzero(np.isin(levels.label, group))
        for drift in find_drifts(values[base][members], levels.label[members], sigma, levels.gap):
            mine[members[drift.begin : drift.first]] = drift.before
            mine[members[drift.first : drift.last]] = next_label
            mine[members[drift.last : drift.end]] = drift.after
            roles[next_label] = "drift"
            next_label += 1
    label[base], fitted[base] = mine, levels.fitted
    return label, roles, fitted


def _levels(values: Floats, sigma: float) -> Levels:
    """Levels; those that shade into each other are one, unless because of a drift."""
    fine, shaded = fit_both(values, sigma)
    if len(fine.centre) == len(shaded.centre):
        return shaded
    stairs = [group for group in _components(fine.centre, sigma) if len(group) >= 3]
    ramps = [is_ramp(values[np.isin(fine.label, group)], sigma, fine.gap) for group in stairs]
    return fine if ramps and all(ramps) else shaded


def _components(centre: Floats, sigma: float) -> list[Int64s]:
    """Levels near enough for a drift to run through them, in groups."""
    cuts = np.flatnonzero(np.diff(centre) > max(0.35, 3 * sigma)) + 1
    return [group for group in np.split(np.arange(len(centre)), cuts) if len(group) > 1]


def _extra_labels(label: Int64s, extra: Int64s, values: Floats, sigma: float) -> Int64s:
    """Labels with a new one for each class in `extra`, several where a class itself has levels."""
    for number in range(1, int(extra.max()) + 1):
        members = np.flatnonzero(extra == number)
        if len(members) == 0:
            continue
        label[members] = label.max() + 1
        if len(members) >= _LEAST_SPLIT:
            levels = fit_levels(values[members], max(sigma, estimate_noise(values[members])), shaded=True)
            if len(levels.centre) > 1 and np.diff(levels.centre).min() > _APART:
                label[members] += levels.label
    return label
