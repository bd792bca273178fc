"""A recording under a request: which steps it does, counts and captures, and how it ends."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from recorder_fakes import FakeClock, FakeSession, fake_record

from phasepoint.core.errors import ReplayError
from phasepoint.recorder.resume import request as resume
from phasepoint.recorder.resume.request import VARIABLE, ReplayRequest, Resume
from phasepoint.store import open_run

pytestmark = pytest.mark.usefixtures("still")


@pytest.fixture
def request_(tmp_path, monkeypatch):
    """Steps 13 to 20 of a job, 15 to 18 to be captured; each test's process has taken no request yet."""
    monkeypatch.setattr(resume, "_taken", resume._Taken())
    return ReplayRequest(
        path=str(tmp_path / "replay"),
        original=str(tmp_path / "run"),
        checkpoint="ckpt/12",
        checkpoint_step=12,
        first_step=13,
        target_first=15,
        target_last=18,
        last_step=20,
        iterator_state=None,
        handshake=str(tmp_path / "handshake"),
        protected=("ckpt",),
        saves=str(tmp_path / "saves"),
    )


class Job:
    """A job on a fake clock that follows a request."""

    def __init__(self, request, monkeypatch, **options):
        monkeypatch.setenv(VARIABLE, request.to_environ())
        self.request = request
        self.clock = FakeClock()
        self.session = FakeSession(self.clock)
        self.recording = fake_record(request.original, self.clock, self.session, **options)
        self.done = []

    def epochs(self, run, n_epochs=3, batches=10, **options):
        for epoch in range(n_epochs):
            for batch in run.steps(range(batches), **options):
                self.clock.tick(9)
                self.done.append((epoch, batch))

    def events(self):
        return [json.loads(line) for line in Path(self.request.handshake).read_text().splitlines()]

    def names(self):
        return [event["event"] for event in self.events()]

    def table(self, name):
        return open_run(self.request.path).table(name).to_pylist()


def test_a_request_survives_its_environment(request_):
    assert ReplayRequest.from_environ(request_.to_environ()) == request_


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda found: found.pop("path"), r"\['path'\] are missing"),
        (lambda found: found.update(more=1), r"\['more'\] are missing or not known"),
        (lambda found: found.update(first_step="13"), "first_step is '13'; expected int"),
        (lambda found: found.update(last_step=True), "last_step is True; expected int"),
        (lambda found: found.update(checkpoint=3), "checkpoint is 3; expected str"),
        (lambda found: found.update(target_last=21), r"\(13, 15, 21, 20\); expected them in this order"),
        (lambda found: found.update(first_step=-1), "expected them in this order"),
    ],
)
def test_a_broken_request_says_what_is_wrong(request_, change, message):
    found = json.loads(request_.to_environ())
    change(found)
    with pytest.raises(ReplayError, match=message):
        ReplayRequest.from_environ(json.dumps(found))


