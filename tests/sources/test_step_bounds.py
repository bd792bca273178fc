"""Marks of steps, from whatever trace."""

import numpy as np

from phasepoint.core.tables import MOST_STEPS
from phasepoint.sources.events.step_bounds import order_bounds


def test_numbers_that_no_job_has_mark_no_step():
    """The store would refuse them, and with them every other step of the trace."""
    numbers = np.array([5, -1, MOST_STEPS, 6], np.int64)
    start_ps = np.array([0, 10, 20, 30], np.int64)
    bounds = order_bounds(numbers, start_ps, start_ps + 9)
    assert bounds.step.tolist() == [5, 6]
    assert bounds.start_ps.tolist() == [0, 30]
    assert bounds.end_ps.tolist() == [9, 39]
