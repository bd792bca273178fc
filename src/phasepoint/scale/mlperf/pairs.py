"""What a larger system will take, from what a smaller one took.

    T₂/T₁ = (samples₂/samples₁) · (chips₁/chips₂) · (overhead₂/overhead₁) · waiting

A step is work for each sample of a chip and something that does not shrink with them: launches, small kernels, the
update, the latency of collectives, which grows with the logarithm of the hosts. In samples of one chip that rest is
`rest`, and overhead = 1 + rest · (1 + grows · log₂ hosts) / (batch / chips). It is one number a benchmark; chips that a
torus joins have a smaller one. Waiting for
the slowest of the hosts takes a little more each time these double.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from phasepoint.core.arrays import Floats
from phasepoint.scale.mlperf.convergence import Convergence, fit_convergence
from phasepoint.scale.mlperf.records import Point, Result, pairs_of

Pair = tuple[Result, Result]

LOG_REST_BELOW_MEDIAN = -2.0
"""Prior: `rest` is e^-2 of the median batch of a chip, 14 % of a step."""

LOG_WAIT = math.log(0.02)
"""Prior of what waiting takes more, as ln, each time the hosts double, and where a job leaves its first host: 2 %."""

RESIDUAL = 0.08
"""Relative errors above which a pair counts less: submissions differ by 5.5 % for the same system."""

LEVEL = 0.9
"""Of intervals."""


@dataclass(frozen=True)
class Scaling:
    """How benchmarks scale.

    Attributes:
        convergence: samples against batch, by benchmark.
        log_rest: by benchmark.
        log_wait: by benchmark, ln of what waiting takes more, as ln, each time the hosts double.
        convergence_share: of what the curve says that shows in results, 1 if it is right.
        log_first_network: the same where a job leaves its first host.
        log_grows: of the overhead with log₂ of the hosts.
        torus_rest: added to log_rest for chips on a torus.
        torus_wait: added to log_wait.
        batches: by benchmark, ln of the batch usual on one chip, its exponent over chips, and the largest published.
        spread: see `Spread`; None until it was fitted.
    """

    convergence: Mapping[str, Convergence]
    log_rest: Mapping[str, float]
    log_wait: Mapping[str, float]
    convergence_share: float
    log_first_network: float
    log_grows: float
    torus_rest: float
    torus_wait: float
    batches: Mapping[str, tuple[float, float, float]]
    spread: "Spread | None" = None


@dataclass(frozen=True)
class Spread:
    """How far predictions were off in series that the fit had not seen, by scale-up and benchmark.

    Attributes:
        log2_ratio: scale-ups, log₂ of chips.
        error: mean |ln(predicted / true)| there.
        quantile: of errors over that, at `LEVEL`.
        factor: by benchmark, over the mean of all.
    """

    log2_ratio: tuple[float, ...]
    error: tuple[float, ...]
    quantile: tuple[float, ...]
    factor: Mapping[str, float]

    def half_width(self, benchmark: str, log2_ratio: float) -> float:
        """Of the interval of ln(time)."""
        error = float(np.interp(log2_ratio, self.log2_ratio, self.error))
        quantile = float(np.interp(log2_ratio, self.log2_ratio, self.quantile))
        return error * quantile * self.factor.get(benchmark, max(self.factor.values(), default=1.0))


@dataclass(frozen=True)
class Prediction:
    """Minutes to train of the larger system, with the ends of the interval and the factors that make it up."""

    time_min: float
    low_min: float
    high_min: float
    samples_ratio: float
    overhead_ratio: float
    wait_ratio: float


@dataclass(frozen=True)
class _PairColumns:
    """Pairs as columns. `curve` is what convergence says, `known` the ratio of published samples (0 where unknown)."""

    benchmark: np.ndarray[Any, Any]
    torus: Floats
    log_chips: Floats
    hosts: tuple[Floats, Floats]
    per_chip: tuple[Floats, Floats]
    curve: Floats
    known: Floats


def _columns(pairs: Sequence[Pair], names: Sequence[str], convergence: Mapping[str, Convergence]) -> _PairColumns:
    place = {name: at for at, name in enumerate(names)}
    # Where a batch is not published, that of the smaller system is taken not to change; its size is then a guess.
    batches = [(a.chips, a.chips) if a.batch is None or b.batch is None else (a.batch, b.batch) for a, b in pairs]
    curve = []
    for (a, _), (first, second) in zip(pairs, batches, strict=True):
        shape = convergence.get(a.benchmark)
        curve.append(0.0 if shape is None else shape.log_samples(second) - shape.log_samples(first))
    both = [math.log(b.samples / a.samples) if a.samples and b.samples and a.unit == b.unit else 0.0 for a, b in pairs]
    return _PairColumns(
        benchmark=np.array([place[a.benchmark] for a, _ in pairs], np.int64),
        torus=np.array([float(a.is_tpu) for a, _ in pairs]),
        log_chips=np.log([a.chips / b.chips for a, b in pairs]),
        hosts=(np.array([a.hosts for a, _ in pairs]), np.array([b.hosts for _, b in pairs])),
        per_chip=(
            np.array([x / a.chips for (a, _), (x, _) in zip(pairs, batches, strict=True)]),
            np.array([y / b.chips for (_, b), (_, y) in zip(pairs, batches, strict=True)]),
        ),
        curve=np.array(curve),
        known=np.array(both),
    )


_SHARED = 5
"""Parameters that all benchmarks share, first in the vector: convergence_share, first_network, log_grows, torus_rest,
torus_wait."""


def _factors(asked: Floats, columns: _PairColumns, count: int) -> tuple[Floats, Floats, Floats]:
    """ln of samples, overhead and waiting of the larger over the smaller system."""
    share, log_first, log_grows, torus_rest, torus_wait = asked[:_SHARED]
    rest = np.exp(asked[_SHARED : _SHARED + count][columns.benchmark] + torus_rest * columns.torus)
    wait = np.exp(asked[_SHARED + count :][columns.benchmark] + torus_wait * columns.torus)
    small, large = (
        np.log1p(rest / per_chip * (1 + np.exp(log_grows) * np.log2(np.maximum(hosts, 1))))
        for per_chip, hosts in zip(columns.per_chip, columns.hosts, strict=True)
    )
    leaves = (columns.hosts[1] > 1) & (columns.hosts[0] <= 1)
    return (
        share * columns.curve,
        large - small,
        wait * np.log2(columns.hosts[1] / columns.hosts[0]) + np.exp(log_first) * leaves,
    )


def fit_scaling(results: Sequence[Result], points: Sequence[Point], pairs: Sequence[Pair]) -> Scaling:
    """Constants that fit the pairs of series; each series counts as the root of its pairs."""
    from scipy.optimize import least_squares

    names = sorted({a.benchmark for a, _ in pairs})
    convergence = fit_convergence(points, results)
    columns = _columns(pairs, names, convergence)
    wanted = np.log([b.time_min / a.time_min for a, b in pairs])
    sizes: dict[Any, int] = {}
    for a, _ in pairs:
        sizes[a.series] = sizes.get(a.series, 0) + 1
    weight = np.array([1 / math.sqrt(sizes[a.series]) for a, _ in pairs])
    log_rest = np.zeros(len(names))
    for place in range(len(names)):
        log_rest[place] = np.median(np.log(columns.per_chip[1][columns.benchmark == place])) + LOG_REST_BELOW_MEDIAN

    published = columns.known != 0
    start = np.concatenate([[1.0, LOG_WAIT, -1.0, 0.0, 0.0], log_rest, np.full(len(names), LOG_WAIT)])

    def residuals(asked: Floats) -> Floats:
        samples, overhead, waits = _factors(asked, columns, len(names))
        known = np.where(published, columns.known, samples)
        off = weight * (known + overhead + waits + columns.log_chips - wanted)
        curve = weight * (samples - columns.known) * published
        near = [0.1 * (asked[0] - 1), *(0.05 * (asked[1:_SHARED] - start[1:_SHARED]))]
        own = asked[_SHARED:]
        return np.concatenate([off, curve, near, 0.15 * (own - start[_SHARED:])])

    asked = least_squares(residuals, start, loss="soft_l1", f_scale=RESIDUAL).x
    return Scaling(
        convergence=convergence,
        log_rest=dict(zip(names, map(float, asked[_SHARED : _SHARED + len(names)]), strict=True)),
        log_wait=dict(zip(names, map(float, asked[_SHARED + len(names) :]), strict=True)),
        convergence_share=float(asked[0]),
        log_first_network=float(asked[1]),
        log_grows=float(asked[2]),
        torus_rest=float(asked[3]),
        torus_wait=float(asked[4]),
        batches=_usual_batches(results),
    )


def _usual_batches(results: Sequence[Result]) -> dict[str, tuple[float, float, float]]:
    """How the batch of a benchmark grows with chips, among those that published it."""
    found = {}
    for name in sorted({result.benchmark for result in results}):
        rows = [(math.log(r.chips), math.log(r.batch)) for r in results if r.benchmark == name and r.batch is not None]
        if rows:
            chips, batches = np.array(rows).T
            spread = float(((chips - chips.mean()) ** 2).sum())
            slope = float(((chips - chips.mean()) * (batches - batches.mean())).sum()) / spread if spread else 0.0
            slope = min(max(slope, 0.0), 1.0)
            found[name] = (float(batches.mean() - slope * chips.mean()), slope, float(np.exp(batches.max())))
    return found


def log_ratios(scaling: Scaling, pairs: Sequence[Pair], *, true_samples: bool = False) -> tuple[Floats, Floats, Floats]:
    """ln of samples, overhead and waiting, for each pair.

    Args:
        scaling: the constants; a benchmark that they do not know has the median of all.
        pairs: smaller and larger systems; of the larger one chips, hosts and batch are read.
        true_samples: take the published samples of both in place of the curve.
    """
    names = sorted({a.benchmark for a, _ in pairs})
    columns = _columns(pairs, names, scaling.convergence)
    rest, wait = (
        [table.get(name, float(np.median(list(table.values())))) for name in names]
        for table in (scaling.log_rest, scaling.log_wait)
    )
    shared = [
        scaling.convergence_share, scaling.log_first_network, scaling.log_grows, scaling.torus_rest, scaling.torus_wait,
    ]  # fmt: skip
    samples, overhead, waits = _factors(np.array([*shared, *rest, *wait]), columns, len(names))
    return (columns.known if true_samples else samples), overhead, waits


def predict_pairs(scaling: Scaling, pairs: Sequence[Pair], *, true_samples: bool = False) -> list[Prediction]:
    """Minutes of every larger system, from the smaller one's minutes and the larger one's chips, hosts and batch."""
    if not pairs:
        return []
    found = []
    for (a, b), *logs in zip(pairs, *log_ratios(scaling, pairs, true_samples=true_samples), strict=True):
        time_min = a.time_min * a.chips / b.chips * math.exp(sum(logs))
        width = 0.0
        if scaling.spread is not None:
            width = scaling.spread.half_width(a.benchmark, math.log2(b.chips / a.chips))
        ratios = [math.exp(each) for each in logs]
        found.append(Prediction(time_min, time_min * math.exp(-width), time_min * math.exp(width), *ratios))
    return found


FOLDS = 10
"""Parts of the series that are left out in turn. A choice."""
KERNEL_LOG2 = 0.8
"""Scale-ups within a factor of 2^0.8 say how far predictions of one are off. A choice."""
FACTOR_COUNT = 20
"""Pairs after which a benchmark's own error counts as much as that of all. A choice."""


