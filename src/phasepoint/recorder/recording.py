"""`record` and `start`: what users call, and the `Recording` that they get."""

import atexit
import os
import sys
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

from phasepoint.recorder.assembly import RecordOptions, assemble
from phasepoint.recorder.background import Background
from phasepoint.recorder.clock.cost import RecorderCost
from phasepoint.recorder.clock.epoch import Clock
from phasepoint.recorder.recorder import Recorder, Status
from phasepoint.recorder.resume.loop_place import LoopInProgress
from phasepoint.recorder.resume.request import ReplayRequest, Resume, give_up, take_request
from phasepoint.recorder.seam.guard import Guard
from phasepoint.recorder.seam.session import ProfilerSession

if TYPE_CHECKING:
    from phasepoint.recorder.replaying import Replaying

Batch = TypeVar("Batch")

OFF_VARIABLE = "PHASEPOINT_OFF"
"""Environment variable: set to anything but 0 or nothing, `record` records nothing and costs nothing."""


def record(
    path: str | PathLike[str],
    *,
    budget: float | None = 0.01,
    window_steps: int = 5,
    seed: int = 0,
    framework: Literal["jax", "torch"] | None = None,
    flush_s: float = 3.0,
    clock: Clock | None = None,
    session: ProfilerSession | None = None,
) -> "Recording":
    """Record a training job into a run directory.

    Nothing that goes wrong in recording reaches the job: the recorder switches itself off, the job goes on, and one
    line on stderr says so at the end.

    Args:
        path: directory or URL of the run; a run that is there already gets another attempt.
        budget: share of the job's time that recording may cost, 0–1. None captures back to back, at any cost; 0 runs
            the step clock alone.
        window_steps: steps in a capture window, 1 or more.
        seed: seed of the random sample of windows.
        framework: `jax` or `torch`; None takes the one that the job has imported (JAX where it has both).
        flush_s: seconds between two flushes, above 0: the steps that a killed job loses at most, and a little more.
            From ten times that on it is a tenth of the job's time, up to 10 s, and so is all else from the start.
        clock: where times come from; for tests.
        session: the profiler to use instead of the framework's; for tests.

    In a replay (`phasepoint replay run`) the run asked for is written instead of `path`.

    Returns:
        A context manager that gives the `Recording`.

    Raises:
        ValueError: an argument is outside its range.

    Example:
        >>> total = 0
        >>> with record("runs/sum") as run:
        ...     for batch in run.steps(range(100)):
        ...         total += batch
        >>> total
        4950
    """
    if budget is not None and not 0 <= budget <= 1:
        raise ValueError(f"budget is {budget!r}; expected a share of the job's time from 0 to 1, or None for no limit")
    if window_steps < 1:
        raise ValueError(f"window_steps is {window_steps!r}; expected 1 or more")
    if not flush_s > 0:
        raise ValueError(f"flush_s is {flush_s!r}; expected seconds above 0")
    if framework not in {None, "jax", "torch"}:
        raise ValueError(f"framework is {framework!r}; expected 'jax', 'torch' or None")
    options = RecordOptions(os.fspath(path), budget, window_steps, seed, framework, flush_s)
    request, is_first = take_request()
    if request is not None:
        options = replace(options, path=request.path, budget=None, request=request if is_first else None)
        if not is_first:
            return LaterRecording(options, clock or Clock(), session)
    return Recording(options, clock or Clock(), session)


def start(
    path: str | PathLike[str],
    *,
    budget: float | None = 0.01,
    window_steps: int = 5,
    seed: int = 0,
    framework: Literal["jax", "torch"] | None = None,
    flush_s: float = 3.0,
) -> "Recording":
    """Begin a recording that goes on until its `stop()`: for notebooks, callbacks and services.

    Where a `with` fits around the loop, `record` is better: it knows a job that failed from one that ended. What is not
    stopped is when the process ends. A recording into the same run that was not stopped (a cell that is run again) is
    stopped first.

    Args:
        path, budget, window_steps, seed, framework, flush_s: as for `record`.

    Raises:
        ValueError: as `record`.

    Example:
        >>> run = start("runs/by-hand")
        >>> for _ in range(3):
        ...     run.mark_step()
        >>> run.stop()
    """
    recording = record(path, budget=budget, window_steps=window_steps, seed=seed, framework=framework, flush_s=flush_s)
    for other in [other for other in _STARTED if other.path == recording.path]:
        other.stop()
    _STARTED.append(recording)
    atexit.register(recording.stop_at_exit)
    return recording.__enter__()


