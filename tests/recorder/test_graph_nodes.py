"""How many operations each step noted for a backward pass, counted at its boundaries."""

import numpy as np
import pytest
from recorder_fakes import FakeClock, FakeSession, fake_record, run_script

from phasepoint.recorder.clock.step_clock import NOT_KNOWN, StepClock
from phasepoint.store import open_run


class Graph:
    """A framework that notes operations: `made` of them until now."""

    def __init__(self):
        self.made = 100

    def __call__(self):
        return self.made


def nodes_of(folder):
    return open_run(folder).table("steps").column("graph_nodes").to_pylist()


def test_each_step_has_its_own(tmp_path):
    clock, graph = FakeClock(), Graph()
    session = FakeSession(clock)
    session.count_nodes = graph
    wanted = [7, 7, 3, 0, 7, *range(1, 300)]
    with fake_record(tmp_path / "run", clock, session) as run:
        for nodes in run.steps(wanted):
            graph.made += nodes
            clock.tick(0.3)
        graph.made += 1000  # between two loops
        for nodes in run.steps([5, 6]):
            graph.made += nodes
            clock.tick(10)
    assert nodes_of(tmp_path / "run") == [None, *wanted[1:], 5, 6]  # nobody counted before the first look


def test_steps_that_are_marked_by_the_job(tmp_path):
    clock, graph = FakeClock(), Graph()
    session = FakeSession(clock)
    session.count_nodes = graph
    with fake_record(tmp_path / "run", clock, session) as run:
        for nodes in [4] * 50 + [9] * 50:
            graph.made += nodes
            clock.tick(1)
            run.mark_step()
    counted = [one for one in nodes_of(tmp_path / "run") if one is not None]
    assert counted[-61:] == [4] * 10 + [9] * 50 + [0]


def test_a_count_that_went_back_was_of_another_thread():
    counts = iter([10, 14, 2, 5, NOT_KNOWN, 8, 9])
    clock = StepClock(now_ns=iter(range(100)).__next__)
    clock.count_nodes = counts.__next__
    for _ in range(6):
        clock.ask()
        clock.got()
    clock.end_loop()
    assert clock.take_rows().nodes.tolist() == [4, NOT_KNOWN, 3, NOT_KNOWN, NOT_KNOWN, 1]


def test_steps_without_a_framework_that_counts_have_none(tmp_path):
    clock = FakeClock()
    with fake_record(tmp_path / "run", clock, FakeSession(clock)) as run:
        for _ in run.steps(np.zeros((5, 2))):
            clock.tick(10)
    assert nodes_of(tmp_path / "run") == [None] * 5


ZERO_CODE = """
import sys, torch
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for step in range(1200):
    rows = 8 if step < 600 else 24
    x = torch.ones(rows, 16)
    loss = net(x).mean()
    if step >= 900:
        loss = loss + net(x.flip(0)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    torch.mm(torch.ones(300, 300), torch.ones(300, 300))
assert not torch.nn.modules.module._global_forward_pre_hooks or len(sys.argv) > 1
"""


@pytest.mark.torch
def test_a_pytorch_job_that_says_nothing_tells_batches_and_operations(tmp_path):
    pytest.importorskip("torch")
    script = tmp_path / "train.py"
    script.write_text(ZERO_CODE)
    done = run_script(
        "import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-m', 'phasepoint', 'record', '--out', "
        "sys.argv[1], '--', sys.executable, sys.argv[2], 'recorded']))",
        str(tmp_path / "run"),
        str(script),
    )
    assert done.returncode == 0, done.stderr
    steps = open_run(tmp_path / "run").table("steps")
    nodes = steps.column("graph_nodes").to_pylist()
    assert steps.num_rows in (1199, 1200)
    counted = [one for one in nodes if one is not None]
    assert len(counted) > 1100
    few, many = nodes[700], nodes[1100]
    assert nodes[500] == few < many
    assert sum(one == few for one in nodes[:890]) > 800
    assert sum(one == many for one in nodes[910:]) > 280
    sizes = steps.column("batch_elements").to_pylist()
    assert set(sizes) <= {None, 8 * 16, 24 * 16}
    assert sizes[-1] == 24 * 16
    assert sizes.count(8 * 16) > 300