def predict_left_out(
    results: Sequence[Result], points: Sequence[Point], *, true_samples: bool = False, seed: int = 0
) -> tuple[list[Pair], Floats]:
    """Predicted minutes of every pair by constants that were fitted without its series.

    Returns:
        the pairs, and minutes.
    """
    pairs = pairs_of(results)
    series = sorted({a.series for a, _ in pairs})
    order = np.random.default_rng(seed).permutation(len(series))
    fold = {series[at]: place % FOLDS for place, at in enumerate(order)}
    minutes = np.zeros(len(pairs))
    for left in range(FOLDS):
        scaling = fit_scaling(
            [result for result in results if fold.get(result.series) != left],
            points,
            [pair for pair in pairs if fold[pair[0].series] != left],
        )
        places = [at for at, pair in enumerate(pairs) if fold[pair[0].series] == left]
        said = predict_pairs(scaling, [pairs[at] for at in places], true_samples=true_samples)
        minutes[places] = [one.time_min for one in said]
    return pairs, minutes


def fit_spread(pairs: Sequence[Pair], minutes: Floats) -> Spread:
    """How far predictions of series that were left out are off.

    Args:
        pairs: smaller and larger systems.
        minutes: predicted, by `predict_left_out`.
    """
    error = np.abs(np.log(minutes / np.array([b.time_min for _, b in pairs])))
    log2 = np.log2([b.chips / a.chips for a, b in pairs])
    grid = np.arange(0.0, 9.1, 0.5)

    def near(at: float) -> Floats:
        return np.exp(-(((log2 - at) / KERNEL_LOG2) ** 2))

    mean = np.array([np.average(error, weights=near(at)) for at in grid])
    ratio = error / np.interp(log2, grid, mean)
    names = np.array([a.benchmark for a, _ in pairs])
    factor = {
        str(name): float(
            (ratio[names == name].sum() + FACTOR_COUNT * ratio.mean()) / ((names == name).sum() + FACTOR_COUNT)
        )
        for name in np.unique(names)
    }
    scaled = ratio / np.array([factor[name] for name in names])
    quantiles = [weighted_quantile(scaled, near(at), LEVEL) for at in grid]
    return Spread(tuple(map(float, grid)), tuple(map(float, mean)), tuple(quantiles), factor)


