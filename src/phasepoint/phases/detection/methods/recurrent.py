"""Recurring phases: kinds of step from hints and ops, levels, cycles and events from the step clock. The default."""

import numpy as np

from phasepoint.core.arrays import Bools, Floats, Int64s
from phasepoint.core.encoding import renumber
from phasepoint.core.statistics import median
from phasepoint.phases.detection.result import Labelling
from phasepoint.phases.detection.signals.batch_sizes import size_classes
from phasepoint.phases.detection.signals.clock_labels import find_input_stalls, label_by_clock, one_phase
from phasepoint.phases.detection.signals.contention import CROWDED, calm_values
from phasepoint.phases.detection.signals.op_labels import kinds_by_ops, refine_by_ops, split_by_regimes
from phasepoint.phases.detection.vectors import DistinctSteps, OpVectors

_START = 10
"""First steps in which compiling is no change of the job."""

_SEEN = 3
"""Captured steps of a kind from which on the job is taken to have made such steps."""

_ALL = 0.98
"""Captured part of a group of steps from which on ops alone say which kind a step is."""

_LEAST_SECTION = 0.08
"""Part of the run that lies between two compilations at least, to be judged by itself: a choice, as long as a level
must last beside neighbours."""

_SAME = float(np.log(1.1))
"""Difference within which log durations are on one level, where a job goes back to work that it did before: a choice,
neighbours leave no less."""

_KNOWN = 0.9
"""Part of a group's steps whose batch and graph must be known for it to be taken for work that stayed the same: the
first ones pass before anybody counts."""


def label(series: DistinctSteps, vectors: OpVectors | None) -> Labelling:
    """Label the run: what is known first (compilation, hints, ops, waiting for data), then what the clock tells.

    Hints (`kind`) keep steps apart whatever the clock says; within the hint that
    most of the time went into there may be several levels.
    """
    compiles = _compiles(series)
    measured, stalled = _clock(series)
    sort = _sorts(series, measured, compiles)
    kind, notes = _op_kinds(series.n_steps, vectors)
    values = _calm(series, measured, sort, kind, ~(compiles | stalled))
    label = np.zeros(series.n_steps, np.int64)
    slow = np.zeros(series.n_steps, bool)
    roles: dict[int, str] = {0: "compile"} if compiles.any() else {}
    next_label = 1
    for members in _groups(series, sort, kind, values, compiles):
        found = label_by_clock(values[members], starts_run=members[0] == 0)
        if _is_named_aside(series, members):
            found = one_phase(len(members), found.slow)
        mine = refine_by_ops(found.label, kind[members], values[members])
        mine = _with_stalls(mine, stalled[members] & ~found.event)
        roles |= {next_label + number: role for number, role in found.roles.items()}
        label[members], slow[members] = next_label + mine, found.slow
        next_label += int(mine.max()) + 1
    lost = np.where(_crowded(series) > CROWDED / 2, np.maximum(1 - np.exp(values - measured), 0.0), 0.0)
    return Labelling(label, notes, roles, slow, lost)


def _compiles(series: DistinctSteps) -> Bools:
    """Steps of which compiling took more than half, `[n]`."""
    return np.asarray(2 * series.compile_ps > series.dur_ps)


def _crowded(series: DistinctSteps) -> Floats:
    """Part of each step's time that was waited for cores that others had, `[n]`."""
    return np.asarray(series.crowded_ps / np.maximum(series.dur_ps, 1))


def _sorts(series: DistinctSteps, values: Floats, compiles: Bools) -> Int64s:
    """Sort of each step by what the job said of it, a hint, and by what it was given to do, `[n]`, from 0.

    That is the size of its batch, and how many operations a backward pass was to follow.
    """
    usable = ~compiles & (_crowded(series) <= CROWDED)
    sort = renumber(series.kind)[1]
    for sizes in (series.batch_elements, series.graph_nodes + 1):
        size = np.zeros(series.n_steps, np.int64)
        for number in range(int(sort.max()) + 1):
            mine = sort == number
            size[mine] = size_classes(sizes[mine], values[mine], usable[mine])
        sort = renumber(sort * (int(size.max()) + 1) + size)[1]
    return sort


def _calm(series: DistinctSteps, values: Floats, sort: Int64s, kind: Int64s, plain: Bools) -> Floats:
    """Log durations `[n]` less what neighbours on the machine did, of the steps of each sort by themselves.

    And of those between two compilations, where a framework tells of them: what it does not compile is no new work. But
    it may be old work again, on the level that this had before.
    """
    if not series.crowded_ps.any():
        return values
    crowded, result = _crowded(series), values.copy()
    for number in range(int(sort.max()) + 1):
        known: list[float] = []
        for mine in _between_compilations(series, np.flatnonzero(sort == number)):
            changes = _changes(series, mine, kind)
            part = (values[mine], crowded[mine], plain[mine])
            calm = calm_values(*part, changes=changes)
            if changes is False and known:
                calm = _gone_back(calm_values(*part, changes=None), known, calm)
            result[mine] = calm
            known.append(median(calm))
    return result


