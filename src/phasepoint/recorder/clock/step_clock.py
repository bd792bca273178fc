"""The step clock: when every step began, waited and ended, in a preallocated ring.

One step is open at a time. A loop asks for its batch (`ask`), which ends the step before; it gets it (`got`), which
makes the new step real; it ends (`end_loop`). A loop inside another one's step therefore ends the outer step where
the inner loop begins, and no instant belongs to two steps.

The job's thread writes, the flusher's thread takes (`take_rows`). The counter of written rows grows after the row is
complete and one thread at a time holds the interpreter, so no lock is needed. Measured on 2 shared cores
(`benchmarks/overhead.py --clock`, figures in docs/overhead.md).

Between two steps of a job each cache line and page that is touched has to be fetched anew: a row's nine columns and
the calls that lead to them take 13 to 20 µs there, 2 µs in a loop of nothing else. So while nothing can happen at a
boundary (`allow_marks`), its times are only appended to one list, `marks`; they become rows together, in `settle`.
"""

import time
from array import array
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

CAPACITY = 1 << 16
"""Rows the ring holds; 5 MB. It is emptied every half second, so on a machine so busy that this takes two seconds none
is lost of steps down to 30 µs."""

RECENT_STEPS = 64
"""Steps that are looked back at, to say what a typical one takes."""

TYPICAL_STEPS = 9
"""A typical step takes the median of the last so many: four outliers do not move it."""

UNDISTURBED_STEPS = 16
"""Steps that captured ones are compared with."""

NOT_KNOWN = -1
"""A time that was not seen, in the ring: no reading of a monotonic clock is below 0."""

CAPTURED, CUT = 1, 2
"""Values of `captured`: a window was open throughout the step; a window began or ended inside it."""

MOST_MARKED_STEPS = 256
"""Steps whose times wait in `marks` at most: becoming rows takes them some 20 µs."""

_NO_KIND = -1
"""Index of a hint where none is in force."""


def _count_nothing() -> int:
    return NOT_KNOWN


class StepRows(Struct, frozen=True):
    """Steps taken from the ring, oldest first; all arrays `[n_rows]`, times in nanoseconds of the session's clock.

    Attributes:
        step: step number.
        start_ns, got_ns, end_ns: when the loop asked for the batch, got it, and asked for the next one; got_ns is
            `NOT_KNOWN` where the wait could not be seen.
        compile_ns: tracing and compiling during the step.
        kind: index into `StepClock.kinds`, -1 where no hint was in force.
        captured: 1 where a capture window was open; 2 where one began or ended inside the step.
        elements: numbers in the step's batch; `NOT_KNOWN` where nobody counted them.
        nodes: operations that the step noted for a backward pass; `NOT_KNOWN` where nobody counted them.
    """

    step: NDArray[np.int64]
    start_ns: NDArray[np.int64]
    got_ns: NDArray[np.int64]
    end_ns: NDArray[np.int64]
    compile_ns: NDArray[np.int64]
    kind: NDArray[np.int64]
    captured: NDArray[np.int64]
    elements: NDArray[np.int64]
    nodes: NDArray[np.int64]


_COLUMNS = tuple(StepRows.__annotations__)


