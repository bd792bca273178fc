"""Steps next to a window's edge of a host that runs ahead of its device: short, because the edge waited in their place.

A capture begins and ends with a wait for the device, whose time is the recording's and in no step. A host that was
ahead then issues its next steps without waiting, until it is as far ahead as before. Such a step is as long as others
together with that wait, and no other kind of step. Its own file: what the clock saw is the account's, this is a guess.
"""

import numpy as np
import pyarrow as pa

from phasepoint.core.arrays import Int64s
from phasepoint.phases.clock.accounting import recorder_work
from phasepoint.phases.clock.steps import RunClock, read_numbers

_MOST_STEPS = 16
"""That are made good for after an edge, a choice: hosts run a few steps ahead."""

_AROUND = 24
"""Steps on either side whose median is what a step takes: most of them lie in no window."""


def spared_ps(clock: RunClock, gaps: pa.Table) -> Int64s:
    """What each step was spared by the wait at a window's edge before it, `[n_steps]` ps; 0 for most.

    Args:
        clock: the run's steps.
        gaps: `Run.table("gaps")`.
    """
    spared = np.zeros(clock.n_steps, np.int64)
    for session, rows in zip(clock.sessions, clock.split(recorder_work(gaps)), strict=True):
        start_ps, dur_ps = clock.start_ps[session.rows], clock.dur_ps[session.rows]
        begin_ps, waited_ps = (read_numbers(rows, name) for name in ("start_ps", "dur_ps"))
        firsts = np.searchsorted(start_ps, begin_ps + waited_ps)
        for first, edge_ps in zip(firsts.tolist(), waited_ps.tolist(), strict=True):
            left_ps, near_ps = edge_ps, dur_ps[max(first - _AROUND, 0) : first + _AROUND]
            usual_ps = int(np.median(near_ps)) if len(near_ps) else 0
            for row in range(first, min(first + _MOST_STEPS, len(dur_ps))):
                if 2 * left_ps < usual_ps or 2 * dur_ps[row] >= usual_ps:
                    break
                made_ps = min(usual_ps - int(dur_ps[row]), left_ps)
                spared[session.first_row + row] = made_ps
                left_ps -= made_ps
    return spared
