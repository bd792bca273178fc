"""The run as its windows show it: the captured steps, what each one's time went into, and the strata they stand for.

A captured step's `breakdowns` rows split its time among the categories as the profiler saw it; the step clock knows
how long it lasted, waited for input and compiled. Put together without counting anything twice:

- `unattributed` is what the profiler did not see of the step's time.
- `input` is the part of the wait for input during which the device did nothing: min(wait, unattributed + idle + host),
  taken in this order. What is left of the wait was hidden behind work, and stays with that work.
- `compiling` is the same of the compilation, from what `input` left.

So the parts of every captured step add up to its `dur_ps`. A stratum is one phase on one host; small ones are joined
with those most like them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phasepoint.core.arrays import Bools, Floats, Int64s
from phasepoint.core.encoding import encode_column, renumber
from phasepoint.core.lazy import Once
from phasepoint.core.statistics import median
from phasepoint.core.tables import CATEGORIES
from phasepoint.phases.clock.steps import StepSeries, read_numbers, sum_ps

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
    # No part of a step lasts longer than the step: damaged times would else exceed 64 bits together.
    wall_ps = np.minimum(read_numbers(breakdowns, "wall_ps")[known], steps.dur_ps[of_row[known]])
    np.add.at(walls, (index, categories_of(breakdowns)[known]), wall_ps)
    # Devices that a step's rows name: distinct pairs of step and device.
    codes, names = encode_column(breakdowns.column("device").filter(pa.array(known)))
    pairs = np.unique(index * (len(names) + 1) + codes + 1)
    devices = np.maximum(np.bincount(pairs // (len(names) + 1), minlength=len(row)), 1)
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


def categories_of(breakdowns: pa.Table) -> Int64s:
    """`[n_rows]` number of the category of each row, in `core.tables.CATEGORIES`."""
    column = breakdowns.column("category").cast(pa.string())
    codes = pc.index_in(column, value_set=pa.array(CATEGORIES))
    if codes.null_count:
        strange = sorted(set(pc.unique(column).to_pylist()) - set(CATEGORIES))
        raise ValueError(f"table 'breakdowns': category {strange} is none of {', '.join(CATEGORIES)}")
    return np.asarray(codes.to_numpy(), np.int64)


LEAST_WINDOWS = 3
"""A stratum with fewer windows joins the one most like it."""


@dataclass(frozen=True)
class Stratum:
    """What the clock knows of a stratum, in exact integers.

    Attributes:
        host: rank.
        phase: phase id.
        total_ps: time of its steps.
        rest_ps: time of those that no window saw.
        median_ps: median step time.
        input_share: part of its time that waited for input.
    """

    host: int
    phase: int
    total_ps: int
    rest_ps: int
    median_ps: float
    input_share: float


@dataclass(frozen=True, eq=False)
class Sampled(Once):
    """A run seen through its windows.

    Attributes:
        steps: of the run.
        captured: the captured steps.
        strata: what the clock knows of each.
        stratum: `[n_steps]`, of every step.
        cluster: `[n_captured]`, number of the window (on its host and attempt) that saw each, from 0.
        stands_for: `[n_steps]`, steps of the run that each one stands for; None where each is itself.
    """

    steps: StepSeries
    captured: Captured
    strata: tuple[Stratum, ...]
    stratum: Int64s
    cluster: Int64s
    stands_for: Floats | None = None

    @property
    def of_captured(self) -> Int64s:
        """Stratum of every captured step."""
        return self.stratum[self.captured.row]

    def only(self, index: Int64s) -> "Sampled":
        """The run as some of the captured steps show it, those at rising positions."""
        if len(index) == len(self.captured.row):
            return self
        captured = Captured(*(column[index] for column in vars(self.captured).values()))
        hosts, phases = (np.array([getattr(s, name) for s in self.strata], np.int64) for name in ("host", "phase"))
        strata = describe_strata(self.steps, captured.row, self.stratum, hosts, phases)
        return replace(self, captured=captured, strata=strata, cluster=renumber(self.cluster[index])[1])


RANGE_STEPS = 5
"""Steps in a row that are taken together where their scatter is added up: about a window's worth."""


