"""Finding the fastest configuration of a kernel with few measurements: one interface, several methods, all counted.

`measure` runs a configuration on hardware, or looks it up in a table. A configuration that does not run counts like
any other measurement. None is measured twice.

Three searches know nothing beforehand. Each yields the row to measure and is sent the logarithm of its time.

The search that learns is a Gaussian process over logarithms of times, begun from what other devices say. The time of a
configuration is what the priors say (the fastest of them), corrected by a process that assumes that configurations
near each other deviate alike, and that each prior may hold more or less strongly here. Measured next is what promises
the largest gain over the best so far (expected improvement).

Source: Jones, Schonlau, Welch, "Efficient Global Optimization of Expensive Black-Box Functions", J. Global Optim. 13
(1998). The constants were chosen on halves drawn at random of six sweeps (convolution and dedispersion on three GPUs),
where the result depends little on any of them.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from phasepoint.core.arrays import Floats
from phasepoint.learn.choosing.sweep_table import odd_sides, threads_of, unit_features

BOUND = 1.5
"""Logarithms of times are compressed towards this: how slow the slow ones are does not matter."""
NEAR, NEAR_LENGTH = 1.0, 1.6
"""Deviation that configurations near each other share, and how far near is (each feature spans 1)."""
ALONE, ALONE_LENGTH = 0.6, 0.3
"""Deviation that goes with single features."""
WEIGHT = 0.6
"""How much stronger or weaker a prior may hold."""
FLAG, FLAG_ALONE = 1.5, 0.7
"""Distance of a parameter's two values, where it has but two: with priors, and without."""
NOISE = 0.01
"""Deviation of a measured logarithm of a time: 1 %."""
BEGIN = 3
"""Configurations far from one another that are measured first where nothing is known."""
LIKELY_THREADS = 160.0
"""Threads of a block that are taken to do best."""
THREADS_PENALTY = 0.03
"""Logarithm of the time, per square of the factor of two in threads off that: blocks of 64 to 256 do well."""
ODD_SIDE = 0.1
"""Logarithm of the time, per side of the block that is no power of two: problems are mostly multiples of one, and a
block that does not divide them leaves threads idle at the edge. Checked on other halves than it was chosen on."""


def model_guided(names: Sequence[str], configs: NDArray[np.int64], priors: Sequence[Floats]) -> Generator[int, float]:
    """Yields the row to measure next, is sent the logarithm of its time (NaN: does not run).

    Args:
        names: of the parameters.
        configs: [n, p].
        priors: logarithms of times, each [n]; none: see `mean_without_priors`.
    """
    places = unit_features(names, configs)
    flags = np.array([len(np.unique(column)) == 2 for column in places.T], bool)
    places = places * np.where(flags, FLAG if priors else FLAG_ALONE, 1.0)
    known = [_compressed(prior - np.quantile(prior, 0.0005)) for prior in priors]
    mean = np.min(known, axis=0) if known else mean_without_priors(names, configs)
    bent = np.stack([one - one.mean() for one in known], axis=1) if known else np.zeros((len(configs), 0))
    rows: list[int] = []
    times: list[float] = []
    likeness = np.zeros((0, len(configs)))
    while len(rows) < len(configs):
        if priors and not rows:
            row = int(mean.argmin())
        elif len(rows) < BEGIN and not priors:
            row = _far_apart(places, mean, rows)
        else:
            gain = _expected_gain(likeness, _own(bent), mean, rows, np.array(times))
            row = int(gain.argmax())
        time = yield row
        rows.append(row)
        times.append(time)
        likeness = np.concatenate([likeness, _likeness(places, bent, row)[None]])


def mean_without_priors(names: Sequence[str], configs: NDArray[np.int64]) -> Floats:
    """What is assumed of a kernel that nobody measured: blocks of 64 to 256 threads with sides of 2ⁿ do well, `[n]`."""
    threads = threads_of(names, configs)
    if threads is None:
        return np.zeros(len(configs))
    off = THREADS_PENALTY * np.log2(threads / LIKELY_THREADS) ** 2
    return np.asarray(off + ODD_SIDE * odd_sides(names, configs), np.float64)


def _compressed(above_best: Floats) -> Floats:
    """Near 0 as it is, at most `BOUND`."""
    return np.asarray(-np.expm1(-np.maximum(above_best, -BOUND) / BOUND) * BOUND, np.float64)


def _likeness(places: Floats, bent: Floats, row: int) -> Floats:
    """Covariance of one configuration with every other, `[n]`."""
    away = (places - places[row]) ** 2
    shared = NEAR**2 * np.exp(-away.sum(axis=1) / (2 * NEAR_LENGTH**2))
    if away.shape[1]:
        shared += ALONE**2 * np.exp(-away / (2 * ALONE_LENGTH**2)).mean(axis=1)
    if bent.shape[1]:
        shared += WEIGHT**2 * (bent @ bent[row]) / bent.shape[1]
    return np.asarray(shared, np.float64)


