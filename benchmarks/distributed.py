"""Jobs of several ranks, recorded and not, in turns: the same results, every rank's steps, and what it costs.

    python benchmarks/distributed.py                          # all, half an hour on two cores
    python benchmarks/distributed.py --only ddp-2 --turns 1
    python benchmarks/distributed.py --only ddp-2 --longer 4  # what a step costs, apart from what a job costs
    python benchmarks/distributed.py --list

Real processes on this machine: `torchrun` with gloo (DDP, FSDP, gradients of several batches added up, one rank with
more to do), `jax.distributed` with two processes, `shard_map` over eight host devices, and a job that is started again
with twice as many ranks. Each prints a digest of its parameters for every rank. None has a line of code for it.
"""

import argparse
import json
import os
import re
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

from phasepoint.store import open_run

TORCH = """
import hashlib, os, sys
import torch, torch.distributed as dist
from torch import nn
kind, steps = sys.argv[1], int(sys.argv[2])
torch.manual_seed(0)
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
net = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
if kind == "fsdp":
    from torch.distributed.fsdp import fully_shard
    for layer in net:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    model = fully_shard(net)
else:
    model = nn.parallel.DistributedDataParallel(net)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
draw = torch.Generator().manual_seed(rank)
rounds = 4 if kind == "accumulate" else 1
for step in range(steps):
    optimizer.zero_grad()
    for part in range(rounds):
        x, y = torch.randn(128, 256, generator=draw), torch.randint(10, (128,), generator=draw)
        for _ in range(3 if kind == "uneven" and rank == 1 else 1):
            x = x + 1e-3 * torch.tanh(x @ x.T) @ x
        if part < rounds - 1:
            with model.no_sync():
                nn.functional.cross_entropy(model(x), y).backward()
        else:
            nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
whole = [p.full_tensor() if hasattr(p, "full_tensor") else p for p in net.parameters()]
digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in whole)).hexdigest()[:16]
print(f"digest {rank} {digest}", flush=True)
dist.destroy_process_group()
"""

JAX = """
import hashlib, os, sys
kind, steps = sys.argv[1], int(sys.argv[2])
if kind == "shard_map":
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, PartitionSpec as P, NamedSharding
if kind == "distributed":
    jax.distributed.initialize(os.environ["COORDINATOR"], 2, int(os.environ["RANK"]))
mesh = Mesh(np.array(jax.devices()), ("data",))
def loss_of(w, x):
    return jnp.tanh(x @ w["a"] @ w["b"]).sum()
def local(w, x):
    grads = jax.lax.pmean(jax.grad(loss_of)(w, x), "data")
    return jax.tree.map(lambda p, g: p - 1e-4 * g, w, grads)
step_fn = jax.jit(jax.shard_map(local, mesh=mesh, in_specs=(P(), P("data")), out_specs=P()))
w = {"a": jnp.full((256, 512), 0.01), "b": jnp.full((512, 64), 0.01)}
w = jax.device_put(w, NamedSharding(mesh, P()))
rng = np.random.default_rng(0)
batch = NamedSharding(mesh, P("data"))
pool = [rng.standard_normal((512, 256)).astype(np.float32) for _ in range(8)]
placed = [jax.make_array_from_callback((512, 256), batch, lambda i, p=p: p[i]) for p in pool]
for step in range(steps):
    w = step_fn(w, placed[step % 8])
    if step % 10 == 9:
        jax.block_until_ready(w)
digest = hashlib.sha256(b"".join(np.asarray(p.addressable_data(0)).tobytes() for p in w.values())).hexdigest()[:16]
print(f"digest {jax.process_index()} {digest}", flush=True)
"""


@dataclass(frozen=True)
class Job:
    """A job.

    Attributes:
        script: its program.
        kind: what the program is told to do.
        ranks: processes.
        steps: of each rank.
        launcher: "torchrun", "processes" (one started by one, RANK in the environment) or "" for one process.
        restarts: how often it is started again into the same run, each time with twice as many ranks.
        timed: whether what it costs is told: it is long enough.
    """

    script: str
    kind: str
    ranks: int
    steps: int
    launcher: str
    restarts: int = 0
    timed: bool = True


JOBS = {
    "ddp-2": Job(TORCH, "ddp", 2, 1500, "torchrun"),
    "ddp-4": Job(TORCH, "ddp", 4, 800, "torchrun"),
    "fsdp-2": Job(TORCH, "fsdp", 2, 800, "torchrun"),
    "jax-2": Job(JAX, "distributed", 2, 2000, "processes"),
    "accumulate-2": Job(TORCH, "accumulate", 2, 150, "torchrun", timed=False),
    "uneven-2": Job(TORCH, "uneven", 2, 300, "torchrun", timed=False),
    "shard_map-8": Job(JAX, "shard_map", 1, 1000, "", timed=False),
    "elastic-2-4": Job(TORCH, "ddp", 2, 200, "torchrun", restarts=1, timed=False),
}


