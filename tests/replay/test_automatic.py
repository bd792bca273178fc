"""A job that `phasepoint record -- …` recorded, whose program knows nothing of Phasepoint: replayed from its start."""

import os
import subprocess
import sys
from itertools import pairwise

import pytest

from phasepoint.cli.opening import open_converted
from phasepoint.replay.plan.plan import plan_replay
from phasepoint.replay.runner import run_replay
from phasepoint.replay.timed import time_replay
from phasepoint.store import open_run
from phasepoint.summary.analysis import analyse_run

JOBS = {
    "torch": """
import sys, time
import torch
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
net = torch.nn.Linear(16, 4)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
data = TensorDataset(torch.randn(800, 16), torch.randint(0, 4, (800,)))
for epoch in range(3):
    for x, y in DataLoader(data, batch_size=int(sys.argv[2])):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
        time.sleep(0.005)
    torch.save(net.state_dict(), sys.argv[1])
print("the end")
""",
    "jax": """
import sys, time
import jax, jax.numpy as jnp
@jax.jit
def train_step(w, x):
    return w - 0.01 * jax.grad(lambda w: (x @ w).sum())(w)
w, x = jnp.ones((16, 4)), jnp.ones((int(sys.argv[2]), 16))
for epoch in range(3):
    for _ in range(100):
        w = train_step(w, x)
        w.block_until_ready()
        time.sleep(0.005)
    jnp.save(sys.argv[1], w)
print("the end")
""",
}


@pytest.fixture(scope="module", params=["torch", "jax"])
def job(request, tmp_path_factory):
    """The command, its analysed run, and what it saved."""
    pytest.importorskip(request.param)
    folder = tmp_path_factory.mktemp(request.param)
    program, saved, run = folder / "train.py", folder / "saved.npy", folder / "run"
    program.write_text(JOBS[request.param])
    command = [sys.executable, str(program), str(saved), "8"]
    record = [sys.executable, "-m", "phasepoint", "record", "--out", str(run), "--budget", "none", "--", *command]
    subprocess.run(record, env={**os.environ, "JAX_PLATFORMS": "cpu"}, check=True, capture_output=True)
    return command, analyse_run(open_converted(str(run))), saved


def test_it_is_replayed_from_its_start_and_ends_after_the_last_step(job, tmp_path, capfd):
    command, analysis, saved = job
    before = saved.read_bytes(), saved.stat().st_mtime_ns
    phase = str(max(analysis.result.phases, key=lambda one: one.total_ps).id)
    plan = plan_replay(analysis, phase, steps=20)
    assert plan.is_automatic
    assert (plan.checkpoint, plan.first_step) == (None, 0)
    assert plan.notes[0].startswith("the job was recorded without lines of Phasepoint")
    outcome = run_replay(plan, command, str(tmp_path / "out"), environ={**os.environ, "JAX_PLATFORMS": "cpu"})
    said = capfd.readouterr()
    assert outcome.status == "done", outcome.record.reason
    assert (outcome.exit_code, outcome.was_ended) == (0, False)
    made = open_run(str(tmp_path / "out"))
    assert made.table("steps").num_rows == plan.last_step + 1
    windows = made.table("windows").to_pylist()
    assert windows[0]["first_step"] == plan.target_first
    assert plan.target_last - 1 <= windows[-1]["last_step"] <= plan.target_last
    for before_end, after in pairwise(windows):  # the end of an epoch ends a window, and the next begins a step later
        assert before_end["ended_by"] == "loop"
        assert before_end["last_step"] % 100 == 99
        assert after["first_step"] - before_end["last_step"] <= 2
    assert "Traceback" not in said.err
    assert "the end" not in said.out
    assert (saved.read_bytes(), saved.stat().st_mtime_ns) == before


def test_its_steps_are_timed_with_other_settings(job, tmp_path):
    command, analysis, _ = job
    phase = str(max(analysis.result.phases, key=lambda one: one.total_ps).id)
    environ = {**os.environ, "JAX_PLATFORMS": "cpu"}
    timed = time_replay(analysis, phase, [*command[:-1], "4"], str(tmp_path / "out"), environ=environ, steps=20)
    assert timed.problem == ""
    assert timed.steps >= 15
    assert 5e6 < timed.step_ns < 1e9


def test_a_program_that_makes_no_steps_says_so(job, tmp_path):
    _, analysis, _ = job
    phase = str(max(analysis.result.phases, key=lambda one: one.total_ps).id)
    command = [sys.executable, "-c", "print('no steps')"]
    outcome = run_replay(plan_replay(analysis, phase), command, str(tmp_path / "out"), environ=dict(os.environ))
    assert outcome.status == "ignored"
    assert outcome.record.reason == "the command ended without making a training step that can be seen"