def weighted_quantile(values: Floats, weights: Floats, level: float) -> float:
    """The least value that at least this share of the weights does not exceed.

    Example:
        >>> weighted_quantile(np.array([1.0, 2.0, 3.0, 4.0]), np.ones(4), 0.5)
        2.0
    """
    order = np.argsort(values)
    share = np.cumsum(weights[order]) / weights.sum()
    return float(values[order][np.searchsorted(share, level - 1e-12)])


def with_spread(scaling: Scaling, spread: Spread) -> Scaling:
    """The same constants, with intervals."""
    return replace(scaling, spread=spread)


def scaling_document(scaling: Scaling) -> dict[str, Any]:
    """Constants as JSON holds them."""
    spread = scaling.spread
    return {
        "convergence": {name: [one.log_critical, one.growth] for name, one in scaling.convergence.items()},
        "log_rest": dict(scaling.log_rest),
        "log_wait": dict(scaling.log_wait),
        "convergence_share": scaling.convergence_share,
        "log_first_network": scaling.log_first_network,
        "log_grows": scaling.log_grows,
        "torus_rest": scaling.torus_rest,
        "torus_wait": scaling.torus_wait,
        "batches": {name: list(row) for name, row in scaling.batches.items()},
        "spread": None
        if spread is None
        else {
            "log2_ratio": list(spread.log2_ratio),
            "error": list(spread.error),
            "quantile": list(spread.quantile),
            "factor": dict(spread.factor),
        },
    }


def scaling_of_document(read: Mapping[str, Any]) -> Scaling:
    """Constants from what `scaling_document` wrote."""
    spread = read["spread"]
    return Scaling(
        **{name: value for name, value in read.items() if name not in ("convergence", "batches", "spread")},
        batches={name: tuple(row) for name, row in read["batches"].items()},
        convergence={name: Convergence(*pair) for name, pair in read["convergence"].items()},
        spread=None
        if spread is None
        else Spread(tuple(spread["log2_ratio"]), tuple(spread["error"]), tuple(spread["quantile"]), spread["factor"]),
    )


def bands_of(pairs: Iterable[Pair]) -> list[str]:
    """The band of scale-up of every pair, for tables."""
    edges = ((2, "to 2×"), (4, "to 4×"), (16, "to 16×"), (64, "to 64×"))
    return [next((name for edge, name in edges if b.chips / a.chips <= edge * 1.005), "above 64×") for a, b in pairs]
