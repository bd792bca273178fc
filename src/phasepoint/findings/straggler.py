"""One host is late: the others wait for it in every collective.

**Formula.** In a synchronous job all hosts' steps last equally long, since all wait for the slowest. What tells it
apart is its own part of a step: the duration less the wait for others (`sync_ps` of the step clock, else the time in
collectives of the captured steps). Without the late host, a step would be shorter by what its own part exceeds the
next slowest host's, on every host. Where hosts do not wait for each other (their steps differ as much as their own
parts do), only its own steps would be.

**Thresholds.** {LEAST_RATIO:.0%} of a step: hosts differ by less than that anyway. Three standard errors of the
difference. Told from {LEAST_SHARE:.0%} of the run's time on.

**Remedy.** Look at what the late host does more (the title says it): give it less data, or equal lengths; move what
only rank 0 does (logging, saving, metrics) off the training thread. Where its device takes longer for the same work:
clocks, temperature, other jobs on it; exchange the machine.

**Wrong when** the late host has to do more (the last stage of a pipeline), or collectives overlap with computing, so
that time in a collective is no wait.

**Source.** The comparison: phases/hosts.py and findings/host_waits.py.
"""

import numpy as np

from phasepoint.core.units import format_ps, format_ratio
from phasepoint.findings.finding import Claim, Evidence, Finding, Unavailable
from phasepoint.findings.host_waits import OwnTime, own_times
from phasepoint.findings.view import FindingsView
from phasepoint.phases.captured import PARTS
from phasepoint.phases.clock import sum_ps
from phasepoint.phases.hosts import STRAGGLER_RATIO

LEAST_RATIO = STRAGGLER_RATIO
LEAST_SHARE = 0.03
STANDARD_ERRORS = 3

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


def find(view: FindingsView) -> list[Finding]:
    """The latest host, if it is late enough."""
    view.need_steps()
    hosts = len({session.host for session in view.clock.sessions})
    if hosts < 2:
        raise Unavailable(
            "one host was recorded: hosts can be compared only where every rank records into the same run "
            "(start each with the same path)"
        )
    own = sorted(own_times(view), key=lambda host: -host.own_ps)
    if len(own) < 2:
        raise Unavailable(
            f"of {hosts} hosts, the wait for the others is known of {len(own)}: record for longer, or with a larger "
            "budget (record(…, budget=0.05)), so that every rank captures windows"
        )
    latest, following = own[0], own[1]
    late_ps = latest.own_ps - following.own_ps
    error_ps = float(np.hypot(latest.error_ps, following.error_ps))
    if late_ps < max(LEAST_RATIO * latest.dur_ps, STANDARD_ERRORS * error_ps, 1.0):
        return []
    claim = _claim(view, own, late_ps)
    if claim.total_ps < LEAST_SHARE * view.clock.wall_ps:
        return []
    return [_finding(view, own, claim, (late_ps, error_ps))]


def _claim(view: FindingsView, own: list[OwnTime], late_ps: float) -> Claim:
    """What every step would be shorter by: on all hosts where they wait for each other, else on the late one."""
    clock, latest = view.clock, own[0]
    others_ps = float(np.median([host.dur_ps for host in own[1:]]))
    together = latest.dur_ps - others_ps < late_ps / 2
    mine = np.ones(clock.n_steps, bool) if together else clock.host == latest.host
    by_step = np.where(mine, np.minimum(clock.dur_ps, round(late_ps)), 0)
    return Claim("communication" if together else "excess", by_step)


def _finding(view: FindingsView, own: list[OwnTime], claim: Claim, late: tuple[float, float]) -> Finding:
    latest, (late_ps, error_ps) = own[0], late
    total_ps = sum_ps(claim.by_step)
    part = _what_takes_longer(own)
    half_ps = 1.96 * error_ps / late_ps * total_ps
    more = f", most of it {part.replace('_', ' ')}" if part else ""
    waits_ps = float(np.median([host.wait_ps for host in own[1:]]))
    held = f"{format_ps(total_ps)} on all hosts" if claim.part == "communication" else f"{format_ps(total_ps)} there"
    return Finding(
        code="STRAGGLER",
        title=f"host {latest.host} is late: {format_ps(late_ps)} a step{more}; it costs {held}, "
        f"{format_ratio(total_ps / view.clock.wall_ps)} of the run",
        claim=claim,
        low_ps=max(round(total_ps - half_ps), 0),
        high_ps=round(total_ps + half_ps),
        phase=view.phase_of_most(claim.by_step),
        remedy=_REMEDIES.get(part or "", _HOST_REMEDY),
        evidence=(
            Evidence(
                f"its own part of a step takes {format_ps(latest.own_ps)}, the next slowest host's "
                f"{format_ps(own[1].own_ps)}; the others wait {format_ps(waits_ps)} a step, it "
                f"{format_ps(latest.wait_ps)}",
                "breakdowns",
                "select host, category, cast(median(wall_ps) as bigint) as wall_ps from breakdowns "
                "group by host, category order by category, host",
            )
            if latest.parts_ps.any()
            else Evidence(
                f"its own part of a step takes {format_ps(latest.own_ps)}, the next slowest host's "
                f"{format_ps(own[1].own_ps)}",
                "steps",
                "select host, cast(median(dur_ps - sync_ps) as bigint) as own_ps from steps "
                "group by host order by host",
            ),
        ),
        confidence="high" if late_ps > 3 * STANDARD_ERRORS * error_ps else "medium",
        wrong_if="this host has more to do by design, or collectives overlap with computing",
    )


def _what_takes_longer(own: list[OwnTime]) -> str | None:
    """The part of which the latest host has most more than the others; None where nothing was captured."""
    if not own[0].parts_ps.any():
        return None
    more_ps = own[0].parts_ps - np.median([host.parts_ps for host in own[1:]], axis=0)
    more_ps[PARTS.index("communication")] = 0
    return PARTS[int(np.argmax(more_ps))] if more_ps.max() > 0 else None
