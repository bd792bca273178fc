"""The recording of a process whose script says nothing: opened at its first steps, led by the strongest evidence.

A process that makes no step (a data worker, a helper script) never opens a recording and leaves no shard. The steps
that ended before the recording was open are written afterwards: the clock stands at their time while they are.
"""

import atexit
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from phasepoint.recorder.autosteps.evidence import Framework, Rank, StepEvidence
from phasepoint.recorder.clock.importing import busy_ns, collector_paused
from phasepoint.recorder.seam.guard import Guard, guarded, guarded_even_off
from phasepoint.recorder.seam.options import AutoOptions

if TYPE_CHECKING:
    from phasepoint.recorder.assembly import RecordOptions
    from phasepoint.recorder.recorder import Recorder
    from phasepoint.recorder.recording import Recording

STEPS_FROM = "steps_from"
"""Note of the session: what the recorded steps are."""

STEPS_PER_CALL = "steps_per_call"
"""Note of the session: training steps in each recorded one, where a program loops over them itself."""

MOST_COMPILES = 1 << 12
"""Stages of compilations kept until the recording is open, the last ones: a job that never trains may make many."""

STEPS_UNFOLLOWED = "steps_unfollowed"
"""Note of the session: what of the training the recorded steps may not tell."""


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
    """A monotonic clock that can be made to stand at a time in the past, for the thread that made it.

    The recorder's own thread looks at the machine meanwhile, and that is now.
    """

    def __init__(self, at_ns: int) -> None:
        self.at_ns: int | None = at_ns
        self._thread = threading.get_ident()

    def now_ns(self) -> int:
        """The time, in nanoseconds."""
        at_ns = self.at_ns  # another thread may take it away
        return time.perf_counter_ns() if at_ns is None or threading.get_ident() != self._thread else at_ns

    def unix_ns(self) -> int:
        """Unix time that goes with it, in nanoseconds."""
        behind_ns = 0 if self.at_ns is None else time.perf_counter_ns() - self.at_ns
        return time.time_ns() - behind_ns


