"""The anatomy of a step, over the run: what its time served, in the words in which a training loop is written.

The same time as in the categories, cut by the `stages` of the captured steps: compute and data movement become copies
to the device, forward, backward, optimizer and what serves none that is known; the wait for input takes what the step's
own thread did to make batches. Each category's total stays as it was estimated and is divided among its stages by what
is estimated of these, so the anatomy adds up to it.

Between the works of a pass the device may wait, or be busy with communication. That time is told in its own parts;
`within_ps` says how much of it lies inside each pass. A pass with it is as long as a clock around it would tell.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phasepoint.core.arrays import Int64s
from phasepoint.core.statistics import apportion
from phasepoint.core.tables import CATEGORIES, STAGES
from phasepoint.estimates.captured import PARTS, Captured, Sampled, categories_of
from phasepoint.estimates.cells import fit_cells
from phasepoint.estimates.totals import Totals, count_windows, half_widths, predict_rest
from phasepoint.phases.clock.accounting import closed
from phasepoint.phases.clock.breakdown import PASSES, Anatomy, AnatomyPart, Breakdown
from phasepoint.phases.clock.steps import StepSeries, read_numbers

_NO_STAGE = len(STAGES)
_N_STAGES = len(STAGES) + 1  # the last one is none
_DEVICE, _TALK, _HOST, _IDLE = range(4)
_GROUP = {"compute": _DEVICE, "data_movement": _DEVICE, "communication": _TALK, "host": _HOST, "idle": _IDLE}
"""Categories whose stages are told as one."""

_OF_DEVICE = ("to_device", *PASSES)
_WORK = "other work"
"""A device's work that serves none of the stages, or none that is known."""


@dataclass(frozen=True, eq=False)
class Anatomies:
    """The anatomy of the run, of each phase and of each host.

    Attributes:
        run: None where no captured step tells its stages.
        phases: phase id → anatomy, those with a captured step.
        hosts: rank → likewise.
    """

    run: Anatomy | None
    phases: Mapping[int, Anatomy]
    hosts: Mapping[int, Anatomy]


def estimate_anatomy(sampled: Sampled, stages: pa.Table, *, confidence: float = 0.95) -> Anatomies:
    """What the steps' time served.

    Args:
        sampled: the run as its windows show it.
        stages: columns `window`, `step`, `device`, `category`, `stage`, `wall_ps`; `host` and `attempt` like steps.
        confidence: of the intervals, between 0 and 1.

    Returns:
        Anatomies that add up to the time of the steps; with every step captured they are exact.
    """
    captured = sampled.captured
    staged = read_stages(sampled.steps, captured, stages)
    if staged is None:
        return Anatomies(None, {}, {})
    n = len(sampled.strata)
    seen_parts, seen = np.zeros((n, len(PARTS)), np.int64), np.zeros((n, staged.shape[1]), np.int64)
    np.add.at(seen_parts, sampled.of_captured, captured.parts_ps)
    np.add.at(seen, sampled.of_captured, staged)
    fit = fit_cells(sampled, staged.astype(np.float64))
    totals = Totals(sampled.strata, fit, predict_rest(fit, sampled.strata), seen_parts, seen, (), confidence)
    phases, hosts = ({getattr(stratum, name) for stratum in sampled.strata} for name in ("phase", "host"))
    return Anatomies(
        run=_anatomy(totals, sampled, list(range(n))),
        phases=dict(_of_each(totals, sampled, "phase", sorted(phases))),
        hosts=dict(_of_each(totals, sampled, "host", sorted(hosts))),
    )


def read_stages(steps: StepSeries, captured: Captured, stages: pa.Table) -> Int64s | None:
    """Time of the captured steps by group of categories and stage, `[n, 4 * (len(STAGES) + 1)]` ps; None where none
    tells it.

    Of several devices the mean. Each group adds up to its categories in `captured.parts_ps`: what these gave to the
    wait for input and to compiling is taken from making batches first, then from what has no stage.
    """
    at, window = captured.index_of(steps.rows_of(stages)), read_numbers(stages, "window")
    known = (at >= 0) & (captured.window[at] == window) if len(captured.row) else at >= 0
    if not known.any():
        return None
    rows = stages.filter(pa.array(known))
    group = np.array([_GROUP[name] for name in CATEGORIES])[categories_of(rows)]
    stage = pc.fill_null(pc.index_in(rows["stage"].cast(pa.string()), pa.array(STAGES)), _NO_STAGE).to_numpy()
    walls = np.zeros((len(captured.row), len(set(_GROUP.values())), _N_STAGES), np.int64)
    # As in `read_captured`: damaged times would else exceed 64 bits together.
    wall_ps = np.minimum(read_numbers(rows, "wall_ps"), steps.dur_ps[captured.row[at[known]]])
    np.add.at(walls, (at[known], group, stage), wall_ps)
    names, device = np.unique(rows["device"].cast(pa.string()).to_numpy(zero_copy_only=False), return_inverse=True)
    pairs = np.unique(at[known] * len(names) + device)
    walls //= np.maximum(np.bincount(pairs // len(names), minlength=len(walls)), 1)[:, None, None]
    target = np.zeros(walls.shape[:2], np.int64)
    for name, one in _GROUP.items():
        target[:, one] += captured.parts_ps[:, PARTS.index(name)]
    return _fit_groups(walls, target).reshape(len(walls), -1)


