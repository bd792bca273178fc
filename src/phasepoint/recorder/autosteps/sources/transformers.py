"""Steps of Transformers' `Trainer`: what it tells its callbacks, one for each update.

Where the optimizer is torch's, its own steps are stronger evidence; engines that bring their own are followed here.
"""

import sys

from phasepoint.recorder.autosteps.evidence import Rank, StepEvidence
from phasepoint.recorder.autosteps.late_recording import LateRecording
from phasepoint.recorder.autosteps.step_ends import follow_loop

TRANSFORMERS_LOOP = StepEvidence(Rank.FRAMEWORK_LOOP, "torch", "steps of Transformers' Trainer")


def install(late: LateRecording, module: str) -> None:
    """Put the hooks in; Transformers' callbacks must have been imported."""
    follow_loop(
        late, TRANSFORMERS_LOOP, sys.modules[module].CallbackHandler, begins="on_train_begin", ends="on_step_end"
    )
