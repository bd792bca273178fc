"""What the flusher does in a round: captures, rows, memory samples, the watchdog, and the account of it all.

The one background thread: everything of recording that the job need not wait for.

It writes captures and parts, samples memory, watches that no window stays open for ever, and counts its own CPU time.
Each round is one guarded call of `round`, which tests call by hand; the thread only repeats it.

A recording that begins when the interpreter is ending (the job was too short to open it before) gets no thread:
Python 3.12 and newer refuse to start one then. Its rounds run where they are asked for, on the job's thread.
"""

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from functools import partial

from msgspec import Struct, field
from msgspec.structs import replace

from phasepoint.core.units import PS_PER_MS, PS_PER_NS, PS_PER_S, format_ps
from phasepoint.recorder.clock.cost import CostAccount, RecorderCost
from phasepoint.recorder.clock.epoch import Clock, Epoch, memory_limit_bytes, resident_bytes
from phasepoint.recorder.clock.gc_clock import GcClock
from phasepoint.recorder.clock.gpus import GpuLog
from phasepoint.recorder.clock.machine import MachineLog
from phasepoint.recorder.clock.scalars import ScalarLog
from phasepoint.recorder.clock.step_clock import StepClock
from phasepoint.recorder.clock.sync_clock import SyncClock
from phasepoint.recorder.output import (
    MemorySample,
    Row,
    RunOutput,
    StepColumns,
    cost_rows,
    gap_row,
    step_columns,
    steps_table,
    window_row,
)
from phasepoint.recorder.process.idle_converter import IdleConverter
from phasepoint.recorder.profilers.xspace import program_bytes
from phasepoint.recorder.seam.guard import Guard, guarded_even_off
from phasepoint.recorder.seam.session import CaptureFormat, ProfilerSession
from phasepoint.recorder.windows.budget import BudgetController, WindowCost
from phasepoint.recorder.windows.runner import CapturedWindow, WindowRunner, capture_content

POLL_S = 0.5
"""Time between rounds: how soon the watchdog and a finished window are noticed."""

ROUND_RATIO, LONGEST_POLL_S = 0.002, 1.0
"""Part of the time that rounds may take in which nothing is written; where they are dear, they are further apart, up to
so long. A round takes 0.1 ms of CPU time, with a look at the machine 0.3, and in a job that uses all caches 1 to
2 ms (2 cores, 2026-11-28), which every half a second was a third of a budget of 1 %. Ranks are compared each second."""

RECENT_ROUNDS = 7
"""Rounds by which that is judged, a choice: a flush every three seconds is one of them."""

CLOSE_LIMIT_S = 60.0
"""How long the end of the recording waits for the last round."""


