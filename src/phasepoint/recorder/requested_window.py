"""Plans the window of a replay: the steps asked for, whatever they cost, and no others."""

from phasepoint.recorder.planner import Opening, Situation

REASON = "requested"


class RequestedWindow:
    """Decides at step boundaries as `WindowPlanner` does, for the steps of a request alone.

    The steps are one window, but where the profiler was busy or a loop ended inside of them.

    Attributes:
        next_look: number of the step before which `look` must be called next.
        draws_unaffordable: 0; nothing is drawn.
    """

    def __init__(self, first_step: int, last_step: int) -> None:
        self.next_look = first_step
        self.draws_unaffordable = 0
        self._first_step = first_step
        self._last_step = last_step

    def note_compile(self) -> None:
        """A program was compiled; the window carries programs in any case."""

    def note_kind(self) -> None:
        """The hint in force changed; the steps stay the same."""

    def look(self, now: Situation) -> Opening | None:
        """A window if the step that is about to begin is one of those asked for."""
        if self._first_step <= now.step <= self._last_step:
            return Opening(REASON, None, True)
        return None

    def captured(self, opening: Opening, elapsed_ps: int, *, kind: int, dur_ps: int | None) -> None:
        """A window was captured; what is left of the steps, if anything, is looked at as it comes."""
