"""The job's side of a recording: the hooks that its loop calls, each under the guard.

The hot path is `ask` and `got`, or `mark` for both, once a step: a clock reading or two, appended to a list.
Everything else happens every 500 ms (a look at the recent steps), at a window's edges, or on the flusher's thread.
Between two steps the job drives the recorder's code and data out of the processor's caches, so that what takes 2 µs in
a tight loop takes 20 µs: until the next look a boundary only leaves its times (`StepClock.marks`), guarded in place.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Literal

from msgspec.structs import replace

from phasepoint.core.units import PS_PER_NS
from phasepoint.recorder.background import Background, Flusher, Parts
from phasepoint.recorder.clock.batch_size import count_elements
from phasepoint.recorder.clock.step_clock import CAPACITY, CUT, NOT_KNOWN, lower_quartile
from phasepoint.recorder.clock.sync_clock import SYNC_COST_PS
from phasepoint.recorder.hooks.marked import MarkedCheckpoint
from phasepoint.recorder.output import Row
from phasepoint.recorder.process.identity import ranks_of_job
from phasepoint.recorder.resume.loader_state import RandomState
from phasepoint.recorder.resume.loop_place import LoopInProgress, LoopPlaces
from phasepoint.recorder.seam.guard import guarded, guarded_even_off
from phasepoint.recorder.seam.session import CheckpointWaited, CheckpointWritten, CompiledProgram, PastCompile
from phasepoint.recorder.windows.planner import RequestedWindow, Situation, WindowPlanner
from phasepoint.recorder.windows.ranked import SharedDelays
from phasepoint.recorder.windows.runner import CapturedWindow, EndedBy

Status = Literal["ok", "failed"]

MAX_PENDING = 32
"""Captures that may wait to be written. Under a budget one or two wait; back to back, only so many fit in memory."""

LEAST_COMPILATION_NS = 1_000_000
"""Shorter compilations are constants and look-ups; a framework makes hundreds of them when it starts."""

LOOK_LIMIT_NS = 1_000_000_000
"""Looks are no further apart, where steps are shorter: twice what they are meant to be."""

OPEN_LIMIT_S = 1.0
"""How long the first step waits for the run to be created; measured 60 ms on a local disk. Then it goes on without."""

REPLAY_STEPS = CAPACITY // 4
"""Steps of the past that are kept before the flusher is let to write them."""


class Recorder:
    """Hooks of one recording. They return at once when the recorder is off, and never raise an `Exception`.

    Args:
        parts: what the recording is made of.
        planner: when to open a window.
        background: the flusher's side.
        flusher: the thread that runs it.
        step_cost_ps: what the step clock costs a step, as calibrated.
        seed: of the random sample of windows.

    Attributes:
        now_ns: the clock of boundaries at which only the time matters, in nanoseconds.
    """

    def __init__(
        self,
        parts: Parts,
        planner: "WindowPlanner | RequestedWindow",
        background: Background,
        flusher: Flusher,
        *,
        step_cost_ps: int,
        seed: int = 0,
    ) -> None:
        self.guard = parts.guard
        self._parts = parts
        self._steps = parts.steps
        self._marks = parts.steps.marks
        self._marked_nodes = parts.steps.marked_nodes
        self._count_nodes: Callable[[], int] | None = None
        self.now_ns = parts.clock.now_ns
        self._windows = parts.windows
        self._planner = planner
        self._background = background
        self._flusher = flusher
        self._step_cost_ps = step_cost_ps
        self._seed = seed
        self._clocked_steps = parts.steps.step
        self._cut: CapturedWindow | None = None
        self._windows.on_part, self._windows.on_cut = self._mark_cut, self._take_cut
        self._has_begun = self._loader_tells = False
        self._looked_ns = 0
        background.each_round = self.keep_looking
        self._delays = SharedDelays(parts.account, planner)
        self._places = LoopPlaces()

    def ask(self) -> None:
        """A loop asks for its next batch."""
        if self.guard.off:
            return
        try:
            marks = self._marks
            count = len(marks)
            if count < self._steps.room and not count & 1:
                if self._count_nodes is not None:
                    self._marked_nodes.append(self._count_nodes())
                marks.append(self.now_ns())
            else:
                self._ask()
        except Exception as error:  # noqa: BLE001 - as in `guarded`
            self.guard.trip(error, "Recorder.ask")

    def got(self, *, waited: bool = True) -> None:
        """The loop got its batch; `waited` is False where the time since `ask` is not known to be the wait for it."""
        if self.guard.off:
            return
        try:
            if len(self._marks) & 1:
                self._marks.append(self.now_ns() if waited else NOT_KNOWN)
            else:
                self._got(waited=waited)
        except Exception as error:  # noqa: BLE001 - as in `guarded`
            self.guard.trip(error, "Recorder.got")

    def take_batch(self, batch: object) -> None:
        """Note how much the open step's batch holds."""
        if self.guard.off:
            return
        try:
            elements = count_elements(batch)
            self._loader_tells = self._loader_tells or elements != NOT_KNOWN
            if elements != self._steps.elements:
                self._steps.change_elements(elements)
        except Exception as error:  # noqa: BLE001 - as in `guarded`
            self.guard.trip(error, "Recorder.take_batch")

    def mark(self) -> None:
        """A step has just ended and the next one begins, whose wait for a batch is not known."""
        if self.guard.off:
            return
        try:
            marks = self._marks
            count = len(marks)
            if count < self._steps.room and not count & 1:
                if self._count_nodes is not None:
                    self._marked_nodes.append(self._count_nodes())
                marks.append(self.now_ns())
                marks.append(NOT_KNOWN)
            else:
                self._ask()
                self._got(waited=False)
        except Exception as error:  # noqa: BLE001 - as in `guarded`
            self.guard.trip(error, "Recorder.mark")

    def _got(self, *, waited: bool) -> None:
        """The step is open; until the next look its boundaries are a matter of time alone."""
        steps = self._steps
        steps.got(waited=waited)
        if self._windows.is_idle:
            steps.allow_marks(self._planner.next_look - steps.step - 1)

    def _ask(self) -> None:
        """A boundary between two steps at which there may be something to do."""
        if not self._has_begun:
            self._begin()
        steps, windows = self._steps, self._windows
        now_ns = steps.ask()
        if windows.in_step:
            windows.leave_step()
        if windows.is_wanted:
            windows.forget()
        if steps.captured and not windows.is_open:  # it ended inside the step
            steps.captured = 0
            self._settle_cut()
        if windows.is_open:
            if windows.is_due(steps.step, now_ns):
                self._close_window()
                self._look(now_ns)
                self._end_boundary(now_ns)
        elif steps.step >= self._planner.next_look and self._look(now_ns):
            self._end_boundary(now_ns)
        if windows.is_open:
            windows.enter_step(steps.step)
        elif not windows.is_wanted:
            windows.is_idle = True

    @property
    def next_step(self) -> int:
        """Number of the step in progress, or of the next one where none is."""
        return self._steps.step

    @guarded
    def end_loop(self) -> None:
        """The loop is over, or was left."""
        now_ns = self._steps.end_loop()
        if self._windows.in_step:
            self._windows.leave_step()
        if self._windows.is_wanted:
            self._windows.forget()
        if self._windows.is_open:
            self._close_window(ended_by="loop")
            self._steps.begin_at(now_ns)
        elif self._steps.captured:
            self._steps.captured = 0
            self._settle_cut()

    @guarded
    def before_placed(self) -> RandomState | None:
        """A loop with `resume=True` is about to begin: the generators that its loader may shuffle by."""
        return self._places.generators()

    @guarded
    def begin_placed(self, loop: LoopInProgress) -> None:
        """It begins: where it stands is kept with checkpoints."""
        self._places.begin(loop)

    @guarded
    def end_placed(self, loop: LoopInProgress, *, ended: bool) -> None:
        """It is over; `ended` says whether its loader had no more batches."""
        self._places.end(loop, ended=ended)

    @guarded
    def drop_step(self) -> None:
        """The open step turned out to be none; its time is a gap `outside-steps`."""
        self._steps.drop()
        self.end_loop()

    @guarded
    def replay(
        self, steps: Sequence[tuple[int, int, int]], *, entry_ns: int, compiles: Sequence[PastCompile] = ()
    ) -> None:
        """Keep steps that ended before the recording began.

        Args:
            steps: when each asked for its batch, got it, and ended; readings of the monotonic clock, oldest first.
            entry_ns: what beginning the recording took, on the job's thread; what `record` counted of it is taken off.
            compiles: what was compiled in these steps or before, beside what the framework itself remembers.
        """
        if not self._has_begun:
            self._begin()
        first = self._steps.step
        for start_ns, dur_ns, describe in (*self._parts.session.past_compiles(), *compiles):
            number = next((n for n, (asked_ns, _, end_ns) in enumerate(steps) if asked_ns <= start_ns < end_ns), None)
            if describe is not None:
                self._note_compile(None if number is None else first + number, start_ns, dur_ns, describe)
            self._steps.recall_compile(start_ns, start_ns + dur_ns)
        self.recall(steps)
        self._parts.account.spend("entry", entry_ns * PS_PER_NS - self._background.entered_ps)

    @guarded
    def recall(self, steps: Sequence[tuple[int, int, int]]) -> None:
        """Keep steps that are known to be some only after they ended, as `replay` takes them; none is open."""
        for number, (asked_ns, got_ns, end_ns) in enumerate(steps):
            if number % REPLAY_STEPS == REPLAY_STEPS - 1:  # the ring holds a few times as many
                self._flusher.drain(OPEN_LIMIT_S)
            self._steps.replay(asked_ns, got_ns, end_ns)

    @guarded
    def enter_phase(self, name: str) -> tuple[int, int, int]:
        """A hint comes into force. Returns what `leave_phase` needs."""
        before = self._steps.enter_kind(name)  # makes rows of the times that wait: they are earlier than now
        entered_ns = self._steps.now()
        self._planner.note_kind()
        return before, entered_ns, self._steps.step

    @guarded
    def leave_phase(self, name: str, before: int, entered_ns: int, first_step: int) -> None:
        """The hint ends and becomes a row of `hints`."""
        steps, epoch = self._steps, self._parts.epoch
        steps.leave_kind(before)
        self._planner.note_kind()
        row = {
            "name": name,
            "start_ps": epoch.to_ps(entered_ns),
            "dur_ps": (steps.now() - entered_ns) * PS_PER_NS,
            "first_step": first_step,
            "last_step": max(first_step, steps.step if steps.is_open else steps.step - 1),
        }
        self._parts.inbox.rows.append(("hints", row))

    @guarded
    def checkpoint(self, written: CheckpointWritten) -> None:
        """A checkpoint was written; it becomes a row of `checkpoints`. May be called on any thread."""
        self._parts.inbox.rows.append(("checkpoints", self._checkpoint_row(written)))
        self._background.wanted = True

    def _checkpoint_row(self, written: CheckpointWritten) -> Row:
        row: Row = {
            "step": written.step if written.step is not None else self._step_in_progress(),
            "path": written.path,
            "start_ps": self._parts.epoch.to_ps(written.start_ns),
            "dur_ps": (written.end_ns - written.start_ns) * PS_PER_NS,
            "framework": written.framework,
            "bytes": written.bytes,
            "asynchronous": written.asynchronous,
            "has_iterator": written.has_iterator,
        }
        if written.step is None or written.step == self._step_in_progress():
            row |= {"loop_place": self._places.place(), "iterator_state": self._places.loader_state()}
        return row

    @guarded
    def checkpoint_wait(self, waited: CheckpointWaited) -> None:
        """The job waited for a checkpoint; it becomes a row of `checkpoint_waits`. May be called on any thread."""
        row = {
            "step": self._step_in_progress(),
            "start_ps": self._parts.epoch.to_ps(waited.start_ns),
            "dur_ps": (waited.end_ns - waited.start_ns) * PS_PER_NS,
            "framework": waited.framework,
        }
        self._parts.inbox.rows.append(("checkpoint_waits", row))

    @guarded
    def user_checkpoint(self, path: str, step: int | None) -> MarkedCheckpoint:
        """The user says that a checkpoint was written; or, where what it returns is entered, that a block writes it."""
        now_ns = (
            self.now_ns()
        )  # not the steps' own: boundaries that wait to be rows are earlier, and it may be any thread
        mark = MarkedCheckpoint(CheckpointWritten(path, now_ns, now_ns, "user", step), self.end_checkpoint)
        row = self._checkpoint_row(mark.written)
        self._parts.inbox.rows.append(("checkpoints", lambda: None if mark.is_block else row))
        self._background.wanted = True
        return mark

    @guarded
    def end_checkpoint(self, begun: CheckpointWritten) -> None:
        """The block that writes it ends."""
        self.checkpoint(replace(begun, end_ns=max(self.now_ns(), begun.start_ns)))

    @guarded
    def log(self, scalars: Mapping[str, object]) -> None:
        """The user logs values for the step in progress."""
        self._parts.inbox.scalars.add(self._steps.step if self._steps.is_open else None, scalars)

    @guarded
    def keep(self, table: str, row: Mapping[str, object], at_ns: int) -> None:
        """A row that another part of Phasepoint makes. May be called on any thread."""
        self._parts.inbox.rows.append((table, {**row, "start_ps": self._parts.epoch.to_ps(at_ns)}))

    @guarded
    def on_compile(
        self, dur_ns: int, is_new_program: bool, describe: Callable[[], CompiledProgram] | None = None
    ) -> None:
        """Something was traced, lowered or compiled. May be called on any thread."""
        if describe is not None:
            step = self._steps.step if self._steps.is_open else None
            self._note_compile(step, self._parts.clock.now_ns() - dur_ns, dur_ns, describe)
        if self._steps.is_open:
            self._steps.add_compile(dur_ns)
            if is_new_program:
                self._planner.note_compile()
                self._steps.room = 0

    def _note_compile(
        self, step: int | None, start_ns: int, dur_ns: int, describe: Callable[[], CompiledProgram]
    ) -> None:
        if dur_ns >= LEAST_COMPILATION_NS:
            times = {"start_ps": self._parts.epoch.to_ps(start_ns), "dur_ps": dur_ns * PS_PER_NS}
            self._parts.inbox.rows.append(
                ("compilations", partial(_compilation_row, {"step": step, **times}, describe))
            )

    @guarded
    def before_user_profiler(self) -> None:
        """The user starts a profiler of their own: ours goes first."""
        if self._windows.is_open:
            self._close_window(ended_by="profiler")

    @guarded_even_off
    def abandon(self) -> None:
        """The recorder was switched off by a fault: no profiler of ours may stay on."""
        self._windows.abandon()

    def close(self, status: Status) -> None:
        """End the recording: close the window, write the rest, close the shard. Never raises."""
        self._finish_steps()
        self._background.status = "failed" if self.guard.off and status == "ok" else status
        self._background.counts = {
            "draws_unaffordable": self._planner.draws_unaffordable,
            "faults": self.guard.faults,
            "failed_writes": self._parts.output.failures,
        }
        self._flusher.finish()

    @guarded
    def _finish_steps(self) -> None:
        self.end_loop()
        self._steps.finish()
        self._spend_clock()

    def _begin(self) -> None:
        """Before the first step: the run is there before the job has done anything that could be lost with it.

        Not earlier, because the rank and the devices are known only once the job has started its framework.
        """
        self._has_begun = True
        ranks = ranks_of_job()
        if ranks is not None and self._background.sync_clock.install():
            self._step_cost_ps += SYNC_COST_PS
        if ranks is not None and isinstance(self._planner, WindowPlanner):
            from phasepoint.recorder.windows.ranked import RankedPlanner

            self._planner = RankedPlanner(self._parts.controller, *ranks, seed=self._seed)
        self._background.wanted = True
        self._flusher.wake()
        self._background.opened.wait(OPEN_LIMIT_S)

    def keep_looking(self) -> None:
        """Look at the next boundary, if the steps have become so long that nobody looked for `LOOK_LIMIT_NS`.

        Called on the flusher's thread, every half a second.
        """
        if self._has_begun and self._parts.clock.now_ns() - self._looked_ns > LOOK_LIMIT_NS:
            self._planner.note_kind()
            self._steps.room = 0

    def _look(self, now_ns: int) -> bool:
        """See whether a window should open here, and open it. Returns whether one was opened."""
        steps, parts = self._steps, self._parts
        self._looked_ns = now_ns
        began_ns = parts.clock.now_ns()
        parts.controller.held_bytes = parts.inbox.held_bytes()
        self._spend_clock()
        self._look_at_work()
        typical_ns = steps.typical_ns(None)
        usual_ps = None if typical_ns is None or steps.is_outside else typical_ns * PS_PER_NS
        self._delays.settle(steps.step, now_ns * PS_PER_NS, usual_ps)
        opening = self._planner.look(self._situation(now_ns, typical_ns))
        self._delays.note(steps.step, now_ns * PS_PER_NS)
        parts.account.spend("clock", (parts.clock.now_ns() - began_ns) * PS_PER_NS)
        if opening is None:
            return False
        if opening.offset is not None:
            at_ns = now_ns + int(opening.offset * (steps.typical_ns(steps.kind) or typical_ns or 0))
            self._windows.want(steps.step, at_ns, opening)
            self._flusher.wake()
            return False
        if not self._windows.open(steps.step, opening):
            return False
        steps.captured = 1
        if opening.plan is not None:
            self._flusher.wake()  # it sleeps until the window's time is over
        return True

    def _look_at_work(self) -> None:
        """Have counted what steps are given to do: the graph from now on, and the next batch, unless a loader tells."""
        session = self._parts.session
        if self._count_nodes is None and (count := session.node_counter()) is not None:
            self._count_nodes = self._steps.count_nodes = count
        if not self._loader_tells:
            session.next_inputs(self._take_inputs)

    @guarded
    def _take_inputs(self, inputs: object) -> None:
        """What a model was called with, of the step in progress."""
        began_ns = self._parts.clock.now_ns()
        if not self._loader_tells:
            elements = count_elements(inputs)
            if elements not in (NOT_KNOWN, self._steps.elements):
                self._steps.change_elements(elements)
        self._parts.account.spend("clock", (self._parts.clock.now_ns() - began_ns) * PS_PER_NS)

    def _situation(self, now_ns: int, typical_ns: int | None) -> Situation:
        steps, elapsed_ps = self._steps, self._parts.epoch.to_ps(now_ns)
        kind_ns = steps.typical_ns(steps.kind)
        return Situation(
            step=steps.step,
            elapsed_ps=elapsed_ps,
            kind=steps.kind,
            kind_step_ps=None if kind_ns is None else kind_ns * PS_PER_NS,
            any_step_ps=None if typical_ns is None else typical_ns * PS_PER_NS,
            fixed_ratio=self._parts.account.fixed_ps / elapsed_ps if elapsed_ps > 0 else 0.0,
            cuts=self._parts.session.interrupts(),
            pace_ps=steps.pace_ns() * PS_PER_NS,
        )

    def _close_window(self, *, ended_by: EndedBy = "steps") -> None:
        steps = self._steps
        first_step, waited_ns = self._windows.opened
        captured_ns = steps.captured_ns()[: steps.step - first_step]  # not those of a window that ended where it began
        costs_ns = _excess_ns(captured_ns, steps.undisturbed_ns(steps.kind), waited_ns)
        steps.captured = CUT if steps.is_open else 0
        window = self._windows.close(steps.step, *costs_ns, ended_by=ended_by, step_is_open=steps.is_open)
        if window is None or (window.last_step < window.first_step and window.cut_step is None):
            return  # it holds nothing of a step; what it cost is in the account
        self._note_captured(window, captured_ns)
        self._hand_over(window)

    def _settle_cut(self) -> None:
        """Back on the job's thread: what was captured until a window ended inside a step counts as seen."""
        cut, self._cut = self._cut, None
        if cut is not None:
            self._note_captured(cut, [])

    def _note_captured(self, window: CapturedWindow, captured_ns: list[int]) -> None:
        self._parts.account.count_window()
        kind = self._steps.kind
        typical_ns = self._steps.typical_ns(kind)
        level_ns = typical_ns if typical_ns is not None else min(captured_ns, default=None)
        level_ps = None if level_ns is None else level_ns * PS_PER_NS
        self._planner.captured(window.opening, self._parts.elapsed_ps(), kind=kind, dur_ps=level_ps)

    def _mark_cut(self) -> None:
        """A window began or ended inside the step in progress: it is neither captured nor undisturbed."""
        self._steps.captured = CUT

    def _take_cut(self, window: CapturedWindow) -> None:
        """A window ended inside a step, on whatever thread; the planner hears of it on the job's."""
        self._cut = window
        self._hand_over(window)

    def _hand_over(self, window: CapturedWindow) -> None:
        """Leave a capture to the flusher; memory stays bounded where it cannot keep up (windows back to back)."""
        captured = self._parts.inbox.captured
        captured.append(window)
        self._flusher.wake()
        while len(captured) > MAX_PENDING:
            lost = captured.popleft()
            self._parts.add_gap(
                "lost-window",
                f"the capture was dropped: {MAX_PENDING} others were waiting to be written",
                start_ns=lost.start_ns,
                end_ns=lost.end_ns,
                steps=(lost.first_step, lost.last_step),
            )

    def _end_boundary(self, now_ns: int) -> None:
        """The recorder's own work between two steps belongs to neither: the next step begins after it."""
        steps = self._steps
        after_ns = steps.now()
        steps.begin_at(after_ns)
        if after_ns > now_ns and not steps.is_outside:
            self._parts.add_gap(
                "window-boundary",
                "nothing of the job: the recorder opened or closed a capture window between two steps",
                start_ns=now_ns,
                end_ns=after_ns,
            )

    def _step_in_progress(self) -> int | None:
        step = self._steps.step if self._steps.is_open else self._steps.step - 1
        return step if step >= 0 else None

    def _spend_clock(self) -> None:
        new_steps = self._steps.step - self._clocked_steps
        self._clocked_steps += new_steps
        self._parts.account.spend("clock", new_steps * self._step_cost_ps)


