"""What changes were told to win, beside what they won where a suite has measured them too."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

import msgspec

from phasepoint.bench.suite.result import Bottleneck, Change, Pair, PairResult
from phasepoint.bench.suite.summary import PairSummary


@dataclass(frozen=True)
class ToldChange:
    """A change of one pair.

    Attributes:
        pair: that it would change.
        part: what holds the pair back.
        part_ratio: of its latency.
        layer: with the most time in that part; empty of overhead.
        change: what would be run instead, in words: `2 threads`, `bf16`, `batch 8`.
        told: how many times as fast it should be.
        measured: how many times as fast it was; None where the suite has not measured it.
    """

    pair: Pair
    part: str
    part_ratio: float
    layer: str
    change: str
    told: float
    measured: float | None


def told_changes(summaries: Sequence[PairSummary], results: Iterable[PairResult]) -> list[ToldChange]:
    """All changes of a suite's pairs, pair by pair, the one that should win most first.

    Args:
        summaries: of its pairs.
        results: of its rounds, for throughput at each batch size.
    """
    latency_ps = {one.pair: one.latency_ps for one in summaries if one.latency_ps}
    speeds: dict[tuple[Pair, int], list[float]] = {}
    for result in results:
        for speed in result.throughput:
            if speed.samples_per_s:
                speeds.setdefault((result.pair, speed.batch), []).append(speed.samples_per_s)
    rows = []
    for one in summaries:
        found = one.bottleneck
        if found is None:
            continue
        for change in sorted(found.changes, key=lambda change: -change.speedup):
            pair = changed_pair(one.pair, change)
            measured = None
            if change.batch > 1:
                alone, together = (speeds.get((one.pair, size)) for size in (1, change.batch))
                measured = median(together) / median(alone) if alone and together else None
            elif pair in latency_ps and one.latency_ps:
                measured = one.latency_ps / latency_ps[pair]
            rows.append(_row(one.pair, found, change, measured))
    return rows


def changed_pair(pair: Pair, change: Change) -> Pair:
    """The pair that a change of threads or precision makes of another."""
    device = pair.device if change.threads is None else f"cpu:{change.threads}"
    return msgspec.structs.replace(pair, device=device, precision=change.precision)


def _row(pair: Pair, found: Bottleneck, change: Change, measured: float | None) -> ToldChange:
    layer = found.layers[0] if found.layers else None
    threads = f"{change.threads} thread{'s' if change.threads != 1 else ''}"
    words = f"batch {change.batch}" if change.batch > 1 else threads
    if change.precision != pair.precision:
        words = change.precision
    return ToldChange(
        pair,
        found.part,
        found.part_ratio,
        "" if layer is None else f"{layer.layer} ({layer.kind})".strip(),
        words,
        change.speedup,
        measured,
    )