@pytest.mark.parametrize("value", ["", "{", "[]", "3"])
def test_a_malformed_request_ends_the_process_and_leaves_the_users_run_alone(
    tmp_path, monkeypatch, capsys, request_, value
):
    monkeypatch.setenv(VARIABLE, value)
    with pytest.raises(SystemExit) as ended:
        fake_record(tmp_path / "run", FakeClock(), FakeSession())
    assert ended.value.code == 17
    assert f"{VARIABLE} holds no request of a replay" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_steps_keep_the_originals_numbers_and_only_the_target_is_captured(request_, monkeypatch):
    job = Job(request_, monkeypatch)
    with job.recording as run:
        assert run.resume == Resume("ckpt/12", 12, 13, 20)
        assert run.path == request_.path
        job.epochs(run, resume=True)
    assert job.done == [(step // 10, step % 10) for step in range(13, 21)]
    assert [row["step"] for row in job.table("steps")] == list(range(13, 21))
    assert [(w["first_step"], w["last_step"], w["reason"], w["probability"]) for w in job.table("windows")] == [
        (15, 18, "requested", None)
    ]
    assert [entry[1] for entry in job.session.log if entry[0] == "enter"] == [15, 16, 17, 18]
    assert [entry[1] for entry in job.session.log if entry[0] == "start"] == [True]
    assert job.names() == ["begun", "resume-read", "skipped", "done"]
    assert job.events()[2]["batches"] == 13
    assert not Path(request_.original).exists()


def test_an_ordinary_run_has_nothing_to_resume(tmp_path):
    clock = FakeClock()
    with fake_record(tmp_path / "run", clock, FakeSession(clock), budget=0) as run:
        assert run.resume is None
        assert list(run.steps(range(3), resume=True)) == [0, 1, 2]
    assert [row["step"] for row in open_run(tmp_path / "run").table("steps").to_pylist()] == [0, 1, 2]


def test_a_loop_that_was_placed_by_the_program_is_left_alone(request_, monkeypatch):
    job = Job(request_, monkeypatch)
    with job.recording as run:
        assert run.resume is not None
        job.epochs(run)
    assert job.done == [(0, batch) for batch in range(8)]
    assert [row["step"] for row in job.table("steps")] == list(range(13, 21))


def test_a_replay_from_the_start_has_nothing_to_restore(request_, monkeypatch):
    from_start = replace(request_, checkpoint=None, checkpoint_step=None, first_step=0)
    job = Job(from_start, monkeypatch)
    with job.recording as run:
        assert run.resume is None
        job.epochs(run, resume=True)
    assert len(job.done) == 21
    assert [w["first_step"] for w in job.table("windows")] == [15]
    assert job.names() == ["begun", "resume-read", "done"]


def test_a_program_that_does_not_restore_is_stopped_before_its_first_step(request_, monkeypatch, capsys):
    job = Job(request_, monkeypatch)
    with pytest.raises(SystemExit) as ended, job.recording as run:
        job.epochs(run, resume=True)
    assert ended.value.code == 17
    assert job.done == []
    assert job.names() == ["begun", "ignored"]
    assert "without reading run.resume; expected it to restore ckpt/12" in capsys.readouterr().err
    assert not Path(request_.original).exists()


def test_a_target_over_two_loops_is_captured_on_both_sides(request_, monkeypatch):
    job = Job(replace(request_, target_first=18, target_last=22, last_step=24), monkeypatch)
    with job.recording as run:
        assert run.resume is not None
        job.epochs(run, resume=True)
    assert [(w["first_step"], w["last_step"]) for w in job.table("windows")] == [(18, 19), (20, 22)]


def test_a_long_window_is_not_cut(request_, monkeypatch):
    job = Job(replace(request_, target_first=13, target_last=25, last_step=25), monkeypatch, window_steps=2)
    with job.recording as run:
        assert run.resume is not None
        for _ in run.steps(range(40), resume=True):
            job.clock.tick(30_000)
    assert [(w["first_step"], w["last_step"]) for w in job.table("windows")] == [(13, 25)]


def test_marked_steps_end_the_process_after_the_last_one(request_, monkeypatch):
    job = Job(request_, monkeypatch)

    def train():
        with job.recording as run:
            assert run.resume is not None
            while True:
                run.mark_step()
                job.done.append(run.recorder.next_step)
                job.clock.tick(5)

    with pytest.raises(SystemExit) as ended:
        train()
    assert ended.value.code == 0
    assert job.done == list(range(13, 21))
    assert [row["step"] for row in job.table("steps")] == list(range(13, 21))
    assert job.names() == ["begun", "resume-read", "marked", "done"]


def test_marked_steps_that_end_by_themselves_are_done(request_, monkeypatch):
    job = Job(request_, monkeypatch)
    with job.recording as run:
        assert run.resume is not None
        for _ in range(8):
            run.mark_step()
    assert job.names()[-1] == "done"


def test_a_job_that_ends_before_the_first_step_says_so(request_, monkeypatch):
    job = Job(request_, monkeypatch)
    with job.recording as run:
        assert run.resume is not None
        job.epochs(run, n_epochs=1, resume=True)
    assert job.done == []
    last = job.events()[-1]
    assert last["event"] == "ended-early"
    assert (
        "ended before step 13, where the replay begins: its loops with resume=True had 10 batches in all"
        in last["reason"]
    )


def test_a_job_that_ends_before_the_last_step_says_so(request_, monkeypatch):
    job = Job(request_, monkeypatch)
    with job.recording as run:
        assert run.resume is not None
        job.epochs(run, n_epochs=2, batches=9, resume=True)
    last = job.events()[-1]
    assert (last["event"], last["reason"]) == (
        "ended-early",
        "the job ended before step 18; the replay's last one is 20",
    )
    assert [row["step"] for row in job.table("steps")] == [13, 14, 15, 16, 17]


def test_an_error_of_the_program_passes_and_is_told(request_, monkeypatch):
    job = Job(request_, monkeypatch)

    def train():
        with job.recording as run:
            assert run.resume is not None
            for batch in run.steps(range(40), resume=True):
                1 / (batch - 15)

    with pytest.raises(ZeroDivisionError):
        train()
    assert job.events()[-1]["reason"] == "the program failed: ZeroDivisionError: division by zero"


def test_a_fault_of_the_recorder_ends_the_replay(request_, monkeypatch, capsys):
    job = Job(request_, monkeypatch)

    def train():
        with job.recording as run:
            assert run.resume is not None
            for batch in run.steps(range(40), resume=True):
                job.done.append(batch)
                job.clock.fails = batch == 14

    with pytest.raises(SystemExit) as ended:
        train()
    assert ended.value.code == 17
    assert job.done == [13, 14]
    assert job.names()[-1] == "failed"
    assert "the recorder switched itself off: OSError" in capsys.readouterr().err


def test_a_replay_of_a_switched_off_recorder_ends(request_, monkeypatch):
    monkeypatch.setenv("PHASEPOINT_OFF", "1")
    with pytest.raises(SystemExit), Job(request_, monkeypatch).recording:
        raise AssertionError("the program went on")


def test_a_second_recording_of_the_process_does_nothing(request_, monkeypatch, tmp_path):
    job = Job(request_, monkeypatch)
    with job.recording as run:
        assert run.resume is not None
        job.epochs(run, resume=True)
    clock = FakeClock()
    with fake_record(tmp_path / "other", clock, FakeSession(clock)) as run:
        assert run.resume is None
        assert list(run.steps(range(3))) == []
        run.checkpoint("somewhere")
    assert not (tmp_path / "other").exists()


def test_children_of_the_process_are_ordinary(request_, monkeypatch):
    Job(request_, monkeypatch)
    assert VARIABLE not in os.environ


def test_loops_inside_a_step_count_as_they_did(request_, monkeypatch):
    """An evaluation after every fourth step: each of its batches is a step, and ends the training step before it."""

    def train(job, run, seen, **options):
        for batch in run.steps(range(20), **options):
            seen.append(("train", batch))
            if batch % 4 == 3:
                for held_out in run.steps(range(2), **options):
                    seen.append(("eval", held_out))

    clock, whole = FakeClock(), []
    with fake_record(request_.original + "-whole", clock, FakeSession(clock), budget=0) as run:
        train(None, run, whole)
    # Bodies of skipped steps are not done, so the evaluation in them is none of the loops gone through.
    flat = replace(request_, first_step=3, checkpoint_step=2, target_first=3, target_last=6, last_step=8)
    job, seen = Job(flat, monkeypatch), []
    with job.recording as run:
        assert run.resume is not None
        train(job, run, seen, resume=True)
    assert seen == whole[3:9]
