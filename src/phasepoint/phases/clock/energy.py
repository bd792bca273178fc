"""The energy that the GPUs of a run took, by step: from the drivers' running totals, sampled in `counters`.

Its own file: the one reader of these totals. Between two samples the power is taken to be even; before the first and
after the last nothing is known.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phasepoint.core.arrays import Floats
from phasepoint.phases.clock.steps import RunClock

ENERGY = "gpu.energy"
"""Counter of a device: joules since its driver was loaded."""


def energy_by_step(clock: RunClock, counters: pa.Table) -> Floats | None:
    """Joules that all devices took during each step `[n_steps]`; None where no driver told them.

    Args:
        clock: the run's steps.
        counters: `Run.table("counters")`.
    """
    totals = counters.filter(pc.equal(counters["name"].cast(pa.string()), ENERGY))
    energy_j = np.zeros(clock.n_steps)
    is_known = False
    for session, rows in zip(clock.sessions, clock.split(totals), strict=True):
        devices = np.asarray(rows["device"].cast(pa.string()).to_pylist(), object)
        at_ps, total_j = rows["time_ps"].to_numpy().astype(np.float64), rows["value"].to_numpy()
        begin_ps = clock.start_ps[session.rows]
        for device in set(devices.tolist()):
            mine = np.flatnonzero(devices == device)
            mine = mine[np.argsort(at_ps[mine], kind="stable")]
            if len(mine) < 2:
                continue
            # a driver that was loaded anew counts from 0: what it took meanwhile is not known
            taken_j = np.concatenate(([0.0], np.cumsum(np.maximum(np.diff(total_j[mine]), 0.0))))
            ends = (begin_ps, begin_ps + clock.dur_ps[session.rows])
            begin_j, end_j = (np.interp(end, at_ps[mine], taken_j) for end in ends)
            energy_j[session.rows] += end_j - begin_j
            is_known = True
    return energy_j if is_known else None
