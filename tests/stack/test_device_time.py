import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from stack_runs import ShardOf, kernel, run_of, span

from phasepoint.stack.analyses.table import analyse
from phasepoint.stack.analyses.timelines.device_time import device_time
from phasepoint.stack.shard.executions import texts_of

CATEGORIES = ("compute", "communication", "data_movement")


def rows_of(run):
    return analyse(run, "device-time").rows.to_pylist()


def test_an_instant_goes_to_compute_then_communication_then_memory(tmp_path):
    run = run_of(
        tmp_path / "run",
        [
            span(0, 5, level="runtime", device="host", track="main", category="host"),
            kernel(10, 20),
            kernel(15, 30, category="communication", track="stream 8"),
            kernel(28, 34, category="data_movement", track="stream 9"),
            kernel(40, 41, launch=None),
        ],
    )
    assert rows_of(run) == [
        {
            "host": 0,
            "device": "gpu:0",
            "span_ps": 31_000,
            "busy_ps": 25_000,
            "compute_ps": 11_000,
            "communication_ps": 15_000,
            "exposed_communication_ps": 10_000,
            "memory_ps": 4_000,
            "idle_ps": 6_000,
            "orphan_ps": 1_000,
            "orphan_events": 1,
            "events": 4,
        }
    ]


def test_an_analysis_is_a_function_of_a_run_however_often_it_is_asked_for(tmp_path):
    import phasepoint.stack

    run = run_of(tmp_path / "run", [kernel(0, 7)])
    for _ in range(2):
        assert phasepoint.stack.device_time(run).rows["busy_ps"].to_pylist() == [7_000]


def test_a_run_without_device_work_has_no_rows_and_says_so(tmp_path):
    table = analyse(run_of(tmp_path / "run", [span(0, 5, level="runtime", device="host")]), "device-time")
    assert table.rows.num_rows == 0
    assert table.notes == ("no device work was recorded: record with the device's activities on",)


def test_an_op_of_a_cpu_that_serves_the_host_is_busy_time(tmp_path):
    cpu = {"level": "op", "device": "cpu:0", "track": "main", "launch": None}
    run = run_of(tmp_path / "run", [kernel(0, 4, category="host", **cpu), kernel(6, 9, **cpu)])
    (row,) = rows_of(run)
    assert (row["busy_ps"], row["compute_ps"], row["idle_ps"], row["orphan_events"]) == (7_000, 7_000, 2_000, 0)


def test_hosts_and_devices_have_a_row_each(tmp_path):
    run = run_of(tmp_path / "run", [kernel(0, 1), kernel(5, 7, device="gpu:1")], [kernel(3, 4)])
    assert [(row["host"], row["device"], row["busy_ps"]) for row in rows_of(run)] == [
        (0, "gpu:0", 1_000),
        (0, "gpu:1", 2_000),
        (1, "gpu:0", 1_000),
    ]


intervals = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 12), st.sampled_from(CATEGORIES), st.booleans()),
    min_size=1,
    max_size=25,
)


@settings(max_examples=200)
@given(intervals, st.randoms(use_true_random=False))
def test_time_agrees_with_looking_at_every_nanosecond(rows, random):
    random.shuffle(rows)
    spans = [
        {"span": i, **kernel(start, start + dur, category=category, launch=0 if launched else None)}
        for i, (start, dur, category, launched) in enumerate(rows)
    ]
    found = device_time.of_shard(ShardOf(spans=spans)).rows.to_pylist()[0]
    low, high = min(r[0] for r in rows), max(r[0] + r[1] for r in rows)
    running = [{r[2] for r in rows if r[0] <= t < r[0] + r[1]} for t in range(low, high)]
    first = [next((c for c in CATEGORIES if c in now), None) for now in running]
    orphan = sum(any(r[0] <= t < r[0] + r[1] and not r[3] for r in rows) for t in range(low, high))
    assert found["span_ps"] == (high - low) * 1_000
    assert found["compute_ps"] == first.count("compute") * 1_000
    assert found["exposed_communication_ps"] == first.count("communication") * 1_000
    assert found["memory_ps"] == first.count("data_movement") * 1_000
    assert found["idle_ps"] == first.count(None) * 1_000
    assert found["communication_ps"] == sum("communication" in now for now in running) * 1_000
    assert found["busy_ps"] == found["span_ps"] - found["idle_ps"]
    assert found["orphan_ps"] == orphan * 1_000
    assert (found["events"], found["orphan_events"]) == (len(rows), sum(not r[3] for r in rows))


def test_a_name_that_ends_with_nul_is_found_again():
    """As a damaged table has it: NumPy compares text without its last NULs."""
    found = texts_of(pa.chunked_array([pa.array(["gpu:0\0", "gpu:0", "gpu:1\0"]).dictionary_encode()]))
    assert [(found == name).sum() for name in sorted(set(found.tolist()))] == [2, 1]
