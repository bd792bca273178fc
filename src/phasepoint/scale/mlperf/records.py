"""Published results and reference convergence points, read with checks."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from phasepoint.scale.rows import read_rows

RESULTS = "mlperf_training_results.parquet"
POINTS = "mlperf_convergence_points.parquet"

TOKENS_A_SENTENCE = 30
"""Of WMT14 English–German with a vocabulary of 33,000 word pieces, some 27 to 33 either way (Vaswani et al., 2017:
25,000 source tokens in a batch of some 800 pairs). Submitters give the batch of Transformer in sentences or in
tokens."""

MOST_SENTENCES = 10_000
"""Transformer batches above this are tokens: no submission had as many sentences."""


@dataclass(frozen=True)
class Result:
    """One published result, scored by the rule of MLCommons.

    Attributes:
        series: (version, submitter, benchmark, accelerator): what was scaled.
        benchmark: its name.
        accelerator: product as the submitter calls it.
        chips: accelerators.
        nodes: hosts; None where not given.
        batch: samples of a step (tokens for Transformer); None where not given.
        samples: to converge, in the benchmark's own unit (epochs, samples, tokens); None where not given.
        unit: of `samples`.
        time_min: minutes to train.
    """

    series: tuple[str, str, str, str]
    benchmark: str
    accelerator: str
    chips: float
    nodes: float | None
    batch: float | None
    samples: float | None
    unit: str
    time_min: float

    @property
    def is_tpu(self) -> bool:
        """Whether its chips are joined by a torus."""
        return "tpu" in self.accelerator.lower()

    @property
    def hosts(self) -> float:
        """As published; else eight accelerators each."""
        return self.nodes or max(self.chips / 8, 1)


@dataclass(frozen=True)
class Point:
    """A reference convergence point: what the benchmark's own code needs at a batch.

    Attributes:
        benchmark: as results call it.
        batch: samples of a step.
        samples: to converge, mean over the runs.
    """

    benchmark: str
    batch: float
    samples: float


def read_results(path: Path) -> list[Result]:
    """The results of a file; those without chips or time are left out.

    Raises:
        SourceError: it is no such file.
    """
    return [result for row in read_rows(path, _RESULT_COLUMNS) if (result := _result(row)) is not None]


def read_points(path: Path) -> list[Point]:
    """The reference points of a file.

    Raises:
        SourceError: it is no such file.
    """
    found = []
    for row in read_rows(path, ("ruleset", "benchmark", "global_batch_size", "mean_to_converge")):
        batch, samples = _number(row["global_batch_size"]), _number(row["mean_to_converge"])
        if batch and samples and batch > 0 and samples > 0:
            found.append(Point(_name_in_results(str(row["benchmark"]), str(row["ruleset"])), batch, samples))
    return found


def pairs_of(results: Iterable[Result]) -> list[tuple[Result, Result]]:
    """All pairs of a smaller and a larger system of one series."""
    by_series: dict[tuple[str, str, str, str], list[Result]] = {}
    for result in results:
        by_series.setdefault(result.series, []).append(result)
    return [(a, b) for rows in by_series.values() for a in rows for b in rows if a.chips < b.chips]


_RESULT_COLUMNS = (
    "version", "submitter", "benchmark", "accelerator", "num_accelerators", "num_nodes", "global_batch_size",
    "epochs_or_samples", "unit", "time_min",
)  # fmt: skip


def _result(row: Mapping[str, Any]) -> Result | None:
    chips, time_min = _number(row["num_accelerators"]), _number(row["time_min"])
    if not chips or not time_min or chips <= 0 or time_min <= 0:
        return None
    benchmark = str(row["benchmark"])
    batch, samples = _number(row["global_batch_size"]), _number(row["epochs_or_samples"])
    if benchmark == "transformer" and batch is not None and batch < MOST_SENTENCES:
        batch *= TOKENS_A_SENTENCE
    return Result(
        series=(str(row["version"]), str(row["submitter"]), benchmark, str(row["accelerator"])),
        benchmark=benchmark,
        accelerator=str(row["accelerator"]),
        chips=chips,
        nodes=_positive(_number(row["num_nodes"])),
        batch=_positive(batch),
        samples=_positive(samples),
        unit=str(row["unit"] or ""),
        time_min=time_min,
    )


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def _positive(value: float | None) -> float | None:
    return value if value is not None and value > 0 else None


def _name_in_results(benchmark: str, ruleset: str) -> str:
    """Reference files call RetinaNet "ssd" from version 2.0 on, and R-GAT "gnn"."""
    if benchmark == "ssd" and ruleset >= "training_2.0.0":
        return "retinanet"
    return {"gnn": "rgat"}.get(benchmark, benchmark)
