"""The training jobs of `overhead.py`: each runs in a process of its own and prints one line of JSON.

    python benchmarks/overhead_jobs.py jax --steps 500 --mode on --out /tmp/run

Modes: off (no recorder), on (recorded, default budget), peer (the framework's own profiler left on throughout), within
(off and on in turns in one process).
Measured from before the first step to after the last, entering and leaving the recorder (or the peer) included;
imports of the framework, the data and the model's parameters come before, in every mode alike.
"""

import argparse
import hashlib
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

BLOCK_STEPS = 10
"""Steps between two probes; the first block, which compiles, is left out of the mean step."""
PROBE_LOOPS = 12_000
ROUNDS = 14

LARGEST_MAPPED_BYTES = 31 << 20
"""glibc gives large blocks pages of their own, and takes them back, until the first such block is freed; from then on
blocks up to that size, at most 32 MiB, come from the heap (mallopt(3), M_MMAP_THRESHOLD). A job of small tensors may
run for an hour before that happens, at 380 page faults a step instead of 40 (PyTorch, measured), and importing anything
large makes it happen. So that on and off differ by the recorder alone, every job frees one such block first."""

Step = Callable[[Any], float]
"""Trains on one batch and returns the loss."""


def batches(count: int, shape: tuple[int, ...], classes: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The same random batches in every run."""
    rng = np.random.default_rng(0)
    pool = [
        (rng.normal(size=shape).astype(np.float32), rng.integers(0, classes, shape[0]).astype(np.int32))
        for _ in range(16)
    ]
    for index in range(count):
        yield pool[index % len(pool)]


def jax_job() -> tuple[Step, Callable[[], bytes], tuple[int, ...]]:
    """A convolutional network of three convolutions with Adam."""
    import jax
    import jax.numpy as jnp
    import optax
    from flax import linen as nn

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x):
            for features in (16, 32):
                x = nn.relu(nn.Conv(features, (3, 3))(x))
                x = nn.avg_pool(x, (2, 2), (2, 2))
            x = nn.relu(nn.Conv(64, (3, 3))(x)).mean((1, 2))
            return nn.Dense(10)(x)

    net, optimizer, shape = Net(), optax.adam(1e-3), (64, 28, 28, 1)
    params = net.init(jax.random.key(0), jnp.ones(shape))
    state = [params, optimizer.init(params)]

    @jax.jit
    def update(params, opt_state, x, y):
        def loss_of(params):
            return optax.softmax_cross_entropy_with_integer_labels(net.apply(params, x), y).mean()

        loss, grads = jax.value_and_grad(loss_of)(params)
        updates, opt_state = optimizer.update(grads, opt_state)
        return optax.apply_updates(params, updates), opt_state, loss

    def step(batch):
        state[0], state[1], loss = update(state[0], state[1], *batch)
        return float(loss)

    def final():
        return b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(state[0]))

    return step, final, shape


def torch_job() -> tuple[Step, Callable[[], bytes], tuple[int, ...]]:
    """A transformer encoder of two layers with AdamW, over the rows of an image as tokens."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    shape = (32, 28, 28, 1)
    layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
    net = nn.Sequential(nn.Flatten(2), nn.Linear(28, 64), nn.TransformerEncoder(layer, 2), nn.Flatten(1))
    net.append(nn.Linear(28 * 64, 10))
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)

    def step(batch):
        x, y = (torch.from_numpy(part) for part in batch)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y.long())
        loss.backward()
        optimizer.step()
        return loss.item()

    def final():
        return b"".join(parameter.detach().numpy().tobytes() for parameter in net.parameters())

    return step, final, shape


JOBS = {"jax": jax_job, "torch": torch_job}


@contextmanager
def peer(framework: str) -> Iterator[None]:
    """The framework's own profiler, left on for the whole job and written to disk at its end."""
    with tempfile.TemporaryDirectory() as folder:
        if framework == "jax":
            import jax

            with jax.profiler.trace(folder):
                yield
        else:
            from torch.profiler import ProfilerActivity, profile

            with profile(activities=[ProfilerActivity.CPU]) as profiler:
                yield
            profiler.export_chrome_trace(str(Path(folder) / "trace.json"))


