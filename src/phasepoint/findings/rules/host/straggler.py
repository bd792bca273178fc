"""One host is late: the others wait for it in every collective.

**Formula.** In a synchronous job the steps of all hosts last equally long, because all wait for the slowest. The
slowest is recognised by its own part of a step. The recorder adds up how long the job's thread stands in calls that
wait for the others (PyTorch's backward pass and `Work.wait`, JAX's `block_until_ready` and reading of values), twice a
second, together with how long the process ran and waited for a core (table `machine`). The late host has most time
outside of such calls; or, where its work goes on inside of them, most time running and queueing for a core; or its work
queues much longer than the same work on other hosts: a neighbour has its core. What it has
more than the next latest host is what every step would be shorter by. If the lateness has a beginning or an end, only
the steps from then on, or until then, count.

Where that shows nobody, the captured steps are compared: the duration less the time in collectives. Without the late
host, a step would be shorter on every host, by
the difference between its own part and that of the next slowest host. If hosts do not wait for each other (their steps
differ as much as their own parts do), only the steps of the late host would be shorter, by what they take longer in
the mean. If these own parts vary too
much to decide (as on a shared machine), the parts of the latest host's captured steps are compared with the largest
time that another host spends on each part: waiting for input, idle, the host's work vary much less than the whole.

**Thresholds.** {LEAST_RATIO:.0%} of a step: hosts differ by less than that anyway; {LEAST_BUSY:.0%} where running and
queueing tell, which neighbours on the machine change; {LEAST_CROWDED:.0%} of the time queued beyond what the same work
queues elsewhere. {CLOCK_ERRORS} standard errors of the difference between hosts
second by second, and {STANDARD_ERRORS} of that between captured steps: looks are many, and many changes are tried. A
single part must also agree with the difference of the whole to within {AGREEMENT} standard errors of the latter, and
occur in {LEAST_WINDOWS} windows of each host. Told from {LEAST_SHARE:.0%} of the run's time on.

**Remedy.** Look at the additional work of the late host (named in the title): give it less data, or equal lengths; move
what only rank 0 does (logging, saving, metrics) off the training thread. If its device takes longer for the same work,
check clocks, temperature and other jobs on it, or replace the machine. If it waits for a core, give it one of its own.

**Wrong when** the late host has to do more (the last stage of a pipeline), or collectives overlap with computing, so
that time in a collective is not waiting; or ranks that wait keep their core busy meanwhile (some MPIs).

**Source.** findings/evidence/ranks/rank_clocks.py; of captured steps findings/evidence/ranks/host_waits.py.
"""

from dataclasses import dataclass

import numpy as np

from phasepoint.core.units import format_ps, format_ratio
from phasepoint.estimates.captured import PARTS
from phasepoint.findings.evidence.ranks import rank_clocks
from phasepoint.findings.evidence.ranks.host_waits import OwnTime, own_times
from phasepoint.findings.evidence.ranks.rank_clocks import LateRank, find_late_rank, read_rank_times
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
LEAST_BUSY, CLOCK_ERRORS = rank_clocks.LEAST_BUSY, rank_clocks.STANDARD_ERRORS
LEAST_CROWDED = rank_clocks.LEAST_CROWDED

_REMEDIES = {
    "input": "its loader is slower: give every host its own shard of equal size, and a loader with as many workers",
    "compute": "its device takes longer: compare what it is given (lengths, batch), its clocks and what else runs",
    "data_movement": "it moves more data: compare what is copied to and from its device",
    "compiling": "it compiles more: give every host batches of the same shapes",
    "core": "another program has its core: give each rank cores of its own (taskset, numactl, a cgroup), and see what "
    "else runs on that machine",
}
_HOST_REMEDY = (
    "its host does something that the others do not: move what only this rank does (logging, saving, metrics) off the "
    "training thread, and see what else runs on that machine"
)

_DOES = {
    "input": "waiting for input",
    "compute": "its threads run longer",
    "core": "its threads wait longer for a core",
    "host": "in its own code, outside of what all do together",
}


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
    times = read_rank_times(view)
    late_rank = None if times is None else find_late_rank(times)
    by_clock = None if late_rank is None else _by_clock(view, late_rank)
    return by_clock if by_clock is not None else _by_windows(view, hosts, is_clocked=times is not None)


