"""Puts a recording together: the framework's session, the run to write, the account, the thread, the hooks."""

import os
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from phasepoint.core.units import PS_PER_MS, PS_PER_NS, PS_PER_S
from phasepoint.recorder.background import Background, Flusher, Inbox, Parts
from phasepoint.recorder.clock import epoch as process_age
from phasepoint.recorder.clock import importing as import_cost
from phasepoint.recorder.clock.batch_size import count_elements
from phasepoint.recorder.clock.cost import CostAccount
from phasepoint.recorder.clock.epoch import Clock, Epoch, start_epoch
from phasepoint.recorder.clock.gc_clock import GcClock
from phasepoint.recorder.clock.step_clock import StepClock
from phasepoint.recorder.output import RunOutput
from phasepoint.recorder.process.identity import (
    SignsOfLife,
    framework_versions,
    git_commit,
    jax_backends_started,
    job_command,
    job_folder,
)
from phasepoint.recorder.process.idle_converter import IdleConverter
from phasepoint.recorder.profilers.late import late_session
from phasepoint.recorder.recorder import Recorder
from phasepoint.recorder.resume.request import ReplayRequest
from phasepoint.recorder.seam.guard import Guard, guarded
from phasepoint.recorder.seam.session import ProfilerSession
from phasepoint.recorder.windows.budget import BudgetController, WindowCost
from phasepoint.recorder.windows.planner import RequestedWindow, WindowPlanner
from phasepoint.recorder.windows.runner import WindowRunner

if TYPE_CHECKING:
    from phasepoint.store import ShardWriter

PRIVATE_PRIOR = WindowCost(2 * PS_PER_MS, 8 * PS_PER_MS, 15 * PS_PER_MS, 10 * PS_PER_MS)
"""What the first window is taken to cost, a probe of `PROBE_PS`; measured windows of small networks cost 3–30 ms."""

PUBLIC_PRIOR = WindowCost(50 * PS_PER_MS, 100 * PS_PER_MS, PS_PER_S, 100 * PS_PER_MS)
"""The same through the public API, which writes to disk and stops in about a second."""

_CALIBRATION_STEPS = 256
"""Steps of a clock in a tight loop whose mean is taken: 0.5 ms at 2 µs each. A choice."""

IN_THE_JOB = 5
"""What a step's hooks cost between the job's own code, in multiples of a step of the clock in a tight loop (2.3 µs):
the job drives code and data of the recorder out of the caches. Measured 2026-11-23 with `benchmarks/step_cost.py` on 2
shared cores, three times: 11 to 12 µs in PyTorch (steps by the optimizer), 4 of them for the backward pass."""


@dataclass(frozen=True)
class RecordOptions:
    """The arguments of `record`, what is asked of it where this is a replay, and notes to keep with the session."""

    path: str
    budget: float | None
    window_steps: int
    seed: int = 0
    framework: Literal["jax", "torch"] | None = None
    flush_s: float = 3.0
    request: ReplayRequest | None = None
    notes: Mapping[str, str] = field(default_factory=dict)


def assemble(
    options: RecordOptions, clock: Clock, session: ProfilerSession | None, guard: Guard, stack: ExitStack
) -> tuple[Recorder, Background] | None:
    """Start a recording; None where that failed, and the guard then says why.

    Args:
        options: the arguments of `record`.
        clock: where times come from.
        session: the profiler to use; None takes the framework's.
        guard: keeps faults from the job.
        stack: takes what must be undone at the end.
    """
    return _Assembly(options, clock, guard).start(session, stack)


