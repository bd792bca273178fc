"""What a suite says of each pair: its latency with an interval, percentiles where there are enough, what was unsteady.

Latencies of one process lie closer together than those of two: memory lies elsewhere, a core has another clock. So the
interval comes from the scatter between processes, which all pairs of a suite tell together (two or three processes of
one pair say little of it); a suite of one round has the scatter within its processes alone, and says so.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

import numpy as np

from phasepoint.bench.suite.result import Bottleneck, ModelFacts, Pair, PairResult, PredictedLatency
from phasepoint.bench.suite.sustained import Sustained, judge_sustained
from phasepoint.core.statistics import MAD_TO_SIGMA, median, median_ps, quantile_ps, t_quantile

CONFIDENCE = 0.95
"""Of intervals of what was measured."""

LEAST_OF_PERCENTILE = {0.9: 64, 0.99: 662}
"""Samples below which a percentile is not told: as MLPerf Inference's rules for a single stream have it (early stopping
at a confidence of 99 %)."""

MOST_OTHERS, MOST_SHIFT = 0.10, 0.05
"""From which a round is unsteady: cores that other programs had; by how much its later half is slower or faster than
the earlier one. Choices: one busy neighbour of ten cores; what a core's clock loses when it warms up."""

BLOCKS = 8
"""Of a process' latencies, in order: their medians say how much its own middle scatters."""


@dataclass(frozen=True)
class PairSummary:
    """One pair.

    Attributes:
        pair: what was measured.
        status: `measured`, where one round was.
        reason: why not, or what distorts it.
        model: its facts.
        rounds: that were measured.
        samples: latencies of all of them.
        latency_ps: the geometric mean over rounds of a round's median.
        low_ps, high_ps: 95 % interval; None where nothing tells it.
        p90_ps, p99_ps: of all latencies; None where they are too few.
        unsteady: what was not steady, in words; empty where nothing was.
        samples_per_s: best throughput, and at which batch size.
        batch: that size.
        peak_bytes: memory of the process at most.
        joules: of an inference; None where it cannot be read.
        relative_error: of the outputs from f32; None for f32 itself.
        first_ps: the first inference.
        compile_ps: compiling.
        sustained: of a run without a break, where one was asked for.
        bottleneck: what holds it back, where that was asked for.
        predicted: of a device that is not there, in the place of everything measured.
    """

    pair: Pair
    status: str
    reason: str
    model: ModelFacts | None = None
    rounds: int = 0
    samples: int = 0
    latency_ps: int | None = None
    low_ps: int | None = None
    high_ps: int | None = None
    p90_ps: int | None = None
    p99_ps: int | None = None
    unsteady: str = ""
    samples_per_s: float | None = None
    batch: int | None = None
    peak_bytes: int | None = None
    joules: float | None = None
    relative_error: float | None = None
    first_ps: int | None = None
    compile_ps: int | None = None
    sustained: Sustained | None = None
    bottleneck: Bottleneck | None = None
    predicted: PredictedLatency | None = None

    @property
    def macs_per_s(self) -> float | None:
        """Multiply-accumulates of one sample over its latency; None where either is not known."""
        if self.model is None or self.model.macs is None or not self.latency_ps:
            return None
        return self.model.macs * 1e12 / self.latency_ps


def summarize_suite(results: Iterable[PairResult]) -> list[PairSummary]:
    """Each pair of a suite, by model, device, runtime and precision.

    Args:
        results: of its rounds, in any order.
    """
    ordered = sorted(results, key=lambda result: (result.pair, result.round))
    grouped = [(pair, list(rounds)) for pair, rounds in groupby(ordered, key=attrgetter("pair"))]
    scatter = process_scatter([[one for one in rounds if one.latencies_ps] for _, rounds in grouped])
    return [_summarize(pair, rounds, scatter) for pair, rounds in grouped]


