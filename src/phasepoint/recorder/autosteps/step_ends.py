"""Steps of a source that tells when each one ended: a step lasts from the end of the one before."""

import threading
import time
from collections.abc import Callable
from functools import wraps
from typing import Any

from phasepoint.recorder.autosteps.evidence import StepEvidence
from phasepoint.recorder.autosteps.late_recording import LateRecording, PastStep
from phasepoint.recorder.seam.guard import Guard
from phasepoint.recorder.seam.patch import patch_attribute

OPEN_STEPS = 2
"""Ended steps after which a recording is opened: something that happens once is no loop."""


class StepEnds:
    """Turns ends of steps into steps of the recording. Called on the job's thread, under a hook's guard.

    Args:
        late: the recording.
        evidence: what tells of the steps.
        waits: whether `got` will be called when a step has its batch.
    """

    def __init__(self, late: LateRecording, evidence: StepEvidence, *, waits: bool = False) -> None:
        self._late = late
        self._evidence = evidence
        self._waits = waits
        self.reset()

    def reset(self) -> None:
        """Forget what was seen; in a forked child."""
        self._past: list[PastStep] = []
        self._last_ns: int | None = None
        self._got_ns: int | None = None
        self._thread = 0

    @property
    def leads(self) -> bool:
        """Whether these steps are the recording's."""
        return self._late.leader is self._evidence

    def began(self) -> None:
        """A step begins now, unless one is under way."""
        if self._last_ns is None and self._late.admits(self._evidence):
            self._last_ns = time.perf_counter_ns()

    def got(self) -> None:
        """The step has its batch."""
        if self.leads:
            self._late.got()
        else:
            self.began()
            self._got_ns = time.perf_counter_ns()

    def ended(self) -> None:
        """A step has just ended, and the next one begins."""
        thread = threading.get_ident()
        if (self._thread and thread != self._thread) or not self._late.admits(self._evidence):
            return
        if self.leads:
            self._begin_next()
            return
        self._thread = thread
        now_ns = time.perf_counter_ns()
        self._past.append(PastStep(now_ns if self._last_ns is None else self._last_ns, self._got_ns, now_ns))
        self._last_ns, self._got_ns = now_ns, None
        if len(self._past) >= OPEN_STEPS:
            self._open()

    def paused(self) -> None:
        """What follows belongs to no step, until `began` or `ended` is called."""
        self._last_ns = self._got_ns = None
        if self.leads:
            self._late.drop_step()

    def resumed(self) -> None:
        """A step begins after a pause."""
        if self.leads:
            self._begin_next()
        else:
            self.began()

    def finish(self) -> None:
        """The process ends, and nobody leads a recording: a job of few steps has not opened one yet."""
        if self._past:
            self._open()

    def _open(self) -> None:
        past, self._past = self._past, []
        self._late.open(self._evidence, past, finish=self._late.drop_step)
        if self.leads:
            self._begin_next()

    def _begin_next(self) -> None:
        if self._waits:
            self._late.ask()
        else:
            self._late.mark()


def told_after(guard: Guard, tell: Callable[[], object]) -> Callable[[Any], Any]:
    """A decorator for a framework's function: `tell` is called after each of its calls that returned.

    Args:
        guard: keeps what goes wrong in `tell` from the job.
        tell: called on the job's thread, and guarded in place: it stands in the loop's hot path.
    """

    def decorate(call: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(call)
        def call_and_tell(*args: Any, **kwargs: Any) -> Any:
            done = call(*args, **kwargs)
            if not guard.off:
                try:
                    tell()
                except Exception as error:  # noqa: BLE001 - as in `guarded`
                    guard.trip(error, tell.__qualname__)
            return done

        return call_and_tell

    return decorate


def follow_loop(late: LateRecording, evidence: StepEvidence, owner: Any, *, begins: str, ends: str) -> None:
    """Follow a framework's loop that calls one method when it begins, and another one at the end of each step.

    Args:
        late: the recording.
        evidence: what tells of the steps.
        owner: the class that has the methods.
        begins, ends: their names.
    """
    guard, steps = late.source_guard(), StepEnds(late, evidence)
    patch_attribute(owner, begins, told_after(guard, steps.began))
    patch_attribute(owner, ends, told_after(guard, steps.ended))
    late.add_source(evidence.rank, finish=steps.finish, reset=steps.reset)
