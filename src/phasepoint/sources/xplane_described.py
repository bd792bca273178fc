"""What is known of a capture's events, before and after they have their steps."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from phasepoint.core.arrays import Int64s
from phasepoint.sources.step_bounds import StepBounds
from phasepoint.sources.xplane_gather import Events


@dataclass(frozen=True)
class Described:
    """What is known of a capture's events before they have their steps.

    Attributes:
        events: the events.
        category: per kind, its category.
        layer: per kind, its module path, None where unknown.
        direction: per kind, forward or backward, None where unknown.
        bounds: the steps.
        tails: `[n_tails, 2]` events that went on after they left their track: event, for how long in ps.
        tail_start_ps: `[n_tails]` when they left it.
        window: the window's number.
        offset_ps: the profile's start from the session's epoch.
    """

    events: Events
    category: Sequence[str]
    layer: Sequence[str | None]
    direction: Sequence[str | None]
    bounds: StepBounds
    tails: Int64s
    tail_start_ps: Int64s
    window: int
    offset_ps: int


@dataclass(frozen=True)
class Resolved(Described):
    """Everything that is known of a capture's events; their durations are now `total_ps`.

    Attributes:
        track: `[n_events]` index of the track, behind the tracks' number for events with an asynchronous tail.
        step: `[n_events]` index into `bounds`, -1 outside.
        parent: `[n_events]` index of the enclosing event on its track, -1 at the top.
        self_ps: `[n_events]` self time with the asynchronous tails.
        total_ps: `[n_events]` duration with the asynchronous tails.
        launch: `[n_events]` host event that launched it, -1 where none is known; None where no event has one.
        bytes: `[n_events]` bytes moved; None where no event says.
    """

    track: NDArray[np.int32]
    step: NDArray[np.int32]
    parent: Int64s
    self_ps: Int64s
    total_ps: Int64s
    launch: Int64s | None
    bytes: pa.Array | None
