"""A run as Chrome trace JSON, for chrome://tracing and Perfetto's viewer, written piece by piece.

One process per host with the overview (phases, captured steps, windows, checkpoints, gaps, hints) and one per host
and device with a track per thread or stream, in which the ops of the kept windows stand. Perfetto's viewer reads
this format too; its variant adds counters and the order of the tracks. Hosts share one time axis, on which 0 is the
earliest session's epoch, as far as their clocks agree.

Source: "Trace Event Format" (Google, 2016). `ts` and `dur` are microseconds; six decimals make them picoseconds.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from phasepoint.core.intervals import held_in
from phasepoint.core.units import PS_PER_US
from phasepoint.store import Run, Shard
from phasepoint.summary.analysis import Analysis
from phasepoint.summary.timeline import Timeline
from phasepoint.summary.types import RunSummary

_OVERVIEW = ("phases", "captured steps", "windows", "checkpoints", "checkpoint waits", "gaps", "hints")
_PROCESSES_PER_SHARD = 1_000
"""Numbers of processes that a shard has for itself: a choice, more than the devices of any host."""

_ROWS = 16_384
"""Rows turned into text at a time."""

_SPAN_ARGS = ("level", "category", "step", "program", "layer", "window", "correlation")


@dataclass(frozen=True)
class Track:
    """A line of the viewer: a thread of a process, by the numbers that the format wants."""

    process: int
    thread: int


def chrome_trace(
    analysis: Analysis, summary: RunSummary, timeline: Timeline, *, perfetto: bool = False
) -> Iterator[str]:
    """The JSON text of a run's trace, in pieces of a few kilobytes.

    Args:
        analysis: of a run whose windows are converted.
        summary: its summary, for the phases.
        timeline: its timeline, for the counters.
        perfetto: add counters and the order of the tracks.
    """
    about = {"tool": "phasepoint", "run": summary.run, "verdict": summary.verdict, "method": summary.method}
    yield f'{{"displayTimeUnit":"ns","otherData":{json.dumps(about)},"traceEvents":[\n'
    separator = ""
    for event in _events(analysis, summary, timeline, perfetto=perfetto):
        yield separator + event
        separator = ",\n"
    yield "\n]}\n"


def _events(analysis: Analysis, summary: RunSummary, timeline: Timeline, *, perfetto: bool) -> Iterator[str]:
    run = analysis.run
    first_ns = min((shard.session.epoch_unix_ns for shard in run.shards), default=0)
    strip_drawn = False
    for index, shard in enumerate(run.shards):
        process = 1 + index * _PROCESSES_PER_SHARD
        origin_ps = (shard.session.epoch_unix_ns - first_ns) * 1000
        yield from _overview_names(process, shard, perfetto=perfetto)
        if shard.host == summary.reference_host and not strip_drawn:
            strip_drawn = True  # the strip covers all attempts of its host, from the first one's epoch
            yield from _phases(process, summary, origin_ps)
            if perfetto:
                yield from _counters(process, timeline, origin_ps)
        yield from _overview(analysis, shard, process, origin_ps)
        yield from _spans(run, shard, process, origin_ps, perfetto=perfetto)


def _shard_name(shard: Shard) -> str:
    return f"host {shard.host}" + (f", attempt {shard.attempt}" if shard.attempt else "")


def _overview_names(process: int, shard: Shard, *, perfetto: bool) -> Iterator[str]:
    yield _process_name(process, f"{_shard_name(shard)}: overview")
    for index, name in enumerate(_OVERVIEW):
        yield _thread_name(Track(process, index + 1), name)
        if perfetto:
            yield _thread_order(Track(process, index + 1), index)
    if perfetto:
        yield _process_order(process, process)


def _overview_track(process: int, name: str) -> Track:
    return Track(process, _OVERVIEW.index(name) + 1)


def _phases(process: int, summary: RunSummary, origin_ps: int) -> Iterator[str]:
    track = _overview_track(process, "phases")
    for segment in summary.strip:
        if segment.phase is None:
            continue
        args = {"phase": segment.phase, "first_step": segment.first_step, "last_step": segment.last_step}
        if segment.merged > 1:
            args["stretches_drawn_together"] = segment.merged
        yield _complete(track, segment.name, origin_ps + segment.start_ps, segment.dur_ps, args)


def _counters(process: int, timeline: Timeline, origin_ps: int) -> Iterator[str]:
    for one in timeline.bins:
        yield _counter(process, "median step time (ms)", origin_ps + one.start_ps, one.median_ps / 1e9)
        if one.input_share is not None:
            at_ps = origin_ps + one.start_ps
            yield _counter(process, "input wait (% of step time)", at_ps, 100 * one.input_share)
    for series in timeline.series:
        for at_ps, value in zip(series.at_ps, series.values, strict=True):
            if not math.isfinite(value):  # JSON has no word for it
                continue
            yield _counter(process, f"{series.name} ({series.unit})", origin_ps + at_ps, value)


@dataclass(frozen=True)
class _RowKind:
    """How the rows of a table are shown: what each is called, and what stands beside its time."""

    title: Callable[[Mapping[str, Any]], str]
    args: tuple[str, ...]


_ROW_KINDS = {
    "captured steps": _RowKind(lambda row: f"step {row['step']}", ("step", "input_ps", "compile_ps")),
    "windows": _RowKind(lambda row: f"window {row['window']}", ("first_step", "last_step", "reason")),
    "checkpoints": _RowKind(lambda row: "checkpoint", ("step", "path", "framework", "bytes")),
    "checkpoint waits": _RowKind(lambda row: "wait for a checkpoint", ("step", "framework")),
    "gaps": _RowKind(lambda row: str(row["why"]), ("unknown", "first_step", "last_step")),
    "hints": _RowKind(lambda row: str(row["name"]), ("first_step", "last_step")),
}


def _overview(analysis: Analysis, shard: Shard, process: int, origin_ps: int) -> Iterator[str]:
    tables = {name: analysis.run.table(name.replace(" ", "_"), shard=shard.name) for name in _OVERVIEW[2:]}
    session = analysis.clock.session(shard.host, shard.attempt)
    steps = analysis.tables["steps"][session.rows if session is not None else slice(0)]
    ends = (tables["windows"].column(name).to_numpy() for name in ("first_step", "last_step"))
    tables["captured steps"] = steps.filter(pa.array(held_in(steps.column("step").to_numpy(), *ends)))
    for name, kind in _ROW_KINDS.items():
        track = _overview_track(process, name)
        for row in _rows(tables[name]):
            if row["start_ps"] is None or row["dur_ps"] is None:
                continue  # a gap whose time is unknown has no place on a time axis; the summary counts it
            args = {key: row[key] for key in kind.args}
            yield _complete(track, kind.title(row), origin_ps + row["start_ps"], row["dur_ps"], args)


def _spans(run: Run, shard: Shard, process: int, origin_ps: int, *, perfetto: bool) -> Iterator[str]:
    table = run.table("spans", shard=shard.name)
    tracks = _number_tracks(table, process)
    yield from _track_names(tracks, shard, perfetto=perfetto)
    launches = _launches(table, tracks)
    for row in _rows(table):
        track = tracks[row["device"], row["track"]]
        start_ps = origin_ps + row["start_ps"]
        args: dict[str, Any] = {key: row[key] for key in _SPAN_ARGS}
        args["self_us"] = float(microseconds(row["self_ps"]))
        yield _complete(track, row["name"], start_ps, row["dur_ps"], args)
        launch = launches.get((row["window"], row["correlation"]))
        # A launch after its execution is clock skew between host and device: an arrow back in time helps nobody.
        if launch is not None and row["device"] != "host" and launch[1] <= row["start_ps"]:
            launch_track, launch_ps = launch
            flow_id = f"{process}.{row['window']}.{row['span']}"
            yield _flow(launch_track, flow_id, origin_ps + launch_ps, is_start=True)
            yield _flow(track, flow_id, start_ps, is_start=False)


def _number_tracks(table: pa.Table, process: int) -> dict[tuple[str, str], Track]:
    """A process per device and a thread per track, numbered in the order of their names."""
    pairs = table.group_by(["device", "track"], use_threads=False).aggregate([])
    names = sorted(set(zip(pairs.column("device").to_pylist(), pairs.column("track").to_pylist(), strict=True)))
    devices = sorted({device for device, _ in names})
    return {
        (device, track): Track(process + 1 + devices.index(device), index + 1)
        for index, (device, track) in enumerate(names)
    }


def _track_names(tracks: dict[tuple[str, str], Track], shard: Shard, *, perfetto: bool) -> Iterator[str]:
    named = set()
    for (device, name), track in tracks.items():
        if track.process not in named:
            named.add(track.process)
            yield _process_name(track.process, f"{_shard_name(shard)}: {device}")
            if perfetto:
                yield _process_order(track.process, track.process)
        yield _thread_name(track, name)
        if perfetto:
            yield _thread_order(track, track.thread)


def _launches(table: pa.Table, tracks: dict[tuple[str, str], Track]) -> dict[tuple[int, int], tuple[Track, int]]:
    """By window and correlation id, the host's first span of it: the one that launched."""
    on_host = pc.equal(table.column("device").cast(pa.string()), "host")
    rows = table.filter(pc.and_(on_host, pc.is_valid(table.column("correlation"))))
    found: dict[tuple[int, int], tuple[Track, int]] = {}
    for row in _rows(rows.select(["window", "correlation", "device", "track", "start_ps"])):
        key = row["window"], row["correlation"]
        if key not in found or row["start_ps"] < found[key][1]:
            found[key] = tracks[row["device"], row["track"]], row["start_ps"]
    return found


