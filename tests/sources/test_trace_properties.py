"""Made-up runs in two formats: time is conserved, the order in the file says nothing, and both formats say the same."""

from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trace_encoders import BASE_NS, COPY_NAMES, KERNELS, NS, as_kineto, as_xplane, made_runs

from phasepoint.core.tables import CATEGORIES
from phasepoint.sources.chrome.reader import read_kineto
from phasepoint.sources.events.capture import CaptureRequest
from phasepoint.sources.xplane.reader import read_xplane
from phasepoint.stack.analyses.timelines import device_time as analysis

ENCODERS = {"kineto": as_kineto, "xplane": as_xplane}
READERS = {"kineto": read_kineto, "xplane": read_xplane}
FORMATS = sorted(ENCODERS)
MORE = settings(max_examples=60)


def read(format, run, shuffle=None):
    return READERS[format](ENCODERS[format](run, shuffle), CaptureRequest(epoch_unix_ns=BASE_NS))


class OneShard:
    """A shard whose tables are those of one capture."""

    host = 0

    def __init__(self, capture):
        self.capture = capture

    def table(self, name, columns=None):
        table = self.capture.tables[name] if name != "steps" else self.capture.steps
        return table if columns is None else table.select(list(columns))

    def once(self, make):
        return make(self)


def device_time(capture):
    return analysis.device_time.of_shard(OneShard(capture)).rows.to_pylist()


def union(intervals):
    """Length of a union, instant by instant: these runs last a few thousand ns."""
    return len({instant for start, end in intervals for instant in range(start, end)})


def intervals(rows):
    return [(row["start_ps"] // NS, (row["start_ps"] + row["dur_ps"]) // NS) for row in rows]


@pytest.mark.parametrize("format", FORMATS)
@MORE
@given(made_runs(overlapping=True))
def test_on_every_track_own_times_and_gaps_make_its_extent(format, run):
    tracks = defaultdict(list)
    for row in read(format, run).spans.to_pylist():
        tracks[row["track"]].append(row)
    assert len(tracks) == len({span.thread for span in run.host} | {0}) + len({k.stream for k in run.kernels})
    for rows in tracks.values():
        spans = intervals(rows)
        low, high = min(start for start, _ in spans), max(end for _, end in spans)
        gaps = sum(not any(start <= instant < end for start, end in spans) for instant in range(low, high))
        assert sum(row["self_ps"] for row in rows) + gaps * NS == (high - low) * NS


@pytest.mark.parametrize("format", FORMATS)
@MORE
@given(made_runs(overlapping=True))
def test_every_instant_of_a_step_has_one_category(format, run):
    wall_ps = defaultdict(int)
    for row in read(format, run).breakdowns.to_pylist():
        assert row["wall_ps"] >= 0
        wall_ps[row["step"], row["device"]] += row["wall_ps"]
    device = "gpu:0" if run.kernels else "cpu:0"
    if format == "xplane" and not run.kernels:
        return  # what the host of a trace without a device does is no op there
    bounds = zip(run.step_bounds_ns[:-1], run.step_bounds_ns[1:], strict=True)
    assert wall_ps == {(run.first_step + i, device): (high - low) * NS for i, (low, high) in enumerate(bounds)}


@pytest.mark.parametrize("format", FORMATS)
@MORE
@given(made_runs(overlapping=True))
def test_the_parts_of_device_time_are_those_of_the_run(format, run):
    rows = device_time(read(format, run))
    if not run.kernels:
        return
    (row,) = rows
    of = {category: [(k.start_ns, k.end_ns) for k in run.kernels if k.category == category] for category in CATEGORIES}
    everything = [(k.start_ns, k.end_ns) for k in run.kernels]
    compute, all_communication = of["compute"], of["communication"]
    busy = union(everything)
    span = max(end for _, end in everything) - min(start for start, _ in everything)
    assert (row["span_ps"], row["busy_ps"], row["events"]) == (span * NS, busy * NS, len(run.kernels))
    assert row["compute_ps"] == union(compute) * NS
    assert row["communication_ps"] == union(all_communication) * NS
    assert row["exposed_communication_ps"] == (union(compute + all_communication) - union(compute)) * NS
    assert row["memory_ps"] == (busy - union(compute + all_communication)) * NS
    parts = ("compute_ps", "exposed_communication_ps", "memory_ps", "idle_ps")
    assert sum(row[part] for part in parts) == row["span_ps"]
    assert row["orphan_events"] == sum(not kernel.launched for kernel in run.kernels)


@pytest.mark.parametrize("format", FORMATS)
@MORE
@given(made_runs(overlapping=False), st.randoms(use_true_random=False))
def test_the_order_in_the_file_says_nothing(format, run, random):
    once, again = read(format, run), read(format, run, random.shuffle)
    assert spans_of(once, format) == spans_of(again, format)
    for name in ("ops", "breakdowns", "accounts"):
        assert sorted_rows(once.tables[name]) == sorted_rows(again.tables[name])
    for name in ("launches", "collectives"):
        assert of_spans(once, name, format) == of_spans(again, name, format)
    assert once.steps.equals(again.steps)
    assert device_time(once) == device_time(again)


@MORE
@given(made_runs(overlapping=True).filter(lambda run: run.kernels))  # operators of a CPU are the device's in one alone
def test_both_formats_say_the_same(run):
    kineto, xplane = read("kineto", run), read("xplane", run)
    assert spans_of(kineto, "kineto") == spans_of(xplane, "xplane")
    assert kineto.steps.equals(xplane.steps)
    assert device_time(kineto) == device_time(xplane)
    assert ops_of(kineto, "kineto") == ops_of(xplane, "xplane")
    assert sorted_rows(kineto.breakdowns) == sorted_rows(xplane.breakdowns)
    counts = ("events", "spans", "ignored_events", "dropped_events", "misnested_events", "orphan_events")
    assert kineto.conversion.select(counts).equals(xplane.conversion.select(counts))


def sorted_rows(table):
    return sorted((tuple(row.items()) for row in table.to_pylist()), key=repr)


def spans_of(capture, format):
    """The spans, other spans named by what they are instead of by number, in what both formats know."""
    rows = capture.spans.to_pylist()
    own = {row["span"]: _own(row, format) for row in rows}
    assert len(own) == len(rows)
    return sorted(((own[row["span"]], own.get(row["parent"]), own.get(row["launch"])) for row in rows), key=repr)


def of_spans(capture, name, format):
    """Rows of a table that say something of a span, the span named by what it is."""
    own = {row["span"]: _own(row, format) for row in capture.spans.to_pylist()}
    return sorted(((own[row.pop("span")], tuple(row.items())) for row in capture.tables[name].to_pylist()), key=repr)


def _own(row, format):
    level = "host work" if row["device"] == "host" and row["level"] != "model" else row["level"]
    step = -1 if row["step"] is None else row["step"]
    times = tuple(row[name] for name in ("start_ps", "dur_ps", "self_ps"))
    return (*times, row["device"], level, row["category"], _name(row["name"], format), step, row["correlation"] or 0)


def _name(name, format):
    """The name without what only this format's convention adds to it."""
    if name == COPY_NAMES[format]:
        return next(kernel for kernel, category in KERNELS.items() if category == "data_movement")
    return name.partition("#")[0]


def ops_of(capture, format):
    columns = ("step", "device", "category", "count", "total_ps", "self_ps")
    rows = capture.ops.to_pylist()
    return sorted(((_name(row["op"], format), *(row[column] for column in columns)) for row in rows), key=repr)
