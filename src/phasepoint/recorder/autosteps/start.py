"""Begins to look for steps in a process that was started by `phasepoint record`."""

import atexit
import os
import sys
from collections.abc import Callable, Mapping
from functools import partial, wraps
from importlib import import_module
from typing import Any

from phasepoint.recorder.autosteps.late_recording import LateRecording
from phasepoint.recorder.seam.guard import guarded
from phasepoint.recorder.seam.import_watch import when_imported
from phasepoint.recorder.seam.options import VARIABLE, AutoOptions
from phasepoint.recorder.seam.patch import patch_attribute

SOURCES: Mapping[str, str] = {
    "torch": "torch.clock",
    "torch.autograd": "torch.updates",
    "torch.profiler": "torch.profiler",
    "jax": "jax.clock",
    "jax.profiler": "jax.annotation",
    "optax": "jax.optax",
    "keras.src.callbacks.callback_list": "keras",
    "lightning.pytorch.loops.training_epoch_loop": "lightning",
    "pytorch_lightning.loops.training_epoch_loop": "lightning",
    "transformers.trainer_callback": "transformers",
}
"""By module whose import brings it in, the file of `sources` whose `install(late, module)` puts the hooks in."""


class AutoRecorder:
    """Installs the sources of steps of each framework as it is imported.

    Args:
        options: where and how to record.
        late: what to do with the steps; None records them.
    """

    def __init__(self, options: AutoOptions, late: LateRecording | None = None) -> None:
        self.late = late or LateRecording(options)
        self.guard = self.late.guard

    @guarded
    def install(self) -> None:
        """Wait for the frameworks; what is imported already is hooked at once."""
        for module, source in SOURCES.items():
            when_imported(module, partial(self._install_source, module, source))
        when_imported("phasepoint.recorder.recording", self._recording_imported)
        os.register_at_fork(after_in_child=self.late.forget)

    def _install_source(self, module: str, source: str) -> None:
        """Put the hooks of one source in, which may fail without harm to the others."""

        def install() -> None:
            import_module(f"phasepoint.recorder.autosteps.sources.{source}").install(self.late, module)

        self.late.source_guard().call(f"hooking {module}", install)

    @guarded
    def _recording_imported(self) -> None:
        from phasepoint.recorder.recording import Recording

        patch_attribute(Recording, "__enter__", self._wrap_enter)

    def _wrap_enter(self, enter: Callable[[Any], Any]) -> Callable[[Any], Any]:
        @wraps(enter)
        def enter_recording(recording: Any) -> Any:
            self.late.give_way(recording)
            return enter(recording)

        return enter_recording


def start_from_environ() -> None:
    """Begin to look for steps if this process was started by `phasepoint record`. Never raises an `Exception`."""
    value = os.environ.get(VARIABLE)
    if not value:
        return
    try:
        options = AutoOptions.from_environ(value)
    except (ValueError, TypeError) as error:
        sys.stderr.write(f"phasepoint: not recorded: {VARIABLE} holds no options: {error}\n")
        return
    recorder = AutoRecorder(options)
    atexit.register(recorder.late.tell_fault)  # the first that is registered is the last that is called
    recorder.install()