def _fit_groups(walls: Int64s, target: Int64s) -> Int64s:
    """The stages of each group `[n, n_groups, _N_STAGES]` so that they add up to it `[n, n_groups]`."""
    over = walls.sum(axis=2) - target
    for stage in (STAGES.index("input"), _NO_STAGE):
        taken = np.clip(over, 0, walls[:, :, stage])
        walls[:, :, stage] -= taken
        over -= taken
    for row, group in zip(*np.nonzero(over > 0), strict=True):
        walls[row, group] = apportion(int(target[row, group]), walls[row, group].astype(np.float64))
    walls[:, :, _NO_STAGE] += np.maximum(-over, 0)
    return walls


def _of_each(totals: Totals, sampled: Sampled, name: str, ids: Sequence[int]) -> Iterator[tuple[int, Anatomy]]:
    for one in ids:
        members = [i for i, stratum in enumerate(sampled.strata) if getattr(stratum, name) == one]
        found = _anatomy(totals, sampled, members)
        if found.captured_steps:
            yield one, found


def _anatomy(totals: Totals, sampled: Sampled, members: list[int]) -> Anatomy:
    counts = count_windows(sampled, members=members)
    whole = totals.breakdown_of(members, counts, ())
    seen, rest = (of[members].sum(axis=0) for of in (totals.seen_extra, totals.rest.extra))
    likely = (seen + rest).reshape(-1, _N_STAGES)
    half = np.array(half_widths(totals.fit, members, totals.confidence)[len(PARTS) :]).reshape(-1, _N_STAGES)
    part = {one.name: one.total_ps for one in whole.parts}
    stage_ps = np.zeros_like(likely, np.int64)
    for group, weights in enumerate(likely):
        total_ps = sum(part[name] for name, of in _GROUP.items() if of == group)
        stage_ps[group] = apportion(total_ps, weights) if weights.any() else [*[0] * _NO_STAGE, total_ps]
    return closed(_told(whole, stage_ps, half, seen.reshape(-1, _N_STAGES)))


def _told(whole: Breakdown, stage_ps: Int64s, half: Int64s, seen: Int64s) -> Anatomy:
    """The parts, in the order of a step."""
    number = {name: i for i, name in enumerate((*STAGES, _WORK))}
    of = {part.name: part for part in whole.parts}
    batches, share = number["input"], max(whole.total_ps, 1)

    def made(name: str, total_ps: int, low_ps: int, high_ps: int) -> AnatomyPart:
        within_ps = int(stage_ps[_TALK:, number[name]].sum()) if name in PASSES else 0
        basis = "unattributed" if name == "unattributed" else "estimated"
        low_ps, high_ps = min(max(low_ps, 0), total_ps), max(min(high_ps, whole.total_ps), total_ps)
        return AnatomyPart(name, total_ps, low_ps, high_ps, total_ps / share, basis, within_ps)

    def stage(name: str) -> AnatomyPart:
        at = _DEVICE, number[name]
        total_ps, half_ps = int(stage_ps[at]), int(half[at])
        return made(name, total_ps, max(total_ps - half_ps, min(int(seen[at]), total_ps)), total_ps + half_ps)

    def category(name: str, more_ps: int = 0, half_ps: int = 0) -> AnatomyPart:
        one = of[name]
        return made(name, one.total_ps + more_ps, one.low_ps + more_ps - half_ps, one.high_ps + more_ps + half_ps)

    making_ps, half_ps = int(stage_ps[:, batches].sum()), int(half[:, batches].sum())
    parts = [
        category("input", making_ps, half_ps),
        *(stage(name) for name in (*_OF_DEVICE, _WORK)),
        category("communication", -int(stage_ps[_TALK, batches])),
        category("host", -int(stage_ps[_HOST, batches])),
        category("idle", -int(stage_ps[_IDLE, batches])),
        category("compiling"),
        category("unattributed"),
    ]
    return Anatomy(whole.total_ps, tuple(parts), whole.windows, whole.captured_steps, whole.confidence)