@dataclass
class Ran:
    """One run of a job, all its starts together."""

    wall_s: float
    cpu_s: float
    digests: list[str]
    said: str
    steps: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def free_port() -> int:
    """A port of the loopback that nobody uses now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def commands(job: Job, script: Path, ranks: int) -> list[tuple[list[str], dict[str, str]]]:
    """What is started, each with what its environment has more."""
    program = [str(script), job.kind, str(job.steps)]
    if job.launcher == "torchrun":
        port = ["--master-addr", "127.0.0.1", "--master-port", str(free_port())]
        launch = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={ranks}", *port]
        return [([*launch, *program], {})]
    if job.launcher == "processes":
        shared = {"COORDINATOR": f"127.0.0.1:{free_port()}", "WORLD_SIZE": str(ranks)}
        return [([sys.executable, *program], shared | {"RANK": str(rank)}) for rank in range(ranks)]
    return [([sys.executable, *program], {})]


def run(job: Job, folder: Path, *, recorded: bool) -> Ran:
    """Start the job and wait for it; with `recorded` by `phasepoint record`."""
    script = folder / "job.py"
    script.write_text(job.script)
    out = folder / "run"
    shutil.rmtree(out, ignore_errors=True)
    before, began, said = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter(), ""
    for start in range(job.restarts + 1):
        running = []
        for command, more in commands(job, script, job.ranks << start):
            record = [sys.executable, "-m", "phasepoint", "record", "--out", str(out), "--"] if recorded else []
            environ = os.environ | {"OMP_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu"} | more
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
            running.append(subprocess.Popen([*record, *command], env=environ, **pipes))
        for process in running:
            said += process.communicate(timeout=600)[0]
            if process.returncode:
                raise SystemExit(f"exit code {process.returncode}\n{said[-3000:]}")
    wall_s, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    ran = Ran(wall_s, cpu_s, sorted(re.findall(r"digest \d+ [0-9a-f]{16}", said)), said)
    if recorded:
        opened = open_run(str(out))
        for shard in (*opened.shards, *opened.other_shards):
            ran.steps[shard.name] = opened.table("steps", shard=shard.name).num_rows
            if shard.state != "closed":
                ran.problems.append(f"{shard.name} is {shard.state}")
        ran.problems += opened.problems
    return ran


def compare(name: str, job: Job, turns: int) -> dict[str, Any]:
    """Run it plain and recorded, in turns."""
    plain, recorded = [], []
    with tempfile.TemporaryDirectory(prefix="phasepoint-distributed-") as folder:
        for turn in range(turns if job.timed else 1):
            for is_recorded in (False, True) if turn % 2 == 0 else (True, False):
                (recorded if is_recorded else plain).append(run(job, Path(folder), recorded=is_recorded))
    shards = sum(job.ranks << start for start in range(job.restarts + 1))
    same = all(ran.digests == plain[0].digests for ran in (*plain, *recorded))
    complete = all(
        len(ran.steps) == shards and set(ran.steps.values()) == {job.steps} and not ran.problems for ran in recorded
    )
    row: dict[str, Any] = {"name": name, "job": asdict(job) | {"script": ""}, "same": same, "complete": complete}
    row |= {"shards": [ran.steps for ran in recorded], "problems": [ran.problems for ran in recorded]}
    for what in ("cpu_s", "wall_s"):
        row[what] = [median(getattr(ran, what) for ran in side) for side in (plain, recorded)]
        row[f"{what}_each"] = [[round(getattr(ran, what), 2) for ran in side] for side in (plain, recorded)]
    row["said"] = [line for line in recorded[-1].said.splitlines() if line.startswith("phasepoint")]
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=JOBS, metavar="NAME")
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--longer", type=int, default=1, help="times as many steps")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--json", metavar="PATH")
    args = parser.parse_args()
    if args.list:
        print("\n".join(JOBS))
        return
    rows = []
    print("| job | ranks | steps a rank | results | shards complete | CPU, plain → recorded | wall | plain CPU |")
    print("|---|---|---|---|---|---|---|---|")
    for name in args.only or JOBS:
        job = replace(JOBS[name], steps=JOBS[name].steps * args.longer)
        row = compare(name, job, args.turns)
        rows.append(row)
        told = [
            f"{a:.2f} → {b:.2f} s ({b / a - 1:+.1%})" if job.timed else "–" for a, b in (row["cpu_s"], row["wall_s"])
        ]
        plain_s = " ".join(f"{seconds:.1f}" for seconds in sorted(row["cpu_s_each"][0]))
        results, complete = "equal" if row["same"] else "differ", "yes" if row["complete"] else f"no: {row['shards']}"
        print(
            f"| {name} | {job.ranks} | {job.steps} | {results} | {complete} | {told[0]} | {told[1]} | {plain_s} s |",
            flush=True,
        )
    if args.json:
        Path(args.json).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
