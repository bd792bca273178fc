"""Steps that the job tells torch's own profiler of: `profiler.step()` at the end of each."""

import functools
import os
import sys
from typing import Any

from phasepoint.recorder.autosteps.evidence import Rank, StepEvidence
from phasepoint.recorder.autosteps.late_recording import LateRecording
from phasepoint.recorder.autosteps.step_ends import StepEnds
from phasepoint.recorder.seam.guard import Guard, guarded
from phasepoint.recorder.seam.patch import patch_attribute

PROFILER_STEP = StepEvidence(
    Rank.FRAMEWORK_LOOP, "torch", "the job's own marks for the profiler (torch.profiler.profile.step)"
)


def install(late: LateRecording, module: str) -> None:
    """Put the hooks in; `torch.profiler` must have been imported."""
    steps = ProfilerSteps(late.source_guard(), StepEnds(late, PROFILER_STEP))
    profile = sys.modules[module].profile
    patch_attribute(profile, "start", steps.wrap_start)
    patch_attribute(profile, "step", steps.wrap_step)
    os.register_at_fork(after_in_child=steps.ends.reset)
    late.at_exit(PROFILER_STEP.rank, steps.ends.finish)


class ProfilerSteps:
    """Turns the marks into steps.

    Attributes:
        ends: what they are handed to.
    """

    def __init__(self, guard: Guard, ends: StepEnds) -> None:
        self.guard = guard
        self.ends = ends

    def wrap_start(self, start: Any) -> Any:
        """Stands in front of `profile.start`."""

        @functools.wraps(start)
        def start_and_tell(profiler: Any) -> Any:
            started = start(profiler)
            self._began()
            return started

        return start_and_tell

    def wrap_step(self, step: Any) -> Any:
        """Stands in front of `profile.step`."""

        @functools.wraps(step)
        def step_and_tell(profiler: Any) -> Any:
            stepped = step(profiler)
            self._ended()
            return stepped

        return step_and_tell

    @guarded
    def _began(self) -> None:
        self.ends.began()

    @guarded
    def _ended(self) -> None:
        self.ends.ended()
