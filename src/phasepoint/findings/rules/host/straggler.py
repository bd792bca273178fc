"""One host is late: the others wait for it in every collective.

**Formula.** In a synchronous job the steps of all hosts last equally long, because all wait for the slowest. The
slowest is recognised by its own part of a step: the duration less the wait for others (the time in collectives of the
captured steps). Without the late host, a step would be shorter on every host, by
the difference between its own part and that of the next slowest host. If hosts do not wait for each other (their steps
differ as much as their own parts do), only the steps of the late host would be shorter. If these own parts vary too
much to decide (as on a shared machine), the parts of the latest host's captured steps are compared with the largest
time that another host spends on each part: waiting for input, idle, the host's work vary much less than the whole.

**Thresholds.** {LEAST_RATIO:.0%} of a step: hosts differ by less than that anyway. {STANDARD_ERRORS} standard errors of
the difference. A single part must also agree with the difference of the whole to within {AGREEMENT} standard errors of
the latter, and occur in {LEAST_WINDOWS} windows of each host. Told from {LEAST_SHARE:.0%} of the run's time on.

**Remedy.** Look at the additional work of the late host (named in the title): give it less data, or equal lengths; move
what only rank 0 does (logging, saving, metrics) off the training thread. If its device takes longer for the same work,
check clocks, temperature and other jobs on it, or replace the machine.

**Wrong when** the late host has to do more (the last stage of a pipeline), or collectives overlap with computing, so
that time in a collective is not waiting.

**Source.** The comparison: phases/clock/hosts.py and findings/evidence/host_waits.py.
"""

from dataclasses import dataclass

import numpy as np

from phasepoint.core.units import format_ps, format_ratio
from phasepoint.estimates.captured import PARTS
from phasepoint.findings.evidence.host_waits import OwnTime, own_times
from phasepoint.findings.finding import Claim, Evidence, Finding, Unavailable
from phasepoint.findings.view import FindingsView
from phasepoint.phases.clock.hosts import STRAGGLER_RATIO
from phasepoint.phases.clock.steps import sum_ps
from phasepoint.summary.enough import advise_capture

LEAST_RATIO = STRAGGLER_RATIO
LEAST_SHARE = 0.03
STANDARD_ERRORS = 3
AGREEMENT = 2
LEAST_WINDOWS = 6

_REMEDIES = {
    "input": "its loader is slower: give every host its own shard of equal size, and a loader with as many workers",
    "compute": "its device takes longer: compare what it is given (lengths, batch), its clocks and what else runs",
    "data_movement": "it moves more data: compare what is copied to and from its device",
    "compiling": "it compiles more: give every host batches of the same shapes",
}
_HOST_REMEDY = (
    "its host does something that the others do not: move what only this rank does (logging, saving, metrics) off the "
    "training thread, and see what else runs on that machine"
)


@dataclass(frozen=True)
class _Late:
    """How much a host is late in a step, its standard error, and the part that says so; None for the whole."""

    ps: float
    error_ps: float
    part: str | None = None


def find(view: FindingsView) -> list[Finding]:
    """The latest host, if it is late enough."""
    view.need_steps()
    hosts = len({session.host for session in view.clock.sessions})
    if hosts < 2:
        raise Unavailable(
            "one process was recorded: hosts can be compared only where every rank records into the same run "
            "(start each with the same path)"
        )
    own = sorted(own_times(view), key=lambda host: -host.own_ps)
    if len(own) < 2:
        raise Unavailable(
            f"of {hosts} hosts, the wait for the others is known of {len(own)}: "
            f"{advise_capture(view.analysis.run, view.clock)}, so that every rank captures windows"
        )
    late = _late(own)
    if late is None:
        return []
    claim = _claim(view, own, late.ps)
    if claim.total_ps < LEAST_SHARE * view.clock.wall_ps:
        return []
    return [_finding(view, own, claim, late)]