def _own(bent: Floats) -> Floats:
    """Variance of every configuration before anything is measured, `[n]`."""
    own = np.full(len(bent), NEAR**2 + ALONE**2)
    return own + (WEIGHT**2 * (bent**2).sum(axis=1) / bent.shape[1] if bent.shape[1] else 0.0)


def _expected_gain(likeness: Floats, own: Floats, mean: Floats, rows: list[int], times: Floats) -> Floats:
    """Expected improvement of every configuration over the best, −1 for those measured, `[n]`."""
    from scipy.special import ndtr  # comes with scikit-learn

    runs = np.isfinite(times)
    best = times[runs].min() if runs.any() else 0.0
    seen = _compressed(np.where(runs, times - best, 2 * BOUND))
    inverse = np.linalg.inv(likeness[:, rows] + NOISE**2 * np.eye(len(rows)))
    column = inverse.sum(axis=0)
    off = seen - mean[rows]
    level = column @ off / column.sum()  # nothing is known beforehand of how fast the device is as a whole
    expected = mean + level + (inverse @ (off - level)) @ likeness
    variance = own - np.einsum("ij,ij->j", likeness, inverse @ likeness)
    variance += (1 - column @ likeness) ** 2 / column.sum()
    spread = np.sqrt(np.maximum(variance, 1e-8))
    ahead = -expected / spread
    gain = spread * (ahead * ndtr(ahead) + np.exp(-(ahead**2) / 2) / np.sqrt(2 * np.pi))
    gain[rows] = -1.0
    return np.asarray(gain, np.float64)


def _far_apart(places: Floats, mean: Floats, rows: list[int]) -> int:
    """The first: the middle of the likelier half; then what lies furthest from all measured ones."""
    likely = np.flatnonzero(mean <= np.quantile(mean, 0.5))
    likely = likely[~np.isin(likely, rows)]
    if not len(likely):
        likely = np.setdiff1d(np.arange(len(places)), rows)
    if not rows:
        middle = np.median(places[likely], axis=0)
        return int(likely[((places[likely] - middle) ** 2).sum(axis=1).argmin()])
    apart = [((places[likely] - places[row]) ** 2).sum(axis=1) for row in rows]
    return int(likely[np.min(apart, axis=0).argmax()])


START = 0.3
"""First temperature: a configuration slower by a third is taken two times out of five."""
COOLING = 0.97
"""Of the temperature after each step to a new row, a choice: a tenth is left after 76."""
PATIENCE = 40
"""Steps onto rows measured before, after which the walk begins anew elsewhere."""


def in_order(count: int) -> Generator[int, float, None]:
    """Every row, from the first to the last."""
    row = 0
    while row < count:  # not `yield from`: a range cannot be sent to
        yield row
        row += 1


def random_order(count: int, random: np.random.Generator) -> Generator[int, float, None]:
    """Every row, in an order drawn at random."""
    for row in random.permutation(count):
        yield int(row)


def annealing(configs: NDArray[np.int64], random: np.random.Generator) -> Generator[int, float, None]:
    """A walk over neighbours that takes a slower one less and less often.

    A neighbour differs in one parameter, which takes the next smaller or larger value, or in two of them; where there
    is none, any row is drawn.

    Source: Kirkpatrick, Gelatt, Vecchi, "Optimization by Simulated Annealing", Science 220 (1983).
    """
    places = np.stack([np.unique(column, return_inverse=True)[1].ravel() for column in configs.T], axis=1)
    seen: set[int] = set()
    here, temperature, known = int(random.integers(len(configs))), START, 0
    time = _felt((yield here))
    seen.add(here)
    while True:
        ahead = _step(places, here, random)
        known = known + 1 if ahead in seen else 0
        if known > PATIENCE:  # the neighbourhood is known: elsewhere, among what was not measured
            ahead = int(random.choice(np.setdiff1d(np.arange(len(configs)), list(seen))))
            known = 0
            here, time = ahead, _felt((yield ahead))
        else:
            found = _felt((yield ahead))
            if found <= time or random.random() < np.exp((time - found) / temperature):
                here, time = ahead, found
        seen.add(ahead)
        temperature *= COOLING if not known else 1.0


def _felt(log_time: float) -> float:
    return log_time if np.isfinite(log_time) else np.inf  # slower than whatever runs


def _step(places: NDArray[np.int64], here: int, random: np.random.Generator) -> int:
    """A row one value away in one parameter or in two; any where there is none."""
    away = np.abs(places - places[here])
    near = np.flatnonzero((away.max(axis=1) == 1) & (away.sum(axis=1) <= 2))
    return int(random.choice(near)) if len(near) else int(random.integers(len(places)))


Config = Mapping[str, int]
Measure = Callable[[Config], int | None]
"""Time of a configuration in ps, None where it does not run."""

METHODS = ("model", "annealing", "random", "exhaustive")
MOST_CONFIGS = 5_000_000
"""A space is held in memory as a whole."""


