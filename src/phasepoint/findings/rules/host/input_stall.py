"""The job waits for data: time between asking the loader for a batch and getting it in which the device did nothing.

**Formula.** In every step, the part of `input_ps` (measured by the step clock) in which the device was idle, estimated
from the windows (`docs/estimates.md`). With too few windows, what a step lasts beside its wait is compared with steps
near by that did not wait. If there are none, the waits of the captured steps tell: the median of the idle part of each,
and the least as the lower end; and if nothing was captured, the whole wait counts. If every step was captured
and the clock knows no waits (an imported trace), it is the idle time in which the launching thread was in its loader.

**Thresholds.** Reported from {LEAST_SHARE:.0%} of the run's time on; below that no loader is worth changing. A wait of
{HIDDEN_SHARE:.0%} or more that the device's work hides is told as such.

**Remedy.** Produce batches in other processes or threads and ahead of time: `pp.tune.loader` finds the setting while
the job runs ([tune](tune.md)). By hand, PyTorch: `DataLoader(num_workers=…, prefetch_factor=…, pin_memory=True)`; JAX:
`grain` with worker processes, or `jax.device_put` of the next batch before the step. If one stage is expensive
(decoding, augmentation), cache its result or move it to the device.

**Wrong when** the loader itself waits for the step before (it reads what the model wrote), so that it cannot run
ahead; or where the cores that would run the loader are busy with the training step: on a CPU the wait then becomes
compute.

**Source.** The step clock's definition of a wait: docs/how-it-works.md. TPUPoint (ISPASS 2021) found it to be the most
common limit.
"""

from typing import NamedTuple

import numpy as np

from phasepoint.core.arrays import Int64s
from phasepoint.core.statistics import median_ps
from phasepoint.core.units import format_counted, format_ps, format_ratio
from phasepoint.estimates.captured import INPUT, PARTS, RANGE_STEPS
from phasepoint.findings.evidence.host_time import read_idle_account
from phasepoint.findings.finding import Claim, Evidence, Finding, Unavailable
from phasepoint.findings.view import FindingsView
from phasepoint.phases.clock.breakdown import FEW
from phasepoint.phases.clock.hosts import median_error_ps
from phasepoint.phases.clock.steps import RunClock, sum_ps

LEAST_SHARE = 0.02
HIDDEN_SHARE = 0.05
LONG_WAIT, NO_WAIT = 0.2, 0.02
"""Ratios of a step's time: a wait that is seen in the step's length beyond its noise, and one that is not (choices)."""
_OTHER_WORK = ("compile", "warm-up", "eval", "checkpoint")
"""Kinds of phases whose steps do something else than the others."""
LEAST_STEPS = 20
"""Steps of each sort before their medians are compared, and those taken on each side: as for other comparisons."""


class ExposedWait(NamedTuple):
    """What the device waited for data: `[n_steps]` a part of each step, the interval of their sum, where it shows."""

    claimed_ps: Int64s
    low_ps: int
    high_ps: int
    evidence: Evidence


def find(view: FindingsView) -> list[Finding]:
    """The exposed wait for input."""
    clock = view.clock
    view.need_estimate()
    claimed_ps, low_ps, high_ps, evidence = _exposed(view)
    total_ps = sum_ps(claimed_ps)
    if total_ps < LEAST_SHARE * clock.wall_ps:
        waited_ps = sum_ps(clock.input_ps)
        if waited_ps >= HIDDEN_SHARE * max(clock.wall_ps, 1):
            raise Unavailable(
                f"the job waits {format_ps(waited_ps)} for data, {format_ratio(waited_ps / clock.wall_ps)} of the run, "
                "but the device works meanwhile: a faster loader would win nothing there"
            )
        return []
    share = total_ps / clock.wall_ps
    return [
        Finding(
            code="INPUT-STALL",
            title=f"the device waits {format_ps(total_ps)} for data, {format_ratio(share)} of the run",
            claim=Claim("input", claimed_ps),
            low_ps=low_ps,
            high_ps=high_ps,
            phase=view.phase_of_most(claimed_ps),
            remedy=view.of_framework(
                torch="give the loader worker processes: pp.tune.loader finds how many while the job runs, and keeps "
                "only what is faster",
                jax="load the next batches while the device works: pp.tune.loader makes them ahead on a thread; where "
                "Python itself is slow, worker processes (grain)",
            ),
            evidence=(evidence,),
            confidence="high" if view.analysis.estimates.categories.windows > 1 and 2 * low_ps > total_ps else "medium",
            wrong_if="the loader cannot run ahead of the step, or has no core of its own to run on",
        )
    ]


def _exposed(view: FindingsView) -> ExposedWait:
    """The wait by what tells it best: the trace where the clock knows none, step times where windows are few."""
    if not view.clock.input_known:
        return _in_loader(view)
    is_few = view.analysis.estimates.categories.basis == FEW
    parts = (_parts_by_clock(view) or _parts_by_captured(view)) if is_few else None
    if parts is None:
        return _in_windows(view)
    claimed_ps, low_ps, high_ps = (_part_of_waits(view, part) for part in parts)
    return ExposedWait(claimed_ps, sum_ps(low_ps), sum_ps(high_ps), _waits(view.clock))


