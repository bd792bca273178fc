"""The rows of a comparison: times as integers, verdicts that hold for all rows together, parts that add up.

Which layers to name where many are found changed: a change in one layer shows in all above it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from phasepoint.core.arrays import Bools, Floats
from phasepoint.core.tables import CATEGORIES
from phasepoint.core.units import format_counted
from phasepoint.stack.diff.alignment import AlignedOp
from phasepoint.stack.diff.measure import MeasuredSides, side_times
from phasepoint.stack.diff.noise import Judged, discoveries
from phasepoint.stack.diff.result import (
    CHANGED,
    EVERYTHING,
    NOT_JUDGED,
    ONLY_BASE,
    ONLY_RUN,
    OUTSIDE,
    UNATTRIBUTED,
    WITHIN_NOISE,
    DiffRow,
    RunDiff,
)
from phasepoint.stack.diff.sides import Sides

_EXPLAINS = 0.7
"""Share of a layer's own change that changed layers inside must explain to be named in its place."""

_MOST_OF_TIME = 0.6
"""Share of a layer's time above which several changed layers inside are better told as the layer."""


def layers_to_name(layers: Sequence[str], changed: Bools, own_ps: Floats, run_ps: Floats) -> list[int]:
    """Positions of layers none of which is inside another, which together say where the change is.

    A layer gives way to the changed layers inside it if these explain it and are one, or a minor part of it.

    Args:
        layers: `[n_layers]`, paths, with every layer above each.
        changed: `[n_layers]`, whether each changed beyond noise.
        own_ps: `[n_layers]`, each one's own change.
        run_ps: `[n_layers]`, each one's time.
    """
    place = {layer: i for i, layer in enumerate(layers)}
    below: dict[int, list[int]] = {i: [] for i in range(len(layers))}
    roots: list[int] = []
    for layer, i in place.items():
        above = layer.rpartition("/")[0]
        (below[place[above]] if above in place else roots).append(i)
    named: list[int] = []
    waiting = roots[::-1]
    while waiting:
        one = waiting.pop()
        inside = [child for child in below[one] if changed[child]]
        if changed[one] and not _gives_way(one, inside, own_ps, run_ps):
            named.append(one)
        else:
            waiting += below[one][::-1]
    return named


def _gives_way(one: int, inside: Sequence[int], own_ps: Floats, run_ps: Floats) -> bool:
    """Whether the changed layers inside explain its change, and are one or a minor part of it."""
    explained = sum(float(own_ps[i]) for i in inside)
    if not inside or explained / float(own_ps[one] or 1) < _EXPLAINS:
        return False
    return len(inside) == 1 or sum(float(run_ps[i]) for i in inside) < _MOST_OF_TIME * float(run_ps[one])


LAYER_RATE = 0.02
"""Chance that any layer is named where none changed; with the three below 5 % in all."""

KIND_RATE = STEP_RATE = MEAN_RATE = 0.01
"""Likewise of any kind of op, of the usual step, and of the mean step."""

OP_RATE = 0.05
"""Share of wrong ones among the ops that are named inside layers that changed."""

LEAST_SHARE = 0.005
"""Layers, kinds and ops below this share of the step are not judged: fewer tests, more power for the others."""


@dataclass(frozen=True, eq=False)
class _Found:
    """What changed beyond noise.

    Attributes:
        everything, outside, step, mean_step: whether these did.
        kinds: `[n_kinds]`; layers: `[n_layers]`; ops: `[n_ops]`.
        judged_layers, judged_ops: which were judged at all.
        named: positions of the layers to name.
        named_ops: positions of the ops to name: those that stand in no layer.
    """

    everything: bool
    outside: bool
    step: bool
    mean_step: bool
    kinds: Bools
    layers: Bools
    ops: Bools
    judged_layers: Bools
    judged_ops: Bools
    named: tuple[int, ...]
    named_ops: tuple[int, ...]

    @property
    def anything(self) -> bool:
        """Whether anything changed."""
        return bool(
            self.everything or self.step or self.mean_step or self.kinds.any() or self.layers.any() or self.ops.any()
        )


