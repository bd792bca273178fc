"""Updates of parameters by Optax: inside a compiled program they tell that it trains, outside each one is a step.

Of several sets of parameters (a GAN's) the first one seen counts.
"""

import functools
import sys
from typing import Any

from phasepoint.recorder.autosteps.evidence import Rank, StepEvidence
from phasepoint.recorder.autosteps.late_recording import LateRecording
from phasepoint.recorder.autosteps.sources.jax.clock import JaxClock
from phasepoint.recorder.autosteps.step_ends import StepEnds
from phasepoint.recorder.seam.guard import guarded
from phasepoint.recorder.seam.patch import patch_attribute

OPTAX_UPDATE = StepEvidence(Rank.OPTIMIZER_STEP, "jax", "optimizer updates (optax.apply_updates)")


def install(late: LateRecording, module: str) -> None:
    """Put the hooks in; Optax must have been imported."""
    updates = OptaxUpdates(late)
    patch_attribute(sys.modules[module], "apply_updates", updates.wrap)
    if late.jax_clock is not None:
        late.jax_clock.expect_updates()
    late.add_source(OPTAX_UPDATE.rank, finish=updates.finish, reset=updates.reset)


class OptaxUpdates:
    """Turns updates outside of compiled programs into steps."""

    def __init__(self, late: LateRecording) -> None:
        self.guard = late.source_guard()
        self._late = late
        self._ends = StepEnds(late, OPTAX_UPDATE)
        self.reset()

    def reset(self) -> None:
        """Forget what was seen; in a forked child."""
        self._ends.reset()
        self._parameters: Any = None

    def wrap(self, apply: Any) -> Any:
        """Stands in front of `optax.apply_updates`."""

        @functools.wraps(apply)
        def apply_and_note(params: Any, *args: Any, **kwargs: Any) -> Any:
            is_step = self._note(params)
            new = apply(params, *args, **kwargs)
            if is_step:
                self._ended()
            return new

        return apply_and_note

    @guarded
    def _note(self, params: Any) -> bool:
        clock: JaxClock | None = self._late.jax_clock
        if clock is None or not clock.tracing.note_update():
            return False
        from jax import tree_util

        structure = tree_util.tree_structure(params)
        if self._parameters is None:
            self._parameters = structure
        return bool(self._parameters == structure)

    @guarded
    def _ended(self) -> None:
        self._ends.ended()

    @guarded
    def finish(self) -> None:
        """The process ends."""
        self._ends.finish()
