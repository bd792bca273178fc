"""Clocks of hosts, aligned at the collectives: a collective ends on all of its ranks together.

A host's offset is the median distance of its ends from the median end of each collective, which a few stragglers in
delivery do not move. Offsets spread from one host to all that share collectives with it, then settle in a few rounds.
"""

from dataclasses import dataclass

import numpy as np

from phasepoint.core.arrays import Bools, Int64s
from phasepoint.core.groups import medians_by

ROUNDS = 4
"""Rounds after all hosts have an offset; where ends agree the second changes nothing."""


@dataclass(frozen=True, eq=False)
class Clocks:
    """What each host's clock is ahead by. Arrays are `[n_hosts]`.

    Attributes:
        offset_ps: to be taken off the host's times; 0 for the first host.
        error_ps: median distance of its ends from those of the other ranks once aligned; 0 where there is nothing to
            compare.
        aligned: whether the host shares collectives, by any chain of hosts, with the first.
    """

    offset_ps: Int64s
    error_ps: Int64s
    aligned: Bools


def align_clocks(collective: Int64s, host: Int64s, end_ps: Int64s, together: Bools, *, hosts: int) -> Clocks:
    """Estimate the offsets of hosts' clocks.

    Args:
        collective: `[n]` number of the collective, from 0.
        host: `[n]` number of the host that took part, from 0.
        end_ps: `[n]` when it ended there, by that host's clock.
        together: `[n]` collectives whose ranks end together; others are used for hosts that have none of them.
        hosts: number of hosts.
    """
    shared = _is_shared(collective, host)
    collective, host, end_ps, settles = collective[shared], host[shared], end_ps[shared], together[shared]
    offset_ps, aligned = np.zeros(hosts, np.int64), np.arange(hosts) == 0
    _spread(offset_ps, aligned, settles, (collective, host, end_ps))
    settles = settles | ~aligned[host]
    _spread(offset_ps, aligned, settles, (collective, host, end_ps))
    kept = aligned[host]
    collective, host, end_ps, settles = collective[kept], host[kept], end_ps[kept], settles[kept]
    for _ in range(ROUNDS):
        ends = _ends(collective, end_ps - offset_ps[host])
        _settle(offset_ps, host[settles], (end_ps - ends.time_ps[collective])[settles])
        offset_ps -= offset_ps[:1]
    ends = _ends(collective, end_ps - offset_ps[host])
    error_ps = np.zeros(hosts, np.int64)
    _settle(error_ps, host[settles], np.abs(end_ps - offset_ps[host] - ends.time_ps[collective])[settles])
    return Clocks(np.where(aligned, offset_ps, 0), error_ps, aligned)


def _is_shared(collective: Int64s, host: Int64s) -> Bools:
    """`[n]` whether another host took part in the collective too."""
    n = int(collective.max(initial=-1)) + 1
    least, most = np.full(n, np.iinfo(np.int64).max), np.full(n, -1)
    np.minimum.at(least, collective, host)
    np.maximum.at(most, collective, host)
    return (least < most)[collective]


def _spread(offset_ps: Int64s, aligned: Bools, settles: Bools, rows: tuple[Int64s, Int64s, Int64s]) -> None:
    """Give an offset to every host that shares collectives with aligned ones, until there is no more such host."""
    collective, host, end_ps = rows
    while True:
        known = aligned[host]
        ends = _ends(collective[known], (end_ps - offset_ps[host])[known], n=int(collective.max(initial=-1)) + 1)
        reached = settles & ~known & ends.known[collective]
        if not reached.any():
            return
        _settle(offset_ps, host[reached], (end_ps - ends.time_ps[collective])[reached])
        aligned[host[reached]] = True


@dataclass(frozen=True, eq=False)
class _Ends:
    """When each collective ended `[n_collectives]`, and whether that is known."""

    time_ps: Int64s
    known: Bools


def _ends(collective: Int64s, end_ps: Int64s, *, n: int | None = None) -> _Ends:
    n = int(collective.max(initial=-1)) + 1 if n is None else n
    time_ps, known = np.zeros(n, np.int64), np.zeros(n, np.bool_)
    found, medians = medians_by(collective, end_ps)
    time_ps[found], known[found] = medians, True
    return _Ends(time_ps, known)


def _settle(offset_ps: Int64s, host: Int64s, distance_ps: Int64s) -> None:
    """Set the offset of each host that is given to its median distance."""
    found, medians = medians_by(host, distance_ps)
    offset_ps[found] = medians
