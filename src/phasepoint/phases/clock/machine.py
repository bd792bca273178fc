"""How the machine treated each step: the time for which the job waited for cores that other programs had, and lost; and
the time for which a limit on its CPU time held it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np
import pyarrow as pa

from phasepoint.core.arrays import Floats, Int64s
from phasepoint.core.units import PS_PER_S
from phasepoint.phases.clock.steps import RunClock, SessionClock, read_numbers
from phasepoint.store import Shard

MOST_LOST = 1.15
"""Upper end of what is lost, as a ratio of it: calm steps themselves wander by as much (2 cores, 2026-11-24). The lower
end is the time that the threads waited, which is measured."""


@dataclass(frozen=True, eq=False)
class CrowdedTime:
    """Time of each step without cores, `[n_steps]` ps each.

    Attributes:
        ps: for which the job's threads waited for cores that others had, or were held.
        held_ps: of that, for which a limit on the CPU time of the job's container or control group held them.
        stolen_ps: of that, for which a hypervisor gave the cores to other machines.
    """

    ps: Int64s
    held_ps: Int64s
    stolen_ps: Int64s


@dataclass(frozen=True, eq=False)
class MachineLoss:
    """What other programs on the machine, or a limit, made each step longer by, `[n_steps]` ps each.

    Attributes:
        ps: what it lasted beyond the calm steps around it; what the limit held, where that is more than others took.
        least_ps: lower end: what of it its threads are known to have waited for cores.
        most_ps: upper end.
    """

    ps: Int64s
    least_ps: Int64s
    most_ps: Int64s


def machine_loss(clock: RunClock, lost: Floats, crowded: CrowdedTime) -> MachineLoss:
    """The loss of each step.

    Args:
        clock: the run's steps.
        lost: `[n_steps]` part of each, as `PhaseResult.lost`.
        crowded: as `crowded_time` gives it.
    """
    is_held = 2 * crowded.held_ps > crowded.ps
    lost_ps = np.where(is_held, crowded.held_ps, (lost * clock.dur_ps).astype(np.int64))
    most_ps = np.asarray(np.minimum(MOST_LOST * lost_ps, clock.dur_ps), np.int64)
    return MachineLoss(lost_ps, np.minimum(crowded.ps, lost_ps), most_ps)


def crowded_time(clock: RunClock, machine: pa.Table, shards: Sequence[Shard]) -> CrowdedTime | None:
    """Time of each step for which the job's threads waited for cores that others had, or were held by a limit.

    Of the stretch between two looks at the machine, the smaller of two parts counts: the threads' waiting, of their
    waiting and running; what other programs ran, of what they and the job ran. A job that starts more threads than
    there are cores waits for itself; a neighbour on another core holds up nobody. Ranks of the job on the same
    machine are no others; other machines are, to which a hypervisor gave its cores (steal). Threads that a limit holds
    count as waiting, to the kernel, but for the limit.

    Args:
        clock: the run's steps.
        machine: `Run.table("machine")`.
        shards: of the run, for the machines' names and the sessions' epochs.

    Returns:
        None where the run does not know it of any step.
    """
    looks = [mine for mine in _read_looks(clock, machine, shards) if not mine.is_empty] if clock.n_steps else []
    parts_ps = np.zeros((3, clock.n_steps), np.int64)
    for mine in looks:
        rows = mine.session.rows
        parts_ps[:, rows] = mine.crowded(clock.start_ps[rows], clock.dur_ps[rows])
    return CrowdedTime(*parts_ps) if looks else None


@dataclass(frozen=True, eq=False)
class MachineLooks:
    """A session's machine between looks at it, `[n_looks]` each, in order; NaN is not known.

    Attributes:
        start_ps: from the session's epoch.
        dur_ps: up to the next look.
        waiting: part of its threads' time, waiting and running, in which they waited for a core.
        crowded: the part of it in which other programs had the cores.
        held: the part of it in which a limit on the job's CPU time held them.
        speed: of the core on which a fixed piece of work ran, as a ratio of the fastest tenth of the session's looks.
    """

    start_ps: Int64s
    dur_ps: Int64s
    waiting: Floats
    crowded: Floats
    held: Floats
    speed: Floats


def machine_looks(
    clock: RunClock, machine: pa.Table, shards: Sequence[Shard]
) -> Iterator[tuple[SessionClock, MachineLooks]]:
    """What each session's looks at its machine saw, of those that have some. Arguments as of `crowded_time`."""
    for mine in _read_looks(clock, machine, shards):
        rows = mine.rows
        probe_ps = read_numbers(rows, "probe_ps").astype(np.float64)
        probe_ps[probe_ps <= 0] = np.nan
        known = probe_ps[~np.isnan(probe_ps)]
        fastest_ps = np.quantile(known, _FASTEST) if len(known) else np.nan
        start_ps, dur_ps = (read_numbers(rows, name) for name in ("start_ps", "dur_ps"))
        speed = np.minimum(fastest_ps / probe_ps, 1.0)
        yield mine.session, MachineLooks(start_ps, dur_ps, *_shares(*mine.parts()), speed)