def _in_windows(view: FindingsView) -> ExposedWait:
    """The part of each wait in which windows saw the device do nothing; all of it where there are no windows.

    The interval reaches as far to both sides as that of the breakdown's part.
    """
    part, waited_ps = view.part(INPUT), view.clock.input_ps
    if view.captured.row.size:
        waited_ps = _part_of_waits(view, min(part.total_ps / max(sum_ps(waited_ps), 1), 1.0))
    total_ps = sum_ps(waited_ps)
    low_ps, high_ps = max(total_ps - (part.total_ps - part.low_ps), 0), total_ps + (part.high_ps - part.total_ps)
    return ExposedWait(waited_ps, low_ps, high_ps, _waits(view.clock))


def _part_of_waits(view: FindingsView, part: float) -> Int64s:
    """`[n_steps]` a part of each wait."""
    return np.asarray(np.floor(view.clock.input_ps * part), np.int64)


def _parts_by_clock(view: FindingsView) -> tuple[float, float, float] | None:
    """Part of the waits in which the device did nothing, with the ends of its interval, from step times alone.

    Where some steps wait and others near them do not: what a step lasts beside its wait is as long as a step without
    one if nothing ran meanwhile, and shorter by what ran. None elsewhere.
    """
    clock = view.clock
    other = [phase.id for phase in view.analysis.result.phases if phase.kind in _OTHER_WORK]
    trains = ~np.isin(view.labels, other)
    waiting = np.flatnonzero(trains & (clock.input_ps > LONG_WAIT * clock.dur_ps))
    calm = np.flatnonzero(trains & (clock.input_ps < NO_WAIT * clock.dur_ps))
    if min(len(waiting), len(calm)) < LEAST_STEPS:
        return None
    at = np.searchsorted(calm, [waiting[0], waiting[-1]])
    near = np.unique(np.concatenate([calm[max(i - LEAST_STEPS, 0) : i + LEAST_STEPS] for i in at.tolist()]))
    beside_ps = clock.dur_ps[waiting] - clock.input_ps[waiting]
    usual_ps, wait_ps = median_ps(clock.dur_ps[near]), median_ps(clock.input_ps[waiting])
    # Steps in a row wander together: those of a window's length count as one.
    error_ps, near_error_ps = (median_error_ps(ps, len(ps) // RANGE_STEPS) for ps in (beside_ps, clock.dur_ps[near]))
    half = 1.96 * float(np.hypot(error_ps, near_error_ps)) / wait_ps
    part = 1 - (usual_ps - median_ps(beside_ps)) / wait_ps
    return min(max(part, 0.0), 1.0), min(max(part - half, 0.0), 1.0), min(max(part + half, 0.0), 1.0)


def _parts_by_captured(view: FindingsView) -> tuple[float, float, float] | None:
    """The same from the captured steps that waited; None where none did."""
    rows = view.captured.row
    waited_ps, dur_ps = view.clock.input_ps[rows], view.clock.dur_ps[rows]
    waits = waited_ps > NO_WAIT * dur_ps
    if not waits.any():
        return None
    parts = np.minimum(view.captured.parts_ps[waits, PARTS.index(INPUT)] / waited_ps[waits], 1.0)
    return float(np.median(parts)), float(parts.min()), 1.0


def _in_loader(view: FindingsView) -> ExposedWait:
    """Idle time in which the launching thread was in its loader, as an imported trace that holds every step shows it.

    Raises:
        Unavailable: the run is no such trace, so that nothing tells of its waits.
    """
    account = view.once(read_idle_account)
    if account is None:
        raise Unavailable(
            "the run holds no waits for input: iterate with `for batch in run.steps(loader)`, which times the loader"
        )
    waited_ps = np.zeros(view.clock.n_steps, np.int64)
    waited_ps[account.row] = account.of("input")
    name, ps = next(iter(account.during.get("input", ())), ("its loader", 0))
    spans = Evidence(
        f"the device stood idle for {format_ps(ps)} during {name}",
        "spans",
        "select name, count(*) as calls, sum(dur_ps) as dur_ps from spans where device = 'host' and level = 'layer' "
        "group by name order by dur_ps desc limit 20",
    )
    return ExposedWait(waited_ps, sum_ps(waited_ps), sum_ps(waited_ps), spans)


def _waits(clock: RunClock) -> Evidence:
    """The steps that waited for more than a fifth of their time; all that waited where none did for so long."""
    long = int((clock.input_ps > 0.2 * clock.dur_ps).sum())
    told = f"{format_counted(long, 'step')} waited for more than a fifth of the time"
    where = "input_ps > 0.2 * dur_ps" if long else "input_ps > 0"
    return Evidence(
        f"{told}, {format_ps(sum_ps(clock.input_ps))} in all",
        "steps",
        f"select step, input_ps, dur_ps from steps where {where} order by input_ps desc",
    )
