"""Steps of several kinds in strict turn, as a GAN's five discriminator steps to one generator step."""

import numpy as np

from phasepoint.core.arrays import Bools, Floats, Int64s
from phasepoint.core.statistics import MAD_TO_SIGMA, median, row_medians
from phasepoint.phases.detection.signals.changepoints import CAP, estimate_noise, fit_levels, switch_price

LONGEST = 16
"""Longest cycle looked for by folding; longer ones are found as events that return."""

_CHUNKS = (48, 384)
"""Steps of a chunk: short ones for a cycle that holds for a while, long ones for members that differ little."""

_LEAST_CYCLES = 5
"""Rounds in a row that a cycle must show: of fewer, noise has some period that fits."""

_CLIP = float(np.log(3))
"""Most that a step may lie off its level, in log duration: an outlier counts no more than one that is 3 × as long."""

_APART = 5.0
"""Standard errors by which two members of a cycle must differ, and not only by the least gap."""

_MEDIAN_ERROR = 1.2533
"""Standard error of a median of normal values, in standard errors of their mean."""

_FALSE_ALARM = 1e-3
"""Runs of noise in which a cycle may be found: one in 1,000, as for schedules."""

_CONFIRMED, _CONFIRMED_THROUGHOUT = 0.72, 0.6
"""Least part of every member's steps that must themselves lie nearest to that member's place. Folding at half of a
longer period confirms only half of them. A cycle throughout the run had no stretch to choose, and needs less."""

_VISITS_ALIKE = 0.8
"""Scatter of the visits of an odd member, in units of its height: half a period gives 1, a third 1.4, a cycle with the
least height that is looked for 0.5."""

_THROUGHOUT = 0.9
"""Part of the run's steps that follow a cycle from which on it holds throughout: outliers keep some from following."""


def find_alternation(values: Floats, sigma: float, gap: float) -> Int64s:
    """Which member of a cycle each step is: 0 for the commonest or outside any cycle, 1, 2, … for the others, `[n]`.

    The run is cut into chunks; each is folded at every cycle length, and the length whose folded means differ
    most beyond chance (a chi-squared statistic) is taken. A path through the cycle's shifts
    then says where the run follows it, so that a cycle may begin, stop or slip.

    Args:
        values: log durations, `[n]`.
        sigma: standard deviation of a value.
        gap: least difference of two members of a cycle.
    """
    none = np.zeros(len(values), np.int64)
    template = _best_template(values, sigma)
    if template is None or np.ptp(template) < gap:
        return none
    residual = _less_level(values, len(template), sigma)
    for _ in range(3):
        phase, followed = _follow(residual, template, sigma)
        if followed.sum() < len(template) * max(_LEAST_CYCLES, 3 * _stretches(phase, followed)):
            return none
        template = _folded(residual, phase, followed, template)
    member = _members(template, np.bincount(phase[followed], minlength=len(template)), sigma, gap)
    n_odd = int((followed & (member[phase] > 0)).sum())
    n_rest = int(followed.sum()) - n_odd
    # Every stretch of the run, every cycle and every place in it was tried.
    by_chance = float(np.sqrt(2 * np.log(len(values) ** 2 / 2 * LONGEST**2 / _FALSE_ALARM)))
    throughout = followed.mean() >= _THROUGHOUT
    own = min(sigma, _scatter(residual - template[phase], len(template))) if throughout else sigma
    if np.ptp(template) * (n_odd * n_rest / max(n_odd + n_rest, 1)) ** 0.5 < by_chance * own:
        return none
    if np.ptp(template) < gap or not _is_confirmed(residual, template, phase, followed, member, sigma=sigma):
        return none
    return np.where(followed, member[phase], 0)


def _scatter(left: Floats, places: int) -> float:
    """Standard deviation of what a template of so many `places` leaves: in a short run the noise seemed more."""
    return float(MAD_TO_SIGMA * median(np.abs(left)) * (len(left) / max(len(left) - places, 1)) ** 0.5)


