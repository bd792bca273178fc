"""However a job ends, what was recorded is there; one that begins while the interpreter ends keeps all its steps."""

import functools

import pytest
from recorder_fakes import run_script

from phasepoint.findings import summarize_run
from phasepoint.recorder.background import Flusher
from phasepoint.store import open_run

HEAD = """
import atexit, os, signal, sys, threading, time
from recorder_fakes import FakeClock, FakeSession, fake_record

clock = FakeClock()

def begin():
    return fake_record(sys.argv[1], clock, FakeSession(clock), budget=0)

def train(run, steps):
    for _ in run.steps(range(steps)):
        clock.tick(1)

def refuse(self):
    raise RuntimeError("can't create new thread at interpreter shutdown")
"""

AT_EXIT = """
def late():
    threading.Thread.start = refuse  # as Python 3.12 and newer do here
    with begin() as run:
        past = [(clock.ns + 10 * n, clock.ns + 10 * n + 1, clock.ns + 10 * n + 10) for n in range(100_000)]
        clock.ns += 10 * 100_000
        run.recorder.replay(past, entry_ns=0)
        train(run, 5)
    print(run.off_reason, threading.active_count())
atexit.register(late)
"""

NO_MORE_THREADS = """
threading.Thread.start = refuse
with begin() as run:
    train(run, 300)
print(run.off_reason)
"""

ENDINGS = {
    "sys.exit": "with begin() as run:\n    train(run, 300)\n    sys.exit(3)",
    "exception": "with begin() as run:\n    train(run, 300)\n    raise SystemError('the job failed')",
    "os._exit": "run = begin().__enter__()\ntrain(run, 300)\nflush(run)\nos._exit(3)",
    "SIGTERM": "run = begin().__enter__()\ntrain(run, 300)\nflush(run)\nos.kill(os.getpid(), signal.SIGTERM)",
    "SIGKILL": "run = begin().__enter__()\ntrain(run, 300)\nflush(run)\nos.kill(os.getpid(), signal.SIGKILL)",
    "the last line": "run = begin().__enter__()\natexit.register(run.__exit__, None, None, None)\ntrain(run, 300)",
    "daemon thread": """
run = begin().__enter__()
atexit.register(run.__exit__, None, None, None)
enough = threading.Event()
def forever():
    for number, _ in enumerate(run.steps(iter(int, 1))):
        clock.tick(1)
        time.sleep(1e-4)  # an empty loop makes more steps a second than any writer keeps up with
        if number == 300:
            enough.set()
threading.Thread(target=forever, daemon=True).start()
enough.wait()
""",
}
FLUSH = """
def flush(run):
    clock.tick(1000)  # the first flush is due after a second
    run.recorder._flusher.drain(60)
    run.recorder._flusher.drain(60)  # the first round may have begun before the tick
"""
CODES = {"sys.exit": 3, "os._exit": 3, "exception": 1, "SIGTERM": -15, "SIGKILL": -9}
STATES = {"os._exit": "killed", "SIGTERM": "killed", "SIGKILL": "killed"}


def test_a_recording_that_begins_at_exit_keeps_every_step_without_a_thread(tmp_path):
    done = run_script(HEAD + AT_EXIT, str(tmp_path / "run"))
    assert done.stdout == "None 1\n", done.stderr
    run = open_run(tmp_path / "run")
    assert run.table("steps").column("step").to_pylist() == list(range(100_005))
    assert [shard.state for shard in run.shards] == ["closed"]


def test_a_process_that_may_have_no_more_threads_is_recorded(tmp_path):
    done = run_script(HEAD + NO_MORE_THREADS, str(tmp_path / "run"))
    assert done.stdout == "None\n", done.stderr
    assert open_run(tmp_path / "run").table("steps").num_rows == 300


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """Gives how a job ended, and its run, by the name of the ending."""

    @functools.cache
    def end(ending):
        path = tmp_path_factory.mktemp("ended") / "run"
        return run_script(HEAD + FLUSH + ENDINGS[ending], str(path)), open_run(path)

    return end


@pytest.mark.parametrize("ending", ENDINGS)
def test_what_was_recorded_is_there_however_a_job_ends(ended, ending):
    done, run = ended(ending)
    assert done.returncode == CODES.get(ending, 0), done.stderr
    assert "phasepoint" not in done.stderr.replace("phasepoint/", "")
    assert run.table("steps").column("step").to_pylist()[:300] == list(range(300))
    assert [shard.state for shard in run.shards] == [STATES.get(ending, "closed")]


def test_a_killed_run_says_what_it_cost_up_to_its_last_flush(ended):
    _, run = ended("SIGKILL")
    counters = {row["name"]: row["value"] for row in run.table("counters").to_pylist()}
    assert {"recorder.cost.entry", "recorder.cost.clock", "recorder.cost.flush", "recorder.elapsed"} <= set(counters)
    assert counters["recorder.elapsed"] == 1.3e12  # 300 ms of steps, and a second
    cost = summarize_run(run).cost
    assert (cost.killed_sessions, cost.complete) == (1, True)
    assert cost.clock_ps == counters["recorder.cost.clock"] == counters["recorder.cost.total"]


def test_without_a_thread_a_round_runs_where_it_is_asked_for(monkeypatch):
    rounds = []
    flusher = Flusher(rounds.append)
    monkeypatch.setattr("phasepoint.recorder.background.interpreter_is_ending", lambda: True)
    flusher.start()
    assert flusher.is_inline
    flusher.wake()
    flusher.drain(60)
    flusher.finish()
    assert rounds == [False, False, True]