_FASTEST = 0.1
"""Quantile of the probe's times that stands for full speed: single ones are short by the clock's own ticks."""


def _read_looks(clock: RunClock, machine: pa.Table, shards: Sequence[Shard]) -> list["_Looks"]:
    """The looks of each session that has some; what ranks on the same machine ran is taken from what others ran."""
    looks = [_Looks(session, rows) for session, rows in zip(clock.sessions, clock.split(machine), strict=True)]
    sessions = {(shard.host, shard.attempt): shard.session for shard in shards}
    together: dict[str, list[tuple[_Looks, int]]] = {}
    for mine in looks:
        if not mine.is_empty:
            told = sessions[mine.session.host, mine.session.attempt]
            together.setdefault(told.owner.hostname, []).append((mine, told.epoch_unix_ns))
    for ranks in together.values():
        for (mine, epoch_ns), (theirs, other_ns) in permutations(ranks, 2):
            mine.leave_out(theirs, (epoch_ns - other_ns) * 1000)
    return [mine for mine in looks if mine.rows.num_rows]


_BEYOND_PS = float(10 * PS_PER_S)
"""Time before the first look and after the last one for which these stand."""


_TOTALS = ("run_ps", "wait_ps", "others_ps", "throttled_ps", "steal_ps")


class _Looks:
    """The looks of one session at its machine, as totals over time."""

    def __init__(self, session: SessionClock, rows: pa.Table) -> None:
        self.session = session
        self.rows = rows
        known = [name for name in _TOTALS if rows.column(name).null_count < rows.num_rows]
        self.is_empty = not rows.num_rows or "run_ps" not in known or "others_ps" not in known
        start, dur = (read_numbers(rows, name).astype(np.float64) for name in ("start_ps", "dur_ps"))
        longer = np.ones(rows.num_rows)
        if rows.num_rows:  # before the first look and after the last one it was as at that look
            start[0] -= _BEYOND_PS
            longer[0] += _BEYOND_PS / max(dur[0], 1.0)
            longer[-1] += _BEYOND_PS / max(dur[-1], 1.0)
        self._at = np.concatenate((start[:1], start + dur * longer))
        self._added: Mapping[str, Floats] = {name: longer * read_numbers(rows, name) for name in known}
        none = np.zeros(rows.num_rows)
        self._others = self._added.get("others_ps", none)
        self._stolen, self._throttled = (self._added.get(name, none) for name in ("steal_ps", "throttled_ps"))

    def leave_out(self, other: "_Looks", later_ps: int) -> None:
        """Take what another rank ran out of what others ran; this session began so much later."""
        ran = np.interp(self._at + later_ps, other._at, _running(other._added["run_ps"]))
        self._others = np.maximum(self._others - np.diff(ran), 0.0)

    def crowded(self, start_ps: Int64s, dur_ps: Int64s) -> Int64s:
        """Of steps `[n]`, crowded time, what of it a limit held, and what other machines had, `[3, n]`."""
        ends = start_ps.astype(np.float64), (start_ps + dur_ps).astype(np.float64)
        ran, waited, others, throttled = (self._sum(part, ends) for part in self.parts())
        _, taken, held = _shares(ran, waited, others, throttled)
        held_ps = np.minimum(throttled, held * dur_ps)  # it is of all cores
        stolen = self._sum(self._stolen, ends) / np.maximum(others, 1.0)
        crowded_ps = np.minimum(taken * dur_ps + held_ps, dur_ps)
        return np.stack((crowded_ps, held_ps, (crowded_ps - held_ps) * stolen)).astype(np.int64)

    def parts(self) -> tuple[Floats, Floats, Floats, Floats]:
        """Of each look, as `_shares` takes them. Other machines are others, and the job's wait for them is added."""
        nothing = np.full(self.rows.num_rows, np.nan)
        ran, waited = (self._added.get(name, nothing) for name in ("run_ps", "wait_ps"))
        others = nothing if self.is_empty else self._others
        from_job = self._stolen * ran / np.maximum(ran + np.nan_to_num(others), 1.0)
        return ran, waited + from_job, others + self._stolen, self._throttled

    def _sum(self, added: Floats, ends: tuple[Floats, Floats]) -> Floats:
        total = _running(added)
        return np.asarray(np.interp(ends[1], self._at, total) - np.interp(ends[0], self._at, total))


def _shares(ran: Floats, waited: Floats, others: Floats, throttled: Floats) -> tuple[Floats, Floats, Floats]:
    """Parts of the threads' time: waited, of that while other programs had the cores, of that held by a limit, which
    the kernel counts as waiting. NaN is not known.
    """
    free = np.maximum(waited - throttled, 0.0)
    total = np.maximum(ran + throttled + np.nan_to_num(free), 1.0)
    taken = np.fmin(free / total, others / np.maximum(others + ran, 1.0))
    return (free + throttled) / total, np.where(np.isnan(others), np.nan, taken), throttled / total


def _running(added: Floats) -> Floats:
    """The total so far, at the beginning and at the end of each look, `[n_looks + 1]`."""
    return np.concatenate(([0.0], np.cumsum(added)))
