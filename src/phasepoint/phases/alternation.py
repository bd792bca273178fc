"""Steps of several kinds in strict turn, as a GAN's five discriminator steps to one generator step."""

import numpy as np
from numpy.typing import NDArray

from phasepoint.phases.changepoints import CAP, switch_price
from phasepoint.phases.result import IntArray

LONGEST = 16
"""Longest cycle looked for by folding; longer ones are found as events that return."""

_CHUNK = 384
_CLIP = 5.0


def find_alternation(residual: NDArray[np.float64], sigma: float, gap: float) -> IntArray:
    """Which member of a cycle each step is: 0 for the commonest or outside any cycle, 1, 2, … for the others, `[n]`.

    The run is cut into chunks; each is folded at every cycle length, and the length whose folded means differ
    most beyond chance (a chi-squared statistic less its BIC price) is taken. A path through the cycle's shifts
    then says where the run follows it, so that a cycle may begin, stop or slip.

    Args:
        residual: log duration less its level, `[n]`.
        sigma: standard deviation of a value.
        gap: least difference of two members of a cycle.
    """
    none = np.zeros(len(residual), np.int64)
    clipped = np.clip(residual, -_CLIP * sigma, max(_CLIP * sigma, 2 * gap))
    template = _best_template(clipped, sigma)
    if template is None or np.ptp(template) < gap:
        return none
    member = _members(template, gap)
    if not member.any():
        return none
    for _ in range(3):
        phase, followed = _follow(clipped, template, sigma)
        if followed.sum() < 3 * len(template):
            return none
        template = _folded(clipped, phase, followed, template)
    if np.ptp(template) < gap:
        return none
    member = _members(template, gap)
    return np.where(followed, member[phase], 0)


def _best_template(values: NDArray[np.float64], sigma: float) -> NDArray[np.float64] | None:
    best_score, best = 0.0, None
    chunk = min(_CHUNK, len(values))
    for period in range(2, min(LONGEST, len(values) // 4) + 1):
        rounds = chunk // period
        n_chunks = len(values) // (rounds * period)
        folded = values[: n_chunks * rounds * period].reshape(n_chunks, rounds, period).mean(axis=1)
        folded = folded - folded.mean(axis=1, keepdims=True)
        gain = rounds * (folded**2).sum(axis=1) / sigma**2 - (period - 1) * (1 + np.log(rounds * period))
        score = float(np.maximum(gain - 12, 0).sum())
        if score > 1.02 * best_score:
            best_score, best = score, _centred(folded[int(gain.argmax())])
    return best


def _centred(template: NDArray[np.float64]) -> NDArray[np.float64]:
    """The template relative to its commonest member."""
    return template - np.median(template)


def _follow(
    values: NDArray[np.float64], template: NDArray[np.float64], sigma: float
) -> tuple[IntArray, NDArray[np.bool_]]:
    from phasepoint.phases.kernels import cheapest_shifts

    period = len(template)
    shift = cheapest_shifts(values, template, sigma, switch_price(len(values)), CAP)
    followed = shift < period
    return (np.arange(len(values)) + np.where(followed, shift, 0)) % period, followed


def _folded(
    values: NDArray[np.float64], phase: IntArray, followed: NDArray[np.bool_], template: NDArray[np.float64]
) -> NDArray[np.float64]:
    return np.array(
        [
            np.median(values[followed & (phase == at)]) if (followed & (phase == at)).any() else template[at]
            for at in range(len(template))
        ]
    )


def _members(template: NDArray[np.float64], gap: float) -> IntArray:
    """Members of the cycle by value: neighbours closer than `gap` are one; 0 is the commonest, then by value."""
    order = np.argsort(template, kind="stable")
    group = np.empty(len(template), np.int64)
    group[order] = np.cumsum(np.diff(template[order], prepend=template[order][0]) > gap)
    size = np.bincount(group)
    rank = np.empty(len(size), np.int64)
    rank[np.argsort(-size, kind="stable")] = np.arange(len(size))
    return rank[group]