def _by_clock(view: FindingsView, late: LateRank) -> list[Finding] | None:
    """The late rank as the ranks' own looks show it; None where their steps are not of one length."""
    clock = view.clock
    epochs = {(shard.host, shard.attempt): shard.session.epoch_unix_ns for shard in view.analysis.run.shards}
    later_ps = np.zeros(clock.n_steps, np.int64)
    for session in clock.sessions:
        later_ps[session.rows] = (epochs[session.host, session.attempt] - min(epochs.values())) * 1000
    at_ps = clock.start_ps + later_ps
    first_ps, last_ps = (at_ps.min() if late.first_ps is None else late.first_ps, late.last_ps or at_ps.max())
    inside = (at_ps >= first_ps) & (at_ps <= last_ps)
    mine = clock.host == late.host
    usual_ps = [
        float(np.median(clock.dur_ps[inside & side])) if (inside & side).any() else 0.0 for side in (mine, ~mine)
    ]
    if abs(usual_ps[0] - usual_ps[1]) > late.share / 2 * max(usual_ps):
        return None
    by_step = np.where(inside, late.share * clock.dur_ps, 0).astype(np.int64)
    total_ps = sum_ps(by_step)
    if total_ps < LEAST_SHARE * clock.wall_ps:
        return []
    steps, late_ps = clock.step[inside & mine], format_ps(round(late.share * usual_ps[0]))
    when = "" if late.first_ps is None else f" from step {steps.min()} on"
    when = when if late.last_ps is None else f" until step {steps.max()}"
    return [
        _finding(
            view,
            Claim("late", by_step),
            _Told(
                f"host {late.host} is late: {late_ps} a step{when}, {_DOES[late.part]}",
                _REMEDIES.get(late.part, _HOST_REMEDY),
                _looks(late),
                late.error / late.share,
                "high",
            ),
        )
    ]


def _looks(late: LateRank) -> Evidence:
    others, own = (format_ratio(wait) for wait in late.waits)
    return Evidence(
        f"the others stand in calls that wait for {others} of the time, host {late.host} for {own}",
        "machine",
        "select host, sum(sync_ps) / sum(dur_ps) as waits, sum(run_ps) / sum(dur_ps) as runs, "
        "sum(wait_ps) / sum(dur_ps) as queues from machine group by host order by host",
    )


def _by_windows(view: FindingsView, hosts: int, *, is_clocked: bool) -> list[Finding]:
    """The late host as the captured steps show it."""
    own = sorted(own_times(view), key=lambda host: -host.own_ps)
    devices = [device for shard in view.analysis.run.shards for device in shard.session.devices]
    few = len(own) < hosts or min(host.windows for host in own) < LEAST_WINDOWS
    if few and is_clocked and all(device.startswith("cpu") for device in devices):
        return []  # ranks wait for each other in the host's calls alone, and every second of them was seen
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
    part = late.part or _what_takes_longer(own)
    more = f", most of it {part.replace('_', ' ')}" if part else ""
    told = _Told(
        f"host {own[0].host} is late: {format_ps(int(claim.by_step.max()))} a step{more}",
        _REMEDIES.get(part or "", _HOST_REMEDY),
        _evidence(own, late),
        late.error_ps / late.ps,
        "high" if late.part is None and late.ps > 3 * STANDARD_ERRORS * late.error_ps else "medium",
    )
    return [_finding(view, claim, told)]


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
    """What every step would be shorter by: on all hosts where they wait for each other, else on the late one.

    One that nobody waits for loses no more than its mean step takes longer: its median may stand among more long steps.
    """
    clock, latest = view.clock, own[0]
    others_ps = float(np.median([host.dur_ps for host in own[1:]]))
    if latest.dur_ps - others_ps < late_ps / 2:
        return Claim("late", np.minimum(clock.dur_ps, round(late_ps)))
    means_ps = [float(clock.dur_ps[clock.host == host.host].mean()) for host in own]
    excess_ps = min(late_ps, means_ps[0] - float(np.median(means_ps[1:])))
    mine = (clock.host == latest.host) & (excess_ps >= LEAST_RATIO * means_ps[0])
    return Claim("excess", np.where(mine, np.minimum(clock.dur_ps, round(excess_ps)), 0))


@dataclass(frozen=True)
class _Told:
    """What is said of a late host; `error` is the standard error of its lateness, as a ratio of it."""

    title: str
    remedy: str
    evidence: Evidence
    error: float
    confidence: str


def _finding(view: FindingsView, claim: Claim, told: _Told) -> Finding:
    total_ps = sum_ps(claim.by_step)
    half_ps = 1.96 * told.error * total_ps
    held = f"{format_ps(total_ps)} on all hosts" if claim.part == "late" else f"{format_ps(total_ps)} there"
    return Finding(
        code="STRAGGLER",
        title=f"{told.title}; it costs {held}, {format_ratio(total_ps / view.clock.wall_ps)} of the run",
        claim=claim,
        low_ps=max(round(total_ps - half_ps), 0),
        high_ps=round(total_ps + half_ps),
        phase=view.phase_of_most(claim.by_step),
        remedy=told.remedy,
        evidence=(told.evidence,),
        confidence=told.confidence,
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