def _rows(table: pa.Table) -> Iterable[dict[str, Any]]:
    for batch in table.to_batches(max_chunksize=_ROWS):
        yield from batch.to_pylist()


def microseconds(time_ps: int) -> str:
    """Picoseconds as a JSON number of microseconds with all its digits."""
    sign = "-" if time_ps < 0 else ""
    whole, part = divmod(abs(time_ps), PS_PER_US)
    return f"{sign}{whole}.{part:06d}" if part else f"{sign}{whole}"


def _complete(track: Track, name: str, start_ps: int, dur_ps: int, args: Mapping[str, object]) -> str:
    """A stretch of time with a name (`X`); an unknown argument is left out."""
    known = {key: value for key, value in args.items() if value is not None}
    return (
        f'{{"ph":"X",{_where(track)},"ts":{microseconds(start_ps)},"dur":{microseconds(dur_ps)},'
        f'"name":{json.dumps(name)},"args":{json.dumps(known)}}}'
    )


def _flow(track: Track, flow_id: str, at_ps: int, *, is_start: bool) -> str:
    """One end of an arrow from a launch to its execution (`s`, `f`)."""
    kind = '"ph":"s"' if is_start else '"ph":"f","bp":"e"'
    where = f'{_where(track)},"ts":{microseconds(at_ps)},"id":{json.dumps(flow_id)}'
    return f'{{{kind},"cat":"launch","name":"launch",{where}}}'


