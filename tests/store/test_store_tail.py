"""The tail: steps that are in no part yet, read from a run whose writer lives or was killed."""

import errno
import os
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from store_builders import kill_writer, new_run, parts_of, steps

from phasepoint.core.errors import StoreError
from phasepoint.core.tables import table_spec
from phasepoint.recorder.output import steps_table
from phasepoint.store import compact_run, open_run, open_shard
from phasepoint.store.filesystem import read_file
from phasepoint.store.removal import remove_run
from phasepoint.store.tail import (
    MOST_TAIL_BYTES,
    MOST_TAIL_ROWS,
    _framed,
    _StepRecord,
    decode_tail,
    encode_rows,
    encode_steps,
)

MS = 1_000_000_000
KINDS = ["train", "eval"]
STEPS = table_spec("steps")


def columns_of(first: int, count: int) -> dict[str, np.ndarray]:
    """Steps of 1 ms; of every third the wait is not known, every fourth has no kind."""
    step = np.arange(first, first + count)
    return {
        "step": step,
        "start_ps": step * MS,
        "dur_ps": np.full(count, MS),
        "input_ps": np.where(step % 3, step, -1),
        "dispatch_ps": np.full(count, 7),
        "compile_ps": np.zeros(count, np.int64),
        "kind": np.where(step % 4, step % 2, -1),
        "host_rss_bytes": np.full(count, -1),
        "batch_elements": np.full(count, 12),
        "graph_nodes": np.full(count, -1),
        "device_memory_bytes": np.full(count, -1),
    }


def tail_of(first: int, count: int) -> dict[str, tuple[int, bytes]]:
    return {"steps": (count, encode_steps(columns_of(first, count), KINDS))}


def steps_of(path: str) -> list[int]:
    run = open_run(path)
    found = run.table("steps")["step"].to_pylist()
    assert run.table("gaps").num_rows == 0
    assert run.problems == ()
    return found


def tails_of(path: str) -> list[Path]:
    return sorted(Path(path).glob("host=*/steps/*.tail"))


@pytest.fixture
def written(tmp_path):
    """A run with a part of four steps, then a tail of three; its writer."""
    path = new_run(tmp_path)
    writer = open_shard(path, 0, epoch_unix_ns=0)
    writer.append("steps", steps(0, 4))
    writer.flush()
    writer.append_tails(tail_of(4, 2))
    writer.append_tails(tail_of(6, 1))
    return path, writer


def test_a_tail_holds_what_a_part_of_its_rows_would():
    columns = columns_of(5, 100)
    tail, problem = decode_tail(STEPS, pa.py_buffer(encode_steps(columns, KINDS)))
    assert problem is None
    part = steps_table(columns, KINDS)
    assert tail.schema == part.schema
    assert tail.to_pylist() == part.to_pylist()
    assert tail["kind"][0:4].to_pylist() == ["eval", "train", "eval", None]


def test_the_longest_tail_can_be_read():
    data = pa.py_buffer(encode_steps(columns_of(0, MOST_TAIL_ROWS), [f"kind {n}" for n in range(100)]))
    assert data.size < MOST_TAIL_BYTES / 2
    assert decode_tail(STEPS, data)[0].num_rows == MOST_TAIL_ROWS


def test_steps_of_a_tail_are_there_until_their_part_is(written):
    path, writer = written
    assert steps_of(path) == list(range(7))
    writer.append("steps", steps(4, 5))
    writer.flush()
    assert steps_of(path) == list(range(9))
    assert tails_of(path) == []
    writer.append_tails(tail_of(9, 1))
    assert steps_of(path) == list(range(10))
    writer.append("steps", steps(9, 1))
    writer.close()
    assert steps_of(path) == list(range(10))
    assert tails_of(path) == []


def test_a_run_of_a_tail_alone_has_steps(tmp_path):
    path = new_run(tmp_path)
    open_shard(path, 0, epoch_unix_ns=0).append_tails(tail_of(0, 3))
    kill_writer(path)
    assert open_run(path).has_part("steps")
    assert steps_of(path) == [0, 1, 2]