def build_diff(measured: MeasuredSides, *, kind: str | None, notes: Sequence[str]) -> RunDiff:
    """Judge all rows together and put them in order."""
    found = _find(measured)
    usual = _with_time(_time_row(measured.sides, "step", "usual step", "steps"), measured.step, found.step)
    mean = _with_time(_time_row(measured.sides, "step", "mean step", "mean_steps"), measured.mean_step, found.mean_step)
    steps = [usual, mean]
    parts = _part_rows(measured, found, steps[0])
    rows = [*steps, *parts]
    for level in (_category_rows(measured), _kind_rows(measured, found), _layer_rows(measured, found)):
        rows += sorted(level, key=lambda row: (-abs(row.change_ps), row.name))
    rows += _op_rows(measured, found, steps[0])
    unjudged = _unjudged(measured)
    told = unjudged is None
    verdict = (CHANGED if found.anything else WITHIN_NOISE) if told else NOT_JUDGED
    change_ps = steps[0].change_ps
    shared = tuple(replace(row, share_ratio=row.change_ps / change_ps if change_ps else None) for row in rows)
    sides = measured.sides
    return RunDiff(
        base=tuple(one.samples.path for one in sides.base),
        run=tuple(one.samples.path for one in sides.run),
        kind=kind,
        verdict=verdict,
        grown_ratio=_grown(shared, found) if told else None,
        rows=shared,
        unjudged=unjudged,
        notes=(*([unjudged] if unjudged else []), *notes, *_notes(measured)),
    )


def _find(measured: MeasuredSides) -> _Found:
    alignment, base_ps, run_ps = measured.sides.alignment, measured.base_ps, measured.run_ps
    least_ps = LEAST_SHARE * max(base_ps.sum(), run_ps.sum())
    largest = np.maximum(base_ps, run_ps)
    inside = alignment.inside
    judged_layers = (inside @ largest > least_ps) & np.isfinite(measured.layers.p_value)
    judged_ops = (largest > least_ps) & np.isfinite(measured.ops.p_value)
    lone = judged_ops & np.array([not key.layer for key in alignment.keys], bool)
    layers, ops, outside = _changed_places(measured, judged_layers, lone)
    code, kinds = alignment.kind_codes
    of_kind = np.bincount(code, weights=largest, minlength=len(kinds))
    kinds_found = discoveries(np.where(of_kind > least_ps, measured.kinds.p_value, np.nan), KIND_RATE)
    own_ps = inside @ (run_ps - measured.change.expected_ps)
    named = layers_to_name(alignment.layers, layers, own_ps, inside @ run_ps)
    named_ops = tuple(np.flatnonzero(ops).tolist())
    for one in named:
        ops |= discoveries(np.where(judged_ops & inside[one], measured.ops.p_value, np.nan), OP_RATE)
    return _Found(
        everything=bool(measured.common.p_value[0] < STEP_RATE),
        outside=outside,
        step=bool(measured.step.p_value[0] < STEP_RATE),
        mean_step=bool(measured.mean_step.p_value[0] < MEAN_RATE),
        kinds=kinds_found,
        layers=layers,
        ops=ops,
        judged_layers=judged_layers,
        judged_ops=judged_ops,
        named=tuple(named),
        named_ops=named_ops,
    )


def _changed_places(measured: MeasuredSides, judged_layers: Bools, lone: Bools) -> tuple[Bools, Bools, bool]:
    """Which layers changed, which ops that stand in none, and whether the time outside ops did: judged together."""
    p_layers = np.where(judged_layers, measured.layers.p_value, np.nan)
    p_ops = np.where(lone, measured.ops.p_value, np.nan)
    found = discoveries(np.concatenate([p_layers, p_ops, measured.outside.p_value]), LAYER_RATE)
    return found[: len(p_layers)], found[len(p_layers) : -1], bool(found[-1])


def _category_rows(measured: MeasuredSides) -> list[DiffRow]:
    """Told with their intervals and not judged: they are the same time as the step, cut another way."""
    rows = (
        _with_whole(_time_row(measured.sides, "category", name, "categories", i), measured.categories, i)
        for i, name in enumerate(CATEGORIES)
    )
    return [replace(row, verdict=NOT_JUDGED) for row in rows if row.base_ps or row.run_ps]