class LateRecording:
    """The recording of this process, opened at its first steps. All hooks are guarded and run on the job's thread.

    Attributes:
        is_open: whether it has been opened.
        leader: evidence of the source whose steps are recorded; None until the recording is opened.
        is_patient: whether a source may take its time to be sure of what a step is; steps seen meanwhile are kept.
        is_optimizing: whether an optimizer is at work: what it does inside (LBFGS evaluates gradients) is its own step.
        mark: the open step ends and the next one begins, whose wait for a batch is not known; the recorder's own while
            there is one, as each call between two steps of a job costs it a microsecond.
        jax_clock: what follows JAX's programs (`sources/jax/clock.py`), whom its neighbours tell of updates; None where
            nothing does.
    """

    is_patient = True

    def __init__(self, options: AutoOptions) -> None:
        self.guard = Guard()
        self._source_guards: list[Guard] = []
        self.is_open = False
        self.leader: StepEvidence | None = None
        self._expected: StepEvidence | None = None
        self.is_optimizing = False
        self.mark: Callable[[], object] = self._ask_and_got
        self.jax_clock: Any = None
        self._options = options
        self._recording: Recording | None = None
        self._recorder: Recorder | None = None
        self._clock: StandingClock | None = None
        self._finish: Callable[[], object] | None = None
        self._notes: dict[str, str] = {}
        self._hints: list[str] = []
        self._at_exit: list[tuple[Rank, Callable[[], object]]] = []
        self._compiles: deque[tuple[int, int, str | None]] = deque(maxlen=MOST_COMPILES)
        self._pid = os.getpid()

    @property
    def framework(self) -> Framework | None:
        """Whose steps are recorded; None until the recording is opened."""
        return None if self.leader is None else self.leader.framework

    def source_guard(self) -> Guard:
        """The guard of one source of steps: what fails in it silences that source alone, and is told at the end."""
        guard = Guard()
        self._source_guards.append(guard)
        return guard

    def admits(self, evidence: StepEvidence) -> bool:
        """Whether steps of this evidence would be recorded: nobody leads or is expected to, or only somebody weaker."""
        leader = self.leader if self.leader is not None else self._expected
        return leader is None or leader is evidence or evidence.rank > leader.rank

    def expect(self, evidence: StepEvidence | None) -> None:
        """Steps of this evidence are about to come, so weaker ones need not open a recording; None: no longer."""
        self._expected = evidence

    @guarded
    def open(self, evidence: StepEvidence, past: Sequence[PastStep], *, finish: Callable[[], object]) -> None:
        """Begin the recording, or take the lead in it from weaker evidence.

        Args:
            evidence: what tells of these steps; it must be admitted.
            past: the steps that have ended already, one or more, oldest first. Where somebody weaker led until now,
                that one's steps stand for the time.
            finish: ends the last step, before the recording is closed.
        """
        if not self.admits(evidence):
            return
        if self.is_open:
            if self._finish is not None:
                self._finish()
            self._finish = finish
            self.lead(evidence)
            return
        began_ns = busy_ns()
        with collector_paused():
            from phasepoint.recorder import recording  # noqa: F401 - the import alone, 60 ms
        with collector_paused():
            self._begin(evidence, past, finish, began_ns)

    def _begin(
        self, evidence: StepEvidence, past: Sequence[PastStep], finish: Callable[[], object], began_ns: int
    ) -> None:
        from phasepoint.recorder.clock.epoch import Clock
        from phasepoint.recorder.recording import Recording
        from phasepoint.recorder.seam.session import CompiledProgram, PastCompile

        clock = self._clock = StandingClock(past[0].asked_ns)
        self._notes.setdefault(STEPS_FROM, evidence.text)
        recording = Recording(self._record_options(evidence), Clock(now_ns=clock.now_ns, unix_ns=clock.unix_ns), None)
        self._recording = recording
        self._recorder = recording.__enter__().recorder
        self.is_open = True
        self.leader = evidence
        self._finish = finish
        self._pid = os.getpid()
        _call_at_end_of_child(self.close)
        if self._recorder is not None:
            compiles = [
                PastCompile(start_ns, dur_ns, None if name is None else partial(CompiledProgram, name or None))
                for start_ns, dur_ns, name in self._compiles
            ]
            self._recorder.replay(_times_of(past), entry_ns=busy_ns() - began_ns, compiles=compiles)
            self._recorder.now_ns = time.perf_counter_ns  # as the standing clock does, whose time no mark is made at
            self.mark = self._recorder.mark
        clock.at_ns = None

    def _record_options(self, evidence: StepEvidence) -> "RecordOptions":
        from phasepoint.recorder.assembly import RecordOptions

        options = self._options
        return RecordOptions(
            options.path,
            options.budget,
            options.window_steps,
            framework=evidence.framework,
            notes=self._notes,
        )

    def note_compile(self, dur_ns: int, program: str | None) -> None:
        """A stage of a compilation has ended; kept until the recording is open, which is told by the framework then.

        Args:
            dur_ns: how long it took.
            program: name of the program that it made, empty where that is not known; None where it made none.
        """
        if not self.is_open:
            self._compiles.append((time.perf_counter_ns() - dur_ns, dur_ns, program))

    def lead(self, evidence: StepEvidence) -> None:
        """From now on the steps are told of by this evidence."""
        before = self._notes.get(STEPS_FROM)
        self.leader = evidence
        self.note(STEPS_FROM, evidence.text if before is None else f"{before}; then {evidence.text}")

    def note(self, name: str, text: str) -> None:
        """Keep something with the session; what is said after the recording began is written when it ends."""
        self._notes[name] = text
        if self._recording is not None:
            self._recording.note(name, text)

    def hint(self, text: str) -> None:
        """Something here looks like training and is none that can be followed: told at the end if no step was seen."""
        if text not in self._hints:
            self._hints.append(text)

    def add_source(self, rank: Rank, *, finish: Callable[[], object], reset: Callable[[], object]) -> None:
        """A source of steps has put its hooks in.

        Args:
            rank: of its evidence.
            finish: called when the process ends, those of higher rank first: what the source saw may still become
                steps. It is done before what the frameworks themselves do at exit, as they have all been imported by
                then.
            reset: forgets what the source saw; called in a forked child.
        """
        os.register_at_fork(after_in_child=reset)
        self._at_exit.append((rank, finish))
        atexit.unregister(self.exit)
        atexit.register(self.exit)

    @guarded_even_off
    def exit(self) -> None:
        """The process ends: a job of few steps has not opened its recording yet."""
        if not self.guard.off:
            for _, finish in sorted(self._at_exit, key=lambda row: -row[0]):
                if self.leader is None:
                    finish()
        self.close()
        recording, self._recording = self._recording, None
        if recording is not None and os.getpid() == self._pid:  # closing failed
            recording.stop_at_exit()

    def ask(self) -> None:
        """The open step ends and the next one may begin."""
        if self._recorder is not None:
            self._recorder.ask()

    def got(self, *, waited: bool = True) -> None:
        """The next step has its batch; `waited` says whether the time since `ask` was a wait for it."""
        if self._recorder is not None:
            self._recorder.got(waited=waited)

    def take_batch(self, batch: object) -> None:
        """The open step's batch."""
        if self._recorder is not None:
            self._recorder.take_batch(batch)

    def _ask_and_got(self) -> None:
        """Without a recorder: those who make something else of steps override these two."""
        self.ask()
        self.got(waited=False)

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

    def end_step_at(self, end_ns: int) -> None:
        """The open step ended at a time in the past, and the next one began there and has just ended."""
        if self._clock is not None and self._recorder is not None:
            self._clock.at_ns = end_ns
            self._recorder.end_loop()
            self._recorder.mark()
            self._clock.at_ns = None

    def recall(self, past: Sequence[PastStep]) -> None:
        """Steps that have ended since the last one did, oldest first; none is open."""
        if self._recorder is not None:
            self._recorder.recall(_times_of(past))

    def drop_step(self) -> None:
        """The open step is none."""
        if self._recorder is not None:
            self._recorder.drop_step()

    @guarded_even_off
    def close(self) -> None:
        """End the recording. Calling it twice is harmless."""
        recording, finish = self._recording, self._finish
        if os.getpid() != self._pid:
            return
        if recording is None:
            self._tell_hints()
            self.tell_fault()
            return
        if finish is not None and not self.guard.off:
            finish()
        self._recording = self._recorder = None
        self.mark = self._ask_and_got
        recording.stop_at_exit()
        self.tell_fault()

    def tell_fault(self) -> None:
        """What went wrong and was not told yet, a line each."""
        for guard in (self.guard, *self._source_guards):
            reason, guard.reason = guard.reason, None
            if reason is not None:
                sys.stderr.write(f"phasepoint: steps may be lost: {reason} (the job itself was not affected)\n")

    def _tell_hints(self) -> None:
        """No step was recorded in this process: say what was seen of training, and what would record it."""
        if self.is_open or self.guard.off or not self._hints:
            return
        hints, self._hints = "; ".join(self._hints), []
        sys.stderr.write(
            f"phasepoint: no step was recorded in process {os.getpid()}: {hints}. These two lines record it: "
            f'"with phasepoint.record({self._options.path!r}) as run:" around the loop, and '
            '"run.mark_step()" at the end of each step\n'
        )

    def give_way(self, recording: object) -> None:
        """The script begins a recording of its own, which knows better: ours ends, and no other is opened."""
        if recording is not self._recording:
            self.close()
            self.guard.off = True

    def forget(self) -> None:
        """In a forked child: the recording is the parent's; this process opens its own if it makes steps."""
        self._recording = self._recorder = self.leader = self._expected = None
        self.mark = self._ask_and_got
        self.is_open = False
        self._notes, self._hints, self._pid = {}, [], os.getpid()


def _times_of(past: Sequence[PastStep]) -> list[tuple[int, int, int]]:
    """When each was asked for, got its batch and ended."""
    from phasepoint.recorder.clock.step_clock import NOT_KNOWN

    got = [NOT_KNOWN if step.got_ns is None else step.got_ns for step in past]
    return [(step.asked_ns, got_ns, step.end_ns) for step, got_ns in zip(past, got, strict=True)]


def _call_at_end_of_child(handler: Callable[[], object]) -> None:
    """Children of `multiprocessing` that were forked end without `atexit`; they run its own finalizers."""
    process = sys.modules.get("multiprocessing.process")
    if process is not None and process.parent_process() is not None:
        from multiprocessing.util import Finalize

        Finalize(None, handler, exitpriority=100)
