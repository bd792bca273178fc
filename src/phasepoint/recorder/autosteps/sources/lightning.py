"""Steps of Lightning's `Trainer.fit`: batches after which its count of optimizer steps is higher.

Where the optimizers are torch's, their own steps are stronger evidence; strategies that bring their own engine are
followed here.
"""

import functools
import sys
from typing import Any

from phasepoint.recorder.autosteps.evidence import Rank, StepEvidence
from phasepoint.recorder.autosteps.late_recording import LateRecording
from phasepoint.recorder.autosteps.step_ends import StepEnds
from phasepoint.recorder.seam.guard import Guard, guarded
from phasepoint.recorder.seam.patch import patch_attribute

LIGHTNING_LOOP = StepEvidence(Rank.FRAMEWORK_LOOP, "torch", "global steps of Lightning's Trainer")


def install(late: LateRecording, module: str) -> None:
    """Put the hook in; Lightning's loops must have been imported."""
    ends = StepEnds(late, LIGHTNING_LOOP)
    patch_attribute(sys.modules[module]._TrainingEpochLoop, "advance", LightningLoop(late.source_guard(), ends).wrap)
    late.add_source(LIGHTNING_LOOP.rank, finish=ends.finish, reset=ends.reset)


class LightningLoop:
    """Turns batches that made an optimizer step into steps."""

    def __init__(self, guard: Guard, ends: StepEnds) -> None:
        self.guard = guard
        self._ends = ends

    def wrap(self, advance: Any) -> Any:
        """Stands in front of `advance`, which fetches a batch and trains on it."""

        @functools.wraps(advance)
        def advance_and_tell(loop: Any, *args: Any, **kwargs: Any) -> Any:
            before = self._before(loop)
            advanced = advance(loop, *args, **kwargs)
            self._after(loop, before)
            return advanced

        return advance_and_tell

    @guarded
    def _before(self, loop: Any) -> int:
        self._ends.began()
        return int(loop.global_step)

    @guarded
    def _after(self, loop: Any, before: int | None) -> None:
        if before is not None and int(loop.global_step) > before:
            self._ends.ended()
