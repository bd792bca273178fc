"""Several processes of one job write one run."""

import os
import subprocess
import sys
import textwrap

import pytest

from phasepoint.store import open_run

RANKED = """
    import os, sys
    from phasepoint import record

    with record(sys.argv[1]) as run:
        for batch in run.steps(range(10 + int(os.environ["RANK"]))):
            pass
"""

GLOO = """
    import os, sys
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=int(sys.argv[2]), world_size=2)
    os.environ["RANK"] = sys.argv[2]
    net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    loader = torch.utils.data.DataLoader(torch.randn(40, 4), batch_size=4)
    for batch in loader:
        optimizer.zero_grad()
        net(batch).sum().backward()
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()
"""

FAMILY = """
    import multiprocessing
    import sys

    if sys.argv[1:] == ["fork"]:
        import torch, torch._dynamo  # once for all children; also a process with torch that makes no step

    def train(steps):
        import torch

        torch.set_num_threads(1)
        weight = torch.ones(2, requires_grad=True)
        optimizer = torch.optim.SGD([weight], lr=0.1)
        for _ in range(steps):
            weight.sum().backward()
            optimizer.step()

    if __name__ == "__main__":
        context = multiprocessing.get_context(sys.argv[1])
        children = [context.Process(target=train, args=(steps,)) for steps in (11, 12)]
        for child in children:
            child.start()
        for child in children:
            child.join()
        sys.exit(max(child.exitcode for child in children))
"""


def started(words, **environ):
    return subprocess.Popen(words, env={**os.environ, **environ}, stderr=subprocess.PIPE, text=True)


BUSY_MACHINE = "most time passed outside steps"
"""True of jobs of a second whose processes wait for one another to start."""


def finish(*processes):
    for process in processes:
        _, stderr = process.communicate(timeout=200)
        assert process.returncode == 0, stderr
        said = [line for line in stderr.splitlines() if BUSY_MACHINE not in line]
        assert all(line.startswith("recorded: ") for line in said), stderr


def test_three_ranks_started_together(tmp_path):
    run_path = str(tmp_path / "run")
    job = tmp_path / "job.py"
    job.write_text(textwrap.dedent(RANKED))
    words = [sys.executable, str(job), run_path]
    finish(*(started(words, RANK=str(rank)) for rank in range(3)))
    run = open_run(run_path)
    assert [(shard.name, shard.state) for shard in run.shards] == [
        ("host=00000", "closed"),
        ("host=00001", "closed"),
        ("host=00002", "closed"),
    ]
    counts = run.table("steps", columns=["step"]).group_by("host").aggregate([("step", "count")]).to_pydict()
    assert dict(zip(counts["host"], counts["step_count"], strict=True)) == {0: 10, 1: 11, 2: 12}


@pytest.mark.torch
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_children_of_a_job_without_ranks(tmp_path, method):
    pytest.importorskip("torch")
    job = tmp_path / "job.py"
    job.write_text(textwrap.dedent(FAMILY))
    words = [sys.executable, "-m", "phasepoint", "record", "--out", str(tmp_path / "run")]
    done = subprocess.run(
        [*words, "--", sys.executable, str(job), method], capture_output=True, text=True, check=False, timeout=200
    )
    assert done.returncode == 0
    assert done.stderr.startswith("recorded: ")
    assert "2 processes on 1 host" in done.stderr
    run = open_run(tmp_path / "run")
    assert [shard.name for shard in run.shards] == ["host=00000", "host=00001"]
    counts = run.table("steps", columns=["step"]).group_by("host").aggregate([("step", "count")])
    assert sorted(counts["step_count"].to_pylist()) == [11, 12]  # each optimizer step is one


@pytest.mark.torch
def test_two_gloo_ranks(tmp_path):
    torch = pytest.importorskip("torch")
    if not torch.distributed.is_available():
        pytest.skip("this torch has no torch.distributed")
    job = tmp_path / "job.py"
    job.write_text(textwrap.dedent(GLOO))
    words = [sys.executable, "-m", "phasepoint", "record", "--out", str(tmp_path / "run"), "--", sys.executable]
    finish(*(started([*words, str(job), str(tmp_path / "rendezvous"), str(rank)]) for rank in range(2)))
    run = open_run(tmp_path / "run")
    assert [shard.name for shard in run.shards] == ["host=00000", "host=00001"]
    assert run.table("steps")["step"].to_pylist() == [*range(10), *range(10)]
