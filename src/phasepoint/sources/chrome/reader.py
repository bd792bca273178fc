"""Kineto's JSON (PyTorch's profiler), and Chrome's trace format in general → tables.

On a machine without an accelerator the ATen operators are the device's work (`cpu:0`), nested in each other; with one,
they are the host's, and kernels, copies and fills are the device's.

Where the steps of a Kineto capture begin and end.
"""

import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from phasepoint.core.errors import SourceError
from phasepoint.core.tables import TABLES, table_from_columns
from phasepoint.core.units import PS_PER_NS, PS_PER_S, PS_PER_US
from phasepoint.sources.chrome.blocks import BLOCK_BYTES, ByteSource, FileBytes, PlainBytes
from phasepoint.sources.chrome.kinds import accounts_of, is_dropped, kind_of
from phasepoint.sources.chrome.slices import Slices, TraceFacts
from phasepoint.sources.chrome.spool import SLICE_ROWS, Spool
from phasepoint.sources.chrome.trace import KinetoTrace
from phasepoint.sources.events.capture import NO_WORK, Capture, CaptureRequest, ReadFile
from phasepoint.sources.events.operator_names import OPTIMIZER_STEP, PROFILER_STEP, STEP_MARK
from phasepoint.sources.events.step_bounds import StepBounds, no_bounds, order_bounds
from phasepoint.sources.events.tables import ROW_TABLES, accounts_table, steps_table


class StepMark(NamedTuple):
    """A span by which steps may be found: its name, start and end."""

    name: str
    start_ps: int
    end_ps: int


def bounds_of_marks(marks: Sequence[StepMark], steps: pa.Table | None, *, first_ps: int) -> StepBounds:
    """The recorder's marks of the given steps where there are any, else these, else PyTorch's `ProfilerStep#n`, else
    the ends of `Optimizer.step`, numbered from 0.

    Args:
        marks: spans that may be marks.
        steps: rows of `steps` from the step clock.
        first_ps: start of the first event: where the first step begins, where optimizers mark the ends.
    """
    if found := _matching(marks, STEP_MARK):
        return _from_marks(found).among(steps)
    if steps is not None and steps.num_rows:
        columns = (steps[name].to_numpy().astype(np.int64) for name in ("step", "start_ps", "dur_ps"))
        step, start_ps, dur_ps = columns
        return order_bounds(step, start_ps, start_ps + dur_ps)
    if found := _matching(marks, PROFILER_STEP):
        return _from_marks(found)
    return _from_optimizer(_matching(marks, OPTIMIZER_STEP), first_ps)


def _matching(marks: Sequence[StepMark], pattern: re.Pattern[str]) -> list[StepMark]:
    known = {name: pattern.fullmatch(name) is not None for name in {mark.name for mark in marks}}
    return [mark for mark in marks if known[mark.name]]


def _step_number(name: str) -> int | None:
    """Number of the step that an annotation marks; None for any other name."""
    match = STEP_MARK.fullmatch(name) or PROFILER_STEP.fullmatch(name)
    return int(match[1]) if match and len(match[1]) < 19 else None


def _from_marks(marks: Sequence[StepMark]) -> StepBounds:
    numbered = [(number, mark) for mark in marks if (number := _step_number(mark.name)) is not None]
    columns = ([n for n, _ in numbered], [mark.start_ps for _, mark in numbered], [mark.end_ps for _, mark in numbered])
    step, start_ps, end_ps = (np.array(column, np.int64) for column in columns)
    return order_bounds(step, start_ps, end_ps)


def _from_optimizer(marks: Sequence[StepMark], first_ps: int) -> StepBounds:
    """A step ends where the optimizer's step ends; of several optimizers, the one that stepped most often."""
    names = Counter(mark.name for mark in sorted(marks, key=lambda mark: mark.start_ps))
    if not names:
        return order_bounds(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64))
    chosen = max(names, key=lambda name: names[name])
    end_ps = np.sort(np.array([mark.end_ps for mark in marks if mark.name == chosen], np.int64))
    start_ps = np.concatenate((np.array([first_ps], np.int64), end_ps[:-1]))
    return order_bounds(np.arange(len(end_ps), dtype=np.int64), start_ps, end_ps)


