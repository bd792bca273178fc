"""`replay run` with real programs in processes of their own: what they do, how they are ended, what is said."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from phasepoint.cli.main import run as cli
from phasepoint.core.errors import OutputExistsError, RecordError, ReplayError, StoreError, UsageError
from phasepoint.replay.fast_forward import find_replays
from phasepoint.replay.folder import ReplayRecord, read_replay, write_replay
from phasepoint.replay.plan.plan import ReplayPlan
from phasepoint.replay.runner import ReplayLimits, ReplayOutcome, run_replay
from phasepoint.store import open_run

PROGRAM = """
import random, signal, sys
import numpy as np
import phasepoint as pp

out, folder, how = sys.argv[1:4]
random.seed(1)
np.random.seed(1)


class Loader:
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        yield from np.random.permutation(self.n)


with pp.record(out, budget=0) as run:
    weights, generators = np.zeros(3), None
    if how != "ignores" and run.resume is not None:
        state = np.load(run.resume.checkpoint, allow_pickle=True)
        weights = state["weights"]
        random.setstate(state["python"].item())
        np.random.set_state(state["numpy"].item())
    for epoch in range(4 if how != "short" else 1):
        for batch in run.steps(Loader(6), resume=True):
            weights = weights * 0.9 + batch + np.random.random(3) + random.random()
            run.log(loss=weights.sum(), batch=batch, epoch=epoch)
            if how == "crashes" and run.resume is not None and batch == 3:
                raise ValueError("the program's own")
            if how == "hangs" and run.resume is not None:
                signal.pause()
            if batch == 0:
                for held_out in run.steps(Loader(2), resume=True):
                    run.log(loss=-held_out)
                path = f"{folder}/{epoch}.npz"
                if run.resume is None:
                    box = np.empty((), object)
                    box[()] = random.getstate()
                    other = np.empty((), object)
                    other[()] = np.random.get_state()
                    np.savez(path, weights=weights, python=box, numpy=other)
                    run.checkpoint(path)
if how == "stays" and run.resume is not None:
    signal.pause()
"""

UNRECORDED = {
    "torch": """
import sys, torch
weight = torch.zeros(2, requires_grad=True)
optimizer = torch.optim.SGD([weight])
for step in range(100):
    (weight - 1).pow(2).sum().backward()
    optimizer.step()
    print(step, file=open(sys.argv[1], "w"))
""",
    "jax": """
import sys, jax
state = jax.numpy.zeros(2)
train = jax.jit(lambda state: state + 1)
for step in range(100):
    state = train(state)
    print(step, file=open(sys.argv[1], "w"))
""",
}


class Job:
    """A small program and its recorded run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.program = folder / "train.py"
        self.program.write_text(PROGRAM)
        self.run = folder / "run"
        (folder / "ckpt").mkdir()
        subprocess.run(self.command("ordinary"), check=True, env=environ())
        self.scalars = open_run(self.run).table("scalars").to_pylist()
        self.checkpoints = open_run(self.run).table("checkpoints").to_pylist()

    def command(self, how: str) -> list[str]:
        return [sys.executable, str(self.program), str(self.run), str(self.folder / "ckpt"), how]

    def plan(self, checkpoint: int = 1, **changes: Any) -> ReplayPlan:
        row = self.checkpoints[checkpoint]
        first = row["step"] + 1
        plan = ReplayPlan(
            run=str(self.run),
            phase_id=0,
            phase="train",
            host=0,
            attempt=0,
            window=None,
            target_first=first + 1,
            target_last=first + 2,
            checkpoint=row["path"],
            checkpoint_step=row["step"],
            iterator_state=row["iterator_state"],
            first_step=first,
            last_step=first + 4,
            forward_steps=5,
            compared_steps=0,
            startup_ps=None,
            compile_ps=None,
            restore_ps=None,
            skip_ps=None,
            forward_ps=0,
            outside_ps=0,
            cost_ps=0,
            full_ps=0,
            ratio=0.0,
            basis=(),
            tells=(),
            notes=(),
            protected=(str(self.run), str(self.folder / "ckpt")),
        )
        return replace(plan, **changes)

    def values(self, first: int, last: int) -> list[tuple[int, str, float]]:
        return [(r["step"], r["name"], r["value"]) for r in self.scalars if first <= (r["step"] or 0) <= last]


def environ(**more: str) -> dict[str, str]:
    source = str(Path(__file__).parents[2] / "src")
    return {**os.environ, "PYTHONPATH": source, "PYTHONWARNINGS": "ignore", **more}


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    return Job(tmp_path_factory.mktemp("job"))


def replay(job: Job, out: Path, how: str, plan: ReplayPlan | None = None, **options: Any) -> ReplayOutcome:
    return run_replay(plan or job.plan(), job.command(how), str(out), environ=environ(), **options)


