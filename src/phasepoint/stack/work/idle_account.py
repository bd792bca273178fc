"""Why devices were idle in a run of which every step was captured: each idle stretch by what ended it.

What ends an idle stretch is an execution. The trace says which call launched it, on which thread, and what that thread
was in until then (stack/shard/idle_gaps.py). From that:

- **input**: the next batch was made or waited for;
- **start**: the stretch before a device's first execution, where it is so long that a process starts in it;
- **held**: an op or call in which the host stands still for 1 ms or more: it loads, allocates, copies, searches;
- **own**: at least 100 µs in nothing that the profiler sees, on no thread;
- **sync**: the rest of a stretch that began while the thread waited for the device: the queue had run empty;
- **dispatch**: the rest until the launch arrives: the framework and Python between launches, and the launches;
- **queue**: at least 100 µs for which the work was launched and did not begin;
- **between**: less than that: the device goes from one execution to the next;
- **end**: after the last execution;
- **unknown**: the launch is not in the trace.

Of several devices the mean is taken, as in the breakdown of a step.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
import pyarrow as pa

from phasepoint.core.arrays import Bools, Int64s
from phasepoint.core.intervals import IntervalSet, covered_ps, intersect, overlaps, union
from phasepoint.core.units import PS_PER_MS, PS_PER_US, format_ratio
from phasepoint.estimates.captured import PARTS
from phasepoint.phases.clock.steps import sum_ps
from phasepoint.stack.shard.executions import Executions, read_executions
from phasepoint.stack.shard.hierarchy import NONE
from phasepoint.stack.shard.host_activity import HostSide, read_host
from phasepoint.stack.shard.idle_gaps import (
    BETWEEN,
    CAUSES,
    DEPENDENCY,
    HOST,
    INPUT,
    LATENCY,
    LAUNCHING,
    SYNC,
    UNKNOWN,
    IdleGaps,
    IdleParts,
    find_gaps,
    split_gaps,
)
from phasepoint.stack.shard.shard import StackShard

WHY = ("input", "start", "held", "own", "sync", "dispatch", "queue", "between", "end", "unknown")
"""Reasons, in the order of the columns of `IdleAccount.idle_ps`."""
_INPUT, _START, _HELD, _OWN, _SYNC, _DISPATCH, _QUEUE, _BETWEEN, _END, _UNKNOWN = range(len(WHY))

START_PS = 100 * PS_PER_MS
"""A process that begins takes at least so long before its first kernel: a context of CUDA alone 0.1 to 1 s."""
HELD_PS = PS_PER_MS
"""A call with no call inside takes 1 to 100 µs, with Python's frames recorded (traces of A100 to B200 and MI210 to
MI300, November 2026); what stays in one for 1 ms waits for something."""
OWN_PS = 100 * PS_PER_US
"""Python between two launches takes 5 to 50 µs."""
SLACK_PS = 20 * PS_PER_US
"""By so much a wait may begin after the device is seen to be idle: clocks of two threads."""
LATE_PS = 100 * PS_PER_US
"""A launch arrives within 2 to 15 µs (docs/device-time.md), that of a graph within 100 µs."""

FEW_LAUNCHES = 20
"""Launches of a step that any step has to make."""

_BY_CAUSE = {INPUT: _INPUT, SYNC: _SYNC, DEPENDENCY: _BETWEEN, BETWEEN: _BETWEEN, UNKNOWN: _UNKNOWN}
_SIMPLE = np.array([_BY_CAUSE.get(cause, _DISPATCH) for cause in range(len(CAUSES))])
"""Reason by cause, before sums over a stretch are looked at."""


@dataclass(frozen=True, eq=False)
class IdleAccount:
    """The captured steps of the sessions in which an accelerator worked, `[n]` each.

    Attributes:
        row: rows of the clock.
        busy_ps: the devices worked.
        communication_ps: of that, in communication that no computing hides.
        movement_ps: of that, moving data and nothing else.
        idle_ps: `[n, len(WHY)]` why they did not; with `busy_ps` it adds up to the step's time.
        overlap_ps: waits for the device while it worked: what the host could have done meanwhile.
        waits: calls that waited for the device.
        launches: launches for which the device had to wait.
        executions: on all devices.
        during: reason → what went on meanwhile, and how long in all, the longest first; names as the trace has them.
    """

    row: Int64s
    busy_ps: Int64s
    communication_ps: Int64s
    movement_ps: Int64s
    idle_ps: Int64s
    overlap_ps: Int64s
    waits: Int64s
    launches: Int64s
    executions: Int64s
    during: Mapping[str, tuple[tuple[str, int], ...]]

    def of(self, *why: str) -> Int64s:
        """`[n]` time of some reasons together."""
        return np.asarray(self.idle_ps[:, [WHY.index(name) for name in why]].sum(axis=1), np.int64)

    @property
    def sync_ps(self) -> Int64s:
        """`[n]` what each step would win without its waits: of host and device side by side the longer one counts."""
        return np.minimum(self.of("sync"), self.overlap_ps)

    @property
    def has_few_launches(self) -> bool:
        """Whether the device waits for so few launches in the usual step that launching is not the matter."""
        return float(np.median(self.launches)) < FEW_LAUNCHES

    @property
    def unexplained(self) -> tuple[str, ...]:
        """Reasons that no rule but DEVICE-IDLE accounts for."""
        few = ("dispatch",) if self.has_few_launches else ()
        return ("start", "held", "own", "queue", "end", "unknown", *few)

    @property
    def busy_text(self) -> str:
        """`the device is busy for 15.1 % of the step`; with what it is busy with where that is no computing."""
        busy_ps = sum_ps(self.busy_ps)
        ratio = busy_ps / max(busy_ps + int(self.idle_ps.sum()), 1)
        most = [
            words
            for ps, words in ((self.communication_ps, "in collectives"), (self.movement_ps, "copying"))
            if 2 * sum_ps(ps) > busy_ps
        ]
        of = "the step" if len(self.row) == 1 else "its steps"
        return f"the device is busy for {format_ratio(ratio)} of {of}{f', mostly {most[0]}' if most else ''}"


_OF_STEPS = [f.name for f in fields(IdleAccount) if f.name != "during"]


def join_accounts(found: Sequence[IdleAccount]) -> IdleAccount | None:
    """Those of several shards as one; None of none."""
    if not found:
        return None
    joined = {name: np.concatenate([getattr(one, name) for one in found]) for name in _OF_STEPS}
    sums = _Sums()
    for one in found:
        for why, names in one.during.items():
            for name, ps in names:
                sums.add(why, name, ps)
    return IdleAccount(**joined, during=sums.longest_first())


class _Sums(dict[str, dict[str, int]]):
    """Reason → name → time."""

    def add(self, why: str, name: str, ps: int) -> None:
        of_why = self.setdefault(why, {})
        of_why[name] = of_why.get(name, 0) + ps

    def longest_first(self) -> Mapping[str, tuple[tuple[str, int], ...]]:
        return {why: tuple(sorted(self.get(why, {}).items(), key=lambda item: (-item[1], item[0]))) for why in WHY}


def account_idle(shard: StackShard, row: Int64s, start_ps: Int64s, parts_ps: Int64s) -> IdleAccount | None:
    """The account of a shard; None where no accelerator worked.

    Args:
        shard: whose events were all kept.
        row: `[n]` rows of the clock: all steps of the shard, in order.
        start_ps: `[n]` when each began.
        parts_ps: `[n, len(PARTS)]` what the time of each went into.
    """
    executions, names = shard.once(read_executions), shard.table("spans")["name"].cast(pa.string())
    devices = [device for device in executions.devices if not device.startswith("cpu:")]
    if not devices:
        return None
    host = shard.once(read_host)
    dur_ps = parts_ps.sum(axis=1)
    steps = IntervalSet(start_ps, start_ps + dur_ps)
    found = [_of_device(executions.of(device), host, steps) for device in devices]
    idle_ps = sum((one.idle_ps for one in found), np.zeros((len(dur_ps), len(WHY)), np.int64)) // len(devices)
    waits = np.flatnonzero(host.naming.waits)
    waiting = union(host.start_ps[waits], host.end_ps[waits])
    work = union(executions.start_ps, executions.end_ps)
    sums = _Sums()
    for one in found:
        for (why, span), ps in one.during.items():
            sums.add(WHY[why], names[span].as_py(), ps // len(devices))
    return IdleAccount(
        row=row,
        busy_ps=dur_ps - idle_ps.sum(axis=1),
        communication_ps=parts_ps[:, PARTS.index("communication")],
        movement_ps=parts_ps[:, PARTS.index("data_movement")],
        idle_ps=idle_ps,
        overlap_ps=covered_ps(intersect(waiting, work), steps.start_ps, steps.end_ps),
        waits=_count(host.start_ps[waits], steps),
        launches=sum((one.launches for one in found), np.zeros(len(dur_ps), np.int64)),
        executions=_count(executions.start_ps, steps),
        during=sums.longest_first(),
    )


def _count(at_ps: Int64s, steps: IntervalSet) -> Int64s:
    """`[n_steps]` how many of some instants lie in each step."""
    at_ps = np.sort(at_ps)
    return np.searchsorted(at_ps, steps.end_ps) - np.searchsorted(at_ps, steps.start_ps)


@dataclass(frozen=True, eq=False)
class _DeviceIdle:
    """One device: idle time by step and reason, launches it waited for, time by reason and row of `spans`."""

    idle_ps: Int64s
    launches: Int64s
    during: Mapping[tuple[int, int], int]


def _of_device(mine: Executions, host: HostSide, steps: IntervalSet) -> _DeviceIdle:
    low_ps, high_ps, last_ps = int(steps.start_ps[0]), int(steps.end_ps.max()), int(mine.end_ps.max())
    gaps = find_gaps(mine, from_ps=min(low_ps, int(mine.start_ps.min())))
    parts = split_gaps(gaps, mine, host, host.told_to_wait(mine.launch[mine.launch != NONE]))
    why = _why(gaps, parts, host)
    if last_ps < high_ps:
        tail = IdleParts(*(np.array([value]) for value in (len(gaps.start_ps), UNKNOWN, NONE, last_ps, high_ps)))
        parts = IdleParts(*(np.append(getattr(parts, f.name), getattr(tail, f.name)) for f in fields(IdleParts)))
        why = np.append(why, _END)
    order = np.argsort(parts.start_ps, kind="stable")
    part, step, common = overlaps(IntervalSet(parts.start_ps[order], parts.end_ps[order]), steps)
    part, lasts = order[part], common.end_ps - common.start_ps
    idle_ps = np.zeros((len(steps.start_ps), len(WHY)), np.int64)
    np.add.at(idle_ps, (step, why[part]), lasts)
    late = why[part] == _DISPATCH
    pairs = np.unique(np.column_stack([step[late], parts.gap[part[late]]]), axis=0)
    named = parts.during[part] != NONE
    during: dict[tuple[int, int], int] = {}
    for key, row, ps in zip(*(a[named].tolist() for a in (why[part], parts.during[part], lasts)), strict=True):
        during[key, row] = during.get((key, row), 0) + ps
    return _DeviceIdle(idle_ps, np.bincount(pairs[:, 0], minlength=len(steps.start_ps)), during)


def _why(gaps: IdleGaps, parts: IdleParts, host: HostSide) -> Int64s:
    """`[n_parts]` the reason of each part."""
    why = _SIMPLE[parts.cause]
    if not len(gaps.start_ps):
        return why
    on_host = (parts.cause == HOST) | (parts.cause == LAUNCHING)
    lasts = _longest_in_op(parts, on_host)
    synced = parts.gap[(parts.cause == SYNC) & (parts.start_ps <= gaps.start_ps[parts.gap] + SLACK_PS)]
    why[np.isin(parts.gap, synced) & (why == _DISPATCH)] = _SYNC
    why[np.isin(parts.cause, (LATENCY, DEPENDENCY, BETWEEN)) & (parts.dur_ps >= LATE_PS)] = _QUEUE
    silent = np.flatnonzero(on_host & (parts.during == NONE) & (lasts >= OWN_PS))
    why[silent[2 * covered_ps(_at_work(host), parts.start_ps[silent], parts.end_ps[silent]) < lasts[silent]]] = _OWN
    why[on_host & (parts.during != NONE) & (lasts >= HELD_PS)] = _HELD
    first = (parts.gap == 0) & (gaps.end_ps[0] - gaps.start_ps[0] >= START_PS)
    why[first & (why != _INPUT)] = _START
    return why


def _at_work(host: HostSide) -> IntervalSet:
    """When any thread of the host was in a call and did not stand still: it may work for the one that launches."""
    works = ~host.naming.idles[host.activity.row]
    return union(host.activity.times.start_ps[works], host.activity.times.end_ps[works])


def _longest_in_op(parts: IdleParts, on_host: Bools) -> Int64s:
    """`[n_parts]` the longest part of its stretch in which the host was in the same op, or in nothing; 0 elsewhere."""
    longest = np.zeros(len(parts.gap), np.int64)
    ops, number = np.unique(np.column_stack([parts.gap, parts.during])[on_host], axis=0, return_inverse=True)
    of_op = np.zeros(len(ops), np.int64)
    np.maximum.at(of_op, number.ravel(), parts.dur_ps[on_host])
    longest[on_host] = of_op[number.ravel()]
    return longest
