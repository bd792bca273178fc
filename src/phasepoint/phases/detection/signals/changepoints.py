"""Where the step clock changes level: a robust piecewise-constant fit, and levels that come back.

The fit is exact over a grid of levels: least capped squared distance plus a price per change. The cap lets no
single step make a segment; the price follows from the length of the run, so noise alone makes none. How much step times
scatter on their own is measured first: it says how far apart two levels must be to be two.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from phasepoint.core.arrays import Floats, Int64s
from phasepoint.core.encoding import renumber
from phasepoint.core.statistics import MAD_TO_SIGMA, median, row_medians

_ENOUGH = 100_000
"""Differences that give a median to half a percent."""

_LAGS = 16
"""Distances at which neighbours are compared: one of them fits any alternation of up to as many steps."""

_SHORT = 1000
"""In shorter runs single distances scatter too much: an alternation must show at a distance and its multiples."""

MIN_GAP = 0.08
"""Least difference of two levels in log duration: smaller ones are not worth a user's attention."""

_NOISE_BLOCK = 20
"""Steps of a block whose middle shows noise slower than a step: long enough that independent noise moves it little."""


def estimate_noise(values: Floats) -> float:
    """Standard deviation of one value about its level, robust to levels, outliers and alternation.

    The usual spread of differences between values 1 to 16 apart, or the least where that is clearly less, as in an
    alternation, or where short blocks return. In a short run the least of many is small by chance alone: there
    distances count with their multiples (or one with two), and "clearly" is 3.5 / √n, three standard errors of such
    a middle (1.17 / √n).

    Args:
        values: log durations in the run's order, `[n]`.
    """
    n = len(values)
    lags = range(1, max(min(_LAGS if n >= _SHORT else 3 * _LAGS, n // 3), 1) + 1)
    every = max(n // _ENOUGH, 1)
    spread = [median(np.abs(values[lag::every] - values[:-lag:every])) for lag in lags]
    usual = float(np.median(spread[:_LAGS]))
    multiples = 1 if n >= _SHORT else 2
    periods = range(1, min(_LAGS, len(spread) // multiples) + 1)
    least = min((float(np.median(spread[lag - 1 :: lag])) for lag in periods), default=usual)
    least = min(least, float(np.mean(spread[:2])))
    clearly_less = 1 - max(0.25, 3.5 / n**0.5)
    return max(MAD_TO_SIGMA * (least if least < clearly_less * usual else usual) / 2**0.5, 1e-3)


def least_gap(values: Floats, sigma: float) -> float:
    """Least difference between two levels of `values`, in log duration.

    Noise that is slower than a step (a neighbour on the machine) moves the means of whole blocks; the gap is
    then three times what neighbouring blocks usually differ by, beyond what independent noise explains.
    """
    gap = max(MIN_GAP, 0.4 * sigma)
    n_blocks = len(values) // _NOISE_BLOCK
    if n_blocks < 8:
        return gap
    means = row_medians(values[: n_blocks * _NOISE_BLOCK].reshape(n_blocks, _NOISE_BLOCK))
    moved = MAD_TO_SIGMA * median(np.abs(np.diff(means))) / 2**0.5
    independent = 1.2533 * sigma / _NOISE_BLOCK**0.5
    slow = max(moved**2 - (1.5 * independent) ** 2, 0.0) ** 0.5
    return max(gap, min(3 * float(slow), 0.5))


CAP = 6.0
"""Most that one step may argue for a level (log likelihood): as much as a step 3.5 standard deviations off."""

_BLOCK = 5
"""Steps of a block whose median may be a level of the grid: as many as two outliers cannot move."""

_SCATTER = 4.5
"""Standard deviations of the segments of a level that another level must be away. With half of it, step times that
wander (a machine that is shared) make phases (`test_wandering_step_times_are_one_phase`)."""

_MANY = 6
"""Segments of a group from which on their own scatter counts; of fewer, that of all groups together."""

_SPARE = 4
"""Segments more than groups, the degrees of freedom of their scatter, below which nothing is known of it."""

_LONG = 2_000
"""Steps of an average segment from which on sorting it takes less time than the compiled selection does."""


@dataclass(frozen=True, eq=False)
class Levels:
    """A piecewise-constant fit.

    Attributes:
        label: level per value, `[n]`.
        centre: centre per level, rising, `[n_levels]`.
        sigma: standard deviation of a value about its level.
        gap: least difference between levels.
    """

    label: Int64s
    centre: Floats
    sigma: float
    gap: float

    @property
    def fitted(self) -> Floats:
        """Centre of every value's level, `[n]`."""
        return self.centre[self.label]


def switch_price(n: int) -> float:
    """Price of a change of level in a run of `n` steps, as log likelihood.

    A stretch of pure noise offers gains of about log n over all its starts and lengths; two changes must cost
    more than that, and more than two capped steps.
    """
    return 5.6 + 0.4 * float(np.log(n))


def least_errors(n: int) -> float:
    """Standard errors that make a level: 4.4 at 100 steps, 5.5 at 10,000.

    A normal tail beyond z is less than exp(-z² / 2). A stretch may begin at any of `n` steps and end at any; those
    that overlap say much the same, so that `n` to the power of 1.5 counts them better than the square. In a short
    run the noise is itself known to 1 / √n only, which lengthens the tail.
    """
    z = float(np.sqrt(2 * (1.5 * np.log(n) + 1.2)))
    return z * (1 + z * z / (2 * n))


def long_price(n: int) -> float:
    """Price of a change that leaves blocks of up to 24 steps (n / 20 in a short run) to be found as events."""
    return float(np.clip(CAP * n / 40, switch_price(n), 12 * CAP))


def fit_levels(values: Floats, sigma: float, *, price: float | None = None, shaded: bool = False) -> Levels:
    """Fit levels to `values` `[n]`: a grid first, then the levels that its segments gather at.

    Args:
        values: log durations.
        sigma: standard deviation of a value.
        price: price of a change; `switch_price(n)` where it is left out.
        shaded: whether levels that shade into each other are one; a slow drift is one such.
    """
    return _Fitter(values, sigma, switch_price(len(values)) if price is None else price).fit(shaded=shaded)


def fit_both(values: Floats, sigma: float) -> tuple[Levels, Levels]:
    """`fit_levels` with levels that shade into each other apart, and as one; what both need is worked out once."""
    fitter = _Fitter(values, sigma, switch_price(len(values)))
    return fitter.fit(shaded=False), fitter.fit(shaded=True)


@dataclass(frozen=True, eq=False)
class _Cut:
    """Values cut into segments: where each begins, how long it is and its location, `[n_segments]`."""

    starts: Int64s
    length: Int64s
    level: Floats


class _Fitter:
    """Fits of one sequence; the cut by one set of levels is made once, since fits that have settled ask for it again.

    A million values are cut in 20–50 ms, nearly all of a fit's time.
    """

    def __init__(self, values: Floats, sigma: float, price: float) -> None:
        self._values, self._sigma, self._price = values, sigma, price
        self._gap = least_gap(values, sigma)
        self._grid = _grid(values, sigma)
        self._cuts: dict[bytes, _Cut] = {}

    def fit(self, *, shaded: bool) -> Levels:
        """The levels that segments gather at, from the grid's in three rounds."""
        centre = self._grid
        for _ in range(3):
            cut = self._cut(centre)
            centre = _gather_levels(cut, len(self._values), self._sigma, self._gap, shaded=shaded)
        nearest = np.abs(cut.level[:, None] - centre[None, :]).argmin(axis=1)
        label = np.repeat(nearest, cut.length).astype(np.int64)
        return Levels(*_drop_passing(label, centre), self._sigma, self._gap)

    def _cut(self, levels: Floats) -> _Cut:
        from phasepoint.phases.detection.signals.kernels import cheapest_levels

        key = levels.tobytes()
        if key not in self._cuts:
            path = cheapest_levels(self._values, levels, self._sigma, self._price, CAP)
            starts = segment_starts(path)
            length = np.diff(np.append(starts, len(path)))
            self._cuts[key] = _Cut(starts, length, _segment_levels(self._values, starts, self._sigma))
        return self._cuts[key]


def segment_starts(label: Int64s) -> Int64s:
    """Positions at which a stretch of equal labels begins, `[n_segments]`."""
    return np.concatenate(([0], np.flatnonzero(label[1:] != label[:-1]) + 1)).astype(np.int64)


def _grid(values: Floats, sigma: float) -> Floats:
    """Levels worth trying: where medians of short blocks gather, at most 64."""
    n_blocks = max(len(values) // _BLOCK, 1)
    blocks = row_medians(values[: n_blocks * _BLOCK].reshape(n_blocks, -1))
    width = 0.5 * sigma
    while True:
        bins, counts = np.unique(np.floor(blocks / width), return_counts=True)
        kept = bins[counts >= max(1, 1e-4 * n_blocks)]
        if len(kept) <= 64:
            return np.asarray((kept + 0.5) * width)
        width *= 1.25


def _segment_levels(values: Floats, starts: Int64s, sigma: float) -> Floats:
    """Location of every segment: the mean of its values within 3 sigma of its middle value."""
    bounds = np.append(starts, len(values))
    length = np.diff(bounds)
    middle = _segment_medians(values, bounds)
    off = np.clip(values - np.repeat(middle, length), -3 * sigma, 3 * sigma)
    inside = np.abs(off) < 3 * sigma
    n_inside = np.maximum(np.add.reduceat(inside.astype(np.int64), starts), 1)
    return middle + np.add.reduceat(np.where(inside, off, 0.0), starts) / n_inside


def _segment_medians(values: Floats, bounds: Int64s) -> Floats:
    """Median of every segment: long ones by sorting each, short ones in one compiled loop."""
    from phasepoint.phases.detection.signals.kernels import stretch_medians

    if len(values) < _LONG * len(bounds):
        return stretch_medians(values, bounds)
    return np.array([median(values[a:b]) for a, b in pairwise(bounds.tolist())])


def _gather_levels(cut: _Cut, n: int, sigma: float, gap: float, *, shaded: bool) -> Floats:
    """Levels that segments gather at, rising: the closest two are joined until all are apart.

    Two groups of segments are apart when their centres differ by `gap`, by as many standard errors of a typical
    segment of either as no stretch of a run of noise is likely to differ from the rest (`least_errors`), and, where
    `shaded`, by `_SCATTER` times what segments scatter within their groups: levels that shade into each other,
    because the machine is shared, are one.
    """
    group = _binned(cut.level, cut.length.astype(float), min(gap, sigma) / 4)
    while len(group.weight) > 1:
        closeness = np.diff(group.centre) / group.needed(sigma, gap, least_errors(n), shaded)
        i = int(closeness.argmin())
        if closeness[i] >= 1 and len(group.weight) <= 64:
            break
        group = group.joined(i)
    return group.centre


@dataclass(frozen=True, eq=False)
class _Groups:
    """Groups of segments, `[n_groups]` each: sums over their segments, weighted by their steps."""

    weight: Floats
    first: Floats
    second: Floats
    count: Floats

    @property
    def centre(self) -> Floats:
        return self.first / self.weight

    def needed(self, sigma: float, gap: float, errors: float, shaded: bool) -> Floats:
        """Distance at which neighbouring groups are apart, `[n_groups - 1]`."""
        variance = sigma**2 * self.count / self.weight
        error = np.sqrt(variance)
        inside = np.maximum(self.second / self.weight - self.centre**2 - 2 * variance, 0)
        spare = self.count.sum() - len(self.count)
        if shaded and spare >= _SPARE:
            pooled = float((inside * self.weight).sum() / self.weight.sum()) * float(self.count.sum() / spare)
            scatter = np.sqrt(np.where(self.count >= _MANY, np.maximum(inside, pooled), pooled))
        else:
            scatter = np.zeros(len(inside))
        least = np.maximum(errors * np.maximum(error[1:], error[:-1]), _SCATTER * np.maximum(scatter[1:], scatter[:-1]))
        return np.asarray(np.maximum(gap, least))

    def joined(self, i: int) -> "_Groups":
        """The same groups with `i` and the next one as one."""
        return _Groups(
            *(
                np.concatenate([a[:i], [a[i] + a[i + 1]], a[i + 2 :]])
                for a in (self.weight, self.first, self.second, self.count)
            )
        )


def _binned(level: Floats, length: Floats, width: float) -> _Groups:
    """Segments gathered into at most 512 bins."""
    width = max(width, float(np.ptp(level)) / 512)
    bins = np.unique(np.floor(level / width), return_inverse=True)[1]
    sums = [np.bincount(bins, w).astype(np.float64) for w in (length, length * level, length * level**2)]
    return _Groups(sums[0], sums[1], sums[2], np.bincount(bins).astype(np.float64))


def _drop_passing(label: Int64s, centre: Floats) -> tuple[Int64s, Floats]:
    """Give stretches of levels that hardly occur to their longer neighbour: a burst is not a phase."""
    n, k = len(label), len(centre)
    starts = segment_starts(label)
    enough = max(8.0, min(0.005 * n, 20.0))
    passing = (np.bincount(label, minlength=k) < enough) & (np.bincount(label[starts], minlength=k) < 3)
    if not passing.any() or passing[label].all():
        return label, centre
    length = np.diff(np.append(starts, n))
    of_segment = label[starts].copy()
    kept = np.flatnonzero(~passing[of_segment])
    for i in np.flatnonzero(passing[of_segment]):
        at = int(np.searchsorted(kept, i))
        around = [int(kept[j]) for j in (at - 1, at) if 0 <= j < len(kept)]
        of_segment[i] = label[starts[max(around, key=lambda j: (length[j], -j))]]
    codes, filled = renumber(of_segment)
    return np.repeat(filled, length), centre[codes]
