"""Raw captures of a run → parts of its tables. Run by whoever reads the run, or by a converter process beside the job.

Each window's parts carry the window in their name and its `conversions` row is written last, so that a conversion
that was interrupted, or done twice, is harmless. The raw capture is dropped once its parts are written; one that
could not be read in full is kept, for a better reader.

    python -m phasepoint.sources.ingest.convert RUN        converts at idle priority and writes nothing but the run

A run that cannot be written, read together with the rows that were converted from it in memory.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phasepoint.core.errors import PhasepointError, SourceError, StoreError
from phasepoint.core.intervals import held_in
from phasepoint.core.tables import TABLES, table_from_rows, table_spec
from phasepoint.sources.events.capture import WINDOW_TABLES, Capture, CaptureRequest
from phasepoint.sources.ingest.formats import read_capture
from phasepoint.store import Run, Shard, drop_raw, open_run, write_part

if TYPE_CHECKING:
    from phasepoint.sources.events.programs import KnownPrograms


@dataclass(frozen=True)
class OverlaidRun(Run):
    """A run whose tables have more rows than its directory.

    Attributes:
        extra: rows by shard and table.
    """

    extra: Mapping[tuple[str, str], pa.Table] = field(default_factory=dict, repr=False)

    def table(self, name: str, *, columns: Sequence[str] | None = None, shard: str | None = None) -> pa.Table:
        """As `Run.table`, with the rows converted in memory."""
        stored = super().table(name, shard=shard)
        tables = [stored]
        for one in self.shards:
            rows = self.extra.get((one.name, name))
            if rows is None or not rows.num_rows or shard not in (None, one.name):
                continue
            front = [pa.repeat(pa.scalar(n, pa.int64()), rows.num_rows) for n in (one.host, one.attempt)]
            tables.append(pa.Table.from_arrays([*front, *rows.columns], schema=stored.schema))
        merged = pa.concat_tables(tables).unify_dictionaries().combine_chunks()
        order = [(key, "ascending") for key in ("host", "attempt", *table_spec(name).order_by)]
        keep = stored.schema.names if columns is None else super().table(name, columns=columns).schema.names
        return merged.sort_by(order).select(keep)


def overlay_rows(run: Run, extra: Mapping[tuple[str, str], pa.Table]) -> Run:
    """The run with more rows in its tables.

    Args:
        run: an opened run.
        extra: rows as declared, by shard and table.
    """
    return OverlaidRun(**{f.name: getattr(run, f.name) for f in fields(run)}, extra=extra)


Progress = Callable[[int, int], None]

KEPT_WINDOWS = 64
"""Windows whose spans are all kept at first; later ones are thinned, see `keeps_spans`."""

_PER_WINDOW = (*WINDOW_TABLES, "gaps", "conversions")
"""Tables that a conversion writes; the last one says that it is done."""


@dataclass(frozen=True)
class ConvertResult:
    """What a conversion did.

    Attributes:
        converted: windows converted.
        failed: windows whose capture could not be read at all; each has a gap.
        problems: what was wrong, in words, with the shard and window.
        written: whether the parts were written to the run; False for a run that cannot be written.
        tables: where not written, the rows by shard and table; `ConvertResult.over(run)` reads them with the run.
    """

    converted: int
    failed: int
    problems: tuple[str, ...]
    written: bool
    tables: Mapping[tuple[str, str], pa.Table] = field(default_factory=dict, repr=False)

    def over(self, run: Run) -> Run:
        """The run with the rows that could not be written to it; the run itself where all were."""

        return overlay_rows(run, self.tables) if self.tables else run


@dataclass(frozen=True)
class _Job:
    """One window to convert."""

    shard: Shard
    window: Mapping[str, Any]
    keep_spans: bool


def convert_windows(
    path: str | os.PathLike[str], *, progress: Progress | None = None, keep_spans: int | None = KEPT_WINDOWS
) -> ConvertResult:
    """Convert every raw capture of a run that has no `conversions` row yet.

    A capture that cannot be read gets a `conversions` row with the problem and a gap, and the others go on.

    Args:
        path: the run.
        progress: called with windows done and windows to do.
        keep_spans: windows whose spans are kept before thinning begins (`keeps_spans`); None keeps all.

    Raises:
        NotARunError, FormatVersionError, StoreError: the run cannot be opened or read.
    """
    run = open_run(path)
    jobs = list(_pending(run, keep_spans))
    sink = _Sink(run)
    known: dict[str, KnownPrograms] = {}
    windows: dict[str, list[Mapping[str, Any]]] = {}
    for job in jobs:
        windows.setdefault(job.shard.name, []).append(job.window)
    steps: dict[str, pa.Table] = {}
    converted = failed = 0
    problems: list[str] = []
    for done, job in enumerate(jobs):
        if progress is not None:
            progress(done, len(jobs))
        name = job.shard.name
        if name not in steps:
            steps[name] = _captured_steps(run, name, windows[name])
        tables, problem = _convert_one(run, job, known, steps[name])
        if tables is None:
            continue  # another converter was faster
        sink.write(job, tables, drop=problem is None)
        failed += tables["gaps"].num_rows > 0
        converted += tables["gaps"].num_rows == 0
        problems += [f"{job.shard.name}, window {job.window['window']}: {problem}"] if problem else []
    if progress is not None and jobs:
        progress(len(jobs), len(jobs))
    return ConvertResult(converted, failed, tuple(problems), sink.written, sink.collected())


def keeps_spans(window: int, kept_windows: int | None) -> bool:
    """Whether a window's spans are kept: a rule on the window's number alone, so that every converter agrees.

    The first `kept_windows` windows, then every second up to twice as many, every fourth up to four times as many,
    and so
    on: 64 + 32 · log2(windows / 64) windows, spread over the whole run, about 500 out of a million.
    """
    if kept_windows is None:
        return True
    if kept_windows <= 0:
        return False
    stride = 1
    while window >= kept_windows * stride:
        stride *= 2
    return window % stride == 0


class _Sink:
    """Writes parts to the run, or collects them in memory once the run turns out not to be writable."""

    def __init__(self, run: Run) -> None:
        self.written = True
        self._run = run
        self._rows: dict[tuple[str, str], list[pa.Table]] = {}

    def write(self, job: _Job, tables: Mapping[str, pa.Table], *, drop: bool) -> None:
        part = f"part-window-{job.window['window']:06d}"
        if self.written:
            try:
                for name in _PER_WINDOW:
                    if tables[name].num_rows:
                        write_part(self._run, job.shard.name, name, part, tables[name])
            except StoreError:
                self.written = False
        if not self.written:
            for name in _PER_WINDOW:
                self._rows.setdefault((job.shard.name, name), []).append(tables[name])
            return
        if drop:
            drop_raw(self._run, job.shard.name, job.window["raw"])

    def collected(self) -> dict[tuple[str, str], pa.Table]:
        return {key: pa.concat_tables(parts).unify_dictionaries() for key, parts in self._rows.items()}


def _pending(run: Run, kept_windows: int | None) -> Iterator[_Job]:
    for shard in run.shards:
        windows = [row for row in run.table("windows", shard=shard.name).to_pylist() if row["raw"] is not None]
        done = set(_converted_windows(run, shard)) if windows else set()
        for window in windows:
            if window["window"] not in done:
                yield _Job(shard, window, keeps_spans(window["window"], kept_windows))


def _converted_windows(run: Run, shard: Shard) -> Sequence[int]:
    windows: list[int] = run.table("conversions", columns=["window"], shard=shard.name).column("window").to_pylist()
    return windows


def _convert_one(
    run: Run, job: _Job, known: "dict[str, KnownPrograms]", steps: pa.Table
) -> tuple[dict[str, pa.Table] | None, str | None]:
    """The window's tables and what was wrong; no tables where the window has been converted meanwhile."""
    from phasepoint.sources.events.programs import (
        KnownPrograms,  # and with it protobuf: most runs are converted already
    )

    begin = time.process_time_ns()
    number = job.window["window"]
    if job.shard.name not in known:
        known[job.shard.name] = KnownPrograms.of_shard(run, job.shard.name)
    programs = known[job.shard.name]
    try:
        data = run.read_raw(job.shard.name, job.window["raw"])
        request = CaptureRequest(
            window=number,
            epoch_unix_ns=job.shard.session.epoch_unix_ns,
            steps=_within(steps, job.window),
            keep_spans=job.keep_spans,
            read_hlo=programs.read,
            holds_steps=job.window["last_step"] >= job.window["first_step"],
        )
        capture = read_capture(job.window["format"], data, request)
    except (SourceError, StoreError) as error:
        if number in _converted_windows(run, job.shard):
            return None, None
        return _lost_tables(job, str(error), time.process_time_ns() - begin), str(error)
    new = programs.take_new(capture)
    capture = replace(capture, programs=new.programs, instructions=new.instructions)
    problem = capture.conversion.column("problem")[0].as_py()
    return _tables_of(capture, time.process_time_ns() - begin), problem


