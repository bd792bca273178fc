"""Python's garbage collector holds the job: every collection stops all threads of the process.

**Formula.** The recorder times every collection; those of {LONG_MS} ms or more are recorded one by one. Of these, the
share that lengthened its step is measured: the excess of the steps with a pause over the steps around them, divided by
the pauses' time. The part of a pause in which the device worked costs nothing. Shorter pauses are summed between
samples and count with the same share, or in full if there was no long pause. If more than {MOST_PAUSED:.0%} of the
steps have a long pause, or those that have one are phases of their own, there are no others to compare with; then every
pause counts, up to the time in which the device did not work.

**Thresholds.** Reported from {LEAST_SHARE:.0%} of the run's time on; below that, collecting garbage is worth its time.

**Remedy.** Call `gc.freeze()` after the model and the loader are built: objects that exist then are no longer searched.
Raise the thresholds: `gc.set_threshold(50_000, 50, 100)`. Or `gc.disable()` and `gc.collect()` when a pause does no
harm: at an evaluation or a checkpoint. Keep large data in arrays (NumPy, Arrow), not in lists of Python objects, and
remove calls of `gc.collect()` from the loop.

**Wrong when** the job makes reference cycles that hold much memory: without collections it runs out of it.

**Source.** Callbacks and generations: the Python documentation of `gc`. Measured by recorder/clock/gc_clock.py.
"""

import numpy as np
import pyarrow as pa

from phasepoint.core.arrays import Bools, Int64s
from phasepoint.core.encoding import renumber
from phasepoint.core.units import format_count, format_ps, format_ratio
from phasepoint.findings.evidence.expected import expect_steps, net_excess
from phasepoint.findings.evidence.gc_pauses import (
    LONG_PAUSE,
    PAUSE,
    Pauses,
    in_session,
    long_pauses,
    pause_rows,
    pause_values,
)
from phasepoint.findings.finding import Claim, Evidence, Finding, Unavailable
from phasepoint.findings.view import FindingsView
from phasepoint.phases.clock.steps import sum_ps

LEAST_SHARE = 0.01
MOST_PAUSED, LEAST_LOST = 0.33, 0.1
LONG_MS = 10


_WORKS = ("compute", "communication", "data_movement")


def find(view: FindingsView) -> list[Finding]:
    """Pauses that lengthened steps."""
    view.need_steps()
    sums = pause_rows(view, PAUSE)
    if not sums.num_rows:
        raise Unavailable(
            "the run holds no pauses of Python's garbage collector: it was recorded by an older version, or imported; "
            "record it again"
        )
    long = long_pauses(view)
    if sum_ps(pause_values(sums)) < LEAST_SHARE * view.clock.wall_ps:
        return []
    share, low, high = _exposed(view, long)
    by_step = _cap(view, np.rint((long.by_step + _short(view, sums, long)) * share).astype(np.int64))
    outside_ps = long.outside_ps
    total_ps = sum_ps(by_step) + outside_ps
    if total_ps < LEAST_SHARE * view.clock.wall_ps:
        return []
    return [_finding(view, long, Claim("excess", by_step, outside_ps), (low / share, high / share))]


def _short(view: FindingsView, sums: pa.Table, long: Pauses) -> Int64s:
    """`[n_steps]` the short pauses of every sample, spread evenly over the time since the sample before."""
    clock, short_ps = view.clock, np.zeros(view.clock.n_steps, np.int64)
    rows = pause_rows(view, LONG_PAUSE)
    for session in clock.sessions:
        at_ps, pause_ps = in_session(sums, session)
        began_ps, long_ps = in_session(rows, session)
        # By its end: a sample that is taken as a pause ends, before the pause was added, does not hold it.
        sample = np.searchsorted(at_ps, began_ps + long_ps)
        known = sample < len(at_ps)
        np.subtract.at(pause_ps, sample[known], long_ps[known])
        share = np.maximum(pause_ps, 0) / np.maximum(np.diff(at_ps, prepend=0), 1)
        middle_ps = clock.start_ps[session.rows] + clock.dur_ps[session.rows] // 2
        which = np.searchsorted(at_ps, middle_ps)
        share = np.append(np.minimum(share, 1.0), 0.0)[which]
        short_ps[session.rows] = np.floor(clock.dur_ps[session.rows] * share).astype(np.int64)
    return short_ps


