"""`propose_setting`: which setting of a program to run next, from what was run: a Gaussian process over settings.

Settings that share values are alike, and more so where they share pairs of values, for one knob often changes what
another is worth. The next is that which should lower the fastest time most: expected improvement (Jones et al.,
"Efficient Global Optimization of Expensive Black-Box Functions", Journal of Global Optimization, 1998).
"""

import json
from collections.abc import Sequence

import numpy as np

from phasepoint.core.arrays import Floats, Int64s
from phasepoint.tune.knobs import Setting

_VALUE, _PAIR, _WHOLE, _NOISE = 0.1, 0.05, 0.02, 0.01
"""Variances of the log of a time: for each value, pair of values and whole setting that two share, and of a run.

Chosen on made spaces and on one measured grid of 72 settings: of a twelfth to a fifth of the settings, these found one
within 5 % of the best in four of five searches, where knobs hinder each other too; Optuna's tree-structured estimator
in one of four, its own Gaussian process in one of two (November 2026)."""

_MOST_SETTINGS = 20_000
"""A choice: of a larger space so many are looked at, drawn by chance."""


def propose_setting(
    known: Sequence[tuple[Setting, float]], left: Sequence[Setting], chance: np.random.Generator
) -> Setting:
    """One of the settings that were not run.

    Args:
        known: settings that were run, and the log of what each cost against the job as it is; at least one.
        left: settings to choose from; at least one.
        chance: draws from more than can be looked at.
    """
    if len(left) > _MOST_SETTINGS:
        left = [left[place] for place in chance.choice(len(left), _MOST_SETTINGS, replace=False)]
    log_cost = np.array([cost for _, cost in known])
    run, fresh = np.split(_codes([*(setting for setting, _ in known), *left]), [len(known)])
    covariance = _alike(run, run) + _NOISE * np.eye(len(run))
    shared = _alike(fresh, run)
    solved = np.linalg.solve(covariance, np.column_stack([log_cost, shared.T]))
    expected = shared @ solved[:, 0]
    variance = _alike(fresh[:1], fresh[:1]) - np.einsum("ij,ji->i", shared, solved[:, 1:])
    return left[int(np.argmax(_improvement(log_cost.min() - expected, np.sqrt(np.maximum(variance[0], 1e-12)))))]


def _codes(settings: Sequence[Setting]) -> Int64s:
    """Number of each knob's value among those that occur, `[n_settings, n_knobs]`."""
    names = settings[-1]
    numbered = [np.unique([json.dumps(one[name]) for one in settings], return_inverse=True)[1] for name in names]
    return np.stack(numbered, axis=1).astype(np.int64)


def _alike(some: Int64s, others: Int64s) -> Floats:
    """Covariance of the logs of the times of settings, `[n_some, n_others]`."""
    shared = np.zeros((len(some), len(others)))
    for column in range(some.shape[1]):
        shared += some[:, None, column] == others[None, :, column]
    pairs = shared * (shared - 1) / 2
    alike: Floats = _VALUE * shared + _PAIR * pairs + _WHOLE * (shared == some.shape[1])
    return alike


def _improvement(gain: Floats, spread: Floats) -> Floats:
    """Mean of what lies above 0 of a normal distribution around `gain`."""
    from scipy.special import ndtr  # comes with scikit-learn

    z = gain / spread
    density = np.exp(-z * z / 2) / np.sqrt(2 * np.pi)
    return np.asarray(gain * ndtr(z) + spread * density, np.float64)
