"""Steps that the job tells torch's own profiler of: `profiler.step()` at the end of each."""

import sys

from phasepoint.recorder.autosteps.evidence import Rank, StepEvidence
from phasepoint.recorder.autosteps.late_recording import LateRecording
from phasepoint.recorder.autosteps.step_ends import follow_loop

PROFILER_STEP = StepEvidence(
    Rank.FRAMEWORK_LOOP, "torch", "the job's own marks for the profiler (torch.profiler.profile.step)"
)


def install(late: LateRecording, module: str) -> None:
    """Put the hooks in; `torch.profiler` must have been imported."""
    follow_loop(late, PROFILER_STEP, sys.modules[module].profile, begins="start", ends="step")
