"""A disk that is full, from the start or from some step on: told with numbers, tried again, never the job's problem."""

import errno
import os
import subprocess
from functools import partial

import pytest
from recorder_fakes import FakeClock, FakeSession, StillFlusher, fake_record, run_script

from phasepoint.recorder import assembly
from phasepoint.recorder.clock.step_clock import StepClock
from phasepoint.store import filesystem, open_run

pytestmark = pytest.mark.usefixtures("still")


@pytest.fixture
def disk(monkeypatch):
    """A dictionary whose `full` says whether the next write finds no space."""
    state = {"full": False, "refused": 0}
    write, append = filesystem._write_temporary, filesystem._append_local

    def append_or_refuse(target, data, size):
        if state["full"]:
            no_space(state)
        return append(target, data, size)

    def write_or_refuse(target, data, *, durable):
        if state["full"]:
            no_space(state)
        return write(target, data, durable=durable)

    monkeypatch.setattr(filesystem, "_write_temporary", write_or_refuse)
    monkeypatch.setattr(filesystem, "_append_local", append_or_refuse)
    return state


def no_space(state):
    state["refused"] += 1
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def record_steps(path, disk, is_full, *, steps=2000, **options):
    clock = FakeClock()
    with fake_record(path, clock, FakeSession(clock), **{"budget": 0} | options) as run:
        for index, _ in enumerate(run.steps(range(steps))):
            disk["full"] = is_full(index)
            clock.tick(10)
            StillFlusher.made.round()
        disk["full"] = is_full(steps)
    return run


def test_a_disk_that_is_full_from_the_start(tmp_path, capsys, disk):
    disk["full"] = True
    run = record_steps(tmp_path / "run", disk, lambda _: True, steps=500)
    assert run.off_reason is None
    assert disk["refused"] > 10  # it keeps trying
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "500 of 500 steps could not be written" in err
    assert f"{tmp_path / 'run'}/run.json cannot be written: the disk is full: free space there" in err
    assert not (tmp_path / "run" / "run.json").exists()


def test_space_that_is_freed_in_time_costs_nothing(tmp_path, capsys, disk):
    disk["full"] = True
    run = record_steps(tmp_path / "run", disk, lambda index: index < 1000)
    assert run.off_reason is None
    assert open_run(tmp_path / "run").table("steps").num_rows == 2000
    assert capsys.readouterr().err == ""


def test_a_disk_that_fills_up_is_told_with_what_was_lost(tmp_path, capsys, disk):
    record_steps(tmp_path / "run", disk, lambda index: index >= 1000)
    kept = open_run(tmp_path / "run").table("steps").num_rows
    assert 0 < kept <= 1000
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert f"{2000 - kept} of 2000 steps could not be written" in err
    assert "steps/part-" in err
    assert "the disk is full: free space there, or record to another disk" in err
    assert [shard.state for shard in open_run(tmp_path / "run").shards] == ["live"]  # not closed, this process lives


def test_captures_that_were_lost_are_told_when_all_steps_were_kept(tmp_path, capsys, disk):
    record_steps(tmp_path / "run", disk, lambda index: 500 <= index < 1500, budget=None, window_steps=10)
    run = open_run(tmp_path / "run")
    lost = [gap for gap in run.table("gaps").to_pylist() if gap["why"] == "lost-window"]
    assert run.table("steps").num_rows == 2000
    assert f"{len(lost)} captures could not be written" in capsys.readouterr().err
    assert "the disk is full" in lost[0]["unknown"]


def test_steps_that_were_overwritten_while_the_disk_was_full_are_a_gap(tmp_path, capsys, disk, monkeypatch):
    """With a ring of 128 steps, which is full five hundred times as soon, as is what is kept beside it."""
    monkeypatch.setattr(assembly, "StepClock", partial(StepClock, capacity=128))
    run = record_steps(tmp_path / "run", disk, lambda index: 1000 <= index < 4000, steps=5000)
    opened = open_run(tmp_path / "run")
    kept = set(opened.table("steps").column("step").to_pylist())
    gaps = [gap for gap in opened.table("gaps").to_pylist() if gap["why"] == "lost-part"]
    lost = {step for gap in gaps for step in range(gap["first_step"], gap["last_step"] + 1)}
    assert lost
    assert kept.isdisjoint(lost)
    assert kept | lost == set(range(5000))
    assert f"{len(lost)} of 5000 steps could not be written" in capsys.readouterr().err
    assert run.off_reason is None


JOB = """
import sys
from recorder_fakes import FakeClock, FakeSession, fake_record
clock = FakeClock()
with fake_record(sys.argv[1], clock, FakeSession(clock), budget=0) as run:
    for step in run.steps(range(20_000)):
        clock.tick(1000)
        run.log(loss=hash(str(step)) / 7)
        if step % 1000 == 0:
            run.recorder._flusher.drain(60)
"""


def test_a_small_file_system_that_is_really_full(tmp_path):
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("mounting a small file system needs the rights to do so")
    try:
        done = run_script(JOB, str(folder / "run"))
        kept = open_run(folder / "run").table("steps").num_rows
    finally:
        subprocess.run(["umount", str(folder)], check=True)
    assert done.returncode == 0
    assert 0 < kept < 20_000
    assert f"phasepoint: {20_000 - kept} of 20000 steps could not be written" in done.stderr
    assert "the disk is full" in done.stderr
