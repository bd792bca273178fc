"""Steps of Keras 3's `fit`, on any backend: the batches that its callbacks are told of.

The wait for a batch lies between the end of one and the beginning of the next. Evaluations (`validation_data`) belong
to no step. With `steps_per_execution` above 1 one recorded step is one execution of that many batches, and says so.
"""

import functools
import sys
from typing import Any

from phasepoint.recorder.autosteps.evidence import Rank, StepEvidence
from phasepoint.recorder.autosteps.late_recording import STEPS_PER_CALL, LateRecording
from phasepoint.recorder.autosteps.step_ends import StepEnds, told_after
from phasepoint.recorder.seam.guard import guarded
from phasepoint.recorder.seam.patch import patch_attribute

_TEXT = "training batches of Keras ({})"


def install(late: LateRecording, module: str) -> None:
    """Put the hooks in; Keras's callbacks must have been imported."""
    backend = sys.modules["keras.src.backend.config"].backend()
    if backend not in {"jax", "torch"}:
        late.hint(f"Keras trains with {backend}, which Phasepoint does not record")
        return
    loop = KerasLoop(late, StepEvidence(Rank.TRAINING_LOOP, backend, _TEXT.format(backend)))
    callbacks = sys.modules[module].CallbackList
    for name in ("on_train_begin", "on_epoch_begin", "on_train_batch_begin", "on_test_begin", "on_train_end"):
        patch_attribute(callbacks, name, told_after(loop.guard, getattr(loop, name)))
    patch_attribute(callbacks, "on_train_batch_end", loop.wrap_batch_end)
    late.add_source(Rank.TRAINING_LOOP, finish=loop.ends.finish, reset=loop.ends.reset)


class KerasLoop:
    """Turns what callbacks are told into steps; each method stands behind the callback of its name.

    Attributes:
        ends: what the ends of batches are handed to.
    """

    def __init__(self, late: LateRecording, evidence: StepEvidence) -> None:
        self.guard = late.source_guard()
        self.ends = StepEnds(late, evidence, waits=True)
        self._late = late
        self._evidence = evidence
        self._is_training = False
        self._batch = -1
        self._batches_per_step = 1

    def on_train_begin(self) -> None:
        """`fit` begins."""
        self._is_training = True
        self._late.expect(self._evidence)

    def on_epoch_begin(self) -> None:
        """An epoch begins: with the wait for its first batch."""
        if self._is_training:
            self._batch = -1
            self.ends.resumed()

    def on_train_batch_begin(self) -> None:
        """A batch is there."""
        if self._is_training:
            self.ends.got()

    def wrap_batch_end(self, end: Any) -> Any:
        """Stands in front of `on_train_batch_end(batch)`."""

        @functools.wraps(end)
        def end_and_tell(callbacks: Any, *args: Any, **kwargs: Any) -> Any:
            done = end(callbacks, *args, **kwargs)
            self._batch_ended(args)
            return done

        return end_and_tell

    @guarded
    def _batch_ended(self, args: tuple[Any, ...]) -> None:
        """A batch, or the last of several that one execution takes, has been trained on."""
        if not self._is_training:
            return
        batch = int(args[0]) if args else self._batch + 1
        batches, self._batch = batch - self._batch, batch
        if batches > self._batches_per_step:  # the last execution of an epoch may take fewer
            self._batches_per_step = batches
            self._late.note(STEPS_PER_CALL, str(batches))
        self.ends.ended()

    def on_test_begin(self) -> None:
        """An evaluation begins, inside of `fit` or by itself."""
        self.ends.paused()

    def on_train_end(self) -> None:
        """`fit` is over."""
        self._is_training = False
        self._late.expect(None)
        self.ends.paused()