def _best_template(values: Floats, sigma: float) -> Floats | None:
    """Folded middles of the clearest chunk, less their mean, at the period that explains most; null if none does.

    Chunks are compared by means, which are quick; the template is of medians, which no outlier moves.
    """
    best_score = 0.0
    best: Floats | None = None
    for chunk in _CHUNKS:
        size = min(chunk, len(values))
        n_chunks = len(values) // size
        chunks = values[: n_chunks * size].reshape(n_chunks, size)
        chunks = np.clip(chunks - row_medians(chunks)[:, None], -_CLIP, _CLIP)
        for period in range(2, min(LONGEST, size // _LEAST_CYCLES) + 1):
            rounds = size // period
            folded = chunks[:, : rounds * period].reshape(n_chunks, rounds, period).mean(axis=1)
            folded -= folded.mean(axis=1, keepdims=True)
            gain = rounds * (folded**2).sum(axis=1) / sigma**2 - _by_chance(period, n_chunks)
            score = float(np.maximum(gain, 0).sum())
            if score > 1.02 * best_score:
                rows = chunks[int(gain.argmax()), : rounds * period].reshape(rounds, period)
                best_score, best = score, np.median(rows, axis=0)
    return None if best is None else _shortest(best - best.mean(), len(values), sigma)


def _shortest(template: Floats, n: int, sigma: float) -> Floats:
    """The template at the shortest divisor of its period that explains it up to chance."""
    period = len(template)
    error = _MEDIAN_ERROR * sigma * (period / n) ** 0.5
    for divisor in (d for d in range(2, period) if period % d == 0):
        shorter = template.reshape(-1, divisor).mean(axis=0)
        left = float(((template - np.tile(shorter, period // divisor)) ** 2).sum()) / error**2
        freedom = period - divisor
        if left < freedom + 3 * (2 * freedom) ** 0.5:
            return np.asarray(shorter)
    return template


def _by_chance(period: int, n_chunks: int) -> float:
    """Chi-squared that noise reaches about once in fifty runs, over all periods and chunks tried."""
    freedom = period - 1
    return freedom + 2.5 * float(np.sqrt(2 * freedom)) + 2 * float(np.log(LONGEST * n_chunks)) + 4


def _less_level(values: Floats, period: int, sigma: float) -> Floats:
    """Values less the level of whole cycles, clipped: the level must not follow the members in turn."""
    n_cycles = len(values) // period
    cycles = values[: n_cycles * period].reshape(n_cycles, period)
    middle = row_medians(cycles)[:, None]
    means = (middle + np.clip(cycles - middle, -_CLIP, _CLIP)).mean(axis=1)
    fitted = fit_levels(means, max(sigma / period**0.5, estimate_noise(means))).fitted
    level = np.append(np.repeat(fitted, period), np.full(len(values) - n_cycles * period, fitted[-1]))
    return np.asarray(np.clip(values - level, -_CLIP, _CLIP))


def _is_confirmed(
    residual: Floats,
    template: Floats,
    phase: Int64s,
    followed: Bools,
    member: Int64s,
    *,
    sigma: float,
) -> bool:
    """Whether most steps of every member lie nearest to their own member's place, and visits of one are alike."""
    centre = np.array([template[member == number].mean() for number in range(int(member.max()) + 1)])
    own = member[phase[followed]]
    nearest = np.abs(residual[followed][:, None] - centre).argmin(axis=1)
    right = np.bincount(own, nearest == own, len(centre)) / np.maximum(np.bincount(own, minlength=len(centre)), 1)
    if right.min() < (_CONFIRMED_THROUGHOUT if followed.mean() >= _THROUGHOUT else _CONFIRMED):
        return False
    if member.max() > 1:
        return True
    odd = followed & (member[phase] > 0)
    height = abs(float(residual[odd].mean() - residual[followed & ~odd].mean()))
    start = np.arange(len(residual)) - phase
    scatter = max(_scatter_of_visits(residual[own], start[own], sigma) for own in (odd, followed & ~odd))
    return scatter < _VISITS_ALIKE * height


def _scatter_of_visits(residual: Floats, start: Int64s, sigma: float) -> float:
    """Standard deviation of the means of visits; where the period is longer, some are far off and others not at all."""
    visit = np.unique(start, return_inverse=True)[1]
    means = np.bincount(visit, residual) / np.bincount(visit)
    return float(np.clip(means - means.mean(), -3 * sigma, 3 * sigma).std())


def _stretches(phase: Int64s, followed: Bools) -> int:
    """How often the cycle begins, or slips: one that does all the time is none."""
    period = int(phase.max()) + 1
    slips = followed[1:] & followed[:-1] & ((phase[:-1] + 1) % period != phase[1:])
    begins = followed[1:] & ~followed[:-1]
    return 1 + int(slips.sum()) + int(begins.sum())


def _follow(values: Floats, template: Floats, sigma: float) -> tuple[Int64s, Bools]:
    from phasepoint.phases.detection.signals.kernels import cheapest_shifts

    period = len(template)
    shift = cheapest_shifts(values, template, sigma, switch_price(len(values)), CAP)
    followed = shift < period
    return (np.arange(len(values)) + np.where(followed, shift, 0)) % period, followed


def _folded(values: Floats, phase: Int64s, followed: Bools, template: Floats) -> Floats:
    return np.array(
        [
            median(values[followed & (phase == at)]) if (followed & (phase == at)).any() else template[at]
            for at in range(len(template))
        ]
    )


def _members(template: Floats, visits: Int64s, sigma: float, gap: float) -> Int64s:
    """Members of the cycle by value: 0 is the commonest, then by value.

    Places are joined, the closest first, until all differ by `gap` and by `_APART` standard errors.
    """
    order = np.argsort(template, kind="stable")
    parts = np.split(np.arange(len(template)), len(template))
    while len(parts) > 1:
        weight = np.array([max(float(visits[order[part]].sum()), 1.0) for part in parts])
        centre = np.array([float(template[order[part]].mean()) for part in parts])
        error = _MEDIAN_ERROR * sigma * np.sqrt(1 / weight[1:] + 1 / weight[:-1])
        closeness = np.diff(centre) / np.maximum(gap, _APART * error)
        i = int(closeness.argmin())
        if closeness[i] >= 1:
            break
        parts[i : i + 2] = [np.concatenate(parts[i : i + 2])]
    group = np.empty(len(template), np.int64)
    for number, part in enumerate(parts):
        group[order[part]] = number
    size = np.bincount(group)
    rank = np.empty(len(size), np.int64)
    rank[np.argsort(-size, kind="stable")] = np.arange(len(size))
    return rank[group]
