"""Steps take longer and longer: work or data that grow with the run, or a device that gets slower.

**Formula.** The steps of a session, without evaluation, compiling and steps of another kind, are cut into {STRETCHES}
stretches; a level, a rising ramp and a level are fitted to the stretches' medians. What checkpoints, compiling and
other programs took of a step is left out: other findings claim that, growing or not. The claim, step by step, is the
height of the ramp above the level at the start. The first and the last quarter show what grows: waiting for input, the
device's part (more operations, one operation, or all equally, which means a slower device), or the host's part.

If the times are too disturbed for that, or show less, executions are counted: if a step executes more and more
operations from window to window, the growth is certain, because other processes do not add executions. The claim is
then their number times the time of one more operation (the median over pairs of windows), and at most the rise of the
step times (Theil and Sen).

**Thresholds.** {LEAST_STEPS} steps. A rise of {LEAST_RISE:.0%}, and of {LEAST_SIGMAS} standard deviations of a
stretch's median: other processes cause changes of that size too, but not steadily. The ramp must explain
{LEAST_EXPLAINED:.0%} of the medians' variance, and leave less unexplained than a single jump, which is a change (of the
shape, of the machine's load) and not a drift. It is reported from {LEAST_SHARE:.0%} of the run's time on. Executions
must be seen in {LEAST_WINDOWS} windows, rise in rank with Kendall's tau {LEAST_TAU} or more, which no alternation of
programs reaches, and lie on a line to {LEAST_STRAIGHT:.0%} of their variance; the times must rise by {LEAST_SEEN:.0%}
of the counted time: otherwise the host hides it.

**Remedy.** If the host's part grows, look for lists, dictionaries and logs that are gone through every step and never
emptied. If operations grow in number, or one of them grows, look for a history, a cache or a graph kept alive (PyTorch:
`loss.detach()`). If the device is slower, check clocks and temperature (`nvidia-smi -q -d CLOCK,PERFORMANCE`), power
limit, cooling, neighbours. If the wait for input grows, the loader keeps what it has read, or the later data are slower
to read.

**Wrong when** the work is meant to grow (longer sequences from a curriculum, growing batches).

**Source.** The fit: findings/evidence/drift_cause.py. The count: findings/evidence/growing_work.py.
Sen (1968): median of pairwise slopes.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phasepoint.core.arrays import Int64s
from phasepoint.core.encoding import encode_column
from phasepoint.core.units import format_ps, format_ratio
from phasepoint.findings.evidence import growing_work
from phasepoint.findings.evidence.drift_cause import BLOCKS, DriftCause, Ramp, block_medians, find_cause, fit_ramp
from phasepoint.findings.evidence.growing_work import GrowingWork, find_growing_work
from phasepoint.findings.finding import Claim, Evidence, Finding
from phasepoint.findings.view import FindingsView
from phasepoint.phases.clock.steps import SessionClock, sum_ps
from phasepoint.summary.enough import advise_capture

STRETCHES = BLOCKS
LEAST_STEPS = 200
LEAST_RISE = 0.05
LEAST_SIGMAS = 5
LEAST_EXPLAINED = 0.9
LEAST_SHARE = 0.02
LEAST_SEEN = 0.5
LEAST_WINDOWS, LEAST_TAU = growing_work.LEAST_WINDOWS, growing_work.LEAST_TAU
LEAST_STRAIGHT = growing_work.LEAST_STRAIGHT

MODEL_ERROR = 0.1
"""Half width, as a ratio of the claim, of what the form of the fit adds to the interval."""

_OTHER_WORK = ("eval", "compile", "checkpoint")

_REMEDIES = {
    "input": "see what the loader keeps of what it has read, and whether the later files are stored worse; load ahead",
    "host": "look for lists, dictionaries and logs that every step goes through and none empties",
    "more-work": "look for a history or a graph that is kept alive and gone through again (PyTorch: loss.detach())",
    "op": "look at what this operation is given: a cache or a history that grows with the run",
    "device-slower": "watch clocks, temperature, power (nvidia-smi -q -d CLOCK,PERFORMANCE), and what else runs there",
}


def _remedy(view: FindingsView, kind: str) -> str:
    """What to do about a cause; of one that is not known, how to see it."""
    if kind in _REMEDIES:
        return _REMEDIES[kind]
    return f"{advise_capture(view.analysis.run, view.clock)}; windows at both ends show what grows"


@dataclass(frozen=True, eq=False)
class _Drift:
    """What one session's steps `rows` grow by; `work` where it was counted, as the times alone do not tell.

    `rise_ps` is of a step, `claimed_ps` `[n_rows]`, `half_ps` half the 95 % interval of their sum.
    """

    session: SessionClock
    rows: Int64s
    before_ps: float
    rise_ps: float
    claimed_ps: Int64s
    half_ps: float
    evidence: str
    work: GrowingWork | None = None


def find(view: FindingsView) -> list[Finding]:
    """One drift over all sessions, told by the session in which it costs most."""
    view.need_steps(LEAST_STEPS)
    drifts = [drift for session in view.clock.sessions if (drift := _drift(view, session)) is not None]
    by_step = np.zeros(view.clock.n_steps, np.int64)
    for drift in drifts:
        by_step[drift.rows] = drift.claimed_ps
    total_ps = sum_ps(by_step)
    if total_ps < max(LEAST_SHARE * view.clock.wall_ps, 1):
        return []
    return [_finding(view, drifts, by_step, total_ps)]


def _drift(view: FindingsView, session: SessionClock) -> _Drift | None:
    """The larger of the two: a slow stretch at the beginning hides a part of the growth from the times."""
    both = [drift for drift in (_timed(view, session), _counted(view, session)) if drift is not None]
    return max(both, key=lambda drift: sum_ps(drift.claimed_ps)) if both else None


def _timed(view: FindingsView, session: SessionClock) -> _Drift | None:
    """The drift that the step times show by themselves."""
    other = [phase.id for phase in view.analysis.result.phases if phase.kind in _OTHER_WORK]
    rows = _of_main_kind(view, np.flatnonzero(~np.isin(view.labels[session.rows], other)) + session.first_row)
    if len(rows) < LEAST_STEPS:
        return None
    ramp = fit_ramp(block_medians(_own_ps(view)[rows]))
    if ramp is None or not _is_drift(ramp):
        return None
    claimed_ps = _claimed(view, rows, ramp.excess(len(rows)))
    # Of a line's mean above its start, and of the fit's form.
    slow_noise = float(np.sqrt((1 + ramp.correlation) / (1 - ramp.correlation)))
    half_ps = 1.96 * ramp.sigma * float(np.sqrt(3 / BLOCKS)) * slow_noise * len(rows)
    half_ps += MODEL_ERROR * sum_ps(claimed_ps)
    text = f"medians of {BLOCKS} stretches rise; the fit explains {ramp.explained:.0%} of their variance"
    return _Drift(session, rows, ramp.before, ramp.height, claimed_ps, half_ps, text)


def _counted(view: FindingsView, session: SessionClock) -> _Drift | None:
    """The drift that executions show. Phases play no part in it: steps that grow are easily taken for several."""
    rows = _of_main_kind(view, np.arange(session.first_row, session.end_row))
    if len(rows) < LEAST_STEPS:
        return None
    work = find_growing_work(view, rows)
    if work is None:
        return None
    medians, at = block_medians(_own_ps(view)[rows]), (np.arange(BLOCKS) + 0.5) / BLOCKS
    i, j = np.triu_indices(BLOCKS, 1)
    seen_ps = float(np.median((medians[j] - medians[i]) / (at[j] - at[i])))
    before_ps, rise_ps = float(np.median(medians - seen_ps * at)), min(work.rise_ps, seen_ps)
    if rise_ps < max(LEAST_SEEN * work.rise_ps, LEAST_RISE * before_ps, 1.0):
        return None
    claimed_ps = _claimed(view, rows, rise_ps * (np.arange(len(rows)) + 0.5) / len(rows))
    half_ps = (1.96 * work.error_ratio + MODEL_ERROR) * sum_ps(claimed_ps)
    text = (
        f"a captured step executes {work.before:.0f} operations at the beginning, {work.after:.0f} at the end "
        f"({work.windows} windows; they rise in rank with a tau of {work.tau:.2f})"
    )
    return _Drift(session, rows, before_ps, rise_ps, claimed_ps, half_ps, text, work)


def _claimed(view: FindingsView, rows: Int64s, excess_ps: NDArray[np.float64]) -> Int64s:
    return np.minimum(np.rint(excess_ps).astype(np.int64), _own_ps(view)[rows])


def _own_ps(view: FindingsView) -> Int64s:
    """`[n_steps]` what each step took beside compiling, checkpoints and other programs, which other findings claim."""
    return view.step_parts.rest_ps + view.step_parts.input_ps


def _of_main_kind(view: FindingsView, rows: Int64s) -> Int64s:
    """Those of the kind of step that most of their time went into."""
    if not len(rows):
        return rows
    code = view.once(_kind_codes)[rows]
    time = np.bincount(code, view.clock.dur_ps[rows].astype(np.float64))
    return np.asarray(rows[code == np.argmax(time)], np.int64)


def _kind_codes(view: FindingsView) -> Int64s:
    """`[n_steps]` number of each step's kind, 0 for none."""
    return np.asarray(encode_column(view.table("steps").column("kind"))[0] + 1, np.int64)