def test_a_tail_whose_part_is_there_is_void(written):
    """The writer was killed between the two; merging the parts afterwards does not make it count again."""
    path, writer = written
    (tail,) = tails_of(path)
    content = tail.read_bytes()
    for first in (4, 9):
        writer.append("steps", steps(first, 5))
        writer.flush()
    tail.write_bytes(content)
    kill_writer(path)
    assert steps_of(path) == list(range(14))
    compact_run(path, min_parts=2)
    assert len(parts_of(path, "steps")) == 1
    assert tail.exists()
    assert steps_of(path) == list(range(14))


def test_compaction_leaves_a_killed_runs_tail(written):
    path, writer = written
    writer.append("steps", steps(4, 3))
    writer.flush()
    writer.append_tails(tail_of(7, 2))
    kill_writer(path)
    compact_run(path, min_parts=2)
    assert len(parts_of(path, "steps")) == 1
    assert steps_of(path) == list(range(9))


def test_a_run_with_a_tail_may_be_removed(written, tmp_path):
    path, _ = written
    remove_run(tmp_path / "run", path)
    assert list((tmp_path / "run").iterdir()) == []


def test_an_object_store_gets_parts(written, monkeypatch):
    _, writer = written
    assert writer.takes_tails
    monkeypatch.setattr(type(writer._location), "is_local", False)
    assert not writer.takes_tails


def test_a_tail_is_no_longer_than_it_may_be(written):
    path, writer = written
    assert not writer.append_tails(tail_of(7, MOST_TAIL_ROWS - 2))
    assert not writer.append_tails({"counters": (1, bytes(MOST_TAIL_BYTES + 1)), **tail_of(7, 1)})
    assert steps_of(path) == list(range(7))
    assert writer.append_tails(tail_of(7, MOST_TAIL_ROWS - 3))
    assert steps_of(path) == list(range(MOST_TAIL_ROWS + 4))


def test_what_was_whole_before_a_cut_counts(written):
    path, _ = written
    (tail,) = tails_of(path)
    tail.write_bytes(tail.read_bytes()[:-1])
    kill_writer(path)
    run = open_run(path)
    assert run.table("steps")["step"].to_pylist() == list(range(6))
    (gap,) = run.table("gaps").to_pylist()
    assert (gap["why"], gap["first_step"]) == ("lost-part", 6)
    assert "is cut" in gap["unknown"]


def test_a_record_that_is_being_appended_is_waited_for(written, monkeypatch):
    path, _ = written
    reads = []

    def read_early(location, relative):
        data = read_file(location, relative)
        if relative.endswith(".tail"):
            reads.append(relative)
        return data if len(reads) != 1 else data.slice(0, data.size - 1)

    monkeypatch.setattr("phasepoint.store.shard_table.read_file", read_early)
    assert steps_of(path) == list(range(7))
    assert len(reads) == 2


def test_a_disk_that_is_full_leaves_what_was_whole(written, monkeypatch):
    path, writer = written
    write, told = os.write, []

    def write_half(descriptor, data):
        told.append(len(data))
        return write(descriptor, data[:5]) if len(told) == 1 else no_space()

    with monkeypatch.context() as disk:
        disk.setattr("phasepoint.store.filesystem.os.write", write_half)
        with pytest.raises(StoreError, match=r"part-00000001\.tail cannot be written: the disk is full"):
            writer.append_tails(tail_of(7, 3))
    assert steps_of(path) == list(range(7))
    writer.append_tails(tail_of(7, 3))
    assert steps_of(path) == list(range(10))


def no_space():
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _record(content) -> bytes:
    return _framed(msgspec.msgpack.encode(content))


def _with(**changed) -> bytes:
    return encode_steps({**columns_of(4, 3), **changed}, KINDS)