def _compilation_row(known: Row, describe: Callable[[], CompiledProgram]) -> Row:
    try:
        program = describe()
    except Exception:  # noqa: BLE001 - it reads what a framework keeps for itself; the times are ours
        program = CompiledProgram()
    return {**known, "name": program.name, "again": program.again, "why": program.why}


def _excess_ns(captured_ns: list[int], undisturbed_ns: int | None, waited_ns: int) -> tuple[int | None, int, int]:
    """How much longer the captured steps took than their neighbours: the quartiles' difference times the steps.

    Lower quartiles, because a profiler slows every step down, and another process that takes the cores only some. The
    first steps of a host that runs ahead of its device are short, until it is as far ahead as it was before the window
    waited for the device: they are left out, and what they make good of that wait was no loss.

    Args:
        captured_ns: durations, the newest first.
        undisturbed_ns: a neighbour's; None where there is none.
        waited_ns: for the device, before the window.

    Returns:
        The excess, below 0 where the captured steps were faster, None where there is nothing to compare; what of the
        wait before them was lost; and how long the device waits for the host at a window's edge, at most: the host
        waits for the device in most of its steps, and in those after an edge it does not, so that the shortest tells
        what it takes to issue one.
    """
    if undisturbed_ns is None or not captured_ns:
        return None, 0, 0
    issue_ns, edge_ns, settled_ns = min(*captured_ns, undisturbed_ns), waited_ns, list(captured_ns)
    while waited_ns > issue_ns and settled_ns and settled_ns[-1] < undisturbed_ns:
        edge_ns -= undisturbed_ns - settled_ns.pop()
    # Soon after another window less is in hand and as much is made good: a step that was issued without a wait tells.
    edge_ns = min(max(edge_ns, issue_ns if 2 * issue_ns < undisturbed_ns else 0, 0), issue_ns, waited_ns)
    quartile_ns = lower_quartile(settled_ns)
    slower_ns = 0 if quartile_ns is None else len(captured_ns) * (quartile_ns - undisturbed_ns)
    return slower_ns, edge_ns, issue_ns
