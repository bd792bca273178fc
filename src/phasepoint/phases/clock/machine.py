"""How the machine treated each step: the time for which the job waited for cores that other programs had, and lost."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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
class MachineLoss:
    """What other programs on the machine made each step longer by, `[n_steps]` ps each.

    Attributes:
        ps: what it lasted beyond the calm steps around it.
        least_ps: lower end: what of it its threads are known to have waited for cores.
        most_ps: upper end.
    """

    ps: Int64s
    least_ps: Int64s
    most_ps: Int64s


def machine_loss(clock: RunClock, lost: Floats, crowded_ps: Int64s) -> MachineLoss:
    """The loss of each step.

    Args:
        clock: the run's steps.
        lost: `[n_steps]` part of each, as `PhaseResult.lost`.
        crowded_ps: as `crowded_time` gives it.
    """
    lost_ps = np.asarray(lost * clock.dur_ps, np.int64)
    most_ps = np.asarray(np.minimum(MOST_LOST * lost_ps, clock.dur_ps), np.int64)
    return MachineLoss(lost_ps, np.minimum(crowded_ps, lost_ps), most_ps)


def crowded_time(clock: RunClock, machine: pa.Table, shards: Sequence[Shard]) -> Int64s | None:
    """Time of each step `[n_steps]`, in ps, for which the job's threads waited for cores that others had.

    Of the stretch between two looks at the machine, the smaller of two parts counts: the threads' waiting, of their
    waiting and running; what other programs ran, of what they and the job ran. A job that starts more threads than
    there are cores waits for itself; a neighbour on another core holds up nobody. Ranks of the job on the same
    machine are no others.

    Args:
        clock: the run's steps.
        machine: `Run.table("machine")`.
        shards: of the run, for the machines' names and the sessions' epochs.

    Returns:
        None where the run does not know it of any step.
    """
    if not machine.num_rows or not clock.n_steps:
        return None
    looks = [_Looks(session, rows) for session, rows in zip(clock.sessions, clock.split(machine), strict=True)]
    sessions = {(shard.host, shard.attempt): shard.session for shard in shards}
    together: dict[str, list[tuple[_Looks, int]]] = {}
    for mine in looks:
        if not mine.is_empty:
            told = sessions[mine.session.host, mine.session.attempt]
            together.setdefault(told.owner.hostname, []).append((mine, told.epoch_unix_ns))
    result = np.zeros(clock.n_steps, np.int64)
    for ranks in together.values():
        for mine, epoch_ns in ranks:
            for theirs, other_ns in ranks:
                if theirs is not mine:
                    mine.leave_out(theirs, (epoch_ns - other_ns) * 1000)
            rows = mine.session.rows
            result[rows] = mine.crowded(clock.start_ps[rows], clock.dur_ps[rows])
    return result if together else None


_BEYOND_PS = float(10 * PS_PER_S)
"""Time before the first look and after the last one for which these stand."""


class _Looks:
    """The looks of one session at its machine, as totals over time."""

    def __init__(self, session: SessionClock, rows: pa.Table) -> None:
        self.session = session
        known = [name for name in ("run_ps", "wait_ps", "others_ps") if rows.column(name).null_count < rows.num_rows]
        self.is_empty = not rows.num_rows or "run_ps" not in known or "others_ps" not in known
        start, dur = (read_numbers(rows, name).astype(np.float64) for name in ("start_ps", "dur_ps"))
        longer = np.ones(rows.num_rows)
        if rows.num_rows:  # before the first look and after the last one it was as at that look
            start[0] -= _BEYOND_PS
            longer[0] += _BEYOND_PS / max(dur[0], 1.0)
            longer[-1] += _BEYOND_PS / max(dur[-1], 1.0)
        self._at = np.concatenate((start[:1], start + dur * longer))
        self._added: Mapping[str, Floats] = {
            name: longer * read_numbers(rows, name).astype(np.float64) for name in known
        }
        self._others = self._added.get("others_ps", np.empty(0)).copy()

    def leave_out(self, other: "_Looks", later_ps: int) -> None:
        """Take what another rank ran out of what others ran; this session began so much later."""
        ran = np.interp(self._at + later_ps, other._at, _running(other._added["run_ps"]))
        self._others = np.maximum(self._others - np.diff(ran), 0.0)

    def crowded(self, start_ps: Int64s, dur_ps: Int64s) -> Int64s:
        """Crowded time of steps `[n]`."""
        ends = start_ps.astype(np.float64), (start_ps + dur_ps).astype(np.float64)
        ran, others = self._sum(self._added["run_ps"], ends), self._sum(self._others, ends)
        share = others / np.maximum(others + ran, 1.0)
        if "wait_ps" in self._added:
            waited = self._sum(self._added["wait_ps"], ends)
            share = np.minimum(share, waited / np.maximum(waited + ran, 1.0))
        return np.asarray(share * dur_ps, np.int64)

    def _sum(self, added: Floats, ends: tuple[Floats, Floats]) -> Floats:
        total = _running(added)
        return np.asarray(np.interp(ends[1], self._at, total) - np.interp(ends[0], self._at, total))


def _running(added: Floats) -> Floats:
    """The total so far, at the beginning and at the end of each look, `[n_looks + 1]`."""
    return np.concatenate(([0.0], np.cumsum(added)))