_LIMIT_PS = 1 << 61
"""27 days: with the span of a file, another 53, times must fit 64 bits."""

_STREAMED = ("spans", "ops", *ROW_TABLES)


def read_kineto(data: bytes, request: CaptureRequest) -> Capture:
    """Convert one capture of PyTorch's profiler.

    Args:
        data: Kineto's JSON, not compressed.
        request: what else is known of the window.

    Returns:
        Tables as declared; `programs` and `instructions` are empty, PyTorch has none.

    Raises:
        SourceError: the bytes are no trace in Chrome's JSON format.
    """
    with KinetoReading(PlainBytes(data)) as reading:
        reading.set_window(request)
        return reading.capture()


class KinetoReading:
    """A trace that has been read through once, and can be turned into tables slice by slice.

    Args:
        source: the bytes.
        slice_rows: events that are in memory at once, about.
        block_bytes: bytes that are scanned at once, about.

    Raises:
        SourceError: the bytes are no trace in Chrome's JSON format.
    """

    def __init__(self, source: ByteSource, *, slice_rows: int = SLICE_ROWS, block_bytes: int = BLOCK_BYTES) -> None:
        self._started_ns = time.process_time_ns()
        self._spool = Spool(slice_rows)
        try:
            self.trace = KinetoTrace(source, self._spool, block_bytes=block_bytes)
        except BaseException:
            self._spool.close()
            raise

    def __enter__(self) -> "KinetoReading":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the temporary file."""
        self._spool.close()

    @property
    def first_unix_ns(self) -> int:
        """When the first span began, Unix ns, whole; by the file's own clock where it does not say how that runs."""
        first_ps = self.trace.gatherer.first_ps or 0
        return self.trace.head.base_unix_ns + self.trace.origin_us * 1_000 + first_ps // PS_PER_NS

    def set_window(self, request: CaptureRequest, *, whole: bool = False) -> bool:
        """Say what the tables are to be of.

        Args:
            request: the window; with no epoch times count from the first span.
            whole: whether a file that marks no steps is one step, from its first span to its last.

        Returns:
            Whether the file marks steps.
        """
        gatherer, head = self.trace.gatherer, self.trace.head
        first_ps = gatherer.first_ps or 0
        offset_ps = -first_ps
        if request.epoch_unix_ns is not None:
            offset_ps = self.trace.origin_us * PS_PER_US + (head.base_unix_ns - request.epoch_unix_ns) * PS_PER_NS
            if abs(first_ps + offset_ps) >= _LIMIT_PS:
                days = (first_ps + offset_ps) / (86_400 * PS_PER_S)
                self.trace.add_problem(
                    f"the capture began {days:.0f} days from the session's epoch; its times count from its own start"
                )
                offset_ps = -first_ps
        marks = [
            StepMark(gatherer.kinds[kind].name, start + offset_ps, start + dur + offset_ps)
            for start, dur, kind in sorted(gatherer.marks)
        ]
        bounds = no_bounds()
        if request.holds_steps:
            bounds = bounds_of_marks(marks, request.steps, first_ps=first_ps + offset_ps)
        is_marked = bool(len(bounds.step))
        if whole and not is_marked:
            ends_ps = (first_ps + offset_ps, (gatherer.last_ps or 0) + offset_ps)
            step, start, end = (np.array([value], np.int64) for value in (0, *ends_ps))
            bounds = StepBounds(step, start, end, is_whole=True)
        self.bounds = bounds
        has_device = gatherer.has_device
        self._window = request.window
        self._slices = Slices(
            TraceFacts(
                events=gatherer.kinds,
                kinds=[kind_of(event, has_device=has_device) for event in gatherer.kinds],
                tracks=gatherer.tracks(),
                texts=gatherer.texts,
                shapes=gatherer.shapes,
                bounds=bounds,
                offset_ps=offset_ps,
                window=request.window,
                keep_spans=request.keep_spans,
                device_collectives=gatherer.device_collectives,
            )
        )
        return is_marked

    def tables(self) -> Iterator[dict[str, pa.Table]]:
        """SpooledRows of single events, a slice of time after another; `summary` and `conversion` when all are done."""
        return self._slices.tables(self._spool.slices())

    def capture(self) -> Capture:
        """All tables at once."""
        parts: dict[str, list[pa.Table]] = {name: [TABLES[name].empty] for name in _STREAMED}
        for tables in self.tables():
            for name, table in tables.items():
                parts[name].append(table)
        summary = self.summary()
        parts["ops"].append(summary.pop("ops"))
        joined = {name: pa.concat_tables(tables).unify_dictionaries() for name, tables in parts.items()}
        if len(parts["spans"]) > 2:
            joined["spans"] = joined["spans"].sort_by("span")
        return Capture(
            **joined,
            **summary,
            programs=TABLES["programs"].empty,
            instructions=TABLES["instructions"].empty,
            conversion=self.conversion(),
            steps=steps_table(self.bounds),
        )

    def summary(self) -> dict[str, pa.Table]:
        """The rest of `ops`, and `breakdowns`, `stages` and `accounts`."""
        accounts = accounts_of(self.trace.gatherer.kinds, *self.trace.gatherer.counts, self.trace.unreadable)
        return {
            "ops": self._slices.ops(),
            **self._slices.breakdowns(),
            "accounts": accounts_table(accounts, self._window),
        }

    def conversion(self) -> pa.Table:
        """One row of `conversions`."""
        trace = self.trace
        accounts = accounts_of(trace.gatherer.kinds, *trace.gatherer.counts, trace.unreadable)
        dropped = sum(account.events for account in accounts if is_dropped(account))
        return table_from_columns(
            "conversions",
            {
                "window": [self._window],
                "events": [trace.found],
                "spans": [self._slices.spans],
                "ignored_events": [trace.found - self._slices.spans - dropped],
                "dropped_events": [dropped],
                "misnested_events": [self._slices.misnested],
                "orphan_events": [self._slices.orphans],
                "convert_cost_ps": [(time.process_time_ns() - self._started_ns) * PS_PER_NS],
                "problem": [trace.problem],
            },
        )