class StepClock:
    """Times the steps of all loops of one recording.

    Attributes:
        marks: times of the steps that have become no rows yet, by turns: when a step ended and the next one was asked
            for, and when its batch was there, or `NOT_KNOWN`. An even number of them leaves a step open.
        marked_nodes: what `count_nodes` said as each of these steps ended, where it counts; put there before the time.
        count_nodes: operations that the job has noted for a backward pass until now; `NOT_KNOWN` where nobody counts.
        room: how many times `marks` may hold before a boundary must be made by `ask` and `got`.
        start_ns: when the open step (or the one being asked for) began, as of the last row.
        capacity: rows that the ring holds.
        written: rows written to the ring since the beginning.
        lost: rows that found the ring full, because nobody took them.
        kinds: names of the hints, by index.
        kind: index of the hint in force, -1 for none.
        captured: 1 while a capture window is open; 2 where one began or ended inside the open step.
        elements: numbers in the open step's batch, `NOT_KNOWN` where nobody counted them.
        outside_ns: all time so far that belonged to no step.
    """

    def __init__(
        self, *, now_ns: Callable[[], int] = time.perf_counter_ns, capacity: int = CAPACITY, first_step: int = 0
    ) -> None:
        self.marks: list[int] = []
        self.marked_nodes: list[int] = []
        self.count_nodes: Callable[[], int] = _count_nothing
        self._nodes_before = NOT_KNOWN
        self.room = 0
        self._step = first_step
        self._is_open = False
        self.start_ns = self._got_ns = self._last_ns = now_ns()
        self.written = 0
        self.lost = 0
        self.kinds: list[str] = []
        self.kind = _NO_KIND
        self.captured = 0
        self.elements = NOT_KNOWN
        self.outside: list[tuple[int, int]] = []
        self.outside_ns = 0
        self.backward: list[tuple[int, int]] = []
        self._outside_from_ns: int | None = self.start_ns
        self._now_ns = now_ns
        self.capacity = capacity
        self._taken = 0
        self._lost_ranges: list[tuple[int, int]] = []
        self._ring = tuple(array("q", bytes(8 * capacity)) for _ in _COLUMNS)
        self._kind_changes: list[tuple[int, int]] = []
        self._compiles: list[tuple[int, int]] = []

    @property
    def step(self) -> int:
        """Number of the open step, or of the next one where none is open."""
        return self._step + (len(self.marks) + 1) // 2

    @property
    def is_open(self) -> bool:
        """Whether a step is open."""
        return not len(self.marks) % 2 if self.marks else self._is_open

    def allow_marks(self, steps: int) -> None:
        """At so many boundaries from here nothing but the time will matter; a step is open."""
        self.room = 2 * min(steps, MOST_MARKED_STEPS, self.capacity // 8)

    def settle(self) -> None:
        """Turn the times in `marks` into rows. From here on every boundary is made by `ask` and `got`."""
        self.room = 0
        if not self.marks:
            return
        marks = self.marks[:]
        self.marks.clear()
        ends_ns, gots_ns = marks[::2], marks[1::2]
        counts = self.marked_nodes[: len(ends_ns)]
        del self.marked_nodes[: len(ends_ns)]
        nodes = [self._nodes_of(count) for count in counts] + [NOT_KNOWN] * (len(ends_ns) - len(counts))
        times_ns = [self._last_ns, *(time_ns for time_ns in marks if time_ns != NOT_KNOWN)]
        if times_ns == sorted(times_ns) and self._settle_at_once(ends_ns, gots_ns, nodes):
            self._last_ns = times_ns[-1]
        else:
            for number, end_ns in enumerate(ends_ns):
                now_ns = self._forward(end_ns)
                self._close(now_ns, nodes[number])
                self.start_ns = now_ns
                if number < len(gots_ns):
                    got_ns = gots_ns[number]
                    self._got_ns = got_ns if got_ns == NOT_KNOWN else self._forward(got_ns)
                    self._is_open = True

    def _settle_at_once(self, ends_ns: list[int], gots_ns: list[int], nodes: list[int]) -> bool:
        """The same, column by column, of times that do not go back. False, with nothing done, where that cannot be."""
        count, written = len(ends_ns), self.written
        at = written % self.capacity
        has_room = at + count <= self.capacity and written + count - self._taken <= self.capacity
        if not has_room or self._compiles or self._kind_changes:
            return False
        step, start, got, end, compiled, kinds, captured, elements, of_nodes = self._ring
        rows = slice(at, at + count)
        step[rows] = array("q", range(self._step, self._step + count))
        start[rows] = array("q", [self.start_ns, *ends_ns[:-1]])
        got[rows] = array("q", [self._got_ns, *gots_ns[: count - 1]])
        end[rows] = array("q", ends_ns)
        compiled[rows] = array("q", bytes(8 * count))
        kinds[rows] = array("q", [self.kind]) * count
        captured[rows] = array("q", [self.captured]) * count
        elements[rows] = array("q", [self.elements]) * count
        of_nodes[rows] = array("q", nodes)
        self.written = written + count
        self._step += count
        self.start_ns = ends_ns[-1]
        self._is_open = len(gots_ns) == count
        if self._is_open:
            self._got_ns = gots_ns[-1]
        return True

    def ask(self) -> int:
        """A loop asks for its next batch: the open step ends and the next one may begin. Returns the time."""
        self.settle()
        now_ns, nodes = self.now(), self._nodes_of(self.count_nodes())
        if self._is_open:
            self._close(now_ns, nodes)
        elif self._outside_from_ns is None:
            self._outside_from_ns = self.start_ns
        self.start_ns = now_ns
        return now_ns

    def begin_at(self, now_ns: int) -> None:
        """Let the step being asked for begin later, after work of the recorder's own between two steps."""
        self.settle()
        self.start_ns = now_ns

    def got(self, *, waited: bool = True) -> None:
        """The batch is there: the step that began with `ask` is real. A second call for one step is ignored.

        Args:
            waited: whether the time since `ask` was the wait for the batch; False where that is not known.
        """
        self.settle()
        if self._is_open:
            return
        self._got_ns = self.now() if waited else NOT_KNOWN
        if self._outside_from_ns is not None:
            self._end_outside(self.start_ns)
        self._is_open = True

    def end_loop(self) -> int:
        """A loop is over or was left: the open step, if there is one, ends. Returns the time."""
        self.settle()
        now_ns = self.now()
        if self._is_open:
            self._close(now_ns, self._nodes_of(self.count_nodes()))
            self._outside_from_ns = now_ns
        elif self._outside_from_ns is None:
            self._outside_from_ns = self.start_ns
        self.start_ns = now_ns
        return now_ns

    def drop(self) -> None:
        """The open step turned out to be none: its time counts as outside."""
        self.settle()
        if self._is_open:
            self._is_open = False
            self._kind_changes.clear()
            self._compiles.clear()
            self._outside_from_ns = self.start_ns

    def finish(self) -> int:
        """The recording is over: what was not a step until now is a gap. Returns the time."""
        now_ns = self.end_loop()
        self._end_outside(now_ns)
        return now_ns

    def replay(self, asked_ns: int, got_ns: int, end_ns: int) -> None:
        """Keep a step that ended before this clock was there; no step may be open, and times must not go back."""
        self.settle()
        if asked_ns > self.start_ns and self._outside_from_ns is None:
            self._outside_from_ns = self.start_ns
        self._end_outside(asked_ns)
        self.start_ns, self._got_ns = asked_ns, got_ns
        self._is_open = True
        self._close(end_ns, NOT_KNOWN)
        self.start_ns = self._last_ns = end_ns

    def enter_kind(self, name: str | None) -> int:
        """Put a hint in force (None: none) and return the index of the one before, for `leave_kind`."""
        before = self.kind
        index = _NO_KIND if name is None else self._kind_index(name)
        self._change_kind(index)
        return before

    def leave_kind(self, before: int) -> None:
        """Put the hint before in force again."""
        self._change_kind(before)

    def change_elements(self, elements: int) -> None:
        """The open step's batch holds so many numbers, and those of the next steps until it is said anew."""
        self.settle()
        self.elements = elements

    def add_compile(self, dur_ns: int) -> None:
        """Tracing or compiling took this long and has just ended, in the open step. May be called on any thread."""
        end_ns, marks = self._now_ns(), self.marks[:-1]  # the last mark is when the open step's batch was there
        start_ns = max(self._last_ns, *marks) if marks else self.start_ns
        self._compiles.append((max(end_ns - dur_ns, start_ns), end_ns))

    def recall_compile(self, start_ns: int, end_ns: int) -> None:
        """Something was compiled in steps that are to be replayed."""
        self._compiles.append((start_ns, end_ns))

    def now(self) -> int:
        """The time in nanoseconds; a clock that went back stands still until it is caught up. After `settle` alone."""
        return self._forward(self._now_ns())

    def _forward(self, now_ns: int) -> int:
        last_ns = self._last_ns
        if now_ns < last_ns:
            if not self.backward or self.backward[-1][0] != last_ns:
                self.backward.append((last_ns, last_ns - now_ns))
            return last_ns
        self._last_ns = now_ns
        return now_ns

    def take_rows(self) -> StepRows:
        """Take the rows written since the last call; their room in the ring is free afterwards."""
        first, end = self._taken, self.written
        rows = self._copy(first, end)
        self._taken = end
        return rows

    def typical_ns(self, kind: int | None) -> int | None:
        """Median duration of the last `TYPICAL_STEPS` uncaptured steps of a kind (None: of any kind).

        None where there is none among the last `RECENT_STEPS`. The ring keeps its rows until they are overwritten,
        taken or not. In plain Python, because NumPy takes 300 µs for what these few numbers need 10 µs.
        """
        durations = self._uncaptured_ns(kind, TYPICAL_STEPS)
        return sorted(durations)[len(durations) // 2] if durations else None

    def undisturbed_ns(self, kind: int) -> int | None:
        """Lower quartile of the last `UNDISTURBED_STEPS` uncaptured steps of a kind; None where there is none."""
        return lower_quartile(self._uncaptured_ns(kind, UNDISTURBED_STEPS))

    def pace_ns(self) -> int:
        """Mean duration of the last `RECENT_STEPS` steps, 0 where there is none."""
        _, start, _, end, *_ = self._ring
        durations = [end[row] - start[row] for row in self._recent()]
        return sum(durations) // len(durations) if durations else 0

    def captured_ns(self) -> list[int]:
        """Durations of the run of captured steps that ended last, the newest first."""
        _, start, _, end, _, _, captured, *_ = self._ring
        durations: list[int] = []
        for row in self._recent():
            if captured[row] != CAPTURED:
                break
            durations.append(end[row] - start[row])
        return durations

    @property
    def is_outside(self) -> bool:
        """Whether the time before the step being asked for belonged to no step: it will be a gap, up to its start."""
        return self._outside_from_ns is not None

    @property
    def waiting(self) -> int:
        """Rows in the ring that nobody has taken."""
        return self.written - self._taken

    def take_lost_ranges(self) -> list[tuple[int, int]]:
        """Take the first and last step of each stretch that found the ring full."""
        taken, self._lost_ranges = self._lost_ranges, []
        return taken

    def take_outside(self) -> list[tuple[int, int]]:
        """Take the stretches outside every step, as (start, end) in nanoseconds."""
        taken, self.outside = self.outside, []
        return taken

    def _uncaptured_ns(self, kind: int | None, count: int) -> list[int]:
        _, start, _, end, _, kinds, captured, *_ = self._ring
        durations: list[int] = []
        for row in self._recent():
            if not captured[row] and (kind is None or kinds[row] == kind):
                durations.append(end[row] - start[row])
                if len(durations) == count:
                    break
        return durations

    def _recent(self) -> Iterator[int]:
        """Places of the last rows in the ring, the newest first."""
        written, capacity = self.written, self.capacity
        return (row % capacity for row in range(written - 1, max(-1, written - 1 - RECENT_STEPS), -1))

    def _nodes_of(self, count: int) -> int:
        """Nodes made since the last boundary, of a count of all; `NOT_KNOWN` where another thread's was read."""
        before, self._nodes_before = self._nodes_before, count
        return count - before if NOT_KNOWN < before <= count else NOT_KNOWN

    def _close(self, now_ns: int, made: int) -> None:
        kind = self.kind if not self._kind_changes else self._longest_kind(now_ns)
        compile_ns = self._compile_ns(self.start_ns, now_ns) if self._compiles else 0
        written = self.written
        if written - self._taken >= self.capacity:
            self._lose()
        else:
            at = written % self.capacity
            step, start, got, end, compiled, kinds, captured, elements, nodes = self._ring
            step[at] = self._step
            start[at] = self.start_ns
            got[at] = self._got_ns
            end[at] = now_ns
            compiled[at] = compile_ns
            kinds[at] = kind
            captured[at] = self.captured
            elements[at] = self.elements
            nodes[at] = made
            self.written = written + 1
        self._step += 1
        self._is_open = False

    def _lose(self) -> None:
        self.lost += 1
        ranges = self._lost_ranges
        first = ranges.pop()[0] if ranges and ranges[-1][1] == self._step - 1 else self._step
        ranges.append((first, self._step))

    def _copy(self, first: int, end: int) -> StepRows:
        places = np.arange(first, end) % self.capacity
        return StepRows(*(np.frombuffer(column, np.int64)[places] for column in self._ring))

    def _end_outside(self, now_ns: int) -> None:
        start_ns, self._outside_from_ns = self._outside_from_ns, None
        if start_ns is not None and now_ns > start_ns:
            self.outside.append((start_ns, now_ns))
            self.outside_ns += now_ns - start_ns

    def _kind_index(self, name: str) -> int:
        try:
            return self.kinds.index(name)
        except ValueError:
            self.kinds.append(name)
            return len(self.kinds) - 1

    def _change_kind(self, index: int) -> None:
        self.settle()
        if self._is_open:
            self._kind_changes.append((self.now(), self.kind))
        self.kind = index

    def _longest_kind(self, now_ns: int) -> int:
        """The hint in force for the longest part of the open step: an evaluation inside a training step names it."""
        lengths: dict[int, int] = {}
        since_ns = self.start_ns
        for until_ns, kind in (*self._kind_changes, (now_ns, self.kind)):
            lengths[kind] = lengths.get(kind, 0) + until_ns - since_ns
            since_ns = until_ns
        self._kind_changes.clear()
        return max(lengths, key=lambda kind: lengths[kind])

    def _compile_ns(self, start_ns: int, end_ns: int) -> int:
        """Length of the union of the reported stretches inside the step: tracing nests, so sums would count twice."""
        stretches = sorted(self._compiles)
        self._compiles = [stretch for stretch in stretches if stretch[1] > end_ns]  # of steps that ended later
        total_ns, reached_ns = 0, start_ns
        for began_ns, ended_ns in stretches:
            first_ns, last_ns = max(began_ns, reached_ns), min(ended_ns, end_ns)
            if last_ns > first_ns:
                total_ns += last_ns - first_ns
                reached_ns = last_ns
        return total_ns


def lower_quartile(values: Sequence[int]) -> int | None:
    """The value with a quarter of the others below it: other processes' interference hardly moves it. None of none."""
    return sorted(values)[len(values) // 4] if values else None
