"""In a replay of a job recorded by `phasepoint record -- …`: its steps are seen again, and it ends after the last one.

Such a program has no lines of Phasepoint, so it can restore nothing: it is started from its beginning.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from phasepoint.recorder.autosteps.evidence import StepEvidence
from phasepoint.recorder.autosteps.late_recording import LateRecording, PastStep
from phasepoint.recorder.resume.request import ReplayRequest, take_request
from phasepoint.recorder.seam.options import AutoOptions

if TYPE_CHECKING:
    from phasepoint.recorder.assembly import RecordOptions


class FollowedSteps(LateRecording):
    """The recording of a replay, opened at the program's first steps."""

    def __init__(self, request: ReplayRequest) -> None:
        super().__init__(AutoOptions(request.path, None, 1))
        self._request = request
        self._is_ending = False

    def close(self) -> None:
        """End the recording; the process ends anyway."""
        self._is_ending = True
        super().close()

    def _record_options(self, evidence: StepEvidence) -> "RecordOptions":
        request, _ = take_request()  # a child of this process follows none
        return replace(super()._record_options(evidence), request=request or self._request)

    def _begin(
        self, evidence: StepEvidence, past: Sequence[PastStep], finish: Callable[[], object], began_ns: int
    ) -> None:
        super()._begin(evidence, past, finish, began_ns)
        self.mark = self._ask_and_got
        self._end_after_the_last()

    def ask(self) -> None:
        """The open step ends, perhaps the last one; the next one may begin."""
        super().ask()
        self._end_after_the_last()

    def end_loop(self) -> None:
        """The open step ends, perhaps the last one; none begins."""
        super().end_loop()
        self._end_after_the_last()

    def recall(self, past: Sequence[PastStep]) -> None:
        """Steps that have ended since the last one did."""
        super().recall(past)
        self._end_after_the_last()

    def end_step_at(self, end_ns: int) -> None:
        """The open step ended at a time in the past, and the next one with it."""
        super().end_step_at(end_ns)
        self._end_after_the_last()

    def _end_after_the_last(self) -> None:
        if self._is_ending or self._recording is None or not self._recording.replay_is_over():
            return
        self._is_ending = True
        raise SystemExit(0)
