"""Steps that the job marks itself for JAX's profiler: `with jax.profiler.StepTraceAnnotation("train", step_num=i)`.

A step lasts until the next one is entered, so that what the loop does between two of them (fetching a batch) belongs to
the first; the last one ends where it is left.
"""

import functools
import sys
import time
from typing import Any

from phasepoint.recorder.autosteps.evidence import Rank, StepEvidence
from phasepoint.recorder.autosteps.late_recording import LateRecording, PastStep
from phasepoint.recorder.autosteps.step_ends import told_after
from phasepoint.recorder.seam.guard import guarded
from phasepoint.recorder.seam.patch import patch_attribute

STEP_ANNOTATION = StepEvidence(
    Rank.STEP_ANNOTATION, "jax", "the job's own marks for the profiler (jax.profiler.StepTraceAnnotation)"
)


def install(late: LateRecording, module: str) -> None:
    """Put the hooks in; `jax.profiler` must have been imported."""
    annotations = StepAnnotations(late)
    annotation = sys.modules[module].StepTraceAnnotation
    patch_attribute(annotation, "__enter__", annotations.wrap_enter)
    patch_attribute(annotation, "__exit__", told_after(annotations.guard, annotations.left))
    late.add_source(STEP_ANNOTATION.rank, finish=annotations.finish, reset=annotations.reset)


class StepAnnotations:
    """Turns annotated stretches into steps."""

    def __init__(self, late: LateRecording) -> None:
        self.guard = late.source_guard()
        self._late = late
        self.reset()

    def reset(self) -> None:
        """Forget what was seen; in a forked child."""
        self._entered_ns: int | None = None
        self._left_ns: int | None = None

    def wrap_enter(self, enter: Any) -> Any:
        """Stands in front of `__enter__`."""

        @functools.wraps(enter)
        def enter_and_tell(annotation: Any) -> Any:
            self._enter()
            return enter(annotation)

        return enter_and_tell

    @guarded
    def _enter(self) -> None:
        late, now_ns = self._late, time.perf_counter_ns()
        if late.leader is None and self._entered_ns is not None and self._left_ns is not None:
            late.open(STEP_ANNOTATION, [PastStep(self._entered_ns, None, now_ns)], finish=self._finish_step)
        elif late.leader is not None and late.leader is not STEP_ANNOTATION and late.admits(STEP_ANNOTATION):
            late.open(STEP_ANNOTATION, [PastStep(now_ns, None, now_ns)], finish=self._finish_step)
        if late.leader is STEP_ANNOTATION:
            late.mark()
        self._entered_ns, self._left_ns = now_ns, None

    def left(self) -> None:
        """The stretch has been left."""
        self._left_ns = time.perf_counter_ns()

    def _finish_step(self) -> None:
        """The last step ended where it was left; one that was not left is none."""
        if self._left_ns is None:
            self._late.drop_step()
        else:
            self._late.end_loop_at(self._left_ns)

    @guarded
    def finish(self) -> None:
        """The process ends: a job of one step."""
        late = self._late
        if self._entered_ns is not None and self._left_ns is not None:
            late.open(STEP_ANNOTATION, [PastStep(self._entered_ns, None, self._left_ns)], finish=late.drop_step)