class Steps(Generic[Batch]):
    """A loader whose batches are steps. Iterating it again goes through the loader again."""

    def __init__(self, loader: Iterable[Batch], recorder: Recorder | None) -> None:
        self._loader = loader
        self._recorder = recorder

    def __iter__(self) -> Iterator[Batch]:
        recorder = self._recorder
        return iter(self._loader) if recorder is None else _iterate(iter(self._loader), recorder)

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type] # raises the loader's own TypeError


def _iterate(batches: Iterator[Batch], recorder: Recorder) -> Iterator[Batch]:
    """The loop itself. What the loader or the loop's body raises passes through it untouched."""
    ask, got, take_batch = recorder.ask, recorder.got, recorder.take_batch
    try:
        while True:
            ask()
            try:
                batch = next(batches)
            except StopIteration:
                return
            got()
            take_batch(batch)
            yield batch
    finally:
        recorder.end_loop()


class PlacedSteps(Steps[Batch]):
    """The same, and where the loop stands is kept with checkpoints."""

    def __iter__(self) -> Iterator[Batch]:
        recorder = self._recorder
        if recorder is None:
            return iter(self._loader)
        generators = recorder.before_placed()
        batches = iter(self._loader)
        return _iterate_placed(LoopInProgress(self._loader, batches, generators), batches, recorder)


def _iterate_placed(loop: LoopInProgress, batches: Iterator[Batch], recorder: Recorder) -> Iterator[Batch]:
    """As `_iterate`, counting the batches."""
    ask, got, take_batch = recorder.ask, recorder.got, recorder.take_batch
    recorder.begin_placed(loop)
    ended = False
    try:
        while True:
            ask()
            try:
                batch = next(batches)
            except StopIteration:
                ended = True
                return
            got()
            take_batch(batch)
            loop.batches += 1
            yield batch
    finally:
        recorder.end_loop()
        recorder.end_placed(loop, ended=ended)


class ReplaySteps(Steps[Batch]):
    """The same in a replay."""

    def __init__(
        self, loader: Iterable[Batch], replaying: "Replaying | None", *, resume: bool, loop: int | None
    ) -> None:
        super().__init__(loader, None)
        self._replaying = replaying
        self._resume = resume
        self._loop = loop

    def __iter__(self) -> Iterator[Batch]:
        if self._replaying is None:
            return iter(())
        return self._replaying.iterate(self._loader, resume=self._resume, loop=self._loop)


