"""A test of "B is faster than A" that stays valid however often it is looked at.

A trial runs in pairs of blocks, one of each setting, in an order drawn by chance. If the settings made no difference,
exchanging them would change nothing: the log of the ratio of a pair's times is then as likely `+x` as `-x`, whatever
the times are distributed like, and however they drift. For such `x` and any `bet` that was chosen before it is known,
`2 / (1 + exp(-2 · bet · x))` is 1 in the mean, so the product over pairs is a test martingale: by Ville's inequality it
ever reaches `1 / level` with probability `level` at most. Nothing about the noise is assumed, estimated or needed.

The bets are multiples of the inverse spread of earlier pairs; the products of several are averaged, which leaves the
mean at 1. A gain `g` other than 0 is tested by taking `log(1 + g)` off every `x`; the gains that are not refused form
an interval that holds at every look at once (a confidence sequence).

Sources: de la Peña, "A general class of exponential inequalities for martingales and ratios", Annals of Probability 27
(1999), for symmetric variables; Ville (1939); Howard, Ramdas, McAuliffe, Sekhon, "Time-uniform, nonparametric,
nonasymptotic confidence sequences", Annals of Statistics 49 (2021), for sequences of intervals.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

BETS = (0.25, 0.5, 1.0, 2.0)
"""In inverse spreads: the best bet on an effect of `d` spreads is about `d`, and which it is is not known before."""

PRIOR_SPREAD = 0.1
"""Of a pair's log ratio, where nothing is known of the steps: eight that scatter by a fifth. It counts as much
as two pairs; one that is wrong by half costs a pair or two (simulated), and never the test's validity."""

BETTER_LEVEL, WORSE_LEVEL = 0.04, 0.01
"""Chance of calling better what is not, and of an upper end that is too low: together the interval's 5 %."""

_PRIOR_WEIGHT = 2.0  # pairs
_BISECTIONS = 50  # an interval's end to 1e-12 of its range
_MOST_LOG = 5.0  # gains beyond e^5 are not told apart


@dataclass(frozen=True)
class Gain:
    """How much faster, as a ratio of speeds minus 1.

    Attributes:
        value: the estimate.
        low: lower end of the interval, which holds at every look.
        high: its upper end; infinite where nothing bounds it yet.
    """

    value: float
    low: float
    high: float


@dataclass
class Certificate:
    """What the pairs of a trial have shown so far.

    Attributes:
        prior_spread: of a pair's log ratio, as was expected before the first.
        log_ratios: of the pairs.
        is_better: whether the new setting was found faster beyond doubt, at this look or at an earlier one.

    Example:
        >>> certificate = Certificate()
        >>> for _ in range(6):
        ...     certificate.add(math.log(1.2))
        >>> certificate.is_better, round(certificate.gain().value, 3)
        (True, 0.2)
    """

    prior_spread: float = PRIOR_SPREAD
    log_ratios: list[float] = field(default_factory=list)
    is_better: bool = False
    _spreads: list[float] = field(default_factory=list)

    def add(self, log_ratio: float) -> None:
        """Take one pair in: log of the old setting's time over the new one's.

        Raises:
            ValueError: it is no number.
        """
        if not math.isfinite(log_ratio):
            raise ValueError(f"the log of two times' ratio is {log_ratio}; both must be above 0")
        self._spreads.append(_spread(self.log_ratios, self.prior_spread))
        self.log_ratios.append(log_ratio)
        self.is_better = self.is_better or self.log_evidence(0.0) >= math.log(1 / BETTER_LEVEL)

    def is_below(self, gain: float) -> bool:
        """Whether it is certain that less than this is won."""
        return self.log_evidence(math.log1p(gain), sign=-1) >= math.log(1 / WORSE_LEVEL)

    def gain(self) -> Gain:
        """Estimate and interval of what the new setting wins."""
        centre = _centre(self.log_ratios) if self.log_ratios else 0.0
        low, high = self._end(BETTER_LEVEL, sign=1), self._end(WORSE_LEVEL, sign=-1)
        return Gain(math.expm1(centre), math.expm1(low), math.expm1(high) if high < _MOST_LOG else math.inf)

    def _end(self, level: float, *, sign: int) -> float:
        """The least shift of the pairs that is not refused, or with `sign` -1 the largest: by bisection."""
        limit = math.log(1 / level)
        refused, kept = -sign * _MOST_LOG, sign * _MOST_LOG
        if self.log_evidence(refused, sign) < limit:
            return -sign * math.inf
        for _ in range(_BISECTIONS):
            middle = (refused + kept) / 2
            if self.log_evidence(middle, sign) >= limit:
                refused = middle
            else:
                kept = middle
        return refused

    def log_evidence(self, shift: float, sign: int = 1) -> float:
        """Log of the martingale against "the pairs' centre is at most `shift`", or at least with `sign` -1."""
        logs = [
            sum(
                math.log(2) - _log1p_exp(-2 * bet * sign * (ratio - shift) / spread)
                for ratio, spread in zip(self.log_ratios, self._spreads, strict=True)
            )
            for bet in BETS
        ]
        most = max(logs)
        return most + math.log(sum(math.exp(log - most) for log in logs) / len(logs))


def _log1p_exp(x: float) -> float:
    """log(1 + e^x), also where e^x is no float."""
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


def _spread(log_ratios: Sequence[float], prior: float) -> float:
    """What the next bet takes for the spread: of the pairs before it, and of the prior."""
    squares = _PRIOR_WEIGHT * prior**2
    if log_ratios:
        middle = median(log_ratios)
        squares += sum((ratio - middle) ** 2 for ratio in log_ratios)
    return math.sqrt(squares / (_PRIOR_WEIGHT + len(log_ratios)))


def _centre(values: Sequence[float]) -> float:
    """The median of all pairs' means (Hodges and Lehmann): the centre of what is symmetric, whatever its tails."""
    return median((a + b) / 2 for i, a in enumerate(values) for b in values[i:])
