"""Recording without a line of code: finds the steps in what the frameworks tell, and opens the recording at the first.

A process that makes no step (a data worker, a helper script) never opens a recording and leaves no shard. The steps
that ended before the recording was open are written afterwards: the clock stands at their time while they are.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, Literal

from phasepoint.recorder.guard import Guard, guarded, guarded_even_off
from phasepoint.recorder.import_watch import when_imported
from phasepoint.recorder.patch import patch_attribute

if TYPE_CHECKING:
    from phasepoint.recorder.recorder import Recorder
    from phasepoint.recorder.recording import Recording

VARIABLE = "PHASEPOINT_AUTORECORD"
"""Environment variable that holds the options of a recording without code, as JSON."""

Framework = Literal["jax", "torch"]


@dataclass(frozen=True)
class AutoOptions:
    """What `phasepoint record` was asked for.

    Attributes:
        path: run directory or URL.
        budget: as in `record`.
        window_steps: as in `record`.
    """

    path: str
    budget: float | None
    window_steps: int

    def to_environ(self) -> str:
        """The value of `VARIABLE`."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_environ(value: str) -> "AutoOptions":
        """The options from the value of `VARIABLE`."""
        return AutoOptions(**json.loads(value))


@dataclass(frozen=True)
class PastStep:
    """A step that ended before the recording was open; readings of `time.perf_counter_ns()`.

    Attributes:
        asked_ns: when its batch was asked for.
        got_ns: when it was there; None where the wait could not be seen.
        end_ns: when it ended.
    """

    asked_ns: int
    got_ns: int | None
    end_ns: int


class StandingClock:
    """A monotonic clock that can be made to stand at a time in the past."""

    def __init__(self, at_ns: int) -> None:
        self.at_ns: int | None = at_ns

    def now_ns(self) -> int:
        """The time, in nanoseconds."""
        return time.perf_counter_ns() if self.at_ns is None else self.at_ns

    def unix_ns(self) -> int:
        """Unix time that goes with it, in nanoseconds."""
        behind_ns = 0 if self.at_ns is None else time.perf_counter_ns() - self.at_ns
        return time.time_ns() - behind_ns


class LateRecording:
    """The recording of this process, opened at its first steps. All hooks are guarded and run on the job's thread.

    Attributes:
        is_open: whether it has been opened.
        framework: whose steps it counts; None until it is opened.
    """

    def __init__(self, options: AutoOptions) -> None:
        self.guard = Guard()
        self.is_open = False
        self.framework: Framework | None = None
        self._options = options
        self._recording: Recording | None = None
        self._recorder: Recorder | None = None
        self._clock: StandingClock | None = None
        self._finish: Callable[[], object] | None = None
        self._pid = os.getpid()

    @guarded
    def open(self, framework: Framework, past: Sequence[PastStep], *, finish: Callable[[], object]) -> None:
        """Begin the recording.

        Args:
            framework: whose steps these are.
            past: the steps that have ended already, one or more, oldest first.
            finish: ends the last step, before the recording is closed.
        """
        from phasepoint.recorder.epoch import Clock
        from phasepoint.recorder.recording import record
        from phasepoint.recorder.step_clock import NOT_KNOWN

        began_ns = time.perf_counter_ns()
        clock = self._clock = StandingClock(past[0].asked_ns)
        options = self._options
        recording = record(
            options.path,
            budget=options.budget,
            window_steps=options.window_steps,
            framework=framework,
            clock=Clock(now_ns=clock.now_ns, unix_ns=clock.unix_ns),
        )
        self._recording = recording
        recording.__enter__()
        self._recording, self._recorder = recording, recording.recorder
        self.is_open = True
        self.framework = framework
        self._finish = finish
        self._pid = os.getpid()
        _call_at_end_of_child(self.close)
        if self._recorder is not None:
            got = [NOT_KNOWN if step.got_ns is None else step.got_ns for step in past]
            steps = [(step.asked_ns, got_ns, step.end_ns) for step, got_ns in zip(past, got, strict=True)]
            self._recorder.replay(steps, entry_ns=time.perf_counter_ns() - began_ns)
        clock.at_ns = None

    def ask(self) -> None:
        """The open step ends and the next one may begin."""
        if self._recorder is not None:
            self._recorder.ask()

    def got(self, *, waited: bool = True) -> None:
        """The next step has its batch; `waited` says whether the time since `ask` was a wait for it."""
        if self._recorder is not None:
            self._recorder.got(waited=waited)

    def end_loop(self) -> None:
        """The open step ends; none begins."""
        if self._recorder is not None:
            self._recorder.end_loop()

    def end_loop_at(self, end_ns: int) -> None:
        """The open step ended at a time in the past, at a reading of `time.perf_counter_ns()`; none begins."""
        if self._clock is not None:
            self._clock.at_ns = end_ns
            self.end_loop()
            self._clock.at_ns = None

    def drop_step(self) -> None:
        """The open step is none."""
        if self._recorder is not None:
            self._recorder.drop_step()

    @guarded_even_off
    def close(self) -> None:
        """End the recording. Calling it twice is harmless."""
        recording, finish = self._recording, self._finish
        if recording is None or os.getpid() != self._pid:
            return
        if finish is not None and not self.guard.off:
            finish()
        self._recording = self._recorder = None
        error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
        recording.__exit__(None if error is None else type(error), error, None)
        if self.guard.reason is not None:
            sys.stderr.write(f"phasepoint: steps were lost: {self.guard.reason} (the job itself was not affected)\n")

    def give_way(self, recording: object) -> None:
        """The script begins a recording of its own, which knows better: ours ends, and no other is opened."""
        if recording is not self._recording:
            self.close()
            self.guard.off = True

    def forget(self) -> None:
        """In a forked child: the recording is the parent's; this process opens its own if it makes steps."""
        self._recording = self._recorder = self.framework = None
        self.is_open = False


class AutoRecorder:
    """Installs a step clock for each framework as it is imported.

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
        when_imported("torch", self._torch_imported)
        when_imported("jax", self._jax_imported)
        when_imported("phasepoint.recorder.recording", self._recording_imported)
        os.register_at_fork(after_in_child=self.late.forget)

    @guarded
    def _torch_imported(self) -> None:
        from phasepoint.recorder.torch_clock import TorchClock

        TorchClock(self.late).install()

    @guarded
    def _jax_imported(self) -> None:
        from phasepoint.recorder.jax_clock import JaxClock

        JaxClock(self.late).install()

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
    AutoRecorder(options).install()


def _call_at_end_of_child(handler: Callable[[], object]) -> None:
    """Children of `multiprocessing` that were forked end without `atexit`; they run its own finalizers."""
    process = sys.modules.get("multiprocessing.process")
    if process is not None and process.parent_process() is not None:
        from multiprocessing.util import Finalize

        Finalize(None, handler, exitpriority=100)