DAMAGED = {
    "empty": (b"", "not a readable tail"),
    "cut": (_with()[:-9], "not a readable tail"),
    "other": (b"PAR1" + bytes(50), "not a readable tail"),
    "long": (bytes(MOST_TAIL_BYTES + 1), "are more than a tail takes"),
    "nested": (_framed(b"\x91" * 100_000), "not a readable tail"),
    "odd": (_record(_StepRecord({"step": b"123"}, ())), "not a readable tail"),
    "none": (encode_steps({}, KINDS), "not of one length"),
    "lengths": (_with(dur_ps=np.full(2, MS)), "not of one length"),
    "column": (_with(more=np.zeros(3)), "has no column more"),
    "missing": (encode_steps({"step": np.arange(3)}, KINDS), "lacks column 'start_ps'"),
    "null": (_with(dur_ps=np.full(3, -1)), "3 nulls where none may be"),
    "kind": (_with(kind=np.full(3, 2)), "an index of no kind"),
    "negative kind": (_with(kind=np.full(3, -2)), "an index of no kind"),
    "negative": (_with(dur_ps=np.full(3, -2)), "it is never negative"),
    "far": (_with(start_ps=np.full(3, 1 << 62)), "more than 53 days"),
    "numbers": (_with(step=np.full(3, (1 << 62) - 1)), "no job has such a number"),
}


@pytest.mark.parametrize(("data", "said"), DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_tail_loses_its_own_steps_alone(written, data, said):
    path, _ = written
    (tail,) = tails_of(path)
    tail.write_bytes(data)
    kill_writer(path)
    run = open_run(path)
    assert run.table("steps")["step"].to_pylist() == [0, 1, 2, 3]
    (gap,) = run.table("gaps").to_pylist()
    assert gap["why"] == "lost-part"
    assert gap["first_step"] == 4
    assert said in gap["unknown"]
    assert str(tail) in gap["unknown"]


COUNTER = {"name": "recorder.elapsed", "unit": "ps", "device": "host", "time_ps": 7, "value": 1.5}
DAMAGED_ROWS = {
    "cut": (encode_rows([COUNTER])[:-9], "not a readable tail"),
    "steps": (encode_steps(columns_of(0, 3), KINDS), "not a readable tail"),
    "column": (encode_rows([COUNTER | {"more": 1}]), "has no column more"),
    "missing": (encode_rows([{"name": "a"}]), "unit"),
    "text": (encode_rows([COUNTER | {"value": "much"}]), "value"),
    "list": (encode_rows([COUNTER | {"name": [1, [2]]}]), "name"),
    "large": (encode_rows([COUNTER | {"time_ps": 1 << 63}]), "time_ps"),
    "far": (encode_rows([COUNTER | {"time_ps": 1 << 62}]), "more than 53 days"),
    "infinite": (encode_rows([COUNTER | {"value": float("inf")}]), "infinity"),
}


def test_rows_of_other_tables_have_tails_too(tmp_path):
    path = new_run(tmp_path)
    writer = open_shard(path, 0, epoch_unix_ns=0)
    writer.append_tails({"counters": (1, encode_rows([COUNTER])), **tail_of(0, 3)})
    writer.append_tails({"counters": (1, encode_rows([COUNTER | {"time_ps": np.int64(8)}]))})
    kill_writer(path)
    run = open_run(path)
    assert run.table("counters").select(list(COUNTER)).to_pylist() == [COUNTER, COUNTER | {"time_ps": 8}]
    assert steps_of(path) == [0, 1, 2]


@pytest.mark.parametrize("value", [object(), 1 << 70, {1: 2j}])
def test_what_is_no_value_makes_no_tail(value):
    with pytest.raises((TypeError, ValueError, OverflowError)):
        encode_rows([COUNTER | {"value": value}])


@pytest.mark.parametrize(("data", "said"), DAMAGED_ROWS.values(), ids=DAMAGED_ROWS)
def test_a_damaged_tail_of_rows_is_told(tmp_path, data, said):
    path = new_run(tmp_path)
    open_shard(path, 0, epoch_unix_ns=0).append_tails({"counters": (1, data), **tail_of(0, 3)})
    kill_writer(path)
    run = open_run(path)
    assert run.table("counters").num_rows == 0
    assert any("counters/part-00000000.tail" in problem and said in problem for problem in run.problems), run.problems
    assert run.table("steps").num_rows == 3


@given(at=st.integers(0, 10_000), value=st.integers(0, 255), cut=st.integers(0, 400))
def test_a_byte_that_was_changed_is_told_or_makes_rows(at, value, cut):
    data = bytearray(_with())
    data[at % len(data)] = value
    table, problem = decode_tail(STEPS, pa.py_buffer(bytes(data[: len(data) - cut // 2])))
    table.validate(full=True)
    assert table.num_rows == (3 if problem is None else 0)