def _between_compilations(series: DistinctSteps, members: Int64s) -> list[Int64s]:
    """Steps in the stretches between compilations of such steps, as far as they last."""
    starts = [0]
    for at in np.flatnonzero(_compiles(series)[members]).tolist():
        if min(at - starts[-1], len(members) - at) >= _LEAST_SECTION * series.n_steps:
            starts.append(at)
    return np.split(members, starts[1:])


def _gone_back(values: Floats, known: list[float], otherwise: Floats) -> Floats:
    """Values of which a part lies on a level that steps had before, and a part does not: the former on that very level;
    `otherwise` where that is not so.
    """
    for level in known:
        apart = np.abs(values - level)
        near = apart < _SAME
        if min(near.mean(), (apart >= 2 * _SAME).mean()) >= _LEAST_SECTION:
            return np.where(near, values + level - median(values[near]), values)
    return otherwise


def _changes(series: DistinctSteps, members: Int64s, kind: Int64s) -> bool | None:
    """Whether something other than the clock says that the job changed among these steps; None where nobody knows.

    They are of one size of batch, where sizes are known at all; their first ones may compile for that size. A framework
    that compiles tells of every new program; another one may tell how many operations a backward pass is to follow.
    """
    seen = kind[members][(kind[members] >= 0) & ~_compiles(series)[members]]
    if series.compile_ps[members][_START:].any() or (np.bincount(seen) >= _SEEN).sum() > 1:
        return True
    same_batch = (series.batch_elements[members] > 0).mean() >= _KNOWN
    nodes = series.graph_nodes[members]
    known = nodes[nodes >= 0]
    same_graph = len(known) >= _KNOWN * len(nodes) and (known == median(known)).mean() >= _ALL
    return False if series.compile_ps.any() or (same_batch and (same_graph or len(seen) >= _SEEN)) else None


def _is_named_aside(series: DistinctSteps, members: Int64s) -> bool:
    """Whether the job itself named these steps, and they are less than half of its time: then they are one phase."""
    return bool(series.kind[members[0]] >= 0) and 2 * int(series.dur_ps[members].sum()) < int(series.dur_ps.sum())


def _clock(series: DistinctSteps) -> tuple[Floats, Bools]:
    """Log durations `[n]`, less the wait in stretches that wait for data; and the steps of these stretches.

    What a step was spared by a window's edge counts.
    """
    stalled = np.zeros(series.n_steps, bool)
    own_ps = series.dur_ps
    if series.input_known:
        stalled = find_input_stalls(series.dur_ps, series.input_ps)
        own_ps = np.where(stalled, series.dur_ps - series.input_ps, series.dur_ps)
    return np.log(np.maximum(own_ps + series.spared_ps, 1)), stalled


def _with_stalls(label: Int64s, stalled: Bools) -> Int64s:
    """Labels with one more for the steps on the run's levels that wait for data."""
    return np.where(stalled, label.max() + 1, label) if stalled.any() else label


def _op_kinds(n: int, vectors: OpVectors | None) -> tuple[Int64s, tuple[str, ...]]:
    """Kind by ops of every step `[n]`, -1 where it was not captured, and notes."""
    kind = np.full(n, -1, np.int64)
    if vectors is None:
        return kind, ("no step was captured: steps of equal duration could not be told apart",)
    kind[vectors.index], unknown = kinds_by_ops(vectors)
    if unknown:
        return kind, (f"{unknown} captured steps ran too many different op sets to be compared",)
    return kind, ()


def _groups(series: DistinctSteps, sort: Int64s, kind: Int64s, values: Floats, compiles: Bools) -> list[Int64s]:
    """Steps that hints, batches and ops keep together, in order; those known to compile are in none.

    Where nearly all steps were captured, their kind decides; else only long stretches of a kind do.
    """
    groups = []
    for number in range(int(sort.max()) + 1):
        members = np.flatnonzero(sort == number)
        known = kind[members] >= 0
        if _is_named_aside(series, members):
            mine = np.zeros(len(members), np.int64)
        elif known.mean() >= _ALL:
            mine = np.where(known, kind[members], np.bincount(kind[members][known]).argmax())
        else:
            mine = split_by_regimes(kind[members], values[members], compiles[members])
        left = ~compiles[members]
        groups += [members[left & (mine == number)] for number in renumber(mine[left])[0]]
    return groups