def step_ranges(sampled: Sampled) -> Int64s:
    """`[n_captured]`, number of the range of steps in which each captured step's window lies, from 0.

    On one host each window is a range of its own. The windows of several hosts over the same steps are one: what makes
    these steps unlike others (their data, a machine that all share) may do so on all hosts alike.
    """
    row, cluster = sampled.captured.row, sampled.cluster
    host, attempt, step = (column[row] for column in (sampled.steps.host, sampled.steps.attempt, sampled.steps.step))
    if not len(row) or (host == host[0]).all():
        return cluster
    first = np.full(int(cluster.max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, cluster, step)
    place = np.column_stack([attempt, first[cluster] // RANGE_STEPS])
    return np.unique(place, axis=0, return_inverse=True)[1].ravel()


def assign_strata(steps: StepSeries, labels: Int64s) -> tuple[Int64s, Int64s, Int64s]:
    """Stratum of every step `[n_steps]`, and host and phase of every stratum `[n_strata]`."""
    hosts, host = renumber(steps.host)
    phases, phase = renumber(labels)
    n = max(len(phases), 1)
    pairs, stratum = renumber(host * n + phase)
    return stratum, hosts[pairs // n], phases[pairs % n]


def describe_strata(
    steps: StepSeries, row: Int64s, stratum: Int64s, hosts: Int64s, phases: Int64s
) -> tuple[Stratum, ...]:
    """What the clock knows of every stratum, the captured steps being those of some rows."""
    found, rest = [], np.ones(len(stratum), bool)
    rest[row] = False
    for index, (host, phase) in enumerate(zip(hosts.tolist(), phases.tolist(), strict=True)):
        mine = stratum == index
        total_ps = sum_ps(steps.dur_ps[mine])
        waiting = sum_ps(steps.input_ps[mine]) / max(total_ps, 1)
        middle = median(steps.dur_ps[mine])
        found.append(Stratum(host, phase, total_ps, sum_ps(steps.dur_ps[mine & rest]), middle, waiting))
    return tuple(found)


def group_strata(strata: Sequence[Stratum], of_captured: Int64s, cluster: Int64s) -> tuple[Int64s, Bools]:
    """Groups of strata with enough windows each: small strata join the one most like them, the smallest first.

    Args:
        strata: of the run.
        of_captured: `[n_captured]`, stratum of each captured step.
        cluster: `[n_captured]`, its window.

    Returns:
        Group of each stratum `[n_strata]`, from 0, and whether it had too few windows of its own.
    """
    n = len(strata)
    windows: list[set[int]] = [set(cluster[of_captured == i].tolist()) for i in range(n)]
    group = np.arange(n)
    borrowed = np.array([len(mine) < LEAST_WINDOWS for mine in windows], bool)
    alive = set(range(n))
    while len(alive) > 1:
        small = [i for i in alive if len(windows[i]) < LEAST_WINDOWS]
        if not small:
            break
        index = min(small, key=lambda i: (strata[i].total_ps, i))
        target = min(alive - {index}, key=lambda i: (distance(strata[index], strata[i]), i))
        group[group == index] = target
        windows[target] |= windows[index]
        alive.remove(index)
    return np.unique(group, return_inverse=True)[1], borrowed


def distance(a: Stratum, b: Stratum) -> float:
    """How unlike two strata are: by step time and by the part of it that waits for input; 0 for the same phase.

    Only what the clock knows of every step goes in, since one of the two has no captured steps to speak of.
    """
    if a.phase == b.phase:
        return 0.0
    length = np.log(max(a.median_ps, 1.0)) - np.log(max(b.median_ps, 1.0))
    return 0.01 + abs(float(length)) + abs(a.input_share - b.input_share)