class Recording:
    """A recording in progress. Made by `record`.

    Attributes:
        path: the run's path or URL.
    """

    def __init__(self, options: "RecordOptions", clock: Clock, session: ProfilerSession | None) -> None:
        self.path = options.path
        self._options = options
        self._clock = clock
        self._session = session
        self._guard = Guard()
        self._recorder: Recorder | None = None
        self._background: Background | None = None
        self._replaying: Replaying | None = None
        self._has_ended = False
        self._has_left = False
        self._stack = ExitStack()
        self._pid = os.getpid()
        self._unused = weakref.finalize(self, _tell_unused, self.path, self._pid)

    def __enter__(self) -> "Recording":
        self._unused.detach()
        _CURRENT[:] = [self]
        request = self._options.request
        if os.environ.get(OFF_VARIABLE, "") in {"", "0"}:
            made = assemble(self._options, self._clock, self._session, self._guard, self._stack)
            if made is not None:
                self._recorder, self._background = made
                _switch_off_in_children(self._guard)
        if request is not None:
            self._replaying = self._begin_replay(request)
        return self

    def _begin_replay(self, request: ReplayRequest) -> "Replaying":
        if self._recorder is not None:
            from phasepoint.recorder.replaying import Replaying

            return Replaying(request, self._recorder, self._end)
        reason = f"the recording could not be begun: {self._guard.reason or f'{OFF_VARIABLE} is set'}"
        give_up(request, "failed", reason)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if os.getpid() != self._pid or self._has_left:
            return  # a forked child that leaves its parent's block; or it was stopped inside
        self._has_left = True
        _CURRENT[:] = [other for other in _CURRENT if other is not self]
        self._end("ok" if kind is None or ends_well(error) else "failed")
        if self._replaying is not None:
            self._replaying.left(error)
        self._warn()

    def stop(self) -> None:
        """End the recording and write the rest: for those who used `start`. Calling it twice is harmless."""
        atexit.unregister(self.stop_at_exit)
        if self in _STARTED:
            _STARTED.remove(self)
        self.__exit__(None, None, None)

    def stop_at_exit(self) -> None:
        """The process ends, and nobody has stopped the recording."""
        error = last_error()
        self.__exit__(None if error is None else type(error), error, None)

    def _end(self, status: Status) -> None:
        """Take the hooks out and write the rest. Calling it twice is harmless."""
        self._guard.call("taking out the hooks", self._stack.close)
        if self._recorder is not None and not self._has_ended:
            self._has_ended = True
            self._recorder.close(status)

    def steps(self, loader: Iterable[Batch], *, resume: bool = False, loop: int | None = None) -> Steps[Batch]:
        """The loader's batches, each of them a step: the wait for it and what the loop's body does with it.

        A loop inside another one's step ends that step where it begins. Leaving the loop early ends its last step.

        Args:
            loader: gives the batches.
            resume: whether a replay may take the loader to its first step; the loops then must run as they did in the
                original, from the job's first one on. False leaves the loader alone: the program has placed it. Makes
                no difference in an ordinary run, but that the place in the loops, and the loader's state where it gives
                one, are kept with checkpoints.
            loop: number of this loop among those with `resume=True`, for programs that go on in the middle of the
                job's loops: `for epoch in range(restored_epoch, epochs): … run.steps(loader, resume=True, loop=epoch)`.
                What lies before it is then drawn from this loader. Makes no difference in an ordinary run.
        """
        if self._replaying is not None:
            return ReplaySteps(loader, self._replaying, resume=resume, loop=loop)
        return (PlacedSteps if resume else Steps)(loader, self._recorder)

    @property
    def resume(self) -> Resume | None:
        """Where to go on, in a replay that begins with a checkpoint; None in an ordinary run. Read it before the loop.

        with pp.record("runs/my-job") as run:
            if run.resume is not None:
                state = restore(run.resume.checkpoint)
        """
        return None if self._replaying is None else self._replaying.resume

    def replay_is_over(self) -> bool:
        """Whether this is a replay whose last step is over, for those who see a program's steps from outside."""
        return self._replaying is not None and (self._replaying.is_over or self._replaying.ends())

    def mark_step(self) -> None:
        """A step has just ended and the next one begins, for jobs without a loop over a loader."""
        recorder = self._recorder
        if self._replaying is not None:
            self._replaying.mark()
        elif recorder is not None:
            recorder.mark()

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Name what goes on inside; it becomes the steps' `kind`. Hints may be nested: the inner one counts."""
        recorder = self._recorder
        entered = recorder.enter_phase(str(name)) if recorder is not None else None
        try:
            yield
        finally:
            if recorder is not None and entered is not None:
                recorder.leave_phase(str(name), *entered)

    def checkpoint(self, path: str | PathLike[str], step: int | None = None) -> AbstractContextManager[None]:
        """Say that a checkpoint was written here, where the hooks for Orbax and `torch.save` cannot see it.

        What the save held the job for is then estimated. It is measured where the call stands around the save:

        with run.checkpoint(path):
            np.savez(path, **state)

        An error inside the block passes, and no checkpoint is noted.

        Args:
            path: where it is.
            step: the step it belongs to, as the recorder counts them; None for the step in progress.

        Returns:
            The block, which need not be entered.
        """
        mark = None if self._recorder is None else self._recorder.user_checkpoint(os.fspath(path), step)
        return nullcontext() if mark is None else mark

    def log(self, **scalars: object) -> None:
        """Keep values by step: `run.log(loss=loss)`. Nothing waits for a device, and nothing is raised.

        Args:
            scalars: numbers, or arrays of NumPy, JAX or PyTorch that hold one; those are read later, in the
                background. What is no number, or a JAX array that was donated before it was read, is kept as null.
        """
        if self._recorder is not None:
            self._recorder.log(scalars)

    def keep(self, table: str, row: Mapping[str, object], *, at_ns: int) -> None:
        """Keep a row of another part of Phasepoint: of `trials` or `tunings`.

        Args:
            table: its table.
            row: its columns but for the time.
            at_ns: when, on `time.perf_counter_ns`; it becomes `start_ps`.
        """
        if self._recorder is not None:
            self._recorder.keep(table, row, at_ns)

    def next_step(self) -> int:
        """Number of the step in progress, or of the next one where none is; 0 where nothing is recorded."""
        return 0 if self._recorder is None else self._recorder.next_step

    def note(self, name: str, text: str) -> None:
        """Keep something to be known about the session; it is written when the recording ends."""
        if self._background is not None:
            self._background.note(name, text)

    @property
    def cost(self) -> RecorderCost | None:
        """What recording has cost so far; None where it is off from the start."""
        return self._background.cost() if self._background is not None else None

    @property
    def off_reason(self) -> str | None:
        """Why the recorder switched itself off; None while it is on."""
        return self._guard.reason

    @property
    def recorder(self) -> Recorder | None:
        """The hooks, for those who see steps in another way than through a loop; None where it is off."""
        return self._recorder

    def _warn(self) -> None:
        """One line on stderr, at the end, where something went wrong."""
        problem = self._guard.reason and f"the recorder switched itself off: {self._guard.reason}"
        if problem is None and self._background is not None:
            problem = self._background.problem()
        if problem is not None:
            sys.stderr.write(f"phasepoint: {problem} (run {self.path}; the job itself was not affected)\n")