def _late(own: list[OwnTime]) -> _Late | None:
    """By how much the latest host is late, from the whole of its own part or, where that is not sure, from one part."""
    latest, following = own[0], own[1]
    whole = _Late(latest.own_ps - following.own_ps, float(np.hypot(latest.error_ps, following.error_ps)))
    if _is_late(whole, latest):
        return whole
    if whole.ps <= 0 or min(host.windows for host in own) < LEAST_WINDOWS:
        return None
    parts = [_part(own, index) for index in range(len(PARTS)) if PARTS[index] != "communication"]
    sure = [part for part in parts if _is_late(part, latest) and part.ps <= whole.ps + AGREEMENT * whole.error_ps]
    return max(sure, key=lambda part: part.ps, default=None)


def _part(own: list[OwnTime], index: int) -> _Late:
    """How much more the latest host has of one part than the host that has most of it among the others."""
    most = max(own[1:], key=lambda host: int(host.parts_ps[index]))
    error_ps = float(np.hypot(own[0].parts_error_ps[index], most.parts_error_ps[index]))
    return _Late(float(own[0].parts_ps[index] - most.parts_ps[index]), error_ps, PARTS[index])


def _is_late(late: _Late, host: OwnTime) -> bool:
    return late.ps >= max(LEAST_RATIO * host.dur_ps, STANDARD_ERRORS * late.error_ps, 1.0)


def _claim(view: FindingsView, own: list[OwnTime], late_ps: float) -> Claim:
    """What every step would be shorter by: on all hosts where they wait for each other, else on the late one."""
    clock, latest = view.clock, own[0]
    others_ps = float(np.median([host.dur_ps for host in own[1:]]))
    together = latest.dur_ps - others_ps < late_ps / 2
    mine = np.ones(clock.n_steps, bool) if together else clock.host == latest.host
    by_step = np.where(mine, np.minimum(clock.dur_ps, round(late_ps)), 0)
    return Claim("communication" if together else "excess", by_step)


def _finding(view: FindingsView, own: list[OwnTime], claim: Claim, late: _Late) -> Finding:
    latest, total_ps = own[0], sum_ps(claim.by_step)
    part = late.part or _what_takes_longer(own)
    half_ps = 1.96 * late.error_ps / late.ps * total_ps
    more = f", most of it {part.replace('_', ' ')}" if part else ""
    held = f"{format_ps(total_ps)} on all hosts" if claim.part == "communication" else f"{format_ps(total_ps)} there"
    return Finding(
        code="STRAGGLER",
        title=f"host {latest.host} is late: {format_ps(late.ps)} a step{more}; it costs {held}, "
        f"{format_ratio(total_ps / view.clock.wall_ps)} of the run",
        claim=claim,
        low_ps=max(round(total_ps - half_ps), 0),
        high_ps=round(total_ps + half_ps),
        phase=view.phase_of_most(claim.by_step),
        remedy=_REMEDIES.get(part or "", _HOST_REMEDY),
        evidence=(_evidence(own, late),),
        confidence="high" if late.part is None and late.ps > 3 * STANDARD_ERRORS * late.error_ps else "medium",
        wrong_if="this host has more to do by design, or collectives overlap with computing",
    )


def _evidence(own: list[OwnTime], late: _Late) -> Evidence:
    latest = own[0]
    whole = (
        f"its own part of a step takes {format_ps(latest.own_ps)}, the next slowest host's {format_ps(own[1].own_ps)}"
    )
    waits_ps = float(np.median([host.wait_ps for host in own[1:]]))
    waits = f"the others wait {format_ps(waits_ps)} a step, it {format_ps(latest.wait_ps)}"
    if late.part is not None:
        took, name = format_ps(int(latest.parts_ps[PARTS.index(late.part)])), late.part.replace("_", " ")
        whole = f"of a step {took} are {name}, {format_ps(late.ps)} more than elsewhere"
    return Evidence(
        f"{whole}; {waits}",
        "breakdowns",
        "select host, category, cast(median(wall_ps) as bigint) as wall_ps from breakdowns "
        "group by host, category order by category, host",
    )


def _what_takes_longer(own: list[OwnTime]) -> str | None:
    """The part of which the latest host has most more than the others; None where it has more of none."""
    more_ps = own[0].parts_ps - np.median([host.parts_ps for host in own[1:]], axis=0)
    more_ps[PARTS.index("communication")] = 0
    return PARTS[int(np.argmax(more_ps))] if more_ps.max() > 0 else None
