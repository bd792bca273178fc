"""Searches that know nothing beforehand. Each yields the row to measure and is sent the logarithm of its time."""

from collections.abc import Generator

import numpy as np
from numpy.typing import NDArray

START = 0.3
"""First temperature: a configuration slower by a third is taken two times out of five."""
COOLING = 0.97
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
    away = np.abs(places - places[here])
    near = np.flatnonzero((away.max(axis=1) == 1) & (away.sum(axis=1) <= 2))
    return int(random.choice(near)) if len(near) else int(random.integers(len(places)))
