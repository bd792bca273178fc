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
from numpy.typing import NDArray

from phasepoint.core.encoding import encode_column
from phasepoint.core.tables import CATEGORIES

Int64s = NDArray[np.int64]
Floats = NDArray[np.float64]

INPUT, COMPILING, UNATTRIBUTED = "input", "compiling", "unattributed"
PARTS = (*CATEGORIES, UNATTRIBUTED, INPUT, COMPILING)
"""Parts of a step's time, in the order of the columns below."""
N_WORK = len(CATEGORIES) + 1
"""The first so many are estimated as shares of the time that is neither `input` nor `compiling`."""

_HOST, _IDLE, _UNSEEN = (PARTS.index(name) for name in ("host", "idle", UNATTRIBUTED))


@dataclass(frozen=True, eq=False)
class StepKeys:
    """Which row of the steps table a step is.

    Attributes:
        host: `[n_steps]`.
        attempt: `[n_steps]`.
        step: `[n_steps]`.
    """

    host: Int64s
    attempt: Int64s
    step: Int64s

    def rows_of(self, table: pa.Table) -> Int64s:
        """Row of the steps table for each row of another table `[n]`; -1 where the step is not in it or null."""
        n = len(self.step)
        _, host = np.unique(np.concatenate([self.host, _ids(table, "host")]), return_inverse=True)
        attempt = np.concatenate([self.attempt, _ids(table, "attempt")])
        step = np.concatenate([self.step, _ids(table, "step", missing=-1)])
        key = (host * (attempt.max(initial=0) + 1) + attempt) * (step.max(initial=0) + 2) + step + 1
        order = np.argsort(key[:n], kind="stable")
        mine = key[:n][order]
        at = np.minimum(np.searchsorted(mine, key[n:]), max(n - 1, 0))
        found = mine[at] == key[n:] if n else np.zeros(len(at), bool)
        return np.where(found & (step[n:] >= 0), order[at] if n else -1, -1)


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


def step_keys(steps: pa.Table) -> StepKeys:
    """The keys of the steps table; without `host` and `attempt` these are 0."""
    return StepKeys(_ids(steps, "host"), _ids(steps, "attempt"), _ids(steps, "step"))


def read_captured(keys: StepKeys, steps: pa.Table, windows: pa.Table, breakdowns: pa.Table) -> Captured:
    """The captured steps with their parts.

    Args:
        keys: of the steps table.
        steps: columns `dur_ps`; `input_ps` and `compile_ps` where known.
        windows: columns `window`, `probability`.
        breakdowns: columns `window`, `step`, `device`, `category`, `wall_ps`. Of several devices the mean is taken; of
            several windows that saw one step, the first.

    Raises:
        ValueError: a category that is none of `core.tables.CATEGORIES`.
    """
    of_row = keys.rows_of(breakdowns)
    window = _ids(breakdowns, "window")
    first = np.full(len(keys.step), np.iinfo(np.int64).max)
    known = of_row >= 0
    np.minimum.at(first, of_row[known], window[known])
    known[known] = window[known] == first[of_row[known]]
    row, index = np.unique(of_row[known], return_inverse=True)
    walls = np.zeros((len(row), len(CATEGORIES)), np.int64)
    np.add.at(walls, (index, _categories(breakdowns)[known]), _ids(breakdowns, "wall_ps")[known])
    devices = _count_devices(index, breakdowns.filter(pa.array(known)), len(row))
    dur_ps, input_ps, compile_ps = (_ids(steps, name)[row] for name in ("dur_ps", "input_ps", "compile_ps"))
    input_ps = np.minimum(input_ps, dur_ps)
    parts_ps = _name_waits(_close(walls, devices, dur_ps), input_ps, np.minimum(compile_ps, dur_ps - input_ps))
    window = first[row]
    return Captured(row, window, _weights(keys, row, window, windows), parts_ps)


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


def _weights(keys: StepKeys, row: Int64s, window: Int64s, windows: pa.Table) -> Floats:
    probability = pc.fill_null(windows.column("probability"), float("nan")).to_numpy()
    names = (_ids(windows, "host"), _ids(windows, "attempt"), _ids(windows, "window"))
    chance = dict(zip(zip(*(column.tolist() for column in names), strict=True), probability.tolist(), strict=True))
    of_step = zip(keys.host[row].tolist(), keys.attempt[row].tolist(), window.tolist(), strict=True)
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


def _ids(table: pa.Table, name: str, *, missing: int = 0) -> Int64s:
    if name not in table.column_names:
        return np.zeros(table.num_rows, np.int64)
    return np.asarray(pc.fill_null(table.column(name), missing).to_numpy(), np.int64)