class KinetoFile(ReadFile):
    """A file larger than memory, perhaps: its rows lie in a temporary file.

    Raises:
        SourceError: it cannot be read, or holds no stretch of work.
    """

    def __init__(self, file: Path) -> None:
        with FileBytes(file) as source:
            self._reading = KinetoReading(source)
            self.size, packing = source.size, source.problem
        trace = self._reading.trace
        if packing is not None:
            trace.add_problem(packing)
        if not trace.spans:
            self.close()
            raise SourceError(NO_WORK)
        self.path, self.devices = file, trace.head.devices
        self.epoch_unix_ns = self._reading.first_unix_ns
        marked = self._reading.set_window(CaptureRequest(epoch_unix_ns=self.epoch_unix_ns), whole=True)
        self.steps = steps_table(self._reading.bounds)
        self.marked_steps = self.steps.num_rows if marked else 0

    def tables(self) -> Iterator[Mapping[str, pa.Table]]:
        """Slice by slice, then the rest of `ops`, and `breakdowns`, `stages` and `accounts`."""
        yield from self._reading.tables()
        yield self._reading.summary()

    def conversion(self) -> pa.Table:
        """Of the whole file."""
        return self._reading.conversion()

    def close(self) -> None:
        """Let go of the temporary file."""
        self._reading.close()