class Flusher:
    """Calls `work(final=False)` every `POLL_S` until it is finished, then `work(final=True)` once.

    Args:
        work: one round; must not raise.
        poll_s: time between rounds.
        due_in_s: how soon a round is due before that, None where none is.

    Attributes:
        is_inline: whether there is no thread, and rounds run on the thread that asks for them.
    """

    def __init__(
        self,
        work: Callable[[bool], object],
        *,
        poll_s: float = POLL_S,
        due_in_s: Callable[[], float | None] = lambda: None,
    ) -> None:
        self.is_inline = False
        self._work = work
        self._due_in_s = due_in_s
        self._poll_s = poll_s
        self._costs_s: deque[float] = deque(maxlen=RECENT_ROUNDS)
        self._wake = threading.Event()
        self._done = threading.Event()
        self._finished = False
        self._thread = threading.Thread(target=self._run, name="phasepoint-flusher", daemon=True)

    def start(self) -> None:
        """Start the thread, if the interpreter is not ending and the system lets it have one more."""
        if interpreter_is_ending():
            self.is_inline = True
            return
        try:
            self._thread.start()
        except RuntimeError:  # no more threads for this user, or at the interpreter's end
            self.is_inline = True

    def wake(self) -> None:
        """Let the next round begin now; without a thread, do it."""
        if self.is_inline:
            self._work(False)
        else:
            self._wake.set()

    def drain(self, limit_s: float) -> None:
        """Do a round, or let the thread do one and wait until it is done, for so long at most."""
        self._done.clear()
        self.wake()
        if not self.is_inline:
            self._done.wait(limit_s)

    def finish(self) -> None:
        """Do the last round and wait for it, for a minute at most: a file system that hangs must not hold the job."""
        self._finished = True
        if self.is_inline:
            self._work(True)
            return
        self._wake.set()
        self._thread.join(CLOSE_LIMIT_S)

    def _run(self) -> None:
        while not self._finished:
            due_s = self._due_in_s()
            poll_s = self._next_poll_s()
            self._wake.wait(poll_s if due_s is None else min(poll_s, due_s))
            self._wake.clear()
            if not self._finished:
                began_s = time.thread_time()
                self._work(False)
                self._done.set()
                self._costs_s.append(time.thread_time() - began_s)
        self._work(True)

    def _next_poll_s(self) -> float:
        """By the median of the last rounds: few of them write."""
        usual_s = sorted(self._costs_s)[len(self._costs_s) // 2] if self._costs_s else 0.0
        return max(self._poll_s, min(usual_s / ROUND_RATIO, LONGEST_POLL_S))


def interpreter_is_ending() -> bool:
    """Whether the main thread has ended: handlers of `atexit` run, and threads are refused or never waited for."""
    return not threading.main_thread().is_alive()


MEMORY_SAMPLE_PS = PS_PER_S
"""Time between two memory samples."""

CLOCK_STEP_PS = 500 * PS_PER_MS
"""The machine's clock moving against the monotonic one by more than this between two rounds is a gap."""

SLOWDOWN_PS_PER_BYTE: Mapping[CaptureFormat, int] = {"xplane": 2500, "kineto": 3000}
"""What recording events is taken to cost the job's thread, per byte of their capture, where a window holds no whole
step to compare with. Assumed: 1 µs for an op of PyTorch (about 330 bytes of JSON), 0.1 µs for an event of XLA (40)."""

FIRST_FLUSH_PS = PS_PER_S
"""The first flush comes after this time, or after `flush_ps` where that is less."""

LATER_FLUSH_RATIO = 0.1
"""Later flushes are this share of the recording's length apart, where that is more than `flush_ps`."""

LONGEST_FLUSH_PS = 10 * PS_PER_S
"""They are no further apart than this: a killed job loses as much at most."""

ACCOUNT_PS = 60 * PS_PER_S
"""The account is written when the recording is longer by this time, or by `ACCOUNT_RATIO`."""

ACCOUNT_RATIO = 0.02
"""So it is written with each flush at first, and in a job of days some thousand times, four rows each."""

LAST_FILES = 2
"""Files written after the account is settled: its own part, and session.json. A part's time stands for either."""

PATIENT, PATIENCE = frozenset({"counters", "gaps", "hints", "scalars"}), 3
"""Tables whose rows are written with every third flush, while these are as close together as `flush_ps`: what a killed
job needs least. On an object store each is a part, which takes a tenth of a second."""

HOLD_RATIO, MOST_HELD_RATIO = 0.5, 4
"""While no shard can be opened, the ring is emptied into memory when it is half full, until it was four times: 260,000
steps, 15 MB. A minute, after which an attempt that was killed on another machine is found dead, holds as many of 0.2
ms. While one can be written to, a part is due when half a ring is held: parts hold 65,000 steps or more, or ten
seconds. Ten million steps of 30 µs were 1,200 files when each held a fourth of that."""

MOST_ROWS = 2048
"""Rows of other tables that are written at once: some 2 MB. Windows back to back make as many in four seconds."""

MACHINE_ROWS = 60
"""Looks at the machine that are written at once, of half a minute."""

GPU_SAMPLES = 30
"""Samples of the GPUs that are written at once: likewise."""

_SUFFIXES = {"xplane": "xplane.pb.zst", "kineto": "kineto.json.zst"}


class Inbox(Struct):
    """What the job's thread leaves for the flusher. Appending and popping at the ends needs no lock."""

    captured: deque[CapturedWindow] = field(default_factory=deque)
    rows: deque[tuple[str, Row | Callable[[], Row | None]]] = field(default_factory=deque)
    """Table name, and the row or what makes it when it is written, None for no row; that must not raise."""
    scalars: ScalarLog = field(default_factory=ScalarLog)
    writing: CapturedWindow | None = None
    """The capture that is being written."""

    def held_bytes(self) -> int:
        """Bytes that waiting captures may hold."""
        writing = self.writing
        return sum(one.held_bytes for one in list(self.captured)) + (0 if writing is None else writing.held_bytes)


class Parts(Struct, frozen=True):
    """What a recording is made of; the job's side and the flusher's side share it."""

    clock: Clock
    epoch: Epoch
    guard: Guard
    steps: StepClock
    account: CostAccount
    controller: BudgetController
    session: ProfilerSession
    windows: WindowRunner
    output: RunOutput
    inbox: Inbox

    def elapsed_ps(self) -> int:
        """Time since the session's epoch."""
        return self.epoch.to_ps(self.clock.now_ns())

    def add_gap(
        self,
        why: str,
        unknown: str,
        *,
        start_ns: int | None = None,
        end_ns: int | None = None,
        steps: tuple[int, int] | None = None,
    ) -> None:
        """Leave a row of `gaps`, as `gap_row` has it."""
        row = gap_row(why, unknown, epoch=self.epoch, start_ns=start_ns, end_ns=end_ns, steps=steps)
        self.inbox.rows.append(("gaps", row))


class Background:
    """The flusher's side of a recording. All methods run on the flusher's thread.

    Attributes:
        wanted: whether there is something to record yet; the shard is opened only then, when the frameworks have
            started and the rank is known.
        status: how the shard is to be closed.
        lost_captures: captures that could not be written.
        counts: counts of the job's side, for the counters at the end.
        opened: set once the run was opened, or could not be.
        each_round: called in every round of a recording that is on.
        entered_ps: what assembling the recording cost, without the imports before it; part of the account.
        sync_clock: how long the job's thread waits; put in where the job has several ranks.
    """

    def __init__(
        self,
        parts: Parts,
        *,
        flush_ps: int,
        gc_clock: GcClock,
        converter: IdleConverter | None,
    ) -> None:
        self.guard = parts.guard
        self.wanted = False
        self.status = "ok"
        self.lost_captures = 0
        self._windows = 0
        self.counts: dict[str, int] = {}
        self.opened = threading.Event()
        self.each_round: Callable[[], object] = lambda: None
        self.entered_ps = 0
        self.sync_clock = SyncClock()
        self._parts = parts
        self._flush_ps = flush_ps
        self._converter = converter
        self._gc_clock = gc_clock
        self._machine = MachineLog(parts.clock.now_ns, sync_ps=self.sync_clock.total_ps)
        self._gpus = GpuLog(parts.session.devices, partial(self.note, "gpu_counters"))
        self._flushed_ps = 0
        self._wholly_flushed_ps = 0
        self._sampled_ps = -MEMORY_SAMPLE_PS
        self._samples: list[MemorySample] = []
        self._drift_ns: int | None = None
        self._refused = False
        self._write_ps = 0
        self._part_ps = 0
        self._accounted_ps = 0
        self._accounted: dict[str, float] = {}
        self._last_counters: list[Row] = []
        self._held: list[StepColumns] = []
        self._waiting: dict[str, list[Row]] = {}
        self._in_tails: Counter[str] = Counter()  # rows that wait; of steps, what `step_columns` gave

    @guarded_even_off
    def round(self, final: bool) -> None:
        """One round; the last one closes the shard. Never raises."""
        clock, output = self._parts.clock, self._parts.output
        was_open, wanted = output.is_open, self.wanted
        # While a run is opened and closed the job's thread waits for us: waiting for a disk counts too then.
        stopwatch = clock.cpu_ns if was_open and not final else clock.busy_ns
        began_ns = stopwatch()
        with self._gc_clock.own():
            self._work(final)
            if final:
                self._close(began_ns)
            else:
                spent_ps = (stopwatch() - began_ns) * PS_PER_NS - self._write_ps
                self._parts.account.spend("flush" if was_open else "entry", spent_ps)
        if wanted:
            self.opened.set()

    @guarded_even_off
    def _work(self, final: bool) -> None:
        self._write_ps = 0
        parts = self._parts
        now_ps = parts.elapsed_ps()
        if not self.guard.off:
            self._observe(now_ps)
        if not self._open(final):
            self._hold_steps()
            return
        for _ in range(len(parts.inbox.captured)):  # those that end meanwhile are for the next round: rows wait as well
            if not parts.inbox.captured:  # the job's thread drops some where too many wait
                break
            parts.inbox.writing = parts.inbox.captured.popleft()
            self._write_window(parts.inbox.writing)
            parts.inbox.writing = None
        is_due = final or self._held_steps() >= HOLD_RATIO * parts.steps.capacity or self._is_due(now_ps)
        is_whole = final or len(parts.inbox.rows) >= MOST_ROWS or (is_due and self._is_wholly_due(now_ps))
        if is_whole or parts.inbox.scalars.is_filling:
            parts.inbox.rows.extend(("scalars", row) for row in parts.inbox.scalars.take_rows(final=final))
        else:
            parts.inbox.scalars.settle()
        if is_whole or is_due:
            self._flushed_ps = now_ps
            if is_whole:
                self._wholly_flushed_ps = now_ps
            self._flush(is_whole=is_whole, final=final)
            self._tend_converter(now_ps, final)
        else:
            self._hold_steps()

    def _is_due(self, now_ps: int) -> bool:
        """The first flushes come sooner, each after twice the time: a job of seconds that is killed leaves steps."""
        first_ps = min(self._flush_ps, max(FIRST_FLUSH_PS, self._flushed_ps))
        later_ps = min(LONGEST_FLUSH_PS, LATER_FLUSH_RATIO * self._flushed_ps)
        return now_ps - self._flushed_ps >= max(first_ps, later_ps)

    def _is_wholly_due(self, now_ps: int) -> bool:
        """So do those of all tables, each after four times the time."""
        most_ps = PATIENCE * min(self._flush_ps, self._wholly_flushed_ps)
        least_ps = max(min(self._flush_ps, FIRST_FLUSH_PS), most_ps)
        return now_ps - self._wholly_flushed_ps >= least_ps

    def _observe(self, now_ps: int) -> None:
        self._parts.windows.tend(self._parts.clock.now_ns())
        self.each_round()
        self._watch_clock()
        self._machine.tend()
        if self._parts.output.is_open:  # only then are the devices known
            self._gpus.tend(now_ps)
        if now_ps - self._sampled_ps >= MEMORY_SAMPLE_PS:
            self._sample_memory(now_ps)

    def _open(self, final: bool) -> bool:
        if self._refused or not (self.wanted or final):
            return False
        if not self._parts.output.is_open:
            self._refused = True
            opened = self._parts.output.try_open(final=final)
            self._refused = False
            if opened:
                self._add_memory_limit()
        return self._parts.output.is_open

    def _held_steps(self) -> int:
        return sum(len(held["step"]) for held in self._held)

    def _hold_steps(self) -> None:
        """Keep steps that are not to be written yet, when the ring gets full."""
        steps = self._parts.steps
        if steps.waiting > HOLD_RATIO * steps.capacity and self._held_steps() < MOST_HELD_RATIO * steps.capacity:
            self._take_steps()

    def _take_steps(self) -> None:
        rows = self._parts.steps.take_rows()
        if len(rows.step):
            self._held.append(step_columns(rows, self._samples, self._parts.epoch))
        # The step in progress keeps the last sample that it was given; it is written at a later flush.
        self._samples = [s for s in self._samples[-1:] if not len(rows.step) or s.now_ns > rows.end_ns[-1]]

    def _write_window(self, window: CapturedWindow) -> None:
        parts, begin_ns = self._parts, self._parts.clock.cpu_ns()
        format = parts.session.format
        raw = f"raw/window-{window.window:06d}.{_SUFFIXES[format]}"
        with capture_content(window.capture) as (content, size):
            programs = program_bytes(content) if isinstance(content, bytes) and format == "xplane" else 0
            written = parts.output.write_raw(raw, content)
        write_ps = (parts.clock.cpu_ns() - begin_ns) * PS_PER_NS
        self._write_ps += write_ps
        parts.account.spend("write", write_ps)
        window = self._with_slowdown(window, size - programs, format)
        if written:
            row = window_row(window, write_ps=write_ps, raw=raw, size=size, format=format, epoch=parts.epoch)
            parts.inbox.rows.append(("windows", row))
            self._windows += 1
            if self._converter is not None:
                self._converter.add_window()
        else:
            self.lost_captures += 1
            self._parts.add_gap(
                "lost-window",
                f"the capture could not be written: {parts.output.problem}",
                start_ns=window.start_ns,
                end_ns=window.end_ns,
                steps=(window.first_step, max(window.first_step, window.last_step)),
            )
        cost = WindowCost(window.start_ps, window.slowdown_ps or 0, window.stop_ps, write_ps)
        opening = window.opening
        parts.controller.learn(
            cost,
            dur_ps=(window.end_ns - window.start_ns) * PS_PER_NS,
            size_bytes=size,
            program_bytes=programs,
            with_programs=opening.with_programs,
            by_choice=opening.probability is None,
            holds_steps=window.last_step >= window.first_step,
        )

    def _with_slowdown(self, window: CapturedWindow, event_bytes: int, format: CaptureFormat) -> CapturedWindow:
        """Where captured steps cannot be compared with others, what their events took follows from their bytes."""
        if window.slowdown_ps is not None:
            return window
        on_ps = (window.end_ns - window.start_ns) * PS_PER_NS
        slowdown_ps = min(on_ps, event_bytes * SLOWDOWN_PS_PER_BYTE[format])
        self._parts.account.spend("slowdown", slowdown_ps)
        return replace(window, slowdown_ps=slowdown_ps)

    def _tend_converter(self, now_ps: int, final: bool) -> None:
        converter = self._converter
        if converter is None or self._parts.output.host != 0:
            return  # one converter serves all hosts of a run
        if final:
            self._parts.account.spend("convert", converter.stop())
        elif not self.guard.off:
            self._parts.account.spend("convert", converter.tend(self._parts.controller.allowance_ps(now_ps)))

    def _flush(self, *, is_whole: bool, final: bool) -> None:
        parts = self._parts
        if parts.output.backlog and not parts.output.flush() and not final:
            return  # the steps stay in the ring, which is bounded
        if final:  # a recorder that is off has not settled them
            parts.steps.settle()
        self._take_steps()
        self._add_gaps(final)
        self._add_pauses()
        self._add_looks(final)
        if is_whole and not final:
            self._add_account()
        self._take_rows(is_whole)
        if not final and self._append_tails():
            return
        for held in self._held:
            parts.output.add_table("steps", steps_table(held, parts.steps.kinds))
        by_table, self._waiting, self._held, self._in_tails = self._waiting, {}, [], Counter()
        if final:  # counters are written with the account, as one part
            self._last_counters = by_table.pop("counters", [])
        began_ns = parts.clock.busy_ns()
        for name, rows in by_table.items():
            parts.output.add_rows(name, rows)
        parts.output.flush(is_awaited=final)
        self._part_ps = (parts.clock.busy_ns() - began_ns) * PS_PER_NS // (1 + len(by_table))

    def _take_rows(self, is_whole: bool) -> None:
        """Rows of the inbox that are to be written now."""
        later: list[tuple[str, Row | Callable[[], Row | None]]] = []
        inbox = self._parts.inbox.rows
        while inbox:
            name, waiting = inbox.popleft()
            if name in PATIENT and not is_whole:
                later.append((name, waiting))
                continue
            row = waiting() if callable(waiting) else waiting
            if row is not None:
                self._waiting.setdefault(name, []).append(row)
        inbox.extend(later)

    def _append_tails(self) -> bool:
        """Write what is in no file yet as it is; False where parts are wanted."""
        output, done = self._parts.output, self._in_tails
        if output.backlog or sum(map(len, self._waiting.values())) >= MOST_ROWS:
            return False
        rows = {name: waiting[done[name] :] for name, waiting in self._waiting.items()}
        if not output.append_tails(self._held[done["steps"] :], self._parts.steps.kinds, rows):
            return False
        done.update({"steps": len(self._held) - done["steps"]} | {name: len(new) for name, new in rows.items()})
        return True

    def _add_looks(self, final: bool) -> None:
        """Looks at the machine and its GPUs, many at once."""
        rows = self._parts.inbox.rows
        if final:
            self._machine.tend(final=True)
        if final and not self.guard.off:  # a driver that has failed must not take the last steps with it
            self._gpus.tend(self._parts.elapsed_ps(), final=True)
        if final or self._machine.waiting >= MACHINE_ROWS:
            rows.extend(("machine", row) for row in self._machine.take_rows(self._parts.epoch))
        if final or self._gpus.samples >= GPU_SAMPLES:
            rows.extend(("counters", row) for row in self._gpus.take_rows())

    def _add_account(self) -> None:
        """Rows for what changed in the account since it was last written: a killed run then says what it cost."""
        elapsed_ps = self._parts.elapsed_ps()
        if elapsed_ps - self._accounted_ps < min(ACCOUNT_PS, ACCOUNT_RATIO * self._accounted_ps):
            return
        self._accounted_ps = elapsed_ps
        for row in cost_rows(self._parts.account.cost(elapsed_ps), elapsed_ps, {}):
            if self._accounted.get(row["name"]) != row["value"]:
                self._accounted[row["name"]] = row["value"]
                self._parts.inbox.rows.append(("counters", row))

    def _add_pauses(self) -> None:
        clock, parts = self._gc_clock, self._parts
        parts.inbox.rows.extend(("counters", row) for row in clock.take_rows(parts.epoch, parts.elapsed_ps()))
        parts.account.spend("clock", clock.take_cost_ps())
        if clock.fault is not None and not self.guard.off:
            self.guard.trip(clock.fault, "GcClock")

    def _add_gaps(self, final: bool) -> None:
        steps = self._parts.steps
        for start_ns, end_ns in steps.take_outside():
            self._parts.add_gap("outside-steps", "what the job did outside its steps", start_ns=start_ns, end_ns=end_ns)
        while steps.backward:
            at_ns, by_ns = steps.backward.pop()
            text = f"the clock went back by {format_ps(by_ns * PS_PER_NS)}; times until it caught up are too short"
            self._parts.add_gap("clock-step", text, start_ns=at_ns, end_ns=at_ns)
        for lost in self._parts.windows.take_lost(final=final):
            steps_lost = (lost.first_step, lost.first_step)
            self._parts.add_gap(lost.why, lost.reason, start_ns=lost.start_ns, end_ns=lost.end_ns, steps=steps_lost)
        for lost_steps in steps.take_lost_ranges():
            text = "these steps could not be kept: writing was too slow or failed"
            self._parts.add_gap("lost-part", text, steps=lost_steps)
        if final and self.guard.off:
            text = f"the recorder switched itself off: {self.guard.reason}"
            self._parts.add_gap("recorder-off", text, start_ns=steps.start_ns)

    def _sample_memory(self, now_ps: int) -> None:
        self._sampled_ps = now_ps
        now_ns = self._parts.clock.now_ns()
        device_bytes = self._parts.session.device_memory_bytes() if self.wanted else None
        self._samples.append(MemorySample(now_ns, resident_bytes(), device_bytes))

    def _add_memory_limit(self) -> None:
        limit_bytes = memory_limit_bytes()
        if limit_bytes is not None:
            row = {"name": "memory.limit", "unit": "bytes", "device": "host", "value": float(limit_bytes)}
            self._parts.inbox.rows.append(("counters", {**row, "time_ps": self._parts.elapsed_ps()}))

    def _watch_clock(self) -> None:
        """The machine's clock was set, or the machine slept: both move Unix time against the monotonic clock."""
        now_ns = self._parts.clock.now_ns()
        drift_ns = self._parts.clock.unix_ns() - now_ns
        if self._drift_ns is not None and abs(drift_ns - self._drift_ns) * PS_PER_NS > CLOCK_STEP_PS:
            moved = format_ps((drift_ns - self._drift_ns) * PS_PER_NS)
            text = f"the machine's clock moved by {moved}: it was set, or the machine slept; captures may be shifted"
            self._parts.add_gap("clock-step", text, start_ns=now_ns, end_ns=now_ns)
        self._drift_ns = drift_ns

    def note(self, name: str, text: str) -> None:
        """Keep something with the session. Called on any thread; written when the shard is closed."""
        self._parts.output.notes[name] = text

    def problem(self) -> str | None:
        """What could not be written, in one sentence; None where everything was."""
        output, steps = self._parts.output, self._parts.steps
        made = steps.written + steps.lost
        lost = steps.lost + output.waiting_rows("steps") if output.is_open else made
        if output.problem is None and not self.lost_captures and not lost:
            return None
        counts = {f"{lost} of {made} steps": lost, f"{self.lost_captures} captures": self.lost_captures}
        what = " and ".join(text for text, count in counts.items() if count) or "the last rows"
        kept = "" if lost else f"; all {made} steps were kept"
        why = output.problem or (output.last_problem and f"{output.last_problem} (it could be later)")
        return f"{what} could not be written{kept}; {output.failures} writes failed: {why or 'writing was too slow'}"

    @guarded_even_off
    def cost(self) -> RecorderCost:
        """The account so far."""
        return self._parts.account.cost(self._parts.elapsed_ps())

    @guarded_even_off
    def _close(self, began_ns: int) -> None:
        """Write the account and close the shard; the account holds what closing takes, its own end as estimated."""
        parts = self._parts
        if not parts.output.is_open:
            return
        closing_ps = (parts.clock.busy_ns() - began_ns) * PS_PER_NS - self._write_ps
        parts.account.spend("flush", closing_ps + LAST_FILES * self._part_ps)
        elapsed_ps = parts.elapsed_ps()
        account = cost_rows(parts.account.cost(elapsed_ps), elapsed_ps, self.counts)
        parts.output.add_rows("counters", [*self._last_counters, *account])
        parts.output.close(self.status, self._tally(elapsed_ps))

    def _tally(self, elapsed_ps: int) -> dict[str, int]:
        steps, output = self._parts.steps, self._parts.output
        return {
            "steps": steps.written,
            "windows": self._windows,
            "wall_ps": elapsed_ps,
            "cost_ps": self._parts.account.total_ps,
            "outside_ps": steps.outside_ns * PS_PER_NS,
            "losses": steps.lost + self.lost_captures + output.failures + self.guard.faults,
        }
