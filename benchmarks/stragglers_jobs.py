"""The training job of one rank of `stragglers.py`: DDP over gloo, or a `jax.distributed` process; one rank is late.

    RANK=1 WORLD_SIZE=2 … python stragglers_jobs.py '{"framework": "torch", "kind": "input", "rank": 1, …}'

After `LEARN` steps rank 0 tells the others how many steps there will be, and from which one on rank `rank` is late by a
share of what a step took so far: it does more ("compute"), waits for its batch ("input"), sleeps ("host"), or shares
its core ("core"): another program, which `stragglers.py` starts when it reads "begin", runs there, and the rank's
threads give way to others. (Where others keep all cores busy, the neighbour alone drives these to the other rank's
core, and both ranks slow down alike: two of two such jobs, 2026-11-25.) Rank 0 prints the steps as JSON.
With `record` set to a folder it records itself, in two lines; without, `phasepoint record` does.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

LEARN = 20
"""Steps without a straggler at the start, from which a step's time is known."""

GIVES_WAY = 5
"""Niceness of threads that share their core, for each step of lateness: at 4 they get 0.4 of a neighbour's time."""

ROWS, WIDTH, CLASSES = 64, 128, 10


@dataclass(frozen=True)
class Job:
    """What a job does.

    Attributes:
        framework: "jax" or "torch".
        kind: what makes a rank late: "compute", "input", "host", "core", or "" for none.
        rank: which one.
        share: by how much, of a step.
        start: from where on, of the job; 0 is at once.
        seconds: how long it trains, about.
        pinned: whether each rank has a core of its own.
        record: folder of the run that it records itself into; empty for none.
        seed: of the batches.
    """

    framework: str
    kind: str
    rank: int
    share: float
    start: float
    seconds: float
    pinned: bool = False
    record: str = ""
    seed: int = 0


@dataclass(frozen=True)
class Trainer:
    """How one framework trains on a batch, does `seconds` of more work, and hears numbers from rank 0."""

    train: Callable[[Any, Any], None]
    work: Callable[[], None]
    hear: Callable[[list[float]], list[float]]


def torch_trainer(job: Job) -> Trainer:
    import torch
    import torch.distributed as dist
    from torch import nn

    torch.manual_seed(0)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    widths = [WIDTH, *[256] * 3, CLASSES]
    layers = [part for a, b in pairwise(widths) for part in (nn.Linear(a, b), nn.ReLU())]
    model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers[:-1]))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    more = torch.randn(128, 128)

    def train(x: Any, y: Any) -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(torch.from_numpy(x)), torch.from_numpy(y)).backward()
        optimizer.step()

    def hear(numbers: list[float]) -> list[float]:
        told = torch.tensor(numbers, dtype=torch.float64)
        dist.broadcast(told, 0)
        return told.tolist()

    return Trainer(train, lambda: torch.mm(more, more), hear)


