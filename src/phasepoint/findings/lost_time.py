"""What odd steps cost the run: their excess, less what the step after each catches up."""

import numpy as np
from numpy.typing import NDArray

from phasepoint.core.arrays import Int64s
from phasepoint.findings.expected import expect_steps
from phasepoint.findings.view import FindingsView

CAUGHT_UP_SIGMAS = 3
"""A step this many standard deviations shorter than its level was shortened by the one before it."""


def net_excess(view: FindingsView, odd: NDArray[np.bool_]) -> Int64s:
    """Excess of odd steps over what is expected there, less what the next step of the session is shorter by.

    Where the host runs ahead, the device works on while the host is held up; the next step finds its result there and
    is short. Only what is left of the excess was lost.

    Args:
        view: the run.
        odd: `[n_steps]`, the steps to look at.

    Returns:
        `[n_steps]` ps, 0 for other steps; may be below 0.
    """
    expected = view.once(expect_steps)
    excess_ps = view.clock.dur_ps - expected.dur_ps
    follows = np.zeros(len(odd), bool)
    follows[1:] = odd[:-1] & ~odd[1:]
    for session in view.clock.sessions:
        follows[session.first_row : session.first_row + 1] = False
    short = follows & (np.log(np.maximum(expected.ratio, 1e-6)) < -CAUGHT_UP_SIGMAS * expected.sigma)
    net_ps = np.where(odd, excess_ps, 0)
    net_ps[np.flatnonzero(short) - 1] += np.minimum(excess_ps[short], 0)
    return net_ps
