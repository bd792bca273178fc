"""Samples of the levels → one measurement: each level's latency from its own runs, closed on the model's latency.

The trimmed mean of repeats: what is left after the same share of them has been dropped from either side.

Source: C. Li et al., "XSP: Across-Stack Profiling and Analysis of Machine Learning Models on GPUs", IPDPS 2020, III-D:
20 % are dropped; here as many from the top as from the bottom. Interval: J. W. Tukey and D. H. McLaughlin, "Less
Vulnerable Confidence and Significance Procedures for Location Based on a Single Sample", Sankhyā A 25 (1963).
"""

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import TypeVar

import numpy as np

from phasepoint.core.statistics import apportion
from phasepoint.measure.result import (
    BELOW,
    CounterValue,
    InstrumentReading,
    LayerKey,
    LayerLatency,
    LayerOpKey,
    LayerOpTime,
    LayerTime,
    Level,
    LeveledMeasurement,
    LevelResult,
    NotMeasured,
    OpLatency,
    Sample,
)

TRIM_RATIO = 0.2
"""Share of the repeats that is dropped from each side."""

LEAST_FOR_INTERVAL = 5
"""Repeats below which no interval is given: of four, trimming leaves two."""


def trimmed_count(n_repeats: int) -> int:
    """How many repeats are dropped from each side: the whole number nearest to 20 %, and always fewer than half.

    One of 3 and of 4, which leaves the median; none of 1 and 2; two of 10.
    """
    return min(math.floor(TRIM_RATIO * n_repeats + 0.5), (n_repeats - 1) // 2)


def trimmed_mean_ps(values_ps: Sequence[int]) -> int:
    """The mean of what trimming leaves, to the nearest picosecond.

    Args:
        values_ps: `[n_repeats]`, n ≥ 1, in any order.

    Raises:
        ValueError: there are no values.
    """
    kept = _kept(values_ps)
    return (2 * sum(kept) + len(kept)) // (2 * len(kept))


def trimmed_interval_ps(values_ps: Sequence[int]) -> tuple[int, int] | None:
    """The 95 % interval of the trimmed mean, None for fewer than five repeats.

    Trimmed mean ± t · s / ((1 − 2g) √n), where s is the standard deviation after each dropped value has been replaced
    by the nearest kept one, g the share dropped from a side, and t has one degree of freedom less than values kept.

    Args:
        values_ps: `[n_repeats]`, n ≥ 1, in any order.
    """
    from phasepoint.core.statistics import t_quantile

    n = len(values_ps)
    if n < LEAST_FOR_INTERVAL:
        return None
    kept, dropped = _kept(values_ps), trimmed_count(n)
    replaced = [kept[0]] * dropped + kept + [kept[-1]] * dropped
    mean = sum(replaced) / n
    deviation = math.sqrt(sum((value - mean) ** 2 for value in replaced) / (n - 1))
    half = t_quantile(0.975, len(kept) - 1) * deviation / ((1 - 2 * dropped / n) * math.sqrt(n))
    centre = trimmed_mean_ps(values_ps)
    return centre - math.ceil(half), centre + math.ceil(half)


def _kept(values_ps: Sequence[int]) -> list[int]:
    """The values that trimming leaves, sorted."""
    if not values_ps:
        raise ValueError("a trimmed mean needs at least one repeat")
    dropped = trimmed_count(len(values_ps))
    return sorted(values_ps)[dropped : len(values_ps) - dropped]


Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

_LEAST_SCALE, _MOST_SCALE = Fraction(1, 2), Fraction(4)

LEVEL_ORDER: tuple[Level, ...] = ("M", "L", "K", "C")


def level_samples(
    samples: Iterable[Sample],
    *,
    framework: str,
    framework_version: str,
    devices: tuple[str, ...],
    unavailable: tuple[NotMeasured, ...] = (),
    notes: tuple[str, ...] = (),
) -> LeveledMeasurement:
    """Make one measurement of the repeats at every level.

    Args:
        samples: all of them, those of one level in the order of their runs; at least one at M.
        framework: torch or jax.
        framework_version: as it says it.
        devices: the process's devices.
        unavailable: what could not be measured.
        notes: what else is to be said.

    Raises:
        ValueError: there is no sample at M.
    """
    by_level: dict[Level, list[Sample]] = {}
    for sample in samples:
        by_level.setdefault(sample.level, []).append(sample)
    if "M" not in by_level:
        raise ValueError("a leveled measurement needs at least one run at M: every other level is held against it")
    results = _level_results(by_level)
    model_ps = results["M"].wall_ps
    layers, unattributed_ps, closure = _layers(by_level, model_ps)
    layers, ops, outside_ops_ps = _ops(by_level.get("K", []), layers, unattributed_ps)
    counters = _columns((one.evidence.counters for one in by_level.get("C", [])), 0)
    said = [note for level in LEVEL_ORDER for one in by_level.get(level, []) for note in one.evidence.notes]
    return LeveledMeasurement(
        framework=framework,
        framework_version=framework_version,
        devices=devices,
        levels=tuple(results[level] for level in LEVEL_ORDER if level in results),
        model_ps=model_ps,
        layers=tuple(sorted(layers, key=lambda one: (-one.latency_ps, one.layer, one.direction or ""))),
        unattributed_ps=unattributed_ps,
        unattributed_ops_ps=outside_ops_ps,
        closure_ratio=closure,
        ops=ops,
        counters=tuple(CounterValue(name, trimmed_mean_ps(values)) for name, values in sorted(counters.items())),
        unavailable=unavailable,
        notes=tuple(dict.fromkeys([*notes, *said, *_disturbance(by_level)])),
    )


def _disturbance(by_level: Mapping[Level, Sequence[Sample]]) -> list[str]:
    """Says so where other processes were in the way of most runs."""
    runs = [one for samples in by_level.values() for one in samples]
    disturbed = sum(one.switches > 0 for one in runs)
    if 2 * disturbed <= len(runs):
        return []
    return [f"other processes took a processor away in {disturbed} of {len(runs)} runs; latencies hold the waits"]


def _level_results(by_level: Mapping[Level, Sequence[Sample]]) -> dict[Level, LevelResult]:
    results: dict[Level, LevelResult] = {}
    for level in LEVEL_ORDER:
        if level not in by_level:
            continue
        wall_ps = [one.wall_ps for one in by_level[level]]
        low_ps, high_ps = trimmed_interval_ps(wall_ps) or (None, None)
        below = results.get(BELOW[level]) if level in BELOW else None
        results[level] = LevelResult(
            level=level,
            wall_ps=(mean_ps := trimmed_mean_ps(wall_ps)),
            low_ps=low_ps,
            high_ps=high_ps,
            cpu_ps=trimmed_mean_ps([one.cpu_ps for one in by_level[level]]),
            overhead_ps=None if below is None else mean_ps - below.wall_ps,
            repeats_ps=tuple(wall_ps),
            trimmed=trimmed_count(len(wall_ps)),
        )
    return results


def _layers(by_level: Mapping[Level, Sequence[Sample]], model_ps: int) -> tuple[list[LayerLatency], int, float | None]:
    """The layers as they close on the model, what is in none, and how well they closed by themselves."""
    samples = by_level.get("L", [])
    if not samples:
        return [], model_ps, None
    times = _columns((one.evidence.layers for one in samples), LayerTime(0, 0, 0))
    alone_ps = trimmed_mean_ps([one.wall_ps - _cost_ps(one) for one in samples])
    scale = _cost_scale(samples, model_ps)
    own = {key: [max(one.self_ps - int(one.cost_ps * scale), 0) for one in column] for key, column in times.items()}
    outside = [max(_outside_ps(one) - int(one.evidence.outside_cost_ps * scale), 0) for one in samples]
    keys = list(times)
    corrected_ps = np.array([trimmed_mean_ps(values) for values in (*own.values(), outside)], np.int64)
    total_ps = int(corrected_ps.sum())
    if total_ps == 0:
        corrected_ps[-1], total_ps = 1, 1  # nothing took any time: all of it is in no layer
    closed_ps = apportion(model_ps, corrected_ps.astype(np.float64))
    profiled = _columns((one.evidence.layers for one in by_level.get("K", [])), LayerTime(0, 0, 0))
    layers = [
        _layer(key, int(latency_ps), times[key], profiled.get(key), _scaled_interval(own[key], model_ps, total_ps))
        for key, latency_ps in zip(keys, closed_ps[:-1], strict=True)
    ]
    return layers, int(closed_ps[-1]), alone_ps / model_ps if model_ps else None


def _cost_ps(sample: Sample) -> int:
    """What the instrument took in one run, as calibrated."""
    evidence = sample.evidence
    return evidence.outside_cost_ps + sum(one.cost_ps for one in evidence.layers.values())


def _cost_scale(samples: Sequence[Sample], model_ps: int) -> Fraction:
    """What the calibrated cost is multiplied by, so that it is the overhead that the runs show.

    Calibration runs hot: between layers that do something, hooks find the processor's caches cold and take longer. The
    overhead of the runs says how much, within bounds: beyond them it is noise of the machine.
    """
    cost_ps = trimmed_mean_ps([_cost_ps(one) for one in samples])
    if cost_ps <= 0:
        return Fraction(1)
    overhead_ps = trimmed_mean_ps([one.wall_ps for one in samples]) - model_ps
    return min(max(Fraction(overhead_ps, cost_ps), _LEAST_SCALE), _MOST_SCALE)


def _outside_ps(sample: Sample) -> int:
    """Time of one run in no layer."""
    return sample.wall_ps - sum(one.self_ps for one in sample.evidence.layers.values())


def _layer(
    key: LayerKey,
    latency_ps: int,
    measured: Sequence[LayerTime],
    profiled: Sequence[LayerTime] | None,
    interval_ps: tuple[int | None, int | None],
) -> LayerLatency:
    profiled_ps = None if profiled is None else trimmed_mean_ps([one.self_ps for one in profiled])
    known = profiled_ps is not None and latency_ps > 0
    return LayerLatency(
        layer=key.layer,
        direction=key.direction,
        kind=next((one.kind for one in measured if one.kind is not None), None),
        calls=trimmed_mean_ps([one.calls for one in measured]),
        latency_ps=latency_ps,
        low_ps=interval_ps[0],
        high_ps=interval_ps[1],
        measured_ps=trimmed_mean_ps([one.self_ps for one in measured]),
        profiled_ps=profiled_ps,
        inflation_ratio=(profiled_ps or 0) / latency_ps - 1 if known else None,
        ops_ps=None,
    )


def _scaled_interval(values_ps: Sequence[int], model_ps: int, total_ps: int) -> tuple[int | None, int | None]:
    """The interval of a layer's own time at L, by the factor that closes all of them on the model."""
    interval = trimmed_interval_ps(values_ps)
    if interval is None:
        return None, None
    low_ps, high_ps = interval
    return max(low_ps, 0) * model_ps // total_ps, -(-high_ps * model_ps // total_ps)


def _ops(
    samples: Sequence[Sample], layers: list[LayerLatency], unattributed_ps: int
) -> tuple[list[LayerLatency], tuple[OpLatency, ...], int | None]:
    """The ops, each within its layer's latency; layers with what their ops take; and what those in no layer take."""
    from dataclasses import replace

    if not samples:
        return layers, (), None
    times = _columns((one.evidence.ops for one in samples), LayerOpTime(0, 0))
    known = {LayerKey(one.layer, one.direction): one.latency_ps for one in layers}
    groups: dict[LayerKey | None, list[LayerOpKey]] = {}
    for key in times:
        groups.setdefault(key.layer if key.layer in known else None, []).append(key)
    rows: list[OpLatency] = []
    taken_ps: dict[LayerKey | None, int] = {}
    for layer, keys in groups.items():
        room_ps = unattributed_ps if layer is None else known[layer]
        measured = [trimmed_mean_ps([one.self_ps for one in times[key]]) for key in keys]
        fitted = _fit(measured, room_ps)
        taken_ps[layer] = sum(fitted)
        for key, latency_ps, measured_ps in zip(keys, fitted, measured, strict=True):
            calls = trimmed_mean_ps([one.calls for one in times[key]])
            path, way = (None, None) if layer is None else layer
            rows.append(OpLatency(path, way, key.op, key.level, key.device, calls, latency_ps, measured_ps))
    layers = [replace(one, ops_ps=taken_ps.get(LayerKey(one.layer, one.direction), 0)) for one in layers]
    rows.sort(key=lambda one: (-one.latency_ps, one.layer or "", one.op, one.device))
    return layers, tuple(rows), taken_ps.get(None, 0)


def _fit(values_ps: Sequence[int], room_ps: int) -> list[int]:
    """The values as they are where there is room for them, else in proportion, so that they fill it exactly."""
    if sum(values_ps) <= room_ps:
        return list(values_ps)
    return [int(one) for one in apportion(room_ps, np.array(values_ps, np.float64))]


def collapse(samples: Sequence[Sample]) -> Sample:
    """The runs of one process at one level as one run: the trimmed mean of every number.

    Raises:
        ValueError: there are none.
    """
    if not samples:
        raise ValueError("there are no runs to take the mean of")
    seen = [one.evidence for one in samples]
    layers = {
        key: LayerTime(
            self_ps=trimmed_mean_ps([one.self_ps for one in column]),
            cost_ps=trimmed_mean_ps([one.cost_ps for one in column]),
            calls=trimmed_mean_ps([one.calls for one in column]),
            kind=next((one.kind for one in column if one.kind is not None), None),
        )
        for key, column in _columns((one.layers for one in seen), LayerTime(0, 0, 0)).items()
    }
    ops = {
        key: LayerOpTime(*(trimmed_mean_ps([getattr(one, name) for one in column]) for name in ("self_ps", "calls")))
        for key, column in _columns((one.ops for one in seen), LayerOpTime(0, 0)).items()
    }
    counters = _columns((one.counters for one in seen), 0)
    evidence = InstrumentReading(
        layers=layers,
        outside_cost_ps=trimmed_mean_ps([one.outside_cost_ps for one in seen]),
        ops=ops,
        counters={name: trimmed_mean_ps(values) for name, values in counters.items()},
        notes=tuple(dict.fromkeys(note for one in seen for note in one.notes)),
    )
    return Sample(
        level=samples[0].level,
        wall_ps=trimmed_mean_ps([one.wall_ps for one in samples]),
        cpu_ps=trimmed_mean_ps([one.cpu_ps for one in samples]),
        switches=trimmed_mean_ps([one.switches for one in samples]),
        evidence=evidence,
    )


def _columns(rows: Iterable[Mapping[Key, Value]], missing: Value) -> dict[Key, list[Value]]:
    """Mappings, one a repeat, as one list a key with a value for every repeat."""
    repeats = list(rows)
    keys = dict.fromkeys(key for row in repeats for key in row)
    return {key: [row.get(key, missing) for row in repeats] for key in keys}
