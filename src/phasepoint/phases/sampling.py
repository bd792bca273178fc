"""Stratified cluster sampling: from the captured steps of each stratum to what the others went into.

A stratum is one phase on one host. Its windows cut it into clusters of neighbouring captured steps. How long every
step lasted, waited and compiled is known, so only *shares* are estimated (ratio estimator), and only for the steps
that no window saw:

    rest(input)     = (Σ input seen / Σ wait of the captured steps)       · wait of the others
    rest(compiling) = (the same of the compilation)                       · compilation of the others
    rest(c)         = (Σ c / Σ work of the captured steps)                · (time of the others − the two above)

with work = time − input − compiling. The variance is that of the cluster ratio estimator, linearised over the three
ratios and raised by 1 + captured / rest, since the others scatter too (Royall's prediction form of the finite
population correction: with all captured, nothing is left to estimate and the interval is nil).

Windows opened by choice stand where something happened. Their steps are known exactly, like all captured steps, but
shares come from windows that chance opened, each weighted by 1 / its probability, wherever a stratum has two.

Source: Cochran, Sampling Techniques (3rd ed.), ch. 5A (collapsed strata), 6 (ratio), 11 (clusters); Royall, "On
    Finite Population Sampling Theory under Certain Linear Regression Models" (1970).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phasepoint.core.statistics import ClusterRatio, apportion, cluster_ratio
from phasepoint.phases.captured import COMPILING, INPUT, N_WORK, PARTS

Int64s = NDArray[np.int64]
Floats = NDArray[np.float64]

_INPUT, _COMPILING = PARTS.index(INPUT), PARTS.index(COMPILING)
LEAST_CLUSTERS = 2


@dataclass(frozen=True, eq=False)
class Clusters:
    """The clusters of one stratum, sums over their captured steps.

    Attributes:
        parts: `[n, len(PARTS)]` ps.
        extra: `[n, k]`, further quantities that are estimated like work (self time of ops, executions).
        input_ps: `[n]` measured wait.
        compile_ps: `[n]` measured compilation.
        weight: `[n]`, 1 / probability; NaN for windows opened by choice.
    """

    parts: Floats
    extra: Floats
    input_ps: Floats
    compile_ps: Floats
    weight: Floats

    def __len__(self) -> int:
        return len(self.weight)


@dataclass(frozen=True)
class Stratum:
    """What is known of a stratum before sampling comes in.

    Attributes:
        host: rank.
        phase: phase id.
        seen_ps: time of its captured steps.
        rest_ps: time of the others.
        rest_input_ps: their wait for input.
        rest_compile_ps: their compilation.
        steps: how many steps it has, captured or not.
        input_ps: wait for input of all its steps.
    """

    host: int
    phase: int
    seen_ps: int
    rest_ps: int
    rest_input_ps: int
    rest_compile_ps: int
    steps: int
    input_ps: int

    @property
    def total_ps(self) -> int:
        """Time of all its steps."""
        return self.seen_ps + self.rest_ps


@dataclass(frozen=True, eq=False)
class Shares:
    """The ratios of a sample of clusters.

    Attributes:
        work: of parts and extras to work.
        input: `input` to the measured wait; None where the sample has no wait.
        compiling: likewise.
        by_choice: whether windows opened by choice had to be used.
        single: whether it rests on one cluster, so that its spread is not known.
    """

    work: ClusterRatio
    input: ClusterRatio | None
    compiling: ClusterRatio | None
    by_choice: bool
    single: bool


@dataclass(frozen=True, eq=False)
class Rest:
    """What the uncaptured steps of a stratum are estimated to have gone into.

    Attributes:
        parts_ps: `[len(PARTS)]` integers that add up to the stratum's rest_ps.
        extra: `[k]`.
        errors: `[n, len(PARTS) + k]`, what each cluster of the sample adds to the error. Strata that rest on one
            sample err together, so errors are added before they are squared.
        variance: `[len(PARTS) + k]`, beyond that of the errors.
        freedom: degrees of freedom of the errors.
    """

    parts_ps: Int64s
    extra: Floats
    errors: Floats
    variance: Floats
    freedom: float


def find_shares(clusters: Clusters) -> Shares | None:
    """The ratios of a sample, from randomly opened windows where there are two; None with no cluster at all."""
    chance = np.isfinite(clusters.weight)
    by_choice = int(chance.sum()) < LEAST_CLUSTERS
    use = np.ones(len(clusters), bool) if by_choice else chance
    weight = np.ones(len(clusters)) if by_choice else clusters.weight[use]
    parts, work = clusters.parts[use], clusters.parts[use][:, :N_WORK]
    ratio = _ratio(np.column_stack([work, clusters.extra[use]]), work.sum(axis=1), weight)
    if ratio is None:
        return None
    return Shares(
        work=ratio,
        input=_ratio(parts[:, [_INPUT]], clusters.input_ps[use], weight),
        compiling=_ratio(parts[:, [_COMPILING]], clusters.compile_ps[use], weight),
        by_choice=by_choice and not bool(chance.all()),
        single=int(use.sum()) < LEAST_CLUSTERS,
    )


def estimate_rest(stratum: Stratum, shares: Shares, *, spread: Floats | None = None) -> Rest:
    """The uncaptured steps of a stratum by the shares of a sample.

    Args:
        stratum: what is known of it.
        shares: of its own clusters or of those of the stratum most alike.
        spread: `[N_WORK + k]`, standard deviation of the shares between strata, where the shares are not its own.
    """
    hidden = np.array([_known(shares.input), _known(shares.compiling)])
    waits = hidden * (stratum.rest_input_ps, stratum.rest_compile_ps)
    work_ps = max(stratum.rest_ps - float(waits.sum()), 0.0)
    ratio = shares.work.ratio
    exact = np.concatenate([np.maximum(ratio[:N_WORK], 0) * work_ps, waits])
    parts_ps = apportion(stratum.rest_ps, exact)
    errors = _errors(stratum, shares, work_ps)
    variance = np.zeros(errors.shape[1])
    if spread is not None:
        variance = (np.insert(spread, N_WORK, [0, 0]) * work_ps) ** 2
    elif stratum.rest_ps:
        errors = errors * np.sqrt(1 + stratum.seen_ps / stratum.rest_ps)
    return Rest(parts_ps, ratio[N_WORK:] * work_ps, errors, variance, shares.work.freedom)


def _errors(stratum: Stratum, shares: Shares, work_ps: float) -> Floats:
    """What each cluster adds to the error of every quantity: columns PARTS, then the extras."""
    columns = []
    for known, rest_ps in ((shares.input, stratum.rest_input_ps), (shares.compiling, stratum.rest_compile_ps)):
        zero = np.zeros(len(shares.work.residuals))
        columns.append(zero if known is None else rest_ps * known.residuals[:, 0])
    waits = np.column_stack(columns)
    work = work_ps * shares.work.residuals - waits.sum(axis=1)[:, None] * shares.work.ratio
    return np.insert(work, [N_WORK, N_WORK], waits, axis=1)


def _known(ratio: ClusterRatio | None) -> float:
    """Part of a wait during which the device does nothing; all of it where no captured step waited."""
    return 1.0 if ratio is None else float(ratio.ratio[0])


def _ratio(y: Floats, x: Floats, weights: Floats) -> ClusterRatio | None:
    """The cluster ratio; of a single cluster, its ratio with the greatest variance a share can have."""
    if not len(x) or x.sum() <= 0:
        return None
    if len(x) >= LEAST_CLUSTERS:
        return cluster_ratio(y, x, weights)
    ratio = y[0] / x[0]
    # A quantity between 0 and 1 with mean R varies by at most R (1 − R) (Bhatia and Davis, 2000).
    deviation = np.sqrt(np.abs(ratio * (1 - np.minimum(ratio, 1))))
    return ClusterRatio(ratio, deviation[None, :], deviation**2, 1.0)


def distance(a: Stratum, b: Stratum) -> float:
    """How unlike two strata are: by step time and by the part of it that waits for input; 0 for the same phase.

    Only what the clock knows of every step goes in, since one of the two has no captured steps to speak of.
    """
    if a.phase == b.phase:
        return 0.0
    length = np.log(max(_mean_ps(a), 1.0)) - np.log(max(_mean_ps(b), 1.0))
    waiting = a.input_ps / max(a.total_ps, 1) - b.input_ps / max(b.total_ps, 1)
    return 0.01 + abs(float(length)) + abs(float(waiting))


def _mean_ps(stratum: Stratum) -> float:
    return stratum.total_ps / max(stratum.steps, 1)


def join_clusters(parts: Sequence[Clusters]) -> Clusters:
    """All clusters of several strata as one sample."""
    return Clusters(
        *(np.concatenate([getattr(part, name) for part in parts]) for name in Clusters.__dataclass_fields__)
    )