def jax_trainer(job: Job) -> Trainer:
    import jax
    import jax.numpy as jnp
    from jax.experimental import multihost_utils
    from jax.sharding import Mesh, NamedSharding
    from jax.sharding import PartitionSpec as Spec

    jax.distributed.initialize(os.environ["COORDINATOR"], int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"]))
    mesh = Mesh(np.array(jax.devices()), ("data",))
    split = NamedSharding(mesh, Spec("data"))
    rng = np.random.default_rng(0)
    widths = [WIDTH, *[256] * 3, CLASSES]
    made = [0.05 * rng.standard_normal(pair).astype(np.float32) for pair in pairwise(widths)]
    state = [jax.device_put(made, NamedSharding(mesh, Spec()))]

    def loss_of(weights: Any, x: Any, y: Any) -> Any:
        for weight in weights[:-1]:
            x = jnp.tanh(x @ weight)
        return -jnp.take_along_axis(jax.nn.log_softmax(x @ weights[-1]), y[:, None], 1).mean()

    def local(weights: Any, x: Any, y: Any) -> Any:
        grads = jax.lax.pmean(jax.grad(loss_of)(weights, x, y), "data")
        return jax.tree.map(lambda weight, grad: weight - 1e-3 * grad, weights, grads)

    spread = {"in_specs": (Spec(), Spec("data"), Spec("data")), "out_specs": Spec()}
    train_step = jax.jit(jax.shard_map(local, mesh=mesh, **spread))

    def train(x: Any, y: Any) -> None:
        placed = [jax.make_array_from_process_local_data(split, part) for part in (x, y)]
        state[0] = train_step(state[0], *placed)
        jax.block_until_ready(state[0])

    more = jax.device_put(np.ones((128, 128), np.float32), jax.local_devices()[0])
    multiply = jax.jit(lambda value: value @ value / 128)
    return Trainer(
        train,
        lambda: jax.block_until_ready(multiply(more)),
        lambda numbers: multihost_utils.broadcast_one_to_all(np.array(numbers, np.float32)).tolist(),
    )


class Straggler:
    """Makes this rank late where it is the one, once it is told since when and by how much."""

    def __init__(self, job: Job, trainer: Trainer) -> None:
        self._job, self._trainer = job, trainer
        self._is_late = bool(job.kind) and job.rank == int(os.environ["RANK"])
        self.steps, self.start, self._late_s = 1 << 40, 1 << 40, 0.0

    def learn(self, durations: list[float]) -> None:
        """All ranks hear what rank 0 has seen of its steps."""
        step_s = median(durations[3:])
        total_s = step_s * (1 + self._job.share * (1 - self._job.start) * bool(self._job.kind))
        steps = max(int(self._job.seconds / total_s), 3 * LEARN)
        start = max(LEARN, int(self._job.start * steps))
        told = self._trainer.hear([steps, start, self._job.share * step_s])
        self.steps, self.start, self._late_s = int(told[0]), int(told[1]), told[2]

    def at(self, place: str, step: int) -> None:
        """In the loop, where batches are read ("input") or before one is learned from ("body")."""
        if not self._is_late or step < self.start:
            return
        if self._job.kind == "core" and step == self.start and place == "input":
            print("begin", flush=True)
            for thread in Path("/proc/self/task").iterdir():
                os.setpriority(os.PRIO_PROCESS, int(thread.name), 1 + round(GIVES_WAY * self._job.share))
        if place == "input" and self._job.kind == "input":
            time.sleep(self._late_s)
        if place == "body" and self._job.kind == "host":
            time.sleep(self._late_s)
        if place == "body" and self._job.kind == "compute":
            until = time.perf_counter() + self._late_s
            while time.perf_counter() < until:
                self._trainer.work()


def batches(job: Job, straggler: Straggler) -> Iterator[tuple[int, Any, Any]]:
    """Number, images and classes of each step."""
    rng = np.random.default_rng([job.seed, int(os.environ["RANK"])])
    pool = [(rng.standard_normal((ROWS, WIDTH), dtype=np.float32), rng.integers(0, CLASSES, ROWS)) for _ in range(8)]
    step = 0
    while step < straggler.steps:
        straggler.at("input", step)
        yield (step, *pool[step % len(pool)])
        step += 1


def main() -> None:
    job, rank = Job(**json.loads(sys.argv[1])), int(os.environ["RANK"])
    if job.pinned:
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[rank % len(cores)]})
    trainer = (torch_trainer if job.framework == "torch" else jax_trainer)(job)
    straggler = Straggler(job, trainer)
    context: Any = nullcontext()
    if job.record:
        import phasepoint

        context = phasepoint.record(job.record)
    ends = [time.perf_counter()]
    with context as run:
        loader = batches(job, straggler)
        for step, x, y in loader if run is None else run.steps(loader):
            straggler.at("body", step)
            trainer.train(x, y)
            ends.append(time.perf_counter())
            if step == LEARN - 1:
                straggler.learn(np.diff(ends).tolist())
    durations = np.diff(ends)[LEARN + 1 :]
    told = {
        "steps": straggler.steps,
        "start": straggler.start,
        "medians_ms": [
            round(1e3 * float(np.median(part)), 2)
            for part in np.split(durations, [max(straggler.start - LEARN - 1, 1)])
            if len(part)
        ],
    }
    if rank == 0:
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
