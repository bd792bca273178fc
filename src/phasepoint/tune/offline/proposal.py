"""`propose_setting`: which setting of a program to run next, from what was run: a Gaussian process over settings.

A setting's time is that of the job as it is, times what each value that differs from the job's does to it, and what
each pair of them does besides, for one knob often changes what another is worth. The next setting is the one that
should lower the fastest time most: expected improvement (Jones et al., "Efficient Global Optimization of Expensive
Black-Box Functions", Journal of Global Optimization, 1998).
"""

import json
from collections.abc import Sequence

import numpy as np

from phasepoint.core.arrays import Floats, Int64s
from phasepoint.tune.knobs import Setting

_VALUE, _PAIR, _WHOLE, _NOISE = 0.1, 0.07, 0.02, 0.01
"""Variances of the log of a time: of what a value does, what a pair of values does besides, a whole setting, and a run.

Chosen on made spaces and on one measured grid, of 72 settings each: fourteen of them held one within 5 % of the best in
four of five searches, in three of four where knobs hinder each other; with Optuna's tree-structured estimator in one of
four, with its own Gaussian process in one of two (November 2026)."""

_MOST_SETTINGS = 20_000
"""A choice: of a larger space so many are looked at, drawn by chance."""


def propose_setting(
    as_written: Setting, known: Sequence[tuple[Setting, float]], left: Sequence[Setting], chance: np.random.Generator
) -> Setting:
    """One of the settings that were not run.

    Args:
        as_written: what the job is set to.
        known: settings that were run, and the log of what each cost against the job as it is; at least one.
        left: settings to choose from; at least one.
        chance: draws from those that promise as much, and from more than can be looked at.
    """
    if len(left) > _MOST_SETTINGS:
        left = [left[place] for place in chance.choice(len(left), _MOST_SETTINGS, replace=False)]
    log_cost = np.array([cost for _, cost in known])
    run, fresh = np.split(_codes([as_written, *(setting for setting, _ in known), *left])[1:], [len(known)])
    covariance = _alike(run, run) + _NOISE * np.eye(len(run))
    shared = _alike(fresh, run)
    solved = np.linalg.solve(covariance, np.column_stack([log_cost, shared.T]))
    expected = shared @ solved[:, 0]
    alone = _of_values(np.count_nonzero(fresh, axis=1)) + _WHOLE
    variance = alone - np.einsum("ij,ji->i", shared, solved[:, 1:])
    promise = _improvement(log_cost.min() - expected, np.sqrt(np.maximum(variance, 1e-12)))
    return left[int(chance.choice(np.flatnonzero(promise >= promise.max() - 1e-9)))]


def _codes(settings: Sequence[Setting]) -> Int64s:
    """Number of each knob's value among those that differ from the first setting's, whose own are 0."""
    columns = []
    for name, own in settings[0].items():
        numbers = {json.dumps(own): 0}
        columns.append([numbers.setdefault(json.dumps(one[name]), len(numbers)) for one in settings])
    return np.array(columns, np.int64).T


def _alike(some: Int64s, others: Int64s) -> Floats:
    """Covariance of the logs of the times of settings, `[n_some, n_others]`."""
    shared, equal = np.zeros((2, len(some), len(others)), np.int64)
    for mine, theirs in zip(some.T, others.T, strict=True):
        same = mine[:, None] == theirs
        equal += same
        shared += same & (theirs > 0)
    alike: Floats = _of_values(shared) + _WHOLE * (equal == some.shape[1])
    return alike


def _of_values(shared: Int64s) -> Floats:
    """Covariance from so many values that differ from the job's."""
    return np.asarray(_VALUE * shared + _PAIR * shared * (shared - 1) / 2, np.float64)


def _improvement(gain: Floats, spread: Floats) -> Floats:
    """Mean of what lies above 0 of a normal distribution around `gain`."""
    from scipy.special import ndtr  # comes with scikit-learn

    z = gain / spread
    density = np.exp(-z * z / 2) / np.sqrt(2 * np.pi)
    return np.asarray(gain * ndtr(z) + spread * density, np.float64)
