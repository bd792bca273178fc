"""Steps of Transformers' `Trainer`: what it tells its callbacks, one for each update.

Where the optimizer is torch's, its own steps are stronger evidence; engines that bring their own are followed here.
"""

import functools
import os
import sys
from typing import Any

from phasepoint.recorder.autosteps.evidence import Rank, StepEvidence
from phasepoint.recorder.autosteps.late_recording import LateRecording
from phasepoint.recorder.autosteps.step_ends import StepEnds
from phasepoint.recorder.seam.guard import Guard, guarded
from phasepoint.recorder.seam.patch import patch_attribute

TRANSFORMERS_LOOP = StepEvidence(Rank.FRAMEWORK_LOOP, "torch", "steps of Transformers' Trainer")


def install(late: LateRecording, module: str) -> None:
    """Put the hooks in; Transformers' callbacks must have been imported."""
    loop = TransformersLoop(late.source_guard(), StepEnds(late, TRANSFORMERS_LOOP))
    callbacks = sys.modules[module].CallbackHandler
    patch_attribute(callbacks, "on_train_begin", functools.partial(loop.wrap, loop.began))
    patch_attribute(callbacks, "on_step_end", functools.partial(loop.wrap, loop.ended))
    os.register_at_fork(after_in_child=loop.ends.reset)
    late.at_exit(TRANSFORMERS_LOOP.rank, loop.ends.finish)


class TransformersLoop:
    """Turns what callbacks are told into steps.

    Attributes:
        ends: what they are handed to.
    """

    def __init__(self, guard: Guard, ends: StepEnds) -> None:
        self.guard = guard
        self.ends = ends

    def wrap(self, tell: Any, call: Any) -> Any:
        """Stands in front of a method of `CallbackHandler`."""

        @functools.wraps(call)
        def call_and_tell(handler: Any, *args: Any, **kwargs: Any) -> Any:
            done = call(handler, *args, **kwargs)
            tell()
            return done

        return call_and_tell

    @guarded
    def began(self) -> None:
        """Training begins."""
        self.ends.began()

    @guarded
    def ended(self) -> None:
        """A step has ended."""
        self.ends.ended()
