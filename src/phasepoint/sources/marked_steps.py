"""Where the steps of a capture begin and end, from ranges whose names say that they mark steps."""

from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa

from phasepoint.sources.event_rows import PlacedEvents
from phasepoint.sources.event_tables import Kind
from phasepoint.sources.nvtx_names import step_names, step_number
from phasepoint.sources.step_bounds import StepBounds, order_bounds


def mark_steps(kinds: Iterable[Kind]) -> tuple[list[Kind], dict[int, int]]:
    """The kinds, those whose names mark steps as marks, which are no work; and the number of each mark's step.

    Args:
        kinds: the kinds; of level layer are the ranges that the user named.
    """
    listed = list(kinds)
    chosen = step_names(one.name for one in listed if one.level == "layer")
    numbers = {}
    for i, one in enumerate(listed):
        found = step_number(one.name) if one.level == "layer" and one.name in chosen else None
        if found is not None:
            numbers[i] = found[1]
            listed[i] = one._replace(level="model", works=False)
    return listed, numbers


def bounds_of_kinds(placed: PlacedEvents, number_of_kind: Mapping[int, int], steps: pa.Table | None) -> StepBounds:
    """The steps that some kinds of events mark; where none does, the given ones.

    Args:
        placed: the events.
        number_of_kind: number of the step that a kind's events mark.
        steps: rows of `steps` (step, start_ps, dur_ps), used where the capture holds no marks.
    """
    wanted = np.isin(placed.kind, np.array(sorted(number_of_kind), np.int64))
    if wanted.any():
        rows = np.flatnonzero(wanted)
        number = np.array([number_of_kind[kind] for kind in placed.kind[rows].tolist()], np.int64)
        return order_bounds(number, placed.start_ps[rows], placed.end_ps[rows])
    if steps is None:
        return order_bounds(*(np.empty(0, np.int64) for _ in range(3)))
    step, start_ps, dur_ps = (steps[name].to_numpy().astype(np.int64) for name in ("step", "start_ps", "dur_ps"))
    return order_bounds(step, start_ps, start_ps + dur_ps)
