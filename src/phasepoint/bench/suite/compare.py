"""Suites held against each other: what is faster where, beyond what scatters, and whether two orders of models differ.

Each pair that two suites share gives a ratio of latencies with an interval. Over many pairs some intervals miss by
chance: what is called different holds for all of them together (Holm 1979), so that two suites of one device are called
different in one of twenty comparisons at most.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

from phasepoint.bench.suite.result import Pair
from phasepoint.bench.suite.summary import CONFIDENCE, PairSummary
from phasepoint.core.errors import NoDataError


@dataclass(frozen=True)
class PairRatio:
    """One pair in two suites.

    Attributes:
        pair: of the first suite.
        ratio: second latency over the first.
        low, high: 95 % interval.
        probability: of a ratio so far from 1 where there is no difference.
        differs: whether it is different, all pairs together.
    """

    pair: Pair
    ratio: float
    low: float
    high: float
    probability: float
    differs: bool


@dataclass(frozen=True)
class Comparison:
    """Two suites.

    Attributes:
        ratios: of the pairs that both measured, the largest first.
        overall: the median ratio.
        swaps: pairs of models whose order differs beyond doubt: the first is faster in the first suite alone.
    """

    ratios: tuple[PairRatio, ...]
    overall: float
    swaps: tuple[tuple[str, str], ...]


def compare_suites(first: Sequence[PairSummary], second: Sequence[PairSummary]) -> Comparison:
    """Compare two suites by model, runtime and precision; devices may differ.

    Args:
        first, second: summaries; those without an interval do not count.

    Raises:
        NoDataError: they share no pair that both measured with an interval.
    """
    mine, theirs = _by_key(first), _by_key(second)
    common = sorted(mine.keys() & theirs.keys())
    if not common:
        raise NoDataError("the suites share no model that both measured with an interval, by the same runtime")
    logs = {key: _log(theirs[key]) - _log(mine[key]) for key in common}
    errors = {key: math.hypot(_error(mine[key]), _error(theirs[key])) for key in common}
    probabilities = {key: _probability(logs[key], errors[key]) for key in common}
    different = _holm(probabilities)
    ratios = [
        PairRatio(
            mine[key].pair,
            math.exp(logs[key]),
            math.exp(logs[key] - _REACH * errors[key]),
            math.exp(logs[key] + _REACH * errors[key]),
            probabilities[key],
            key in different,
        )
        for key in common
    ]
    middle = sorted(logs.values())[len(logs) // 2]
    return Comparison(tuple(sorted(ratios, key=lambda one: -one.ratio)), math.exp(middle), _swaps(mine, theirs, common))


_REACH = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
"""Half width of an interval in standard errors: it holds the freedom of its scatter already, and counts as normal."""

_Key = tuple[str, str, str]


def _by_key(summaries: Sequence[PairSummary]) -> Mapping[_Key, PairSummary]:
    return {
        (one.pair.model, one.pair.runtime, one.pair.precision): one
        for one in summaries
        if one.latency_ps and one.high_ps
    }


def _log(one: PairSummary) -> float:
    return math.log(one.latency_ps or 1)


def _error(one: PairSummary) -> float:
    """Standard error of ln of the latency, from the width of its interval."""
    return math.log((one.high_ps or 1) / (one.latency_ps or 1)) / _REACH


def _probability(log: float, error: float) -> float:
    """Of a value so far from zero, normal with this error."""
    return math.erfc(abs(log) / max(error, 1e-12) / math.sqrt(2))


def _holm(probabilities: Mapping[_Key, float]) -> set[_Key]:
    """Those that differ, at 5 % for all together."""
    found = set()
    ordered = sorted(probabilities.items(), key=lambda item: item[1])
    for place, (key, probability) in enumerate(ordered):
        if probability > (1 - CONFIDENCE) / (len(ordered) - place):
            break
        found.add(key)
    return found


def _swaps(
    mine: Mapping[_Key, PairSummary], theirs: Mapping[_Key, PairSummary], common: Sequence[_Key]
) -> tuple[tuple[str, str], ...]:
    """Models whose order differs: both differences of their latencies are there, and of opposite signs."""
    candidates: dict[tuple[_Key, _Key], float] = {}
    for a in common:
        for b in common:
            here, there = _log(mine[b]) - _log(mine[a]), _log(theirs[b]) - _log(theirs[a])
            if here > 0 > there:
                candidates[a, b] = max(
                    _probability(here, math.hypot(_error(mine[a]), _error(mine[b]))),
                    _probability(there, math.hypot(_error(theirs[a]), _error(theirs[b]))),
                )
    pairs = len(common) * (len(common) - 1) / 2
    surely = sorted(key for key, probability in candidates.items() if probability * pairs <= 1 - CONFIDENCE)
    return tuple((a[0], b[0]) for a, b in surely)
