"""What capture windows cost against what was predicted, on jobs whose steps are long or full of small ops.

    python benchmarks/windows.py [lbfgs|rnn|tiny|jax ...] [--seconds 40]

Each job runs recorded in a process of its own: windows, stretches inside steps, cost over prediction (the mean and the
most), the largest capture, what recording says it cost, and the process's peak memory. CPU time of the job's process
is compared with a plain run of as many steps: a busy machine makes wall times of both mean little.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path


def lbfgs(steps):
    """Steps of seconds with 10⁴ to 10⁵ events: LBFGS over a recurrent cell, as in PyTorch's examples."""
    import torch

    torch.manual_seed(0)
    cell, head = torch.nn.LSTMCell(1, 51).double(), torch.nn.Linear(51, 1).double()
    series = torch.sin(torch.arange(100, dtype=torch.float64) / 20).repeat(4, 1)
    optimizer = torch.optim.LBFGS([*cell.parameters(), *head.parameters()], lr=0.5, max_iter=8)

    def closure():
        optimizer.zero_grad()
        state, loss = None, 0.0
        for at in range(series.shape[1] - 1):
            state = cell(series[:, at : at + 1], state)
            loss = loss + (head(state[0]) - series[:, at + 1 : at + 2]).pow(2).mean()
        loss.backward()
        return loss

    for _ in steps:
        optimizer.step(closure)


def rnn(steps):
    """Steps of 0.1 s of a recurrent network, cell by cell."""
    import torch

    torch.manual_seed(0)
    cell = torch.nn.GRUCell(32, 64)
    optimizer = torch.optim.SGD(cell.parameters(), 0.01)
    for _ in steps:
        state = torch.zeros(8, 64)
        for _ in range(200):
            state = cell(torch.randn(8, 32), state)
        optimizer.zero_grad()
        state.pow(2).mean().backward()
        optimizer.step()


def tiny(steps):
    """Steps of 5 ms of the smallest ops."""
    import torch

    value = torch.ones(4)
    for _ in steps:
        for _ in range(1000):
            value = value * 0.999 + 0.001


def jax(steps):
    """Steps with many thunks: a long chain of small ops that do not fuse."""
    import jax as jax_
    import jax.numpy as jnp

    @jax_.jit
    def step(x):
        return jax_.lax.fori_loop(0, 300, lambda _, y: jnp.sort(y @ y / 64, axis=0), x)

    value = jnp.eye(64)
    for _ in steps:
        value = step(value)
        value.block_until_ready()


JOBS = {"lbfgs": lbfgs, "rnn": rnn, "tiny": tiny, "jax": jax}


def until(seconds, limit):
    """Numbers until the time is over, or the limit is reached."""
    began = time.monotonic()
    number = 0
    while number < limit and time.monotonic() - began < seconds:
        yield number
        number += 1


def run_job(name, seconds, limit, path):
    """One job in this process, recorded where there is a path; prints its figures as JSON."""
    import_module("jax" if name == "jax" else "torch")  # as scripts do, before the recording begins
    import phasepoint

    began = time.process_time()
    done = 0

    def counted():
        nonlocal done
        for number in until(seconds, limit):
            yield number
            done += 1

    found = {}
    if path:
        with phasepoint.record(path) as recording:
            JOBS[name](recording.steps(counted()))
        cost = recording.cost
        found = {"stated": cost.ratio if cost else None}
    else:
        JOBS[name](counted())
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"steps": done, "cpu_s": time.process_time() - began, "peak_mb": peak_mb, **found}))


def measure(name, seconds):
    """Recorded, then plain for as many steps."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "run")
        recorded = _in_process(name, seconds, 1 << 60, path)
        plain = _in_process(name, 1e9, recorded["steps"], "")
        from phasepoint.store import open_run

        windows = open_run(path).table("windows").to_pylist()
    ratios = [w["capture_cost_ps"] / w["predicted_cost_ps"] for w in windows]
    stretches = sum(w["last_step"] < w["first_step"] for w in windows)
    most = max((w["bytes"] for w in windows), default=0) / 1e6
    mean = sum(ratios) / len(ratios) if ratios else 0.0
    print(
        f"{name:6} {recorded['steps']:7} {len(windows):7} {stretches:9} {mean:6.2f} {max(ratios, default=0):6.2f} "
        f"{most:8.2f} {100 * recorded['stated']:7.2f} {100 * (recorded['cpu_s'] / plain['cpu_s'] - 1):7.2f} "
        f"{plain['peak_mb']:7.0f} {recorded['peak_mb']:7.0f}",
        flush=True,
    )


def _in_process(name, seconds, limit, path):
    command = [sys.executable, __file__, "--job", name, str(seconds), str(limit), path]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(out.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("jobs", nargs="*", default=list(JOBS))
    parser.add_argument("--seconds", type=float, default=40)
    parser.add_argument("--job", nargs=4, default=None, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.job:
        name, seconds, limit, path = arguments.job
        run_job(name, float(seconds), int(limit), path)
        return
    print("job      steps windows stretches   mean   most  MB most stated%  CPU +%  plain  MB rec")
    for name in arguments.jobs:
        measure(name, arguments.seconds)


if __name__ == "__main__":
    main()
