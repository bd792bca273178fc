"""The captured steps: which they are, which window saw each, and what their time went into, exactly.

A captured step's `breakdowns` rows split its time among the categories as the profiler saw it; the step clock knows
how long it lasted, waited for input and compiled. Put together without counting anything twice:

- `unattributed` is what the profiler did not see of the step's time.
- `input` is the part of the wait for input during which the device did nothing: min(wait, unattributed + idle + host),
  taken in this order. What is left of the wait was hidden behind work, and stays with that work.
- `compiling` is the same of the compilation, from what `input` left.

So the parts of every captured step add up to its `dur_ps`.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phasepoint.core.arrays import Floats, Int64s
from phasepoint.core.encoding import encode_column
from phasepoint.core.tables import CATEGORIES
from phasepoint.phases.clock.steps import StepSeries, read_numbers

INPUT, COMPILING, UNATTRIBUTED = "input", "compiling", "unattributed"
PARTS = (*CATEGORIES, UNATTRIBUTED, INPUT, COMPILING)
"""Parts of a step's time, in the order of the columns below."""
N_WORK = len(CATEGORIES) + 1
"""The first so many are estimated as shares of the time that is neither `input` nor `compiling`."""

_HOST, _IDLE, _UNSEEN = (PARTS.index(name) for name in ("host", "idle", UNATTRIBUTED))


@dataclass(frozen=True, eq=False)
class Captured:
    """The captured steps.

    Attributes:
        row: `[n]`, rising: their rows in the steps table.
        window: `[n]`, the window that saw each.
        weight: `[n]`, 1 / the probability with which its window was opened; NaN where it was opened by choice.
        parts_ps: `[n, len(PARTS)]`, adding up to the step's dur_ps.
    """

    row: Int64s
    window: Int64s
    weight: Floats
    parts_ps: Int64s

    def take(self, index: Int64s) -> "Captured":
        """Some of them, at rising positions."""
        return Captured(self.row[index], self.window[index], self.weight[index], self.parts_ps[index])

    def index_of(self, row: Int64s) -> Int64s:
        """Position in `row` of each of some rows of the steps table `[n]`; -1 where the step was not captured."""
        if not len(self.row):
            return np.full(len(row), -1, np.int64)
        index = np.minimum(np.searchsorted(self.row, row), len(self.row) - 1)
        return np.where(self.row[index] == row, index, -1)


def read_captured(steps: StepSeries, windows: pa.Table, breakdowns: pa.Table) -> Captured:
    """The captured steps with their parts.

    Args:
        steps: of the run.
        windows: columns `window`, `probability`.
        breakdowns: columns `window`, `step`, `device`, `category`, `wall_ps`. Of several devices the mean is taken; of
            several windows that saw one step, the first.

    Raises:
        ValueError: a category that is none of `core.tables.CATEGORIES`.
    """
    of_row = steps.rows_of(breakdowns)
    window = read_numbers(breakdowns, "window")
    first = np.full(steps.n_steps, np.iinfo(np.int64).max)
    known = of_row >= 0
    np.minimum.at(first, of_row[known], window[known])
    known[known] = window[known] == first[of_row[known]]
    row, index = np.unique(of_row[known], return_inverse=True)
    walls = np.zeros((len(row), len(CATEGORIES)), np.int64)
    np.add.at(walls, (index, _categories(breakdowns)[known]), read_numbers(breakdowns, "wall_ps")[known])
    devices = _count_devices(index, breakdowns.filter(pa.array(known)), len(row))
    seen = steps.take(row)
    parts_ps = _name_waits(_close(walls, devices, seen.dur_ps), seen.input_ps, seen.compile_ps)
    window = first[row]
    return Captured(row, window, _weights(seen, window, windows), parts_ps)


def _close(walls: Int64s, devices: Int64s, dur_ps: Int64s) -> Int64s:
    """Mean over devices, at most the step's duration; what is missing is unattributed. `[n, N_WORK]`."""
    seen = walls.sum(axis=1)
    target = np.minimum(seen // devices, dur_ps)
    scaled = np.floor(walls * (target / np.maximum(seen, 1))[:, None]).astype(np.int64)
    largest = np.argmax(walls, axis=1)
    scaled[np.arange(len(walls)), largest] += target - scaled.sum(axis=1)
    closed = np.where((target == seen)[:, None], walls, scaled)
    return np.column_stack([closed, dur_ps - target])


def _name_waits(work: Int64s, input_ps: Int64s, compile_ps: Int64s) -> Int64s:
    parts = np.column_stack([work, np.zeros((len(work), 2), np.int64)])
    for column, wait_ps in ((PARTS.index(INPUT), input_ps), (PARTS.index(COMPILING), compile_ps)):
        for category in (_UNSEEN, _IDLE, _HOST):
            taken = np.minimum(parts[:, category], wait_ps - parts[:, column])
            parts[:, category] -= taken
            parts[:, column] += taken
    return parts


def _weights(seen: StepSeries, window: Int64s, windows: pa.Table) -> Floats:
    probability = pc.fill_null(windows.column("probability"), float("nan")).to_numpy()
    names = (read_numbers(windows, "host"), read_numbers(windows, "attempt"), read_numbers(windows, "window"))
    chance = dict(zip(zip(*(column.tolist() for column in names), strict=True), probability.tolist(), strict=True))
    of_step = zip(seen.host.tolist(), seen.attempt.tolist(), window.tolist(), strict=True)
    found = np.array([chance.get(key, np.nan) for key in of_step], np.float64)
    with np.errstate(divide="ignore"):
        return np.where(found > 0, 1 / found, np.nan)


def _count_devices(index: Int64s, breakdowns: pa.Table, n: int) -> Int64s:
    codes = encode_column(breakdowns.column("device"))[0]
    pairs = np.unique(index * (codes.max(initial=0) + 1) + codes)
    return np.maximum(np.bincount(pairs // (codes.max(initial=0) + 1), minlength=n), 1)


def _categories(breakdowns: pa.Table) -> Int64s:
    column = breakdowns.column("category").cast(pa.string())
    codes = pc.index_in(column, value_set=pa.array(CATEGORIES))
    if codes.null_count:
        strange = sorted(set(pc.unique(column).to_pylist()) - set(CATEGORIES))
        raise ValueError(f"table 'breakdowns': category {strange} is none of {', '.join(CATEGORIES)}")
    return np.asarray(codes.to_numpy(), np.int64)
