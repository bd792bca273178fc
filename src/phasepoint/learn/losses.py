"""What training makes small: errors of log times, or wrong orders within a kernel. Over `numpy` or `jax.numpy`.

Source: Kaufman et al., MLSys 2021, section 3.3 (squared error of log times; pairwise rank losses, hinge and
logistic); Huber, "Robust estimation of a location parameter", 1964.
"""

from collections.abc import Callable, Mapping
from typing import Any

RANK_LOSSES = ("hinge", "logistic")
HUBER_STEP = 0.1
"""Log error above which the Huber loss grows linearly: about 10 %, the error aimed at."""


def squared_log_error(xp: Any, guess: Any, truth: Any, weight: Any) -> Any:
    """Weighted mean of (log guess − log truth)².

    Args:
        xp: `numpy` or `jax.numpy`.
        guess: log of predicted times, shape [n].
        truth: log of measured times, shape [n].
        weight: shape [n], at least 0; 0 leaves a row out.
    """
    return _mean(xp, (guess - truth) ** 2, weight)


def huber_log_error(xp: Any, guess: Any, truth: Any, weight: Any) -> Any:
    """As `squared_log_error`, but linear above `HUBER_STEP`: few kernels that nothing explains do not rule it."""
    size = xp.abs(guess - truth)
    return _mean(xp, xp.where(size < HUBER_STEP, size**2 / (2 * HUBER_STEP), size - HUBER_STEP / 2), weight)


def relative_error(xp: Any, guess: Any, truth: Any, weight: Any) -> Any:
    """Weighted mean of |guess / truth − 1|, which is what is reported, with a slope everywhere.

    Far below the truth the relative error is flat at 1, so the log error takes its place on that side; far above, it
    grows linearly in the log.
    """
    gap = guess - truth
    above = xp.where(gap < 1.0, xp.exp(xp.minimum(gap, 1.0)) - 1.0, xp.exp(1.0) * gap - 1.0)
    return _mean(xp, xp.sqrt(xp.where(gap > 0, above, gap) ** 2 + 1e-4), weight)


def rank_loss(xp: Any, scores: Any, truth: Any, groups: Any, *, kind: str = "hinge") -> Any:
    """Mean over pairs of one group of how far the slower one is not above the faster one.

    Args:
        xp: `numpy` or `jax.numpy`.
        scores: higher means slower, shape [n].
        truth: measured, any increasing function of time, shape [n].
        groups: whole numbers, shape [n]; pairs are made within one; below 0: in no pair.
        kind: `hinge` or `logistic`.

    Returns:
        0 where no group has two different times.
    """
    gap = scores[:, None] - scores[None, :]
    pair = (truth[:, None] > truth[None, :]) & (groups[:, None] == groups[None, :]) & (groups[:, None] >= 0)
    pair = pair.astype(scores.dtype)
    cost = xp.maximum(1.0 - gap, 0.0) if kind == "hinge" else xp.logaddexp(xp.zeros_like(gap), -gap)
    return (cost * pair).sum() / xp.maximum(pair.sum(), 1.0)


def _mean(xp: Any, values: Any, weight: Any) -> Any:
    return (values * weight).sum() / xp.maximum(weight.sum(), 1e-9)


LOSSES: Mapping[str, Callable[..., Any]] = {
    "squared": squared_log_error,
    "huber": huber_log_error,
    "relative": relative_error,
}
"""Losses of times, by name."""
