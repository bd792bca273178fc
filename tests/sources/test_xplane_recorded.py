"""A trace that the test records, read by the source and by two readers that share no code with it."""

from collections import Counter, defaultdict

import pyarrow.compute as pc
import pytest
from recorded_jax import STEPS, record
from xplane_schema import oracle

from phasepoint.core.tables import CATEGORIES, validate_table
from phasepoint.sources.events.capture import CaptureRequest
from phasepoint.sources.xplane.lines import is_wait
from phasepoint.sources.xplane.reader import read_xplane

pytestmark = [pytest.mark.jax, pytest.mark.filterwarnings("ignore::DeprecationWarning")]
modes = pytest.mark.parametrize("wait_each_step", [True, False])


@modes
def test_spans_match_the_oracle_value_by_value(wait_each_step):
    data = record(wait_each_step=wait_each_step)
    spans, ignored = oracle.read(data)
    capture = read_xplane(data, CaptureRequest(window=3))
    found = Counter(
        (
            r["name"],
            r["program"],
            r["device"],
            r["track"].removesuffix(" (async)"),
            r["start_ps"],
            r["dur_ps"],
            r["self_ps"],
        )
        for r in capture.spans.to_pylist()
    )
    assert found == Counter(
        (s.name, s.program, s.device, s.track, s.start, s.end - s.start + s.tail, s.self_time) for s in spans
    )
    row = capture.conversion.to_pylist()[0]
    assert (row["spans"], row["ignored_events"], row["dropped_events"]) == (len(spans), ignored, 0)
    assert row["events"] == row["spans"] + row["ignored_events"] + row["dropped_events"]


@modes
def test_ops_match_the_oracle(wait_each_step):
    data = record(wait_each_step=wait_each_step)
    expected = defaultdict(lambda: [0, 0, 0])
    for span in oracle.read(data)[0]:
        if span.step is None:
            values = (1, span.end - span.start + span.tail, span.self_time)
            for i, value in enumerate(values):
                expected[span.device, span.program, span.op or span.name][i] += value
    found = defaultdict(lambda: [0, 0, 0])
    for row in read_xplane(data, CaptureRequest(window=3)).ops.to_pylist():
        for i, name in enumerate(("count", "total_ps", "self_ps")):
            found[row["device"], row["program"], row["op"]][i] += row[name]
    assert dict(found) == dict(expected)


@modes
def test_breakdowns_match_the_oracle_and_close(wait_each_step):
    data = record(wait_each_step=wait_each_step)
    capture = read_xplane(data, CaptureRequest(window=3))
    spans, _ = oracle.read(data)
    instructions = capture.instructions.to_pylist()
    category = {(row["program"], row["op"]): row["category"] for row in instructions}
    found = defaultdict(dict)
    for row in capture.breakdowns.to_pylist():
        found[row["step"]][row["category"]] = row["wall_ps"]
    marks = [s for s in spans if s.step is not None]
    assert sorted(found) == sorted(s.step for s in marks) == list(range(100, 100 + STEPS))
    for mark in marks:
        expected = oracle.breakdown(
            spans, lambda s: category[s.program, s.op], mark.start, mark.end, "cpu:0",
            lambda s: s.step is not None or is_wait(s.name),
        )  # fmt: skip
        assert found[mark.step] == expected
        assert sum(found[mark.step].values()) == mark.end - mark.start
        assert tuple(found[mark.step]) == CATEGORIES


@modes
def test_work_belongs_to_the_step_that_launched_it(wait_each_step):
    """Each step launches the program once, every third the sort too, however late they run."""
    capture = read_xplane(record(wait_each_step=wait_each_step), CaptureRequest())
    per_step = defaultdict(set)
    correlation = defaultdict(set)
    for row in capture.spans.to_pylist():
        if row["level"] == "op" and row["step"] is not None:
            per_step[row["step"]].add(row["program"])
            correlation[row["step"], row["program"]].add(row["correlation"])
    train = set.intersection(*per_step.values())
    assert len(train) == 1
    assert [len(correlation[100 + k, next(iter(train))]) for k in range(STEPS)] == [1] * STEPS
    assert [len(per_step[100 + k]) for k in range(STEPS)] == [2 if k % 3 == 0 else 1 for k in range(STEPS)]


def test_another_reader_sees_the_same_events():
    from jax.profiler import ProfileData

    data = record(wait_each_step=True)
    spans = read_xplane(data, CaptureRequest()).spans
    theirs = Counter()
    for plane in ProfileData.from_serialized_xspace(data).planes:
        for line in plane.lines:
            for event in line.events:
                if not event.name.startswith(("end: ", "ThreadpoolListener::")):
                    theirs[event.name, round(event.start_ns * 1000)] += 1
    ours = Counter(zip(spans.column("name").to_pylist(), spans.column("start_ps").to_pylist(), strict=True))
    assert ours == theirs


def test_tables_are_as_declared_and_refer_to_programs():
    capture = read_xplane(record(wait_each_step=True), CaptureRequest(window=9))
    for name in ("spans", "ops", "breakdowns", "programs", "instructions"):
        assert validate_table(name, getattr(capture, name)).equals(getattr(capture, name))
    ran = set(capture.ops.column("program").drop_null().to_pylist())
    assert ran
    assert ran <= set(capture.programs.column("program").to_pylist())
    assert pc.all(pc.equal(capture.spans.column("window"), 9)).as_py()


def test_reading_twice_gives_the_same():
    data = record(wait_each_step=False)
    first, second = read_xplane(data, CaptureRequest(window=1)), read_xplane(memoryview(data), CaptureRequest(window=1))
    assert first.spans.equals(second.spans)
    assert first.ops.equals(second.ops)
    assert first.breakdowns.equals(second.breakdowns)


def test_times_count_from_the_sessions_epoch():
    data = record(wait_each_step=True)
    space = oracle.XSpace.FromString(data)
    start_ns = next(p for p in space.planes if p.name == "Task Environment").stats[0].uint64_value
    own = read_xplane(data, CaptureRequest()).spans.column("start_ps").to_numpy()
    from_epoch = read_xplane(data, CaptureRequest(epoch_unix_ns=start_ns - 5)).spans.column("start_ps").to_numpy()
    assert ((from_epoch - own) == 5000).all()


def test_spans_can_be_left_out():
    data = record(wait_each_step=True)
    full, lean = read_xplane(data, CaptureRequest()), read_xplane(data, CaptureRequest(keep_spans=False))
    assert lean.spans.num_rows == 0
    assert lean.ops.equals(full.ops)


@modes
def test_two_threads_read_what_one_reads(wait_each_step, monkeypatch):
    data = record(wait_each_step=wait_each_step)
    one = read_xplane(data, CaptureRequest())
    monkeypatch.setattr("phasepoint.sources.xplane.decode._MANY_EVENTS", 1)
    two = read_xplane(data, CaptureRequest())
    for name in ("spans", "ops", "breakdowns", "steps"):
        assert getattr(two, name).to_pylist() == getattr(one, name).to_pylist()
    counts = ("events", "spans", "ignored_events", "dropped_events", "misnested_events", "orphan_events", "problem")
    assert two.conversion.select(counts).equals(one.conversion.select(counts))