@dataclass(frozen=True)
class Space:
    """Every configuration that may be tried.

    Attributes:
        names: of the parameters, [p].
        configs: int64 [n, p], no two alike.
    """

    names: tuple[str, ...]
    configs: NDArray[np.int64]

    def config(self, row: int) -> dict[str, int]:
        """One configuration by its row."""
        return {name: int(value) for name, value in zip(self.names, self.configs[row], strict=True)}


@dataclass(frozen=True)
class Trial:
    """One measurement.

    Attributes:
        row: of the space.
        config: what was measured.
        time_ps: None where it does not run.
    """

    row: int
    config: Config
    time_ps: int | None


@dataclass(frozen=True)
class Tuning:
    """What a search found.

    Attributes:
        method: which search.
        trials: every measurement, in order.
        best: the fastest; None where nothing that was measured runs.
        configs: in the space.
    """

    method: str
    trials: tuple[Trial, ...]
    best: Trial | None
    configs: int

    def needed(self, time_ps: float) -> int | None:
        """Measurements until one was as fast as this, None if none was."""
        for count, trial in enumerate(self.trials, 1):
            if trial.time_ps is not None and trial.time_ps <= time_ps:
                return count
        return None


def make_space(
    parameters: Mapping[str, Sequence[int]], *, allowed: Callable[[Config], bool] = lambda _config: True
) -> Space:
    """All combinations of the parameters' values that are allowed.

    Args:
        parameters: values of each.
        allowed: whether a combination may be tried.

    Raises:
        ValueError: no combination is left, or they are more than memory should hold.

    Example:
        >>> space = make_space({"block": (32, 64), "tile": (1, 2, 4)}, allowed=lambda c: c["block"] * c["tile"] <= 128)
        >>> len(space.configs), space.config(0)
        (5, {'block': 32, 'tile': 1})
    """
    names = tuple(parameters)
    count = int(np.prod([len(values) for values in parameters.values()], dtype=float))
    if count > MOST_CONFIGS:
        raise ValueError(f"{count} combinations are more than {MOST_CONFIGS}; give fewer values")
    rows = [row for row in product(*parameters.values()) if allowed(dict(zip(names, row, strict=True)))]
    if not rows or not names:
        raise ValueError("no combination of the parameters is allowed")
    return Space(names, np.unique(np.array(rows, np.int64), axis=0))


def tune(
    space: Space,
    measure: Measure,
    *,
    method: str = "model",
    budget: int = 10,
    seed: int = 0,
    priors: Sequence[NDArray[np.float64]] = (),
) -> Tuning:
    """Search a space.

    Args:
        space: what may be tried.
        measure: runs one configuration.
        method: `model` (a model ranks, the most promising is measured, the model learns from it), `annealing`,
            `random`, or `exhaustive` (in the order of the space).
        budget: measurements at most; a method ends before it only when every configuration was measured.
        seed: of what is drawn at random; `model` and `exhaustive` draw nothing.
        priors: for `model`, what is known beforehand: logarithms of predicted times, each [n], say of other devices.
            Only differences within one count.

    Raises:
        ValueError: there is no such method, the budget is below 1, or a prior does not fit the space.

    Example:
        >>> space = make_space({"x": range(8), "y": range(8)})
        >>> found = tune(space, lambda c: 100 + (c["x"] - 5) ** 2 + (c["y"] - 2) ** 2, budget=20)
        >>> found.best.config, len(found.trials)
        ({'x': 5, 'y': 2}, 20)
    """
    if budget < 1:
        raise ValueError(f"a budget of {budget} measures nothing")
    for prior in priors:
        if np.shape(prior) != (len(space.configs),) or not np.isfinite(prior).all():
            raise ValueError(f"a prior has one finite value per configuration, {len(space.configs)} of them")
    search = _search(method, space, seed, priors)
    trials: dict[int, Trial] = {}
    row = next(search)
    while True:
        if row not in trials:
            config = space.config(row)
            trials[row] = Trial(row, config, measure(config))
        if len(trials) >= min(budget, len(space.configs)):
            break
        time_ps = trials[row].time_ps
        row = search.send(np.nan if time_ps is None else float(np.log(max(time_ps, 1))))
    done = tuple(trials.values())
    running = [(trial.time_ps, count, trial) for count, trial in enumerate(done) if trial.time_ps is not None]
    return Tuning(method, done, min(running)[2] if running else None, len(space.configs))


def _search(method: str, space: Space, seed: int, priors: Sequence[NDArray[np.float64]]) -> Generator[int, float, None]:
    """Asks for rows, is told logarithms of their times (NaN: does not run)."""
    if method == "model":
        return model_guided(space.names, space.configs, priors)
    if method == "annealing":
        return annealing(space.configs, np.random.default_rng(seed))
    if method == "random":
        return random_order(len(space.configs), np.random.default_rng(seed))
    if method == "exhaustive":
        return in_order(len(space.configs))
    raise ValueError(f"there is no method {method!r}; there are {', '.join(METHODS)}")