def process_scatter(pairs: Sequence[Sequence[PairResult]]) -> tuple[float, float] | None:
    """Standard deviation of ln of a process' median from that of its pair, and degrees of freedom; None of one round.

    Args:
        pairs: for each pair its rounds, all of them measured.
    """
    residuals: list[float] = []
    freedom = 0
    for rounds in pairs:
        if len(rounds) > 1:
            logs = [math.log(median_ps(np.array(one.latencies_ps))) for one in rounds]
            middle = sum(logs) / len(logs)
            residuals += [(log - middle) * math.sqrt(len(logs) / (len(logs) - 1)) for log in logs]
            freedom += len(logs) - 1
    if not freedom:
        return None
    apart = np.array(residuals)
    return max(MAD_TO_SIGMA * median(np.abs(apart)), float(np.sqrt(np.mean(apart**2))) / 2), float(freedom)


def _summarize(pair: Pair, rounds: Sequence[PairResult], scatter: tuple[float, float] | None) -> PairSummary:
    measured = [one for one in rounds if one.status == "measured"]
    if not measured:
        first = next((one for one in rounds if one.predicted is not None), rounds[0])
        return PairSummary(pair, first.status, first.reason, model=first.model, predicted=first.predicted)
    logs = [math.log(median_ps(np.array(one.latencies_ps))) for one in measured]
    latency_ps = round(math.exp(sum(logs) / len(logs)))
    half = _half_width(measured, scatter)
    every = np.array([time_ps for one in measured for time_ps in one.latencies_ps])
    percentiles = {
        q: quantile_ps(every, q) if len(every) >= least else None for q, least in LEAST_OF_PERCENTILE.items()
    }
    speeds = [(speed.samples_per_s, speed.batch) for one in measured for speed in one.throughput if speed.samples_per_s]
    samples_per_s, batch = max(speeds, default=(None, None))
    first = measured[0]
    return PairSummary(
        pair,
        "measured",
        next((one.reason for one in measured if one.reason), ""),
        model=first.model,
        rounds=len(measured),
        samples=len(every),
        latency_ps=latency_ps,
        low_ps=None if half is None else round(latency_ps * math.exp(-half)),
        high_ps=None if half is None else round(latency_ps * math.exp(half)),
        p90_ps=percentiles[0.9],
        p99_ps=percentiles[0.99],
        unsteady="; ".join(sorted({words for one in measured if (words := what_is_unsteady(one))})),
        samples_per_s=samples_per_s,
        batch=batch,
        peak_bytes=max(one.peak_bytes or 0 for one in measured) or None,
        joules=next((one.energy.joules for one in measured if one.energy and one.energy.joules), None),
        relative_error=None if first.drift is None else first.drift.relative_error,
        first_ps=median_ps(np.array([one.first_ps or 0 for one in measured])),
        compile_ps=first.compile_ps,
        sustained=judge_sustained(first.sustained) if first.sustained else None,
        bottleneck=next((one.bottleneck for one in measured if one.bottleneck is not None), None),
    )


def _half_width(measured: Sequence[PairResult], scatter: tuple[float, float] | None) -> float | None:
    """Of the interval of ln of the latency."""
    if scatter is not None:
        spread, freedom = scatter
        return t_quantile((1 + CONFIDENCE) / 2, freedom) * spread / math.sqrt(len(measured))
    logs = [
        float(np.median(np.log(block)))
        for block in np.array_split(np.array(measured[0].latencies_ps), BLOCKS)
        if len(block)
    ]
    if len(logs) < 2:
        return None
    return t_quantile((1 + CONFIDENCE) / 2, len(logs) - 1) * float(np.std(logs, ddof=1)) / math.sqrt(len(logs))


def what_is_unsteady(result: PairResult) -> str:
    """Why a round's latencies may not be the pair's, in words; empty where nothing speaks against them."""
    conditions = result.conditions
    if conditions is not None and conditions.others_ratio is not None and conditions.others_ratio > MOST_OTHERS:
        return "beside other programs"
    half = len(result.latencies_ps) // 2
    if half:
        earlier, later = (float(np.median(part)) for part in (result.latencies_ps[:half], result.latencies_ps[half:]))
        if abs(math.log(later / earlier)) > MOST_SHIFT:
            return "slower as it went on" if later > earlier else "faster as it went on"
    return ""