def _captured_steps(run: Run, shard: str, windows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Rows of `steps` that any of the windows holds: read once for all of them, for a long job has millions."""
    first, last = (np.array([window[name] for window in windows], np.int64) for name in ("first_step", "last_step"))

    def keep(part: pa.Table) -> pa.Table:
        return part.filter(pa.array(held_in(part.column("step").to_numpy(), first, last)))

    return run.rows("steps", shard=shard, keep=keep)


def _within(steps: pa.Table, window: Mapping[str, Any]) -> pa.Table:
    """Those that one window holds."""
    step = steps.column("step")
    inside = pc.and_(pc.greater_equal(step, window["first_step"]), pc.less_equal(step, window["last_step"]))
    return steps.filter(inside).select(["step", "start_ps", "dur_ps"])


def _tables_of(capture: Capture, cost_ns: int) -> dict[str, pa.Table]:
    conversion = capture.conversion.to_pylist()[0] | {"convert_cost_ps": cost_ns * 1000}
    return capture.tables | {
        "gaps": TABLES["gaps"].empty,
        "conversions": table_from_rows("conversions", [conversion]),
    }


def _lost_tables(job: _Job, problem: str, cost_ns: int) -> dict[str, pa.Table]:
    """What is left of a window whose capture cannot be read: the reason, and a gap."""
    window = job.window
    counts = ("events", "spans", "ignored_events", "dropped_events", "misnested_events", "orphan_events")
    conversion = dict.fromkeys(counts, 0) | {
        "window": window["window"],
        "convert_cost_ps": cost_ns * 1000,
        "problem": problem,
    }
    known = window["last_step"] >= window["first_step"]
    gap = {
        "why": "lost-window",
        "start_ps": window["start_ps"],
        "dur_ps": window["dur_ps"],
        "first_step": window["first_step"] if known else None,
        "last_step": window["last_step"] if known else None,
        "unknown": f"which ops ran in window {window['window']}: its capture could not be read: {problem}",
    }
    empty = {name: TABLES[name].empty for name in _PER_WINDOW}
    return empty | {
        "gaps": table_from_rows("gaps", [gap]),
        "conversions": table_from_rows("conversions", [conversion]),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Convert a run's captures at the lowest priority, so that the job's own threads always come first.

    Returns:
        0, or the exit code of what went wrong, with its message on stderr.
    """
    paths = sys.argv[1:] if arguments is None else list(arguments)
    if len(paths) != 1:
        sys.stderr.write("usage: python -m phasepoint.sources.ingest.convert RUN\n")
        return 2
    _yield_cores()
    try:
        convert_windows(paths[0])
    except PhasepointError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


def _yield_cores() -> None:
    """Idle scheduling where the system has it (Linux), else the lowest nice value."""
    if hasattr(os, "SCHED_IDLE"):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    elif hasattr(os, "nice"):
        os.nice(19)


if __name__ == "__main__":
    raise SystemExit(main())