@pytest.mark.parametrize("checkpoint", [0, 1, 2])
def test_a_replay_does_the_originals_steps_bit_for_bit(job, tmp_path, checkpoint):
    plan = job.plan(checkpoint)
    outcome = replay(job, tmp_path / "out", "ordinary", plan)
    assert (outcome.status, outcome.exit_code, outcome.was_ended) == ("done", 0, False)
    run = open_run(tmp_path / "out")
    assert run.table("steps")["step"].to_pylist() == list(range(plan.first_step, plan.last_step + 1))
    rows = [(row["step"], row["name"], row["value"]) for row in run.table("scalars").to_pylist()]
    assert rows == job.values(plan.first_step, plan.last_step)
    record = read_replay(tmp_path / "out")
    assert record == outcome.record
    assert (record.status, record.original, record.checkpoint) == ("done", str(job.run), plan.checkpoint)
    assert any("batches were drawn and thrown away" in note for note in outcome.notes)


def test_a_replay_from_the_start(job, tmp_path):
    plan = job.plan(checkpoint=0)
    plan = replace(
        plan, checkpoint=None, checkpoint_step=None, first_step=0, target_first=2, target_last=3, last_step=4
    )
    assert replay(job, tmp_path / "out", "ordinary", plan).status == "done"
    rows = open_run(tmp_path / "out").table("scalars").to_pylist()
    assert [(row["step"], row["name"], row["value"]) for row in rows] == job.values(0, 4)


def test_a_program_that_ignores_the_request_is_stopped(job, tmp_path, capfd):
    outcome = replay(job, tmp_path / "out", "ignores")
    assert (outcome.status, outcome.exit_code) == ("ignored", 17)
    assert "without reading run.resume; expected it to restore" in outcome.record.reason
    assert "phasepoint: replay ended: the program began its first step" in capfd.readouterr().err
    assert open_run(tmp_path / "out").table("steps").num_rows == 0
    assert len(open_run(job.run).shards) == 1  # the original has no further attempt


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_a_program_without_record_is_stopped_by_its_steps(job, tmp_path, framework):
    pytest.importorskip(framework)
    program, steps = tmp_path / "bare.py", tmp_path / "out" / "seen"
    program.write_text(UNRECORDED[framework])
    command = [sys.executable, str(program), str(steps)]
    outcome = run_replay(job.plan(), command, str(tmp_path / "out"), environ=environ())
    assert (outcome.status, outcome.exit_code) == ("ignored", 17)
    assert "training steps without calling phasepoint.record" in outcome.record.reason
    assert int(steps.read_text()) < 40


def test_a_program_that_ends_without_record(job, tmp_path):
    outcome = run_replay(job.plan(), [sys.executable, "-c", "pass"], str(tmp_path / "out"), environ=environ())
    assert (outcome.status, outcome.exit_code) == ("ignored", 0)
    assert "ended without calling phasepoint.record" in outcome.record.reason
    outcome = run_replay(job.plan(), [sys.executable, "-c", "exit(3)"], str(tmp_path / "other"), environ=environ())
    assert (outcome.status, outcome.exit_code) == ("failed", 3)
    assert "exit code 3 before it called phasepoint.record" in outcome.record.reason


def test_an_error_of_the_program(job, tmp_path):
    outcome = replay(job, tmp_path / "out", "crashes", replace(job.plan(), last_step=20))
    assert (outcome.status, outcome.exit_code) == ("failed", 1)
    assert outcome.record.reason == "the program failed: ValueError: the program's own"


def test_a_job_that_is_shorter_than_the_original(job, tmp_path):
    outcome = replay(job, tmp_path / "out", "short")
    assert (outcome.status, outcome.exit_code) == ("ended-early", 0)
    assert "where the replay begins" in outcome.record.reason


def test_a_program_that_stays_is_ended_after_its_grace(job, tmp_path):
    outcome = replay(job, tmp_path / "out", "stays", limits=ReplayLimits(grace_s=0.1))
    assert (outcome.status, outcome.was_ended, outcome.exit_code) == ("done", True, 128 + 15)
    assert "the program went on for 100 ms after its last step and was ended" in outcome.notes
    assert [shard.state for shard in open_run(tmp_path / "out").shards] == ["closed"]


def test_a_program_that_hangs_is_ended_at_the_limit(job, tmp_path):
    outcome = replay(job, tmp_path / "out", "hangs", limits=ReplayLimits(limit_s=6.0))
    assert (outcome.status, outcome.was_ended) == ("failed", True)
    assert outcome.record.reason == "the command had not ended after 6.00 s, the limit of time (--limit)"


def test_a_checkpoint_that_is_gone(job, tmp_path):
    plan = replace(job.plan(), checkpoint=str(tmp_path / "gone.npz"))
    with pytest.raises(ReplayError, match=r"gone\.npz: the checkpoint of step \d+ is not there any more"):
        replay(job, tmp_path / "out", "ordinary", plan)
    assert not (tmp_path / "out").exists()


