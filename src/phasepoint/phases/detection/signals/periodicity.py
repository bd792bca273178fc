"""Schedules: events at one distance, or, too faint to see one by one, the run folded where it resembles itself most."""

from dataclasses import dataclass
from math import lgamma

import numpy as np

from phasepoint.core.arrays import Bools, Floats, Int64s

_LEAST_PERIOD = 4
"""Steps between events, from which on they make a schedule: closer ones are stretches."""

_MOST_PAIRS = 2_000_000
"""Pairs of events whose distances are counted, about 16 MB; of more events, each is paired with fewer after it."""

_LOG_CHANCE = float(np.log(1e-3))
"""A schedule that random events would make more often than once in 1,000 runs is none."""


@dataclass(frozen=True, eq=False)
class Schedule:
    """Events that return.

    Attributes:
        period: steps from one to the next.
        hits: events that another follows or precedes at that distance, rising.
        log_chance: log of how often random events would make as many pairs at any distance.
    """

    period: int
    hits: Int64s
    log_chance: float


def find_schedule(events: Int64s, n: int, *, tried: int = 1) -> Schedule | None:
    """The commonest distance between events, where chance does not explain it.

    Pairs at one distance among `m` random events of `n` steps are Poisson with mean m² / n.

    Args:
        events: positions, rising, `[m]`.
        n: steps of the run.
        tried: sets of events among which these were chosen; chance is given as many.
    """
    m = len(events)
    if m < 3:
        return None
    lags = []
    for ahead in range(1, min(m - 1, max(_MOST_PAIRS // m, 8)) + 1):
        lag = events[ahead:] - events[:-ahead]
        lag = lag[lag <= n // 3]
        if len(lag) == 0:
            break
        lags.append(lag)
    pairs = np.bincount(np.concatenate(lags), minlength=n // 3 + 1) if lags else np.zeros(n // 3 + 1, np.int64)
    pairs[:_LEAST_PERIOD] = 0
    # Multiples of a period are hit nearly as often; the smallest of those that are is the period.
    period = int(np.flatnonzero(pairs >= 0.85 * pairs.max())[0]) if pairs.any() else 0
    if period == 0 or pairs[period] < 2:
        return None
    # Events that crowd in a part of the run make more pairs than m² / n: the lags around say how many.
    around = pairs[max(period // 2, _LEAST_PERIOD) : 2 * period]
    usual = max(m * m / n, float((around.sum() - pairs[period]) / max(len(around) - 1, 1)))
    log_chance = _log_poisson_tail(int(pairs[period]), usual) + np.log(max(n / 3, 1))
    known = np.zeros(int(events[-1]) + 2 * period + 1, bool)
    known[events + period] = True
    hits = events[known[events] | known[events + 2 * period]]
    if np.quantile(np.diff(hits), 0.75) > 2 * period:
        return None
    log_chance = min(log_chance, _log_chance_of_phase(events, period, n))
    if log_chance + np.log(tried) > _LOG_CHANCE:
        return None
    return Schedule(period, hits, float(log_chance))


def _log_chance_of_phase(events: Int64s, period: int, n: int) -> float:
    """Log of how often random events would hit one phase of one period as often, over all periods and phases.

    Stronger than pairs where a schedule runs from one end to the other, and all there is when it has few returns.
    """
    phase, count = np.unique(events % period, return_counts=True)
    best = int(count.argmax())
    if count[best] < 4:
        return 0.0
    visits = (n - 1 - int(phase[best])) // period + 1
    tried = max(n / 3, 1) * period
    return _log_draw_tail(int(count[best]), visits, len(events), n) + float(np.log(tried))


def _log_draw_tail(count: int, marked: int, drawn: int, n: int) -> float:
    """Log of P(X ≥ count), X the marked among `drawn` of `n` without return (hypergeometric): exact in short runs."""
    most = min(marked, drawn)
    hits = range(count, most + 1)
    terms = [_log_choose(marked, k) + _log_choose(n - marked, drawn - k) for k in hits]
    return float(np.logaddexp.reduce(terms)) - _log_choose(n, drawn) if terms else -np.inf


def _log_choose(n: int, k: int) -> float:
    """Log of n! / (k! (n − k)!)."""
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1) if 0 <= k <= n else -np.inf


def _log_poisson_tail(count: int, mean: float) -> float:
    """Log of P(X ≥ count) for X Poisson, by its first term: an upper bound's order of magnitude for count > mean."""
    if count <= mean:
        return 0.0
    terms = np.arange(1, count + 1)
    first = -mean + float(count * np.log(mean) - np.log(terms).sum())
    return min(first - float(np.log1p(-mean / (count + 1))), 0.0)


def steps_on(schedule: Schedule, residual: Floats, sigma: float) -> Bools:
    """Steps that a schedule claims, `[n]`: its hits, the returns that noise hid, and the steps of each block.

    Args:
        schedule: period and hits.
        residual: log duration less its level, `[n]`.
        sigma: standard deviation of a step.
    """
    n, period = len(residual), schedule.period
    claimed = np.zeros(n, bool)
    offset = schedule.hits % period
    kept = 0
    stray: list[Int64s] = []
    for phase, count in zip(*np.unique(offset, return_counts=True), strict=True):
        mine = schedule.hits[offset == phase]
        first, last = int(mine[0]), int(mine[-1])
        if count < 0.5 * ((last - first) // period + 1):
            stray.append(mine)
            continue
        kept += int(count)
        visits = np.arange(first, last + 1, period)
        visits = _extended(visits, residual, period)
        level = float(np.median(residual[mine]))
        for step in _block(visits, residual, level, sigma, period):
            inside = visits + step
            claimed[inside[(inside >= 0) & (inside < n)]] = True
    # No phase of the period is kept where the schedule slips: then the hits themselves are all there is.
    if kept < 0.3 * len(schedule.hits):
        claimed[np.concatenate(stray)] = True
    return claimed


def _extended(visits: Int64s, residual: Floats, period: int) -> Int64s:
    """One more return at either end of the run, which no pair could confirm."""
    before, after = visits[0] - period, visits[-1] + period
    parts = [visits]
    if before >= 0 and before < period:
        parts.insert(0, np.array([before]))
    if after < len(residual) and after >= len(residual) - period:
        parts.append(np.array([after]))
    return np.concatenate(parts)


def _block(visits: Int64s, residual: Floats, level: float, sigma: float, period: int) -> list[int]:
    """Steps relative to a visit that share its level, from the first before it to the last after it."""
    inside = [0]
    for direction in (-1, 1):
        step = direction
        while abs(step) <= period // 2:
            at = visits + step
            at = at[(at >= 0) & (at < len(residual))]
            if len(at) == 0 or abs(float(np.median(residual[at])) - level) > 0.5 * abs(level):
                break
            inside.append(step)
            step += direction
    return inside


_LEAST_VISITS = 4
"""Returns that a schedule must have in the run: three have two distances, which noise makes alike too often."""

_CLEAR = 1.2
"""Standard deviations by which the autocorrelation must rise above the most that noise reaches among all lags."""

_MEDIAN_ERROR = 1.2533
"""Standard error of a median of normal values, in standard errors of their mean."""

_SHORT = 2000
"""Steps up to which every period is folded: the work is quadratic."""

_LENGTHS = (1, 2, 3, 5, 8, 12, 20)
"""Steps of a block that are tried; one of another length is found by the nearest, and grown to its own."""

_FALSE_ALARM = 1e-3
"""Runs of noise in which a block may be found: one in 1,000, as for events and cycles."""

_MOST_SLOW, _MOST_FAST = 2.4, 3.5
"""Standard deviations that one step may argue for a period. Trouble makes steps slow, seldom fast: a few outliers that
happen to be at one distance make no period here, and a lone one among fast steps argues against them by one."""

_CLIPPED_MEAN = 0.083
"""Mean of a standard normal value that is taken for -1 where it is less: φ(1) + Φ(1) - 1."""

_WINDOW = 51
"""Steps around each whose middle is taken off: more than twice the longest block, so that no block takes itself off."""

_LEAST_HEIGHT = 0.1
"""Least departure of a block, in log duration."""

_GROWN = 3.0
"""Standard errors by which a step next to a block must depart to be the block's: only its two neighbours are asked."""

_CERTAIN = 8
"""Visits that make a schedule even where it holds for a part of the run."""

_KEPT = 0.7
"""Least part of a schedule's visits at which its block must itself be seen; half a true period shows half."""


@dataclass(frozen=True, eq=False)
class FoldedBlock:
    """A block of steps that returns once a period.

    Attributes:
        steps: positions of its steps, rising.
        level: its mean residual.
    """

    steps: Int64s
    level: float


def find_folded_blocks(residual: Floats, sigma: float, least_period: int) -> list[FoldedBlock]:
    """Blocks on the clearest schedule that covers most of a stretch of the run; empty where there is none.

    Args:
        residual: log duration less its level, `[n]`.
        sigma: standard deviation of a step.
        least_period: shorter periods are not tried.
    """
    limit = max(4 * sigma, 0.7)
    clipped = np.clip(residual, -limit, limit)
    likely = _likely_periods(clipped, least_period)
    for period in likely:
        blocks = _blocks_at(clipped, period, sigma)
        if blocks:
            return blocks
    clear = _clear_block(residual, sigma, least_period) if len(residual) <= _SHORT else None
    return _blocks_of(clipped, clear, sigma) if clear is not None else []


def _likely_periods(values: Floats, least: int) -> list[int]:
    """Lags of clear autocorrelation, the shortest of equals first."""
    n = len(values)
    most = n // _LEAST_VISITS
    if most < least:
        return []
    centred = values - values.mean()
    size = _fast_size(n + most + 2)
    spectrum = np.fft.rfft(centred.astype(np.float32), size)
    auto = np.fft.irfft(spectrum.real**2 + spectrum.imag**2, size)[: most + 2].astype(np.float64)
    if auto[0] <= 0:
        return []
    z = auto / auto[0] * n / np.sqrt(n - np.arange(most + 2))
    inner = z[1:-1]
    peak = (
        np.flatnonzero((inner >= z[:-2]) & (inner >= z[2:]) & (inner > _CLEAR + np.sqrt(2 * np.log(max(most, 2))))) + 1
    )
    peak = peak[peak >= least]
    if len(peak) == 0:
        return []
    # Every multiple of a period peaks too: those nearly as high as the highest, shortest first.
    height = auto[peak] * n / (n - peak)
    return [int(p) for p in peak[height > 0.8 * height.max()][:4]]


@dataclass(frozen=True)
class _Block:
    """Offsets `first` … `first + length - 1` of a period."""

    period: int
    first: int
    length: int


def _clear_block(values: Floats, sigma: float, least: int) -> _Block | None:
    """The block of a short run that, folded, departs most, null where none does clearly.

    Every period, phase and block length is tried, so a run of pure noise yields one with probability `_FALSE_ALARM`
    at most. Steps below their level count by their ratio: a logarithm's lower tail is longer than the normal one.
    """
    n = len(values)
    off = np.where(values < 0, np.expm1(values), values)
    off = off - (_running_middle(off) if n >= 8 * _WINDOW else np.median(off))
    sides = np.stack([np.clip(off, -sigma, _MOST_SLOW * sigma), np.clip(-off, -sigma, _MOST_FAST * sigma)])
    sides -= _CLIPPED_MEAN * sigma
    best, n_tried = 0.0, 0
    found: _Block | None = None
    for period in range(least, n // _LEAST_VISITS + 1):
        n_visits = n // period
        folded = sides[:, : n_visits * period].reshape(2, n_visits, period).sum(axis=1)
        ring = np.cumsum(np.concatenate([np.zeros((2, 1)), folded, folded], axis=1), axis=1)
        for length in _LENGTHS:
            if 2 * length > period:
                break
            height = (ring[:, length : length + period] - ring[:, :period]) / (n_visits * length) ** 0.5
            n_tried += period
            if height.max() > best:
                best, found = float(height.max()), _Block(period, int(height.argmax()) % period, length)
    if found is None or best < _normal_tail(_FALSE_ALARM / (2 * n_tried)) * sigma * _spread_of_means(off, found):
        return None
    return found


def _spread_of_means(values: Floats, block: _Block) -> float:
    """Standard deviation of means of as many neighbours as the block has, in units of what independent steps give.

    Threads of one machine slow steps in a row, so that their means scatter more; the block itself is taken off first.
    """
    offset = (np.arange(len(values)) - block.first) % block.period
    inside = offset < block.length
    left = values - np.where(inside, values[inside].mean(), values[~inside].mean())
    left = np.clip(left, *(np.quantile(left, (0.05, 0.95))))
    left -= left.mean()
    lags = np.arange(1, block.length)
    weight = 2 * (1 - lags / block.length)
    more = float(weight @ [left[:-lag] @ left[lag:] for lag in lags]) / max(float(left @ left), 1e-12)
    return (1 + more) ** 0.5 if more > 2 * float(((weight**2).sum() / len(left)) ** 0.5) else 1.0


def _running_middle(values: Floats) -> Floats:
    """Middle of the steps around each, `[n]`: what is left of a drift that levels were fitted to is no block."""
    half = _WINDOW // 2
    return np.asarray(
        np.median(np.lib.stride_tricks.sliding_window_view(np.pad(values, half, mode="edge"), _WINDOW), 1)
    )


def _blocks_of(values: Floats, block: _Block, sigma: float) -> list[FoldedBlock]:
    """A clear block with what belongs to it; empty where not most of its visits show it."""
    n_visits = len(values) // block.period
    folded = values[: n_visits * block.period].reshape(n_visits, block.period)
    middle = np.median(folded, axis=0)
    middle -= np.median(middle)
    off = np.zeros(block.period, bool)
    off[(block.first + np.arange(block.length)) % block.period] = True
    off &= np.abs(middle) > _LEAST_HEIGHT
    if not off.any():
        return []
    off = _grown(off, folded, sigma)
    runs = _circular_runs(off, np.sign(middle))
    levels = [float(middle[offsets % block.period].mean()) for offsets in runs]
    found = [
        _follow_block(values, offsets, block.period, level, least=_LEAST_VISITS - 1)
        for offsets, level in zip(runs, levels, strict=True)
    ]
    return [part for part in found if part is not None]


def _normal_tail(chance: float) -> float:
    """The z that a standard normal value exceeds with a small `chance`: φ(z) / z = chance, by iteration."""
    z = 4.0
    for _ in range(8):
        z = float(np.sqrt(max(-2 * np.log(chance * z * (2 * np.pi) ** 0.5), 1.0)))
    return z


def _fast_size(least: int) -> int:
    """The smallest of 2, 3 and 5 times a power of two that is at least `least`."""
    return min(factor << max(int(np.ceil(np.log2(least / factor))), 0) for factor in (2, 3, 5))


def _blocks_at(values: Floats, period: int, sigma: float) -> list[FoldedBlock]:
    n_visits = len(values) // period
    folded = values[: n_visits * period].reshape(n_visits, period)
    profile = folded.mean(axis=0)
    profile = profile - np.median(profile)
    error = max(sigma, float(values.std())) / n_visits**0.5
    off = np.abs(profile) > max(_LEAST_HEIGHT, (1.5 + np.sqrt(2 * np.log(4 * period))) * error)
    if not off.any() or off.mean() > 0.6:
        return []
    blocks = []
    for offsets in _circular_runs(_grown(off, folded, sigma), np.sign(profile)):
        block = _follow_block(values, offsets, period, float(profile[offsets % period].mean()))
        if block is not None:
            blocks.append(block)
    return blocks


def _grown(off: Bools, folded: Floats, sigma: float) -> Bools:
    """Offsets that depart, and those next to them that clearly do so too, by half as much at least, `[period]`."""
    middle = np.median(folded, axis=0)
    middle -= np.median(middle)
    least = max(_LEAST_HEIGHT, _GROWN * _MEDIAN_ERROR * sigma / len(folded) ** 0.5)
    off = off.copy()
    for step in (1, -1):
        for _ in range(len(off)):
            before = np.roll(middle, step)
            more = np.roll(off, step) & ~off & (middle * np.sign(before) > np.maximum(0.5 * abs(before), least))
            if not more.any() or (off | more).all():
                break
            off |= more
    return off


def _circular_runs(off: Bools, side: Floats) -> list[Int64s]:
    """Runs of consecutive offsets on one side, round the end of the period; offsets may exceed it."""
    period = len(off)
    begin = int(np.flatnonzero(~off)[0])
    order = (np.arange(period) + begin) % period
    state = np.where(off[order], side[order], 0)
    cuts = np.flatnonzero(np.diff(state)) + 1
    runs = np.split(np.arange(period), cuts)
    return [(run + begin).astype(np.int64) for run in runs if state[run[0]] != 0]


def _follow_block(
    values: Floats, offsets: Int64s, period: int, level: float, *, least: int = _LEAST_VISITS
) -> FoldedBlock | None:
    """The block's steps over the stretch in which it is kept, null where `least` visits or too few of them show it."""
    n = len(values)
    first = np.arange(int(offsets[0]) % period - (period if len(offsets) > 1 else 0), n, period)
    at = first[:, None] + np.arange(len(offsets))
    inside = (at >= 0) & (at < n)
    total = np.where(inside, values[np.clip(at, 0, n - 1)], 0.0).sum(axis=1)
    known = inside.sum(axis=1)
    first, at, inside, total, known = (a[known > 0] for a in (first, at, inside, total, known))
    seen = np.sign(level) * total / known > 0.5 * abs(level)
    if seen.sum() < least or (seen.sum() < _CERTAIN and seen.mean() < _KEPT):
        return None
    begin, end = (int(np.flatnonzero(seen)[i]) for i in (0, -1))
    # A visit cut off by the run's end, or the first one, belongs to a schedule that is otherwise kept.
    span = slice(0 if begin <= 1 else begin, len(seen) if end >= len(seen) - 2 else end + 1)
    if seen[span].mean() < _KEPT:
        return None
    steps = at[span][inside[span]]
    return FoldedBlock(np.sort(steps), float(np.median(values[steps])))
