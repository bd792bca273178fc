"""Finding the fastest configuration of a kernel with few measurements: one interface, several methods, all counted.

`measure` runs a configuration on hardware, or looks it up in a table. A configuration that does not run counts like
any other measurement. None is measured twice.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from phasepoint.learn.choosing import search as search_methods
from phasepoint.learn.choosing.search import model_guided

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
        return search_methods.annealing(space.configs, np.random.default_rng(seed))
    if method == "random":
        return search_methods.random_order(len(space.configs), np.random.default_rng(seed))
    if method == "exhaustive":
        return search_methods.in_order(len(space.configs))
    raise ValueError(f"there is no method {method!r}; there are {', '.join(METHODS)}")
