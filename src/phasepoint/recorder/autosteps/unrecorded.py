"""In a replay, ends a program that trains without ever having called `phasepoint.record`.

Such a program knows nothing of the request: it would train from its beginning, into the user's files. Its steps are
seen as `phasepoint record` sees them. A program may well do a few before it calls `record` (a warm-up), so some are
let pass; once it has called it, nothing is looked for any more.
"""

import os
from collections.abc import Callable, Sequence
from typing import NoReturn

from phasepoint.recorder.autosteps.evidence import StepEvidence
from phasepoint.recorder.autosteps.followed import FollowedSteps
from phasepoint.recorder.autosteps.late_recording import LateRecording, PastStep
from phasepoint.recorder.autosteps.start import AutoRecorder
from phasepoint.recorder.resume.request import VARIABLE, ReplayRequest, give_up
from phasepoint.recorder.resume.saves import protect_checkpoints
from phasepoint.recorder.seam.guard import Guard, guarded
from phasepoint.recorder.seam.options import AutoOptions

MOST_STEPS = {"torch": 8, "jax": 24}
"""Steps that a program may do before it calls `record`. More with JAX, where repeated executions of any jitted function
count: those that make parameters, mostly."""


class UnrecordedSteps(LateRecording):
    """Counts the steps of a process that records none, and ends it when it has seen enough."""

    is_patient = False

    def __init__(self, request: ReplayRequest) -> None:
        super().__init__(AutoOptions(request.path, 0, 1))
        self._request = request
        self._count = 0

    @guarded
    def open(self, evidence: StepEvidence, past: Sequence[PastStep], *, finish: Callable[[], object]) -> None:
        """Steps were seen; takes the place of opening a recording."""
        self.is_open = True
        self.leader = evidence
        self._add(len(past))

    def ask(self) -> None:
        """Another step begins."""
        if not self.guard.off:
            self._add(1)

    def _add(self, steps: int) -> None:
        self._count += steps
        if self.framework is not None and self._count >= MOST_STEPS[self.framework]:
            self._end()

    def _end(self) -> NoReturn:
        give_up(
            self._request,
            "unrecorded",
            f"the program did {self._count} training steps without calling phasepoint.record; expected it to record "
            "itself and to restore run.resume.checkpoint (docs/replay.md)",
        )


def start_from_environ() -> None:
    """Begin to look for steps, if a replay is asked of this process, and keep its saves from what the original saved.

    A broken request is told by `record`.
    """
    from phasepoint.core.errors import ReplayError

    value = os.environ.get(VARIABLE)
    if value is None:
        return
    try:
        request = ReplayRequest.from_environ(value)
    except ReplayError:
        return
    guard = Guard()
    guard.when_off(
        lambda: give_up(request, "failed", f"saves cannot be kept away from the original's checkpoints: {guard.reason}")
    )
    protect_checkpoints(request, guard)
    late = FollowedSteps(request) if request.is_automatic else UnrecordedSteps(request)
    AutoRecorder(AutoOptions(request.path, 0, 1), late).install()
