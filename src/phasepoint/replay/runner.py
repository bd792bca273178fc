"""`run_replay`: starts the job's program with a request, watches what it tells, and ends it where it must."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from subprocess import TimeoutExpired
from typing import TYPE_CHECKING, Any

from phasepoint.core.errors import RecordError, UsageError
from phasepoint.core.units import PS_PER_NS, PS_PER_S, format_ps
from phasepoint.recorder.process.launch import exit_code_of, injected_environ, signals_go_to, start_command
from phasepoint.recorder.resume.loop_place import LoopPlace
from phasepoint.recorder.resume.request import VARIABLE, ReplayRequest
from phasepoint.replay.folder import (
    HANDSHAKE_NAME,
    REFUSALS,
    SAVES_NAME,
    Handshake,
    ReplayRecord,
    ReplayStatus,
    check_checkpoint,
    prepare_output,
    write_replay,
)
from phasepoint.replay.plan.plan import ReplayPlan
from phasepoint.replay.protection.protect import Job, protected

if TYPE_CHECKING:
    from phasepoint.replay.fidelity.fidelity import Fidelity

ASKED_S = 10.0
"""How long a process may take to end after SIGTERM."""


def end_processes(process: "subprocess.Popen[bytes]", others: Iterable[int]) -> None:
    """End a command that was started here, and the processes below it that recorded.

    Args:
        process: the command.
        others: numbers of processes; those that are not of our session are left alone.
    """
    mine = [pid for pid in others if pid != process.pid and _is_ours(pid)]
    process.terminate()
    for pid in mine:
        _send(pid, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        process.wait(ASKED_S)
    if process.poll() is None:
        process.kill()
    for pid in mine:
        if _is_ours(pid):
            _send(pid, signal.SIGKILL)
    process.wait()


def _is_ours(pid: int) -> bool:
    with suppress(OSError):
        return os.getsid(pid) == os.getsid(0)
    return False


def _send(pid: int, number: int) -> None:
    with suppress(OSError):
        os.kill(pid, number)


STARTER = "phasepoint.recorder.autosteps.unrecorded"
"""Module that looks for steps in a program that does not record itself."""

POLL_S = 0.05
"""Time between two looks at the program and at what it has told."""

GRACE_S = 120.0
"""How long a program may go on after its last step: it may evaluate, and save."""

REFUSAL_GRACE_S = 5.0
"""How long a program that did not follow may take to end by itself."""

LIMIT_FACTOR, LEAST_LIMIT_PS = 10, 600 * PS_PER_S
"""A replay may take this many times what was planned, and ten minutes in any case. A choice: a plan adds up the run's
own times, and a machine that is busy today, or that compiles anew, may be several times as slow; what takes ten times
as long will not end by itself."""


@dataclass(frozen=True)
class ReplayOutcome:
    """What became of a replay.

    Attributes:
        run: path of the replay's run.
        record: what stands in its `replay.json`.
        status: how it ended, as in the record.
        dur_ps: how long the command ran.
        exit_code: the command's own, or 128 plus the number of the signal that ended it.
        was_ended: whether the command was ended from here.
        notes: what happened, in words.
        signals: numbers of those that came from outside while it ran, and were passed on to the command.
        fidelity: the replay against the original; None where there is nothing to compare or nobody compared.
    """

    run: str
    record: ReplayRecord
    status: ReplayStatus
    dur_ps: int
    exit_code: int
    was_ended: bool
    notes: tuple[str, ...]
    signals: tuple[int, ...] = ()
    fidelity: "Fidelity | None" = None


@dataclass(frozen=True)
class ReplayLimits:
    """How long what may take, in seconds.

    Attributes:
        limit_s: the whole command; None: ten times what was planned, ten minutes at least.
        grace_s: from the last step to the command's own end.
    """

    limit_s: float | None = None
    grace_s: float = GRACE_S

    def total_s(self, plan: ReplayPlan) -> float:
        """Seconds the whole command may take."""
        if self.limit_s is not None:
            return self.limit_s
        return max(LIMIT_FACTOR * plan.cost_ps, LEAST_LIMIT_PS) / PS_PER_S


def run_replay(
    plan: ReplayPlan,
    command: Sequence[str],
    out: str,
    *,
    force: bool = False,
    limits: ReplayLimits | None = None,
    environ: Mapping[str, str] = os.environ,
    unsafe: bool = False,
    hopeless_ns: int | None = None,
) -> ReplayOutcome:
    """Replay a phase: start the program at the plan's checkpoint, capture the target, stop.

    Args:
        plan: what to do.
        command: the job's program and its arguments.
        out: folder of the run to write.
        force: replace a run that is there.
        limits: how long it may take.
        environ: environment of the command, less what the replay adds.
        unsafe: run it also where nothing can keep it from the original's files.
        hopeless_ns: end it early where the steps behind the target take longer.

    Raises:
        UsageError: the command is empty, or `out` is a URL, the original or above it.
        OutputExistsError: there is something at `out`.
        ReplayError: the plan's checkpoint is not there, or nothing can protect the original here.
        RecordError: the command cannot be started.
    """
    if not command:
        raise UsageError(
            "there is no command to replay with; write the job's after two dashes: "
            "phasepoint replay run RUN --phase NAME -- python train.py"
        )
    check_checkpoint(plan)
    folder = prepare_output(plan, out, force=force)
    request = _request(plan, folder, hopeless_ns)
    limits = limits or ReplayLimits()
    kept = {name: value for name, value in environ.items() if name not in {"PHASEPOINT_OFF", "PHASEPOINT_AUTORECORD"}}
    if shutil.which(command[0], path=kept.get("PATH")) is None:
        raise RecordError(f"{command[0]}: command not found; is it installed, and on the PATH?")
    folders = tuple(os.path.realpath(place) for place in request.protected if "://" not in place)
    job = Job(tuple(command), folders, folder, Path(request.saves))
    with protected(job, unsafe=unsafe) as protection:
        if protection.protects:  # what the program saves to a URL still goes elsewhere, by the hooks in its process
            request = replace(request, protected=tuple(place for place in request.protected if "://" in place))
        added = {VARIABLE: request.to_environ(), "PHASEPOINT_STARTER": STARTER}
        began_ns = time.monotonic_ns()
        process = start_command(protection.command, injected_environ(kept, added))
        watch = _Watch(process, Handshake(Path(request.handshake)), limits, limits.total_s(plan))
        with signals_go_to(process) as signals:
            watch.wait()
        dur_ps = (time.monotonic_ns() - began_ns) * PS_PER_NS
        notes = [protection.words, *protection.finish()]
    exit_code = exit_code_of(process.returncode)
    status, reason = watch.judge(exit_code, plan)
    record = ReplayRecord(
        **{name: getattr(plan, name) for name in (*_STEPS, "phase", "phase_id", "host", "attempt")},
        original=_absolute(plan.run),
        command=tuple(command),
        status=status,
        reason=reason,
    )
    write_replay(folder, record)
    return ReplayOutcome(
        out, record, status, dur_ps, exit_code, watch.was_ended, (*notes, *watch.notes()), tuple(signals)
    )


class _Watch:
    """Looks at the program until it has ended, and ends it where it must."""

    def __init__(
        self, process: "subprocess.Popen[bytes]", handshake: Handshake, limits: ReplayLimits, limit_s: float
    ) -> None:
        self.was_ended = False
        self._process = process
        self._handshake = handshake
        self._limits = limits
        self._limit_s = limit_s
        self._late: str | None = None

    def wait(self) -> None:
        """Return when the program has ended."""
        deadline_s = time.monotonic() + self._limit_s
        while not self._ends_within(POLL_S):
            self._handshake.read()
            left_s = self._left_s(deadline_s)
            if left_s is not None:
                if not self._ends_within(left_s):
                    self.was_ended = True
                    end_processes(self._process, self._handshake.all_of("begun"))
                break
        self._handshake.read()

    def _left_s(self, deadline_s: float) -> float | None:
        """Seconds after which the program is ended; None while it may go on."""
        if self._handshake.first(*REFUSALS) is not None:
            return REFUSAL_GRACE_S
        if self._handshake.is_done:
            return self._limits.grace_s
        if time.monotonic() < deadline_s:
            return None
        self._late = f"the command had not ended after {format_ps(int(self._limit_s * PS_PER_S))}"
        return 0.0

    def judge(self, exit_code: int, plan: ReplayPlan) -> tuple[ReplayStatus, str | None]:
        """How the replay ended, and why."""
        told = self._handshake
        refusal = told.first(*REFUSALS)
        if refusal is not None:
            return ("failed" if refusal["event"] == "failed" else "ignored"), str(refusal.get("reason"))
        if told.is_done:
            return "done", None
        if self._late is not None:
            return "failed", f"{self._late}, the limit of time (--limit)"
        if not told.all_of("begun"):
            return _without_recording(exit_code, plan)
        early = told.first("ended-early")
        reason = "the program ended in the middle of the replay" if early is None else str(early.get("reason"))
        return ("failed" if exit_code or early is None else "ended-early"), reason

    def notes(self) -> list[str]:
        """What else is to be known."""
        notes = []
        for event in self._handshake.events:
            note = _note(event)
            if note is not None and note not in notes:
                notes.append(note)
        if self.was_ended and self._handshake.is_done:
            grace = format_ps(int(self._limits.grace_s * PS_PER_S))
            notes.append(f"the program went on for {grace} after its last step and was ended")
        return notes

    def _ends_within(self, wait_s: float) -> bool:
        with suppress(TimeoutExpired):
            self._process.wait(wait_s)
            return True
        return False


def _without_recording(exit_code: int, plan: ReplayPlan) -> tuple[ReplayStatus, str]:
    if plan.is_automatic:
        if exit_code:
            return "failed", f"the command ended with exit code {exit_code} before its first training step"
        return "ignored", "the command ended without making a training step that can be seen"
    if exit_code:
        return "failed", f"the command ended with exit code {exit_code} before it called phasepoint.record"
    return "ignored", (
        "the command ended without calling phasepoint.record; expected the job's program, with its lines of "
        "Phasepoint (docs/replay.md)"
    )


def _note(event: dict[str, Any]) -> str | None:
    name = event["event"]
    if name == "skipped":
        return f"{event.get('batches')} batches were drawn and thrown away in {format_ps(int(event.get('dur_ps', 0)))}"
    if name == "restored":
        return "the loader's recorded state was put back"
    if name == "redirected":
        return f"{event.get('place')} is the original's and was kept; what was saved there is in the replay's folder"
    if name == "marked":
        return (
            "the program marks its steps (run.mark_step): they agree with the original's only if it marks where a "
            "step begins"
        )
    return None


def _request(plan: ReplayPlan, folder: Path, hopeless_ns: int | None) -> ReplayRequest:
    return ReplayRequest(
        **{name: getattr(plan, name) for name in (*_STEPS, "iterator_state")},
        path=str(folder),
        original=_absolute(plan.run),
        handshake=str(folder / HANDSHAKE_NAME),
        protected=tuple(_absolute(place) for place in plan.protected),
        saves=str(folder / SAVES_NAME),
        loop_place=_loop_place(plan),
        hopeless_ns=hopeless_ns,
        is_automatic=plan.is_automatic,
    )


def _loop_place(plan: ReplayPlan) -> str | None:
    """Where the loops stood at the plan's checkpoint, as it was recorded, with what later checkpoints tell of it."""
    if plan.checkpoint is None:
        return None
    from phasepoint.phases.clock.checkpoint_folders import join_folders
    from phasepoint.store import open_run

    rows = join_folders(open_run(plan.run).table("checkpoints")).to_pylist()
    mine = [row for row in rows if (row["host"], row["attempt"]) == (plan.host, plan.attempt) and row["loop_place"]]
    mine.sort(key=lambda row: row["start_ps"])
    at = [i for i, row in enumerate(mine) if (row["step"], row["path"]) == (plan.checkpoint_step, plan.checkpoint)]
    if not at:
        return None
    place = LoopPlace.from_text(mine[at[-1]]["loop_place"])
    for row in mine[at[-1] + 1 :]:
        place = place.settled(LoopPlace.from_text(row["loop_place"]))
    return place.to_text()


def _absolute(path: str) -> str:
    return path if "://" in path else str(Path(path).absolute())


_STEPS = ("checkpoint", "checkpoint_step", "first_step", "target_first", "target_last", "last_step")
"""What request and record of a replay take over from its plan."""