def _is_drift(ramp: Ramp) -> bool:
    return (
        ramp.height >= LEAST_RISE * ramp.before > 0
        and ramp.height >= LEAST_SIGMAS * ramp.sigma
        and ramp.explained >= LEAST_EXPLAINED
        and ramp.explained > ramp.by_jump
    )


def _cause(view: FindingsView, drift: _Drift) -> DriftCause:
    work = drift.work
    if work is None:
        return find_cause(view, drift.rows, drift.rise_ps)
    more = f" ({work.after / work.before - 1:+.0%})" if work.before else ""
    return DriftCause("more-work", f"a step runs more operations{more}")


def _finding(view: FindingsView, drifts: list[_Drift], by_step: Int64s, total_ps: int) -> Finding:
    worst = max(drifts, key=lambda drift: sum_ps(drift.claimed_ps))
    before_ps, rise_ps = worst.before_ps, worst.rise_ps
    cause = _cause(view, worst)
    half_ps = sum(drift.half_ps for drift in drifts)
    rise = f"from {format_ps(before_ps)} to {format_ps(before_ps + rise_ps)} ({rise_ps / before_ps:+.0%})"
    return Finding(
        code="DRIFT",
        title=f"steps grow {rise}: {cause.text}; it costs {format_ps(total_ps)}, "
        f"{format_ratio(total_ps / view.clock.wall_ps)} of the run",
        claim=Claim("input" if cause.kind == "input" else "excess", by_step),
        low_ps=max(round(total_ps - half_ps), 0),
        high_ps=round(total_ps + half_ps),
        phase=view.phase_of_most(by_step),
        layers=(cause.op,) if cause.op else (),
        remedy=_remedy(view, cause.kind),
        evidence=_evidence(worst, cause),
        confidence="medium" if cause.kind == "unknown" else "high",
        wrong_if="the work is meant to grow with the run (a curriculum, growing batches or sequences)",
    )


def _evidence(drift: _Drift, cause: DriftCause) -> tuple[Evidence, ...]:
    session, n = drift.session, len(drift.rows)
    where = f"where host = {session.host} and attempt = {session.attempt}"
    stretch = max(n // BLOCKS, 1)
    rise = Evidence(
        drift.evidence,
        "steps",
        f"select step // {stretch} as stretch, min(step) as first_step, cast(median(dur_ps) as bigint) as median_ps, "
        f"cast(median(input_ps) as bigint) as input_ps, max(host_rss_bytes) as host_rss_bytes from steps {where} "
        "group by stretch order by stretch",
    )
    if cause.kind not in {"host", "device-slower", "more-work", "op"}:
        return (rise,)
    table = "breakdowns" if cause.kind == "host" else "ops"
    what = "category, avg(wall_ps) as wall_ps" if cause.kind == "host" else "op, avg(self_ps) as self_ps"
    counted = "" if cause.kind == "host" else ", sum(count) as executions"
    query = (
        f'select "window", min(step) as first_step, {what}{counted} from {table} {where} and step is not null '
        f'group by "window", {what.split(",", 1)[0]} order by 3, 1'
    )
    return (rise, Evidence(cause.text, table, query))