class _Assembly:
    """The steps of `assemble`, under the guard."""

    def __init__(self, options: RecordOptions, clock: Clock, guard: Guard) -> None:
        self.guard = guard
        self._options = options
        self._clock = clock

    @guarded
    def start(self, session: ProfilerSession | None, stack: ExitStack) -> tuple[Recorder, Background]:
        began_ns = self._clock.busy_ns()
        epoch = start_epoch(self._clock)
        session = session or _framework_session(self._options.framework, self.guard)
        parts = self._parts(session, epoch)
        converter = IdleConverter(self._options.path) if self._options.budget else None
        gc_clock = GcClock(self._clock.now_ns)
        flush_ps = int(self._options.flush_s * PS_PER_S)
        background = Background(parts, flush_ps=flush_ps, converter=converter, gc_clock=gc_clock)
        request = self._options.request
        planner: WindowPlanner | RequestedWindow = WindowPlanner(parts.controller, seed=self._options.seed)
        if request is not None:
            planner = RequestedWindow(request.target_first, request.target_last)
        flusher = Flusher(background.round, due_in_s=lambda: parts.windows.due_in_s(self._clock.now_ns()))
        recorder = Recorder(
            parts, planner, background, flusher, step_cost_ps=calibrate(self._clock), seed=self._options.seed
        )
        self.guard.when_off(recorder.abandon)
        self._install(recorder, session, stack)
        stack.callback(gc_clock.watch())
        stack.callback(background.sync_clock.remove)
        flusher.start()
        background.entered_ps = (self._clock.busy_ns() - began_ns) * PS_PER_NS
        parts.account.spend("entry", background.entered_ps + import_cost.take_spent_ns() * PS_PER_NS)
        return recorder, background

    def _parts(self, session: ProfilerSession, epoch: Epoch) -> Parts:
        account = CostAccount()
        signs = SignsOfLife(self._clock.now_ns)
        # A framework that is not known yet ("none") is taken to have its private interface, as all tested ones do.
        prior = PUBLIC_PRIOR if session.probe().api == "public" else PRIVATE_PRIOR
        request = self._options.request
        return Parts(
            clock=self._clock,
            epoch=epoch,
            guard=self.guard,
            steps=StepClock(now_ns=self._clock.now_ns, first_step=0 if request is None else request.first_step),
            account=account,
            controller=BudgetController(self._options.budget, account, prior, window_steps=self._options.window_steps),
            session=session,
            windows=WindowRunner(
                session,
                self._clock,
                account,
                max_steps=self._options.window_steps,
                until_step=None if request is None else request.target_last + 1,
                guard=self.guard,
            ),
            output=RunOutput(lambda: _open_writer(self._options, session, epoch, signs), signs),
            inbox=Inbox(),
        )

    def _install(self, recorder: Recorder, session: ProfilerSession, stack: ExitStack) -> None:
        from phasepoint.recorder.hooks.checkpoints import watch_checkpoints

        if self._options.request is not None:
            from phasepoint.recorder.resume.saves import protect_checkpoints

            protect_checkpoints(self._options.request, self.guard)  # until the process ends
        stack.callback(session.watch_compiles(recorder.on_compile))
        stack.callback(session.watch_user_profiler(recorder.before_user_profiler))
        stack.callback(watch_checkpoints(recorder.checkpoint, recorder.checkpoint_wait, guard=self.guard))


def _framework_session(framework: str | None, guard: Guard) -> ProfilerSession:
    """The session of the framework asked for, or of the one that the job has imported, or will."""
    makers = {"jax": _jax_session, "torch": _torch_session}
    imported = [framework] if framework else [name for name in makers if name in sys.modules]
    if not imported:
        return late_session(makers, guard)
    if len(imported) > 1 and _used_framework() != "jax":
        return late_session(makers, guard, decide=_used_framework)
    return makers[imported[0]]()


def _used_framework() -> str:
    """Of JAX and PyTorch, both imported, the one that works: JAX once its backends run."""
    return "jax" if jax_backends_started() else "torch"


def _jax_session() -> ProfilerSession:
    from phasepoint.recorder.profilers.jax import JaxSession

    return JaxSession()


def _torch_session() -> ProfilerSession:
    from phasepoint.recorder.profilers.torch.session import TorchSession

    return TorchSession()


def _open_writer(options: RecordOptions, session: ProfilerSession, epoch: Epoch, signs: SignsOfLife) -> "ShardWriter":
    """Create the run where there is none and become the writer of this rank's shard."""
    from phasepoint.recorder.process.identity import open_ranked_shard
    from phasepoint.store import create_run

    probe = session.probe()
    devices = session.devices()
    url = create_run(
        options.path,
        command=job_command(),
        frameworks=framework_versions(),
        devices=devices,
        git_commit=git_commit(job_folder()),
        created_unix_ns=epoch.unix_ns,
    )
    return open_ranked_shard(
        url,
        epoch_unix_ns=epoch.unix_ns,
        profiler_clock=session.clock,
        framework=probe.framework or None,
        devices=devices,
        is_live=signs.is_live,
        notes={
            "profiler_api": f"{probe.api}: {probe.reason}",
            "pid": str(os.getpid()),
            **({} if epoch.process_age_ps is None else {process_age.NOTE: str(epoch.process_age_ps)}),
            **({} if options.budget is None else {"budget": str(options.budget)}),
            **({} if options.request is None else {"replay_of": options.request.original}),
            **options.notes,
        },
    )


def calibrate(clock: Clock) -> int:
    """What the hooks cost a step, in picoseconds of CPU time: from the mean over a few hundred steps of another clock.

    By wall time, another process that takes the core once makes it ten times as much.
    """
    trial, batch = StepClock(capacity=_CALIBRATION_STEPS), (np.zeros(1), np.zeros(1))
    began_ns = time.thread_time_ns()
    for _ in range(_CALIBRATION_STEPS):
        trial.ask()
        trial.got()
        count_elements(batch)
    return (time.thread_time_ns() - began_ns) * PS_PER_NS * IN_THE_JOB // _CALIBRATION_STEPS
