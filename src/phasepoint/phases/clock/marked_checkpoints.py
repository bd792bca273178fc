"""How long checkpoints held the job that it marked itself: `run.checkpoint(path)`, called after the save.

The mark says when the checkpoint was there, and not since when it was written. It owns the time since the device's work
in that step ended, if a window saw the step. Else it owns what the step lasted, up to the mark, beyond what the steps
around it last that have none: an estimate, off by as much as single steps scatter, and nothing where it is within
their scatter. Neither holds what else is known of that time: waiting for input, compiling, an earlier mark, and what
the job named otherwise (an evaluation). A mark between two loops owns the time since the last step ended, or less.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phasepoint.core.arrays import Bools, Int64s
from phasepoint.core.encoding import encode_column
from phasepoint.core.intervals import IntervalSet, covered_ps, union, unite
from phasepoint.core.statistics import MAD_TO_SIGMA, median_absolute_deviation_ps, median_ps
from phasepoint.phases.clock.steps import RunClock, SessionClock, read_numbers

MARKED = "user"
"""`framework` of checkpoints that the job told of."""

MEASURED, ESTIMATED, UNKNOWN = "measured", "estimated", "unknown"
"""How the time of a checkpoint is known, its `basis`. Of an unknown one it is 0."""

_SIDE = 24
"""Steps on either side that say what a step lasts without a save: a choice, less than an epoch and more than a few."""

_LEAST_AROUND = 5
"""Fewer steps without a save say nothing of what is usual: a choice."""

_SCATTER = 3.0
"""Standard deviations within which a step is as long as the others: single steps exceed them once in 700 times."""

_HALF_OF_ALL = 1.96
"""Standard errors on either side of an estimate in its interval of 95 %."""

_SAVING = ("save", "saving", "checkpoint", "ckpt")
"""Parts of the names of stretches that a mark may own; any other stretch that the job named is something else."""


class _Held(NamedTuple):
    """How long a checkpoint held the job, how that is known, and the standard error."""

    dur_ps: int
    basis: str
    error_ps: int = 0


def measure_marks(
    checkpoints: pa.Table, clock: RunClock, tables: Mapping[str, pa.Table], read_spans: Callable[[], pa.Table]
) -> pa.Table:
    """The table `checkpoints` with the time for which marked ones held the job.

    Args:
        checkpoints: one row a checkpoint; those marked have a duration of 0.
        clock: the run's steps.
        tables: `steps`, `windows` and `hints` as `Run.table` gives them.
        read_spans: gives the table `spans`; called where a window saw a marked step.

    Returns:
        The same columns, `start_ps` and `dur_ps` of marks changed, and two more: `basis`, and `error_ps`, the standard
        error of `dur_ps`. A mark is left out whose checkpoint another row measured: of its path, in its step.
    """
    rows: list[dict[str, Any]] = checkpoints.to_pylist()
    measured = {_key(row) for row in rows if not _is_mark(row)}
    rows = [row for row in rows if not (_is_mark(row) and _key(row) in measured)]
    rows = [{**row, "basis": UNKNOWN if _is_mark(row) else MEASURED, "error_ps": 0} for row in rows]
    for session in clock.sessions:
        mine = [row for row in rows if (row["host"], row["attempt"]) == (session.host, session.attempt)]
        if any(map(_is_mark, mine)):
            _measure_session(_Session(clock, session, mine, tables, read_spans), mine)
    added = [pa.field("basis", pa.string()), pa.field("error_ps", pa.int64())]
    return pa.Table.from_pylist(rows, schema=pa.schema([*checkpoints.schema, *added]))


def _is_mark(row: Mapping[str, Any]) -> bool:
    return row["framework"] == MARKED and not row["dur_ps"]


def _key(row: Mapping[str, Any]) -> tuple[object, ...]:
    return row["host"], row["attempt"], row["step"], row["path"]


def _measure_session(session: "_Session", rows: Sequence[dict[str, Any]]) -> None:
    """Fill in the marks among the rows, in order of time."""
    before_ps = 0
    for row in sorted(filter(_is_mark, rows), key=lambda row: row["start_ps"]):
        at_ps = row["start_ps"]
        held = session.held(at_ps, before_ps)
        row |= {"start_ps": at_ps - held.dur_ps, "dur_ps": held.dur_ps, "basis": held.basis, "error_ps": held.error_ps}
        before_ps = at_ps


@dataclass(frozen=True, eq=False)
class _Session:
    """A session's steps, and what else is known of its time."""

    clock: RunClock
    session: SessionClock
    checkpoints: Sequence[Mapping[str, Any]]
    tables: Mapping[str, pa.Table]
    read_spans: Callable[[], pa.Table]

    def held(self, at_ps: int, before_ps: int) -> _Held:
        """How long the checkpoint held the job that was marked at a time; the mark before it stands at another."""
        row = int(np.searchsorted(self.start_ps, at_ps)) - 1
        if row < 0:
            return _Held(0, UNKNOWN)
        start_ps, end_ps = int(self.start_ps[row]), int(self.end_ps[row])
        if at_ps > end_ps:
            since_ps = self._own_ps(max(end_ps, before_ps), at_ps)
            return _Held(since_ps, ESTIMATED, round(since_ps / _HALF_OF_ALL))  # or nothing of it, for all that is known
        most_ps = self._own_ps(max(start_ps, before_ps), at_ps)
        worked_ps = self._work_end(row, at_ps)
        if worked_ps is not None:
            return _Held(self._own_ps(max(worked_ps, before_ps), at_ps), MEASURED)
        around = self._around(row)
        if len(around) < _LEAST_AROUND:
            return _Held(0, UNKNOWN)
        usual_ps = median_ps(self._usual_ps[around])
        error_ps = round(MAD_TO_SIGMA * median_absolute_deviation_ps(self._usual_ps[around]))
        compile_ps = int(self.clock.compile_ps[self.session.rows][row])
        excess_ps = min(self._own_ps(start_ps, at_ps) - compile_ps - usual_ps, most_ps)
        return _Held(excess_ps if excess_ps > _SCATTER * error_ps else 0, ESTIMATED, error_ps)

    @cached_property
    def start_ps(self) -> Int64s:
        """`[n]`, rising."""
        return np.maximum.accumulate(self.clock.start_ps[self.session.rows])

    @cached_property
    def end_ps(self) -> Int64s:
        """`[n]`."""
        return self.start_ps + self.clock.dur_ps[self.session.rows]

    def _own_ps(self, low_ps: int, high_ps: int) -> int:
        """What of a stretch is nothing else."""
        other_ps = int(covered_ps(self._other, np.array([low_ps]), np.array([high_ps]))[0])
        return max(high_ps - low_ps - other_ps, 0)

    @cached_property
    def _other(self) -> IntervalSet:
        """Waits for input, and stretches that the job named otherwise, from inside of steps or between them."""
        hints = self.session.own(self.tables["hints"])
        names = pc.utf8_lower(hints.column("name").cast(pa.string())).to_pylist()
        named = np.array([not any(part in name for part in _SAVING) for name in names], bool)
        begin_ps, dur_ps = read_numbers(hints, "start_ps"), read_numbers(hints, "dur_ps")
        # One around whole steps names what the loop does, and not what else was done in a step.
        step = np.searchsorted(self.start_ps, begin_ps, side="right")
        within = step == np.searchsorted(self.start_ps, begin_ps + dur_ps, side="right")
        waits = union(self.start_ps, self.start_ps + self.clock.input_ps[self.session.rows])
        return unite([waits, union(begin_ps, begin_ps + dur_ps, where=named & within)])

    @cached_property
    def _usual_ps(self) -> Int64s:
        """`[n]` each step's time that is nothing else."""
        own_ps = self.end_ps - self.start_ps - covered_ps(self._other, self.start_ps, self.end_ps)
        return np.asarray(np.maximum(own_ps - self.clock.compile_ps[self.session.rows], 0), np.int64)

    @cached_property
    def _kind(self) -> Int64s:
        return encode_column(self.tables["steps"].column("kind").slice(self.session.first_row, len(self.start_ps)))[0]

    @cached_property
    def _is_plain(self) -> Bools:
        """`[n]` steps in which no checkpoint was written."""
        starts = np.array([row["start_ps"] for row in self.checkpoints], np.int64)
        ends = starts + np.array([row["dur_ps"] for row in self.checkpoints], np.int64)
        begun = np.searchsorted(np.sort(starts), self.end_ps, side="right")
        return np.asarray(begun == np.searchsorted(np.sort(ends), self.start_ps, side="right"), np.bool_)

    def _around(self, row: int) -> Int64s:
        """The nearest steps without a checkpoint, of the same sort by the job's own names where there are some."""
        like = np.flatnonzero(self._is_plain & (self._kind == self._kind[row]))
        like = like if len(like) >= _LEAST_AROUND else np.flatnonzero(self._is_plain)
        at = int(np.searchsorted(like, row))
        return np.asarray(like[max(at - _SIDE, 0) : at + _SIDE], np.int64)

    def _work_end(self, row: int, at_ps: int) -> int | None:
        """When the device's last work before a time ended in a step; None where no window saw that."""
        windows = self.session.own(self.tables["windows"])
        step = int(self.clock.step[self.session.rows][row])
        seen = (read_numbers(windows, "first_step") <= step) & (step <= read_numbers(windows, "last_step"))
        if not seen.any():
            return None
        begin_ps, end_ps = self._work
        mine = (begin_ps >= self.start_ps[row]) & (begin_ps < at_ps)
        return min(int(end_ps[mine].max()), at_ps) if mine.any() else None

    @cached_property
    def _work(self) -> tuple[Int64s, Int64s]:
        """When the device computed or communicated; copies may be the save's own."""
        spans = self.session.own(self.read_spans())
        on_device = pc.invert(_is_in(spans, "device", "host"))
        works = pc.and_(_is_in(spans, "level", "op", "kernel"), _is_in(spans, "category", "compute", "communication"))
        spans = spans.filter(pc.and_(on_device, works))
        begin_ps = read_numbers(spans, "start_ps")
        return begin_ps, begin_ps + read_numbers(spans, "dur_ps")


def _is_in(table: pa.Table, column: str, *texts: str) -> pa.ChunkedArray:
    return pc.is_in(table.column(column).cast(pa.string()), value_set=pa.array(texts))
