"""A recording by hand, and one that was never begun: each as a process of its own, by what it leaves and says."""

import pytest
from recorder_fakes import run_script

from phasepoint.store import open_run

HEAD = """
import os, sys
import phasepoint as pp

def train(run, steps):
    for _ in run.steps(range(steps)):
        pass
"""


def ran(tmp_path, script):
    return run_script(HEAD + script, str(tmp_path / "run"))


def sessions(tmp_path):
    """Status and steps of every attempt."""
    run = open_run(tmp_path / "run")
    attempts = run.table("steps")["attempt"].to_pylist()
    return [(shard.session.status, attempts.count(shard.attempt)) for shard in run.shards]


STOPPED = """
run = pp.start(sys.argv[1], budget=0)
train(run, 7)
run.stop()
run.stop()
train(run, 5)
"""

AGAIN = """
first = pp.start(sys.argv[1], budget=0)
train(first, 3)
second = pp.start(sys.argv[1], budget=0)  # the cell is run again: what ended well is replaced
train(second, 4)
second.stop()
"""

IN_A_BLOCK = """
with pp.record(sys.argv[1], budget=0) as run:
    train(run, 6)
    run.stop()
    train(run, 6)
"""


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (STOPPED, [("ok", 7)]),
        ("train(pp.start(sys.argv[1], budget=0), 9)", [("ok", 9)]),
        ("train(pp.start(sys.argv[1], budget=0), 9)\nraise SystemError", [("failed", 9)]),
        (AGAIN, [("ok", 4)]),
        (IN_A_BLOCK, [("ok", 6)]),
    ],
    ids=["stopped", "not stopped", "failed", "again", "in a block"],
)
def test_a_recording_by_hand_holds_what_ran_until_its_end(tmp_path, script, expected):
    done = ran(tmp_path, script)
    assert "phasepoint" not in done.stderr, done.stderr
    assert sessions(tmp_path) == expected


@pytest.mark.parametrize(("code", "status"), [("", "ok"), ("0", "ok"), ("3", "failed"), ("'no data'", "failed")])
def test_sys_exit_without_an_error_is_no_failure(tmp_path, code, status):
    ran(tmp_path, f"with pp.record(sys.argv[1], budget=0) as run:\n    train(run, 5)\n    sys.exit({code})")
    assert sessions(tmp_path) == [(status, 5)]


UNUSED = {
    "alone": "pp.record(sys.argv[1])",
    "used without a block": "run = pp.record(sys.argv[1])\ntrain(run, 5)\nrun.log(loss=1.0)",
}


@pytest.mark.parametrize("script", UNUSED.values(), ids=UNUSED)
def test_a_record_without_with_says_that_nothing_was_recorded_and_what_to_write(tmp_path, script):
    done = ran(tmp_path, script)
    assert done.returncode == 0
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith(f"phasepoint: nothing was recorded into {tmp_path / 'run'}: record() was called")
    assert "`with pp.record(…) as run:`" in done.stderr
    assert "`run = pp.start(…)`" in done.stderr
    assert not (tmp_path / "run").exists()


def test_a_child_says_nothing_of_its_parents_recording(tmp_path):
    done = ran(tmp_path, "run = pp.record(sys.argv[1])\nif os.fork() == 0:\n    sys.exit()\nos.wait()")
    assert done.stderr.count("nothing was recorded") == 1
