"""Finds the work in a script that marks none: in PyTorch the outermost module that is called again, in JAX the steps.

Started by `sitecustomize` in every process of `phasepoint stack measure`. What a script marks itself goes before what
is found: see `measured_command`.
"""

import functools
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from phasepoint.measure.regions import FORWARD, STEP, LaunchedSampler, launched_sampler
from phasepoint.recorder.autosteps.evidence import StepEvidence
from phasepoint.recorder.autosteps.late_recording import LateRecording, PastStep
from phasepoint.recorder.seam.guard import guarded, guarded_even_off
from phasepoint.recorder.seam.import_watch import when_imported
from phasepoint.recorder.seam.options import AutoOptions
from phasepoint.recorder.seam.patch import patch_attribute
from phasepoint.recorder.seam.session import Remove


def start_from_environ() -> None:
    """Begin to look for work if this process was started by `phasepoint stack measure`."""
    launched = launched_sampler()
    if launched is not None:
        when_imported("torch", lambda: OutermostModule(launched).install())

        def find_jax_steps() -> None:
            from phasepoint.recorder.autosteps.sources.jax.clock import JaxClock

            JaxClock(StepRegions(launched)).install()

        when_imported("jax", find_jax_steps)


class OutermostModule:
    """Learns which module is called again with no other around it, and makes a region of each of its later calls."""

    def __init__(self, launched: LaunchedSampler) -> None:
        self._launched = launched
        self._depth = threading.local()
        self._seen: list[Any] = []
        self._removes: list[Remove] = []

    def install(self) -> None:
        """Wrap `Module.__call__` until the module is known, and from then on that of its class alone."""
        import torch

        self._removes = [patch_attribute(torch.nn.Module, "__call__", self._learn)]
        self._launched.when_marked = self.remove

    def remove(self) -> None:
        """Look no further: the script marks its work itself."""
        while self._removes:
            self._removes.pop()()

    def _learn(self, call: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call)
        def watched_call(module: Any, *args: Any, **kwargs: Any) -> Any:
            depth = getattr(self._depth, "now", 0)
            if depth or not self._removes:  # it may stand below others that were put on top, and so outlive its end
                return call(module, *args, **kwargs)
            if any(one is module for one in self._seen):
                self.remove()
                self._removes = [patch_attribute(type(module), "__call__", functools.partial(self._measure, module))]
                return type(module).__call__(module, *args, **kwargs)
            self._depth.now = 1
            try:
                return call(module, *args, **kwargs)
            finally:
                self._depth.now = 0
                self._seen.append(module)

        return watched_call

    def _measure(self, found: Any, inherited: Callable[..., Any]) -> Callable[..., Any]:
        import torch

        own = vars(type(found)).get("__call__")

        @functools.wraps(inherited)
        def measured_call(module: Any, *args: Any, **kwargs: Any) -> Any:
            if module is not found or not self._removes or not self._launched.begin():
                return (own or torch.nn.Module.__call__)(module, *args, **kwargs)
            try:
                with self._launched.taking(FORWARD):
                    # Looked up now: the layers' marks stand there while a region is measured.
                    return (own or torch.nn.Module.__call__)(module, *args, **kwargs)
            finally:
                self._launched.end()

        return measured_call


class StepRegions(LateRecording):
    """Makes a region of each step that a clock of the recorder finds; it stands where a recording would."""

    is_patient = False

    def __init__(self, launched: LaunchedSampler) -> None:
        super().__init__(AutoOptions("", 0, 1))
        self._launched = launched
        self._open: AbstractContextManager[None] | None = None

    def open(self, evidence: StepEvidence, past: Sequence[PastStep], *, finish: Callable[[], object]) -> None:
        """The clock knows its steps; those that have ended do not count."""
        self.is_open, self.leader = True, evidence

    @guarded
    def ask(self) -> None:
        """The step before ends and the next one begins, unless the script is inside a region of its own."""
        self.end_loop()
        if self._launched.begin():
            self._open = self._launched.taking(STEP)
            self._open.__enter__()

    def got(self, *, waited: bool = True) -> None:
        """The step has its batch, which is not told apart here."""

    @guarded
    def end_loop(self) -> None:
        """The step ends."""
        taking, self._open = self._open, None
        if taking is not None:
            try:
                taking.__exit__(None, None, None)
            finally:
                self._launched.end()

    @guarded_even_off
    def drop_step(self) -> None:
        """The step is none: nobody knows when it ended."""
        taking, self._open = self._open, None
        if taking is not None:
            dropped = _Dropped()
            taking.__exit__(_Dropped, dropped, None)
            self._launched.end()

    def end_loop_at(self, end_ns: int) -> None:
        """The step ended in the past, so its run is of no use."""
        self.drop_step()

    def note(self, name: str, text: str) -> None:
        """There is no session to keep it with."""

    def close(self) -> None:
        """The process ends."""
        self.drop_step()


class _Dropped(Exception):
    """Leaves a region without a sample."""