def _part_rows(measured: MeasuredSides, found: _Found, step: DiffRow) -> list[DiffRow]:
    """The step's change in parts: everything alike, each layer and kind by itself, and what is left."""
    sides, change = measured.sides, measured.change
    alignment = sides.alignment
    low, high = measured.common.interval(0)
    known = bool(np.isfinite(measured.common.p_value[0])) and measured.has_common_ops
    common_ps = round(step.base_ps * float(np.expm1(change.common)))
    everything = DiffRow(
        *("part", EVERYTHING, step.base_ps, step.base_ps + common_ps),
        verdict=NOT_JUDGED if not known else CHANGED if found.everything else WITHIN_NOISE,
        change_ratio=float(np.expm1(change.common)) if measured.has_common_ops else None,
        low_ratio=_expm1(low),
        high_ratio=_expm1(high),
        p_value=_known(measured.common.p_value[0]),
    )
    rows = [everything]
    code, kinds = alignment.kind_codes
    for i in np.flatnonzero(found.kinds).tolist():
        before = measured.base_ps[code == i].sum() * np.exp(change.common)
        rows.append(
            _own_part(
                measured.kinds,
                i,
                before,
                before * np.exp(change.kinds[i]),
                f"{_op_name(kinds[i])} in every layer",
            )
        )
    for i in found.named:
        inside = alignment.inside[i]
        before, after = change.expected_ps[inside].sum(), measured.run_ps[inside].sum()
        rows.append(_own_part(measured.layers, i, before, after, alignment.layers[i]))
    if found.outside:
        after = side_times(sides.run, "outside")[0]
        rows.append(_own_part(measured.outside, 0, after * np.exp(-measured.outside.log_ratio[0]), after, OUTSIDE))
    for i in found.named_ops:
        before, after = change.expected_ps[i], measured.run_ps[i]
        rows.append(_own_part(measured.ops, i, before, after, _op_name(alignment.keys[i])))
    rows[1:] = sorted(rows[1:], key=lambda row: (-abs(row.change_ps), row.name))
    left = step.change_ps - sum(row.change_ps for row in rows)
    return [*rows, DiffRow("part", UNATTRIBUTED, 0, left, verdict=NOT_JUDGED)]


def _op_name(key: AlignedOp) -> str:
    return " ".join(part for part in (key.name, key.direction, key.shape) if part)


def _own_part(judged: Judged, i: int, before: float, after: float, name: str) -> DiffRow:
    low, high = judged.interval(i) if np.isfinite(judged.error[i]) else (np.nan, np.nan)
    before_ps, after_ps = round(float(before)), round(float(after))
    return DiffRow(
        *("part", name, before_ps, after_ps, CHANGED),
        change_ratio=(after_ps - before_ps) / before_ps if before_ps else None,
        low_ratio=_expm1(low),
        high_ratio=_expm1(high),
        p_value=_known(judged.p_value[i]),
    )


def _kind_rows(measured: MeasuredSides, found: _Found) -> list[DiffRow]:
    code, kinds = measured.sides.alignment.kind_codes
    rows = []
    for i in np.flatnonzero(np.isfinite(measured.change.kinds)).tolist():
        base_ps, run_ps = (_whole(times[code == i].sum()) for times in (measured.base_ps, measured.run_ps))
        row = _key_row("kind", kinds[i], base_ps, run_ps)
        expected_ps = base_ps * float(np.exp(measured.change.common))
        row = _with_own(row, measured.kinds, i, round(expected_ps * float(np.expm1(measured.change.kinds[i]))))
        rows.append(replace(row, verdict=_verdict(bool(found.kinds[i]), row)))
    return rows


def _layer_rows(measured: MeasuredSides, found: _Found) -> list[DiffRow]:
    alignment, change = measured.sides.alignment, measured.change
    ops = (measured.base_ps, measured.run_ps, change.expected_ps)
    times = [alignment.inside.astype(np.int64) @ np.rint(ps).astype(np.int64) for ps in ops]
    rows = []
    for i, layer in enumerate(alignment.layers):
        base_ps, run_ps, expected_ps = (int(ps[i]) for ps in times)
        row = DiffRow("layer", layer, base_ps, run_ps, WITHIN_NOISE)
        row = _with_own(_with_whole(row, measured.whole, i), measured.layers, i, run_ps - expected_ps)
        judged = row if found.judged_layers[i] else replace(row, p_value=None)
        rows.append(replace(judged, verdict=_verdict(bool(found.layers[i]), judged)))
    return [row for row in rows if row.base_ps or row.run_ps]