def _exposed(view: FindingsView, long: Pauses) -> tuple[float, float, float]:
    """The share of the pauses' time by which steps became longer, with a 95 % interval."""
    paused = long.by_step > 0
    pause_ps = sum_ps(long.by_step)
    if not paused.any() or paused.mean() > MOST_PAUSED:
        return 1.0, _not_working(view), 1.0
    lost_ps = float(net_excess(view, paused)[paused].sum())
    scatter_ps = (view.once(expect_steps).dur_ps * view.once(expect_steps).sigma)[paused]
    if lost_ps < LEAST_LOST * pause_ps and _are_phases(view, paused):
        return 1.0, _not_working(view), 1.0
    half = 1.96 * float(np.sqrt((scatter_ps**2).sum())) / pause_ps
    share = min(max(lost_ps / pause_ps, 1e-6), 1.0)
    return share, max(share - half, 0.0), min(share + half + 0.05, 1.1)


def _are_phases(view: FindingsView, paused: Bools) -> bool:
    """Whether steps with a pause are phases of their own: each lasts as long as those around it, which have one too."""
    of_phase = renumber(view.labels)[1]
    mostly = np.bincount(of_phase, paused) > MOST_PAUSED * np.bincount(of_phase)
    return bool(paused[mostly[of_phase]].sum() > paused.sum() / 2)


def _not_working(view: FindingsView) -> float:
    """Share of the steps' time in which the device did no work, by the windows; a half where there are none."""
    if not view.captured.row.size:
        return 0.5
    return max(1 - sum(view.part(name).share for name in _WORKS), 0.0)


def _cap(view: FindingsView, by_step: Int64s) -> Int64s:
    """At most the step, and of all steps at most the time in which the device did not work."""
    by_step = np.minimum(by_step, view.clock.dur_ps)
    total_ps = sum_ps(by_step)
    if not view.captured.row.size or not total_ps:
        return by_step
    most_ps = view.clock.inside_ps - sum(view.part(name).low_ps for name in _WORKS)
    return by_step if total_ps <= most_ps else np.floor(by_step * (most_ps / total_ps)).astype(np.int64)


def _finding(view: FindingsView, long: Pauses, claim: Claim, ends: tuple[float, float]) -> Finding:
    total_ps = claim.total_ps
    share = total_ps / view.clock.wall_ps
    evidence = [
        Evidence(
            f"pauses add up to {format_ps(sum_ps(pause_values(pause_rows(view, PAUSE))))}",
            "counters",
            f"select host, attempt, time_ps, value from counters where name = '{PAUSE}' order by value desc",
        )
    ]
    if long.count:
        text = f"{format_count(long.count)} of {LONG_MS} ms or more, the longest {format_ps(long.longest_ps)}"
        query = f"select host, attempt, time_ps, value from counters where name = '{LONG_PAUSE}' order by value desc"
        evidence.insert(0, Evidence(text, "counters", query))
    return Finding(
        code="GC-PAUSE",
        title=f"garbage collection holds the job for {format_ps(total_ps)}, {format_ratio(share)} of the run",
        claim=claim,
        low_ps=min(round(total_ps * ends[0]), total_ps),
        high_ps=max(round(total_ps * ends[1]), total_ps),
        phase=view.phase_of_most(claim.by_step),
        remedy="call gc.freeze() once the model and the loader are built, and gc.set_threshold(50_000, 50, 100) or "
        "gc.disable() with gc.collect() at each evaluation; remove gc.collect() from the loop",
        evidence=tuple(evidence),
        confidence="high" if 2 * sum_ps(long.by_step) > total_ps else "medium",
        wrong_if="the device works on through the pauses, or the job needs collections to keep its memory",
    )
