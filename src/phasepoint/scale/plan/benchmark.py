"""A plan for an MLPerf benchmark: from one system's minutes to those of larger ones."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from phasepoint.core.errors import UsageError
from phasepoint.scale.mlperf.pairs import Prediction, Scaling, predict_pairs
from phasepoint.scale.mlperf.records import Result

CHIPS_A_HOST = {"tpu": 4, "": 8}
"""Of a TPU v3 or v4, and of the usual server; larger systems are counted in hosts."""


@dataclass(frozen=True)
class MeasuredSystem:
    """The system that was measured.

    Attributes:
        benchmark: of MLPerf Training.
        system: product of its chips.
        chips: of the system.
        time_min: minutes to train.
        batch: samples of a step; None takes what is usual for the benchmark on so many chips.
    """

    benchmark: str
    system: str
    chips: int
    time_min: float
    batch: float | None = None


@dataclass(frozen=True)
class PlanRow:
    """What a system of one size will take.

    Attributes:
        chips: of the system.
        batch: samples of a step, the fastest of those that were looked at.
        prediction: minutes, with interval and factors.
        speedup: against the measured system.
        efficiency: of that, per chip: 1 is perfect scaling.
    """

    chips: int
    batch: float
    prediction: Prediction
    speedup: float
    efficiency: float

    @property
    def limited_by(self) -> str:
        """What costs most of the rest: "samples", "overhead" or "waiting"."""
        said = self.prediction
        costs = {"samples": said.samples_ratio, "overhead": said.overhead_ratio, "waiting": said.wait_ratio}
        return max(costs, key=costs.__getitem__)


def plan_benchmark(
    scaling: Scaling, start: MeasuredSystem, to: int, *, batches: Sequence[float] = ()
) -> tuple[MeasuredSystem, list[PlanRow]]:
    """Minutes to train on twice, four times, … as many chips.

    Args:
        scaling: constants.
        start: what was measured.
        to: the largest number of chips.
        batches: that may be used; left out: from the measured one up to what as many samples a chip make, and no larger
            than the largest that was published.

    Returns:
        the start, its batch filled in, and a row for every size.

    Raises:
        UsageError: a benchmark that is not known, or fewer chips than were measured.
    """
    if start.benchmark not in scaling.log_rest:
        known = ", ".join(sorted(scaling.log_rest))
        raise UsageError(f"benchmark {start.benchmark!r} is not known; there are {known}")
    if start.chips < 1 or start.time_min <= 0 or to <= start.chips:
        raise UsageError(f"a plan goes from a measured system to a larger one; this is from {start.chips} chips in "
                         f"{start.time_min:g} min to {to} chips")  # fmt: skip
    level, slope, most = scaling.batches[start.benchmark]
    usual = min(math.exp(level) * start.chips**slope, most)
    filled = MeasuredSystem(start.benchmark, start.system, start.chips, start.time_min, start.batch or usual)
    rows = []
    for chips in sizes(start.chips, to):
        room = float(filled.batch or usual) * chips / start.chips  # a chip held so many samples; more may not fit
        looked_at = list(batches) or _batches(float(filled.batch or usual), min(most, room))
        pairs = [(_result(filled, filled.chips, filled.batch), _result(filled, chips, batch)) for batch in looked_at]
        said = predict_pairs(scaling, pairs)
        best = min(range(len(said)), key=lambda place: said[place].time_min)
        speedup = start.time_min / said[best].time_min
        rows.append(PlanRow(chips, looked_at[best], said[best], speedup, speedup * start.chips / chips))
    return filled, rows


def sizes(first: int, last: int) -> list[int]:
    """Twice, four times, … as many, and the last.

    Example:
        >>> sizes(16, 100)
        [32, 64, 100]
    """
    doubled = [first << power for power in range(1, 64) if first << power < last]
    return [*doubled, last]


def _batches(first: float, most: float) -> list[float]:
    """The measured batch, each half again as large, and the largest that was published."""
    found = [first]
    while found[-1] * 1.5 < most:
        found.append(found[-1] * 1.5)
    return [*found, most] if most > first else found


def _result(start: MeasuredSystem, chips: int, batch: float | None) -> Result:
    is_tpu = "tpu" in start.system.lower()
    hosts = max(chips / CHIPS_A_HOST["tpu" if is_tpu else ""], 1)
    series = ("", "", start.benchmark, start.system)
    return Result(series, start.benchmark, start.system, chips, hosts, batch, None, "", start.time_min)