def _op_rows(measured: MeasuredSides, found: _Found, step: DiffRow) -> list[DiffRow]:
    """The ops, largest change first, and what none of them explains: together the step's change."""
    sides = measured.sides
    executions = [np.mean([one.executions for one in side], axis=0) for side in (sides.base, sides.run)]
    rows = []
    for i, key in enumerate(sides.alignment.keys):
        base_ps, run_ps = _whole(measured.base_ps[i]), _whole(measured.run_ps[i])
        row = _key_row("op", key, base_ps, run_ps)
        row = _with_whole(row, measured.whole, len(sides.alignment.layers) + i)
        row = _with_own(row, measured.ops, i, run_ps - _whole(measured.change.expected_ps[i]))
        row = replace(row, base_executions=float(executions[0][i]), run_executions=float(executions[1][i]))
        judged = row if found.judged_ops[i] else replace(row, p_value=None)
        rows.append(replace(judged, verdict=_verdict(bool(found.ops[i]), judged)))
    rows.sort(key=lambda row: (-abs(row.change_ps), row.layer or "", row.name, row.direction or "", row.shape or ""))
    base_ps, run_ps = (sum(getattr(row, side) for row in rows) for side in ("base_ps", "run_ps"))
    left = DiffRow("op", UNATTRIBUTED, step.base_ps - base_ps, step.run_ps - run_ps, NOT_JUDGED)
    return [*rows, left]


def _key_row(level: str, key: AlignedOp, base_ps: int, run_ps: int) -> DiffRow:
    return DiffRow(
        *(level, key.name, base_ps, run_ps, WITHIN_NOISE),
        layer=key.layer or None,
        direction=key.direction or None,
        shape=key.shape or None,
        device=key.device or None,
    )


def _time_row(sides: Sides, level: str, name: str, of: str, at: int = 0) -> DiffRow:
    base_ps, run_ps = (_whole(side_times(side, of)[at]) for side in (sides.base, sides.run))
    return DiffRow(level, name, base_ps, run_ps, WITHIN_NOISE)


def _with_time(row: DiffRow, judged: Judged, changed: bool) -> DiffRow:
    """The row of a step time, judged."""
    row = replace(_with_whole(row, judged, 0), p_value=_known(judged.p_value[0]))
    return replace(row, verdict=_verdict(changed, row))


def _with_whole(row: DiffRow, judged: Judged, i: int) -> DiffRow:
    """The row with its change as it is, and the interval of that."""
    if not row.base_ps:
        return row
    low, high = judged.interval(i)
    return replace(row, change_ratio=row.change_ps / row.base_ps, low_ratio=_expm1(low), high_ratio=_expm1(high))


def _with_own(row: DiffRow, judged: Judged, i: int, own_ps: int) -> DiffRow:
    """The row with its change beyond that of its like, and the interval of that."""
    low, high = judged.interval(i)
    return replace(
        row,
        own_ps=own_ps,
        own_ratio=_expm1(float(judged.log_ratio[i])),
        own_low_ratio=_expm1(low),
        own_high_ratio=_expm1(high),
        p_value=_known(judged.p_value[i]),
    )


def _verdict(changed: bool, row: DiffRow) -> str:
    if not row.base_ps or not row.run_ps:
        return ONLY_RUN if row.run_ps else ONLY_BASE
    if row.p_value is None:
        return NOT_JUDGED
    return CHANGED if changed else WITHIN_NOISE


def _grown(rows: Sequence[DiffRow], found: _Found) -> float:
    """By how much of the base's step it grew beyond noise: as a whole, or by what changed in single places."""
    usual, mean = rows[0], rows[1]
    own_ps = sum(row.change_ps for row in rows if row.level == "part" and row.name not in (EVERYTHING, UNATTRIBUTED))
    grown = [own_ps / usual.base_ps if usual.base_ps else 0.0]
    grown += [row.change_ratio or 0.0 for row, changed in ((usual, found.step), (mean, found.mean_step)) if changed]
    return max(0.0, *grown)


def _unjudged(measured: MeasuredSides) -> str | None:
    """Why noise cannot be told; None where it can."""
    if np.isfinite(measured.step.p_value[0]):
        return None
    fewest = min((len(one.samples.clock_ps), one.samples.path) for one in (*measured.sides.base, *measured.sides.run))
    few = f"{format_counted(fewest[0], 'step')} of {fewest[1]}"
    return f"noise cannot be told from {few}; record or import several steps of each run"


def _notes(measured: MeasuredSides) -> list[str]:
    notes = []
    if not measured.has_common_ops:
        notes.append("the runs have no op in common: only steps and categories are compared")
    elif not measured.sides.alignment.layers:
        notes.append("no layers were recorded: ops are compared without them")
    return notes


def _whole(value: float) -> int:
    return round(float(value))


def _expm1(log_ratio: float) -> float | None:
    return _known(np.expm1(min(log_ratio, 700.0)))


def _known(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