def test_a_replay_whose_program_ended_at_once_can_be_made_again(job, tmp_path):
    out = tmp_path / "out"
    outcome = run_replay(job.plan(), [sys.executable, "-c", "raise SystemExit(2)"], str(out))
    assert outcome.status == "failed"
    assert [path.name for path in out.iterdir()] == ["replay.json"]
    with pytest.raises(OutputExistsError, match="exists already; give --force to replace it"):
        replay(job, out, "ordinary")
    replay(job, out, "ordinary", force=True)
    assert (out / "run.json").is_file()


def test_places_that_are_refused(job, tmp_path):
    with pytest.raises(UsageError, match="of the original lies there"):
        replay(job, job.run, "ordinary", force=True)
    with pytest.raises(UsageError, match="of the original lies there"):
        replay(job, job.folder, "ordinary", force=True)
    with pytest.raises(UsageError, match="a folder of this machine"):
        run_replay(job.plan(), job.command("ordinary"), "gs://bucket/run")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years")
    with pytest.raises(OutputExistsError, match="exists and is no run"):
        replay(job, tmp_path / "mine", "ordinary", force=True)
    (tmp_path / "mine" / "thesis.tex").unlink()
    (tmp_path / "mine" / "replay.json").write_text('{"moves": ["e4", "e5"]}')
    with pytest.raises(OutputExistsError, match="exists and is no run"):
        replay(job, tmp_path / "mine", "ordinary", force=True)
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputExistsError, match="is no folder"):
        replay(job, tmp_path / "file", "ordinary")
    with pytest.raises(UsageError, match="no command to replay with"):
        run_replay(job.plan(), [], str(tmp_path / "out"))
    with pytest.raises(RecordError, match="command not found"):
        run_replay(job.plan(), ["no-such-command"], str(tmp_path / "out"))


def test_a_run_that_is_there_is_replaced_only_by_force(job, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "run.json").write_text("{}")
    with pytest.raises(OutputExistsError, match="give --force to replace it"):
        replay(job, out, "ordinary")
    (out / "notes.txt").write_text("mine")
    with pytest.raises(OutputExistsError, match=r"no part of a run \(notes\.txt\)"):
        replay(job, out, "ordinary", force=True)
    (out / "notes.txt").unlink()
    assert replay(job, out, "ordinary", force=True).status == "done"
    assert len(open_run(out).shards) == 1


def test_the_record_of_a_replay(tmp_path):
    assert read_replay(tmp_path) is None
    record = ReplayRecord(
        original="/a",
        phase="train",
        phase_id=1,
        checkpoint=None,
        first_step=0,
        target_first=2,
        target_last=3,
        last_step=4,
        command=("python", "train.py"),
        status="done",
    )
    write_replay(tmp_path, record)
    assert read_replay(tmp_path) == record
    beside = tmp_path / "run-replay-1"
    beside.mkdir()
    write_replay(beside, replace(record, original="/a\0"))
    assert find_replays(tmp_path / "run") == ((), ())
    (tmp_path / "replay.json").write_text('{"a": ' + "[" * 20_000)
    with pytest.raises(StoreError, match="broken record of a replay"):
        read_replay(tmp_path)
    (tmp_path / "replay.json").write_text('{"version": 1}')
    with pytest.raises(StoreError, match=r"replay\.json: broken record"):
        read_replay(tmp_path)
    (tmp_path / "replay.json").unlink()
    os.mkfifo(tmp_path / "replay.json")
    with pytest.raises(StoreError, match=r"replay\.json: is no regular file; put a copy"):
        read_replay(tmp_path)


@pytest.mark.parametrize(("how", "code"), [("ordinary", 0), ("ignores", 17), ("crashes", 1)])
def test_the_command_line(job, tmp_path, monkeypatch, capsys, how, code):
    from phasepoint.cli import opening
    from phasepoint.replay.fidelity import fidelity
    from phasepoint.replay.plan import plan

    class Analysis:
        run = open_run(job.run)

    def no_comparison(*_: Any) -> None:
        raise StoreError("nothing was captured")

    monkeypatch.setattr(opening, "open_analysis", lambda path, method: Analysis)
    monkeypatch.setattr(plan, "plan_replay", lambda *_, **__: replace(job.plan(), last_step=20))
    monkeypatch.setattr(fidelity, "compare_replay", no_comparison)
    for name, value in environ().items():
        monkeypatch.setenv(name, value)
    words = ["replay", "run", str(job.run), "--phase", "train", "--out", str(tmp_path / "out"), "--json", "--"]
    assert cli([*words, *job.command(how)]) == code
    said = capsys.readouterr()
    document = json.loads(said.out)
    assert (document["kind"], document["run"]) == ("replay run", str(tmp_path / "out"))
    assert document["status"] == {"ordinary": "done", "ignores": "ignored", "crashes": "failed"}[how]
    expected = {
        "ordinary": "note: not compared with the original: nothing was captured",
        "ignores": "error: ",
        "crashes": "the replay failed: the program failed: ValueError",
    }
    assert expected[how] in said.err
