"""Stretches of steps for which something holds: runs of true values, short interruptions bridged."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phasepoint.phases.clock import RunClock, SessionClock


@dataclass(frozen=True)
class Stretch:
    """Rows `first`–`last` (inclusive) of the clock, within one session."""

    session: SessionClock
    first: int
    last: int

    @property
    def rows(self) -> slice:
        """Its rows of the steps table."""
        return slice(self.first, self.last + 1)

    def start_ps(self, clock: RunClock) -> int:
        """When it began, on the host's strip."""
        return self.session.offset_ps + int(clock.start_ps[self.first])

    def dur_ps(self, clock: RunClock) -> int:
        """From its first step's start to its last step's end."""
        return int(clock.start_ps[self.last] + clock.dur_ps[self.last] - clock.start_ps[self.first])

    def named(self, clock: RunClock) -> str:
        """`step 7` or `steps 7–12`."""
        first, last = int(clock.step[self.first]), int(clock.step[self.last])
        return f"step {first}" if first == last else f"steps {first}–{last}"


def find_stretches(clock: RunClock, holds: NDArray[np.bool_], *, bridge: int = 0) -> list[Stretch]:
    """Maximal stretches of steps for which `holds` `[n_steps]` is true, in order, never across sessions.

    Args:
        clock: the run's steps.
        holds: what is looked for, per row of the clock.
        bridge: up to so many steps in a row may fail it inside a stretch.
    """
    found = []
    for session in clock.sessions:
        where = np.flatnonzero(holds[session.rows]) + session.first_row
        if not len(where):
            continue
        cuts = np.flatnonzero(np.diff(where) > bridge + 1)
        firsts = where[np.concatenate(([0], cuts + 1))]
        lasts = where[np.append(cuts, len(where) - 1)]
        found += [Stretch(session, int(a), int(b)) for a, b in zip(firsts, lasts, strict=True)]
    return found
