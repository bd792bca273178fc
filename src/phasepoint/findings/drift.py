"""Steps take longer and longer: work or data that grow with the run, or a device that gets slower.

**Formula.** The steps of a session, without evaluation, compiling and steps of another kind, are cut into {STRETCHES}
stretches; a level, a rising ramp and a level are fitted to the stretches' medians. What the ramp lies above the level
at the start is claimed, step by step. What grows is told from the first and the last quarter: waiting for input, the
device's part (more operations, one operation, or all alike: then the device is slower), or the host's part.

**Thresholds.** {LEAST_STEPS} steps. A rise of {LEAST_RISE:.0%}, and of {LEAST_SIGMAS} standard deviations of a
stretch's median: other processes make levels wander by as much as that, but not evenly. The ramp must explain
{LEAST_EXPLAINED:.0%} of the medians' variance, and leave less unexplained than one jump does, which is a change (of
the shape, of the machine's load) and no drift. It is told from {LEAST_SHARE:.0%} of the run's time on.

**Remedy.** Where the host's part grows: look for lists, dictionaries and logs that are gone through every step and
never emptied. Where operations grow in number or one grows: a history, a cache or a graph kept alive (PyTorch:
`loss.detach()`). Where the device is slower: clocks and temperature (`nvidia-smi -q -d CLOCK,PERFORMANCE`), power
limit, cooling, neighbours. Where the wait for input grows: the loader keeps what it has read, or the data's end is
stored worse.

**Wrong when** the work is meant to grow (longer sequences from a curriculum, growing batches).

**Source.** The fit: findings/ramp.py.
"""

from dataclasses import dataclass

import numpy as np

from phasepoint.core.encoding import encode_column
from phasepoint.core.units import format_ps, format_ratio
from phasepoint.findings.drift_cause import DriftCause, find_cause
from phasepoint.findings.finding import Claim, Evidence, Finding, Int64s
from phasepoint.findings.ramp import BLOCKS, Ramp, block_medians, fit_ramp
from phasepoint.findings.view import FindingsView
from phasepoint.phases.clock import SessionClock, sum_ps

STRETCHES = BLOCKS
LEAST_STEPS = 200
LEAST_RISE = 0.05
LEAST_SIGMAS = 5
LEAST_EXPLAINED = 0.9
LEAST_SHARE = 0.02

MODEL_ERROR = 0.1
"""Half width, as a ratio of the claim, of what the form of the fit adds to the interval."""

_OTHER_WORK = ("eval", "compile", "checkpoint")

_REMEDIES = {
    "input": "see what the loader keeps of what it has read, and whether the later files are stored worse; load ahead",
    "host": "look for lists, dictionaries and logs that every step goes through and none empties",
    "more-work": "look for a history or a graph that is kept alive and gone through again (PyTorch: loss.detach())",
    "op": "look at what this operation is given: a cache or a history that grows with the run",
    "device-slower": "watch clocks, temperature, power (nvidia-smi -q -d CLOCK,PERFORMANCE), and what else runs there",
    "unknown": "record with a larger budget, so that windows at both ends show what grows (record(…, budget=0.05))",
}


@dataclass(frozen=True, eq=False)
class _Drift:
    session: SessionClock
    rows: Int64s
    ramp: Ramp
    claimed_ps: Int64s


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
    rows = _alike(view, session)
    if len(rows) < LEAST_STEPS:
        return None
    dur_ps = view.clock.dur_ps[rows]
    ramp = fit_ramp(block_medians(dur_ps))
    if ramp is None or not _is_drift(ramp):
        return None
    claimed_ps = np.minimum(np.rint(ramp.excess(len(rows))).astype(np.int64), dur_ps)
    return _Drift(session, rows, ramp, claimed_ps)


def _alike(view: FindingsView, session: SessionClock) -> Int64s:
    """The session's rows of the kind of step that most of its time went into."""
    names = view.analysis.names
    other = [phase for phase, name in names.items() if name.lower().startswith(_OTHER_WORK)]
    rows = np.flatnonzero(~np.isin(view.labels[session.rows], other)) + session.first_row
    if not len(rows):
        return rows
    code = encode_column(view.table("steps").column("kind"))[0][rows] + 1
    time = np.bincount(code, view.clock.dur_ps[rows].astype(np.float64))
    return np.asarray(rows[code == np.argmax(time)], np.int64)


def _is_drift(ramp: Ramp) -> bool:
    return (
        ramp.height >= LEAST_RISE * ramp.before > 0
        and ramp.height >= LEAST_SIGMAS * ramp.sigma
        and ramp.explained >= LEAST_EXPLAINED
        and ramp.explained > ramp.by_jump
    )


def _half_ps(drift: _Drift) -> float:
    """Half the 95 % interval of a drift's claim: of a line's mean above its start, and of the fit's form."""
    ramp, n = drift.ramp, len(drift.rows)
    slow_noise = np.sqrt((1 + ramp.correlation) / (1 - ramp.correlation))
    return float(1.96 * ramp.sigma * np.sqrt(3 / BLOCKS) * slow_noise * n + MODEL_ERROR * sum_ps(drift.claimed_ps))


def _finding(view: FindingsView, drifts: list[_Drift], by_step: Int64s, total_ps: int) -> Finding:
    worst = max(drifts, key=lambda drift: sum_ps(drift.claimed_ps))
    ramp = worst.ramp
    cause = find_cause(view, worst.rows, ramp.height)
    half_ps = sum(_half_ps(drift) for drift in drifts)
    after = ramp.before + ramp.height
    return Finding(
        code="DRIFT",
        title=f"steps grow from {format_ps(ramp.before)} to {format_ps(after)} ({ramp.height / ramp.before:+.0%}): "
        f"{cause.text}; it costs {format_ps(total_ps)}, {format_ratio(total_ps / view.clock.wall_ps)} of the run",
        claim=Claim("input" if cause.kind == "input" else "excess", by_step),
        low_ps=max(round(total_ps - half_ps), 0),
        high_ps=round(total_ps + half_ps),
        phase=view.phase_of_most(by_step),
        layers=(cause.op,) if cause.op else (),
        remedy=_REMEDIES[cause.kind],
        evidence=_evidence(worst, cause),
        confidence="medium" if cause.kind == "unknown" else "high",
        wrong_if="the work is meant to grow with the run (a curriculum, growing batches or sequences)",
    )


def _evidence(drift: _Drift, cause: DriftCause) -> tuple[Evidence, ...]:
    session, n = drift.session, len(drift.rows)
    where = f"where host = {session.host} and attempt = {session.attempt}"
    stretch = max(n // BLOCKS, 1)
    rise = Evidence(
        f"medians of {BLOCKS} stretches rise; the fit explains {drift.ramp.explained:.0%} of their variance",
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
