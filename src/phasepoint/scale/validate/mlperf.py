"""MLPerf: minutes of the larger system of every pair, from the smaller one's row and the larger one's size.

Its own file: the files that are validated lie one beside the other.
"""

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from phasepoint.core.errors import NoDataError
from phasepoint.scale.mlperf.pairs import Scaling, bands_of, predict_pairs, scaling_of_document
from phasepoint.scale.mlperf.records import pairs_of, read_results
from phasepoint.scale.validate.answer import FileAnswer, Held, answer_file


@cache
def scaling_facts() -> Mapping[str, Any]:
    """The constants that came with the package, as JSON, with what they were fitted on."""
    read: Mapping[str, Any] = json.loads(files("phasepoint.scale.mlperf").joinpath("scaling.json").read_text())
    return read


@cache
def shipped_scaling() -> Scaling:
    """The constants that came with the package."""
    return scaling_of_document(scaling_facts()["scaling"])


def answer_mlperf(path: Path) -> FileAnswer:
    """All pairs of the file's series.

    Raises:
        SourceError: the file cannot be read.
        NoDataError: no series has two sizes.
    """
    results = read_results(path)
    pairs = pairs_of(results)
    if not pairs:
        raise NoDataError(
            f"{path}: no series has systems of two sizes among {len(results)} results with chips and time"
        )
    said = predict_pairs(shipped_scaling(), pairs)
    known = predict_pairs(shipped_scaling(), pairs, true_samples=True)
    compared = Held(
        predicted=np.array([one.time_min for one in said]),
        true=np.array([b.time_min for _, b in pairs]),
        low=np.array([one.low_min for one in said]),
        high=np.array([one.high_min for one in said]),
        beside={
            "perfect scaling": np.array([a.time_min * a.chips / b.chips for a, b in pairs]),
            "with true samples": np.array([one.time_min for one in known]),
        },
    )
    bands, benchmarks = bands_of(pairs), [a.benchmark for a, _ in pairs]
    groups = {"chips": bands, "benchmark": benchmarks}
    unknown = sorted(set(benchmarks) - set(shipped_scaling().log_rest))
    notes = [f"benchmarks that the constants do not know, predicted as the median of all: {', '.join(unknown)}"]
    return answer_file(path.name, "pairs", compared, groups, notes if unknown else ())