def cpu_s() -> float:
    """User and system time of this process and of its children that have ended."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def train(framework: str, steps: int, mode: str, out: str) -> dict[str, Any]:
    """Run the job and return what it took, with a hash of its losses and final parameters."""
    step, final, shape = JOBS[framework]()
    loader = list(batches(16, shape, 10))
    digest, cost = hashlib.sha256(), None
    bytearray(LARGEST_MAPPED_BYTES)
    wall, cpu = time.perf_counter(), cpu_s()
    if mode == "on":
        from phasepoint.recorder import record

        with record(out, framework=framework) as run:
            blocks = _loop(run.steps(_repeat(loader, steps)), step, digest)
        cost = run.cost
    else:
        with peer(framework) if mode == "peer" else nullcontext():
            blocks = _loop(_repeat(loader, steps), step, digest)
    wall, cpu = time.perf_counter() - wall, cpu_s() - cpu
    digest.update(final())
    figures = {"wall_s": wall, "cpu_s": cpu, "digest": digest.hexdigest(), "steps": steps, "blocks": blocks}
    figures["step_s"] = float(np.mean([block[0] for block in blocks[1:]]) / BLOCK_STEPS) if blocks[1:] else float("nan")
    if cost is not None:
        figures |= {"windows": cost.windows, "own_ratio": cost.ratio, "own_s": cost.total_ps / 1e12}
    return figures


def alternate(framework: str, rounds: int, steps: int, folder: str) -> dict[str, Any]:
    """The job without and with recorder in turns within one process: all that differs from process to process is equal.

    Returns:
        The blocks of each turn, entering and leaving the recorder left out.
    """
    from phasepoint.recorder import record

    step, _, shape = JOBS[framework]()
    loader = list(batches(16, shape, 10))
    bytearray(LARGEST_MAPPED_BYTES)

    _loop(_repeat(loader, steps), step, hashlib.sha256())
    turns, windows = [], 0
    for index in range(rounds):
        found = {}
        for mode in ("off", "on") if index % 2 == 0 else ("on", "off"):
            if mode == "off":
                found[mode] = _loop(_repeat(loader, steps), step, hashlib.sha256())
                continue
            with record(f"{folder}/{index}", framework=framework) as run:
                found[mode] = _loop(run.steps(_repeat(loader, steps)), step, hashlib.sha256())
            windows += run.cost.windows
        turns.append(found)
    return {"framework": framework, "turns": turns, "windows": windows, "steps": steps}


def _repeat(loader: list[Any], steps: int) -> Iterator[Any]:
    return (loader[index % len(loader)] for index in range(steps))


def _loop(loader: Iterable[Any], step: Step, digest: Any) -> list[list[float]]:
    """Train; returns wall and CPU time of each whole block of steps and, after it, how long the probe took."""
    blocks, wall, cpu = [], time.perf_counter(), cpu_s()
    for index, batch in enumerate(loader, 1):
        digest.update(np.float64(step(batch)).tobytes())
        if index % BLOCK_STEPS == 0:
            wall, cpu = time.perf_counter() - wall, cpu_s() - cpu
            blocks.append([wall, cpu, probe_s()])
            wall, cpu = time.perf_counter(), cpu_s()
    return blocks


def probe_s() -> float:
    """How long the core takes for a fixed piece of arithmetic that stays in its first-level cache: half a millisecond.

    It takes up to 1.8 × as long while another guest of the machine uses the core's other hardware thread, which nothing
    else here shows: not the queue, not stolen time, not page faults. The thread's CPU time, so that being preempted (by
    the recorder's thread, say) does not count.
    """
    began, x = time.thread_time(), 0
    for i in range(PROBE_LOOPS):
        x = (x * 31 + i) & 0xFFFFF
    return time.thread_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("framework", choices=sorted(JOBS))
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--mode", choices=["off", "on", "peer", "within"], default="off")
    parser.add_argument("--out", default="")
    parser.add_argument("--core", type=int, help="run on this core alone")
    args = parser.parse_args()
    if args.core is not None:
        os.sched_setaffinity(0, {args.core})
    if args.mode == "within":
        sys.stdout.write(json.dumps(alternate(args.framework, ROUNDS, args.steps, args.out)) + "\n")
        return
    sys.stdout.write(json.dumps(train(args.framework, args.steps, args.mode, args.out)) + "\n")


if __name__ == "__main__":
    main()
