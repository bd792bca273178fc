"""Too little was captured to judge: the rules that need capture windows are silent or uncertain, and so is the
breakdown.

**Formula.** The widest 95 % interval among the categories' shares of the run, from the capture windows
(`docs/estimates.md`), is compared with the wanted width. The width of an interval from n windows is proportional to t(n
− 1) / √n, with the quantile t of Student's distribution; this gives the number of windows needed, and how much more
time or budget. Less than {FIRST_WINDOWS} windows are never enough: from so few, the scatter itself is not known. No
time is claimed: capturing more wins no time. A run whose every step was captured needs no windows; of an imported one
it is told where the host gave work to a device that the trace does not hold.

**Thresholds.** A half width of {MOST_HALF:.0%} of the run: beyond that, a category reported as a tenth may be nothing
or a fifth, which changes what is worth doing first. {LEAST_STEPS} steps: with fewer, no step can be called unusual.

**Remedy.** Record for longer with the same budget, or with a larger one: `record(…, budget=0.05)`, or
`budget=None` for a short run in which everything may be captured. More, shorter windows see more than a few long ones:
`window_steps=2`.

**Wrong when** the run was meant to have the step clock alone (`budget=0`).

**Source.** Cochran, Sampling Techniques (1977), on the size of a sample. The intervals: estimates/cells.py.
"""

import math

import numpy as np
import pyarrow.compute as pc

from phasepoint.core.statistics import t_quantile
from phasepoint.core.units import format_count, format_counted, format_ps, format_ratio
from phasepoint.findings.evidence.window_spans import RECORD_DEVICE, unseen_device
from phasepoint.findings.finding import Claim, Evidence, Finding
from phasepoint.findings.view import FindingsView
from phasepoint.phases.clock.breakdown import PartTime
from phasepoint.summary.enough import LEAST_STEPS, advise_capture, newest_states, noted_budget

MOST_HALF = 0.10
FIRST_WINDOWS = 10

_STEPS = "select host, attempt, count(*) as steps, sum(dur_ps) as dur_ps from steps group by all"
_WINDOWS = 'select host, attempt, "window", first_step, last_step, reason, probability, capture_cost_ps from windows'


def find(view: FindingsView) -> list[Finding]:
    """Too few steps, no windows, or too few of them: the first of these that holds."""
    if view.is_fully_captured and view.analysis.shortfall is None:
        return [] if view.once(unseen_device) is None else [_no_device(view)]
    if view.clock.n_steps < LEAST_STEPS:
        return [_few_steps(view)]
    windows = view.table("windows").num_rows
    if not view.captured.row.size:
        stretches = _stretches(view)
        if windows and stretches == windows:
            return [_stretches_only(view, stretches)]
        return [_unconverted(view, windows) if windows else _no_windows(view)]
    half, widest = max((_half(view, part), part.name) for part in view.analysis.estimates.categories.parts)
    return [_few_windows(view, widest, half)] if half > MOST_HALF else []


def _half(view: FindingsView, part: PartTime) -> float:
    """Half the width of a part's interval, as a ratio of the steps' time."""
    return (part.high_ps - part.low_ps) / 2 / max(view.analysis.estimates.categories.total_ps, 1)


def _no_device(view: FindingsView) -> Finding:
    spans = (
        "select name, count(*) as calls, sum(dur_ps) as dur_ps from spans group by name order by dur_ps desc limit 20"
    )
    longest = Evidence("what the host did, the longest first, is all that is known", "spans", spans)
    return _finding(view, f"{view.once(unseen_device)}: what limits it is not known", RECORD_DEVICE, longest)


def _few_steps(view: FindingsView) -> Finding:
    steps = view.clock.n_steps
    more = "leave the job running" if "live" in newest_states(view.clock) else "give the job more of them"
    title = f"only {format_counted(steps, 'step was', 'steps were')} recorded: too few to call any of them unusual"
    remedy = f"record at least {LEAST_STEPS} steps, better a few hundred: {more}, or count smaller steps"
    short = view.analysis.shortfall
    if short is not None and short.code in ("no-steps", "steps-missed"):
        title, remedy = short.text, short.remedy
    seen = f"{format_counted(steps, 'step')} in {format_ps(view.clock.wall_ps)}"
    return _finding(view, title, remedy, Evidence(seen, "steps", "select count(*) as steps from steps"))


