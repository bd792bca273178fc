"""A device's fingerprint: the ten models that tell most are measured on it, the rest of the zoo is predicted.

What the rest takes is known from suites of other devices (`phasepoint bench run`), two or more of them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from phasepoint.bench.fingerprint.prediction import (
    PROBES,
    KnownModels,
    choose_models,
    family_of,
    fit_widths,
    predict_times,
    scaled_sizes,
)
from phasepoint.bench.suite.result import ModelFacts, read_suite
from phasepoint.bench.suite.summary import PairSummary, summarize_suite
from phasepoint.core.errors import NoDataError
from phasepoint.core.units import PS_PER_S

START_S = 12.0
"""Of a process that measures, before and after its latencies: importing, building, throughput. Measured on 2 cores,
2026-11-26: 5 to 9 s for most networks."""

LEAST_RUNS = 40
"""Of a model in a fingerprint: so that the middle of its latencies is sure to 1 %. A choice."""


@dataclass(frozen=True)
class KnownSuites:
    """Models that every suite measured.

    Attributes:
        names: of the models.
        known: what is known of them, in the same order.
        labels: of the suites' settings, one for each column of times.
    """

    names: tuple[str, ...]
    known: KnownModels
    labels: tuple[str, ...]


@dataclass(frozen=True)
class FingerprintRow:
    """A model on the new device.

    Attributes:
        model: its name.
        latency_ps: of one sample.
        low_ps, high_ps: 90 % interval of a prediction, 95 % of a measurement; None where one process tells too little.
        is_measured: whether it is one of the ten.
    """

    model: str
    latency_ps: int
    low_ps: int | None
    high_ps: int | None
    is_measured: bool


def known_suites(folders: Sequence[Path]) -> KnownSuites:
    """What suites of other devices know.

    Args:
        folders: of `phasepoint bench run`; a folder is one device, with one column for each of its settings.

    Raises:
        NoDataError: fewer than two folders, or they share fewer than twice the models that are measured.
    """
    if len(folders) < 2:
        raise NoDataError("a fingerprint needs suites of two other devices or more: --like DIR --like DIR")
    times: dict[tuple[int, str], dict[str, float]] = {}
    facts: dict[str, ModelFacts] = {}
    for number, folder in enumerate(folders):
        for one in summarize_suite(read_suite(folder)[1]):
            if one.latency_ps and one.model is not None:
                setting = f"{folder.name}: {one.pair.device}, {one.pair.runtime}, {one.pair.precision}"
                times.setdefault((number, setting), {})[one.pair.model] = one.latency_ps / PS_PER_S
                facts[one.pair.model] = one.model
    common = sorted(set.intersection(*(set(of_setting) for of_setting in times.values()))) if times else []
    if len(common) < 2 * PROBES:
        raise NoDataError(f"the suites share {len(common)} models; expected {2 * PROBES} or more")
    log_times = np.log([[of_setting[name] for of_setting in times.values()] for name in common])
    sizes = np.log([_sizes(facts[name]) for name in common])
    owners = [str(folders[number]) for number, _ in times]
    known = KnownModels(log_times, scaled_sizes(sizes), [family_of(name) for name in common], owners)
    return KnownSuites(tuple(common), known, tuple(setting for _, setting in times))


def _sizes(facts: ModelFacts) -> tuple[float, float, float]:
    """Parameters, multiply-accumulates (where they are not known, parameters stand for them), bytes of weights."""
    return max(facts.params, 1), max(facts.macs or facts.params, 1), max(facts.weight_bytes, 1)


def choose_for(suites: KnownSuites, minutes: float) -> tuple[tuple[str, ...], float]:
    """The models to measure, and for how many seconds each, so that all are done in so many minutes.

    Raises:
        NoDataError: no ten of them fit into it.
    """
    seconds = 60 * minutes / PROBES - START_S
    slowest_s = np.exp(suites.known.log_times.max(1))
    fitting = np.flatnonzero(LEAST_RUNS * slowest_s <= seconds)
    if seconds <= 0 or len(fitting) < PROBES:
        least = PROBES * (START_S + LEAST_RUNS * float(np.sort(slowest_s)[PROBES - 1])) / 60
        raise NoDataError(
            f"ten models do not fit into {minutes:g} minutes; expected --minutes {math.ceil(least)} or more"
        )
    widths = fit_widths(suites.known)
    places = choose_models(suites.known.rows(fitting), widths.values)
    return tuple(suites.names[int(fitting[place])] for place in places), seconds / 2  # throughput takes the other half


def predict_rest(suites: KnownSuites, measured: Sequence[PairSummary]) -> list[FingerprintRow]:
    """All models on the new device, the fastest first.

    Args:
        suites: what is known.
        measured: of the new device; models that no suite knows do not count.

    Raises:
        NoDataError: none of them was measured.
    """
    found = {one.pair.model: one for one in measured if one.latency_ps and one.pair.model in suites.names}
    if not found:
        raise NoDataError("none of the models that were chosen could be measured on this device")
    probes = np.array([suites.names.index(name) for name in found])
    log_times = np.log([(one.latency_ps or 1) / PS_PER_S for one in found.values()])
    said = predict_times(suites.known, fit_widths(suites.known), probes, log_times)
    rows = [
        FingerprintRow(name, one.latency_ps or 1, one.low_ps, one.high_ps, is_measured=True)
        for name, one in found.items()
    ]
    ends = np.rint(PS_PER_S * np.exp([said.log_time, said.low, said.high])).astype(np.int64).T.tolist()
    rows += [
        FingerprintRow(name, middle, low, high, is_measured=False)
        for name, (middle, low, high) in zip(suites.names, ends, strict=True)
        if name not in found
    ]
    return sorted(rows, key=lambda row: row.latency_ps)