def _counter(process: int, name: str, at_ps: int, value: float) -> str:
    """One sample of a counter of a process (`C`)."""
    sample = json.dumps({"value": value}, allow_nan=False)
    head = f'"ph":"C","pid":{process},"tid":0,"ts":{microseconds(at_ps)}'
    return f'{{{head},"name":{json.dumps(name)},"args":{sample}}}'


def _process_name(process: int, name: str) -> str:
    """What a process is called (`M`)."""
    return f'{{"ph":"M","pid":{process},"tid":0,"name":"process_name","args":{{"name":{json.dumps(name)}}}}}'


def _process_order(process: int, index: int) -> str:
    """Where a process stands in the viewer (`M`)."""
    return f'{{"ph":"M","pid":{process},"tid":0,"name":"process_sort_index","args":{{"sort_index":{index}}}}}'


def _thread_name(track: Track, name: str) -> str:
    """What a track is called (`M`)."""
    return f'{{"ph":"M",{_where(track)},"name":"thread_name","args":{{"name":{json.dumps(name)}}}}}'


def _thread_order(track: Track, index: int) -> str:
    """Where a track stands within its process (`M`)."""
    return f'{{"ph":"M",{_where(track)},"name":"thread_sort_index","args":{{"sort_index":{index}}}}}'


def _where(track: Track) -> str:
    return f'"pid":{track.process},"tid":{track.thread}'