class LaterRecording(Recording):
    """Another recording of a process whose first one is a replay: records nothing, and its loops are empty."""

    def __enter__(self) -> "Recording":
        self._unused.detach()
        return self

    def steps(self, loader: Iterable[Batch], *, resume: bool = False, loop: int | None = None) -> Steps[Batch]:
        """Nothing."""
        return ReplaySteps(loader, None, resume=resume, loop=loop)

    def mark_step(self) -> None:
        """End the process: there is no loop to end."""
        raise SystemExit(0)


_CURRENT: list[Recording] = []
"""The recording in progress, of the last `record` that was entered; none or one."""


def current_recording() -> Recording | None:
    """The recording in progress in this process; None where there is none, or not yet."""
    return _CURRENT[0] if _CURRENT else None


_STARTED: list[Recording] = []
"""Those that `start` began and nobody has stopped."""


def ends_well(error: BaseException | None) -> bool:
    """Whether what ends a block is no failure of the job: `sys.exit()` with nothing or 0."""
    return isinstance(error, SystemExit) and error.code in {None, 0}


def last_error() -> BaseException | None:
    """What the interpreter ends with, where nobody caught it."""
    error: BaseException | None = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    return error


def _tell_unused(path: str, pid: int) -> None:
    """A `record(…)` that is no block records nothing, and would do so in silence."""
    if os.getpid() == pid:
        sys.stderr.write(
            f"phasepoint: nothing was recorded into {path}: record() was called without `with`; write "
            f"`with pp.record(…) as run:` around the loop, or `run = pp.start(…)` before and `run.stop()` after it\n"
        )


def _switch_off_in_children(guard: Guard) -> None:
    """A forked child (a data loader's worker) has the hooks, but neither the flusher's thread nor the shard."""
    reference = weakref.ref(guard)

    def after_fork() -> None:
        forked = reference()
        if forked is not None:
            forked.off = True

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=after_fork)