def _no_windows(view: FindingsView) -> Finding:
    budget = noted_budget(view.analysis.run)
    why = " (budget=0)" if budget == 0 else f" within a budget of {format_ratio(budget)}" if budget else ""
    return _finding(
        view,
        f"no step was captured{why}: where the time inside a step goes is not known",
        f"{advise_capture(view.analysis.run, view.clock)}; {FIRST_WINDOWS} windows are a beginning",
        Evidence("the steps were clocked, and no window holds a whole one", "steps", _STEPS),
    )


def _stretches(view: FindingsView) -> int:
    """Windows that hold no whole step."""
    table = view.table("windows")
    return int(pc.sum(pc.less(table.column("last_step"), table.column("first_step"))).as_py() or 0)


def _stretches_only(view: FindingsView, stretches: int) -> Finding:
    inside = (
        "1 stretch inside a step was" if stretches == 1 else f"{format_count(stretches)} stretches inside steps were"
    )
    budget = noted_budget(view.analysis.run) or _spent(view)
    return _finding(
        view,
        f"{inside} captured and no whole step: their ops say what ran, not what share of a step it takes",
        f"record(…, budget={min(1.0, 10 * budget):.2g}) for windows that hold whole steps, or count smaller steps",
        Evidence("one step in full is predicted to be dearer than the budget allows", "windows", _WINDOWS),
    )


def _unconverted(view: FindingsView, windows: int) -> Finding:
    pending = windows - view.table("conversions").num_rows
    recorded = format_counted(windows, "window was", "windows were")
    text = f"{recorded} recorded, {format_counted(max(pending, 0), 'is', 'are')} not converted"
    none = f"none of {format_counted(windows, 'capture window')} could be used"
    return _finding(
        view,
        f"{none}: where the time inside a step goes is not known",
        "convert the captures that are not converted yet (phasepoint convert RUN) or record again: windows must "
        "hold whole steps",
        Evidence(text, "windows", _WINDOWS),
    )


def _few_windows(view: FindingsView, widest: str, half: float) -> Finding:
    windows, part = view.analysis.estimates.categories.windows, view.part(widest)
    needed = _needed(windows, half)
    factor = needed / windows
    budget = noted_budget(view.analysis.run) or _spent(view)
    larger = f"record(…, budget={budget * factor:.2g})" if 0 < budget * factor < 1 else "record(…, budget=None)"
    seen = format_counted(windows, "window was", "windows were")
    return _finding(
        view,
        f"the share of {widest.replace('_', ' ')} is known to ± {100 * half:.0f} points only: {seen} seen, "
        f"{format_count(needed)} are needed",
        f"record {factor:.1f} × as long ({format_ps(view.clock.wall_ps * factor)}) with the same budget, or use "
        f"{larger}",
        Evidence(
            f"{widest}: {format_ratio(part.share)} of the steps' time, between {format_ps(part.low_ps)} and "
            f"{format_ps(part.high_ps)}",
            "windows",
            _WINDOWS,
        ),
    )


def _needed(windows: int, half: float) -> int:
    """Windows with which the interval is as narrow as wanted: it shrinks with their root and with Student's t."""
    spread = half * math.sqrt(windows) / t_quantile(0.975, max(windows - 1, 1))
    needed = max(windows + 1, FIRST_WINDOWS)
    while spread * t_quantile(0.975, needed - 1) / math.sqrt(needed) > MOST_HALF:
        needed += 1
    return needed


def _finding(view: FindingsView, title: str, remedy: str, evidence: Evidence) -> Finding:
    return Finding(
        code="THIN-PROFILE",
        title=title,
        claim=Claim("outside", np.zeros(view.clock.n_steps, np.int64)),
        low_ps=0,
        high_ps=0,
        remedy=remedy,
        evidence=(evidence,),
        confidence="high",
        wrong_if="the run was meant to be clocked alone, or the question does not need the breakdown of a step",
    )


def _spent(view: FindingsView) -> float:
    """What the windows cost, as a ratio of the run."""
    cost_ps = pc.sum(view.table("windows").column("capture_cost_ps")).as_py() or 0
    return float(cost_ps / view.clock.wall_ps) if view.clock.wall_ps else 0.0
