"""The anatomy of a step against marks placed by hand, in live jobs.

    python benchmarks/anatomy.py [--jobs torch/cnn/lines jax/mlp/lines …] [--steps 60] [--json PATH]

A PyTorch job has `record_function` around forward (with the loss), backward and the optimizer (with `zero_grad`); the
marks stand in the captured steps. A JAX job calls three compiled functions, forward (which gives what backward needs,
`jax.vjp`), backward and update, and times each by the clock, waiting for its end; XLA has one thread, for it tells the
ends of ops that it hands to others late. Compared are, in shares of the steps' time:

- `wall`: the pass by the mark's own clock against the anatomy's pass with the waits in its midst;
- `work` (PyTorch): operators' time inside the mark, counted from the spans one by one, against the pass alone.

`jax/…/fused` is the same network as one compiled function; the parts of the job of three functions, timed apart, are
its marks. It is no like for like: XLA fuses across passes and keeps what it wants, so this informs and is not judged.
"""

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

PASSES = ("forward", "backward", "optimizer")
AIM = 0.03  # of the step's time

TORCH = """
import sys, torch, torch.nn as nn
from torch.profiler import record_function as mark
torch.manual_seed(0); torch.set_num_threads(1)
net, way, out, steps = sys.argv[1:4] + [int(sys.argv[4])]
class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Embedding(1000, 128), nn.Linear(128, 10)
        self.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(128, 4, 256, batch_first=True), 2)
    def forward(self, x):
        return self.out(self.layers(self.embed(x)).mean(1))
x, y = torch.randn(32, 3, 32, 32), torch.randint(0, 10, (32,))
if net == "cnn":
    model = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(512, 10))
elif net == "transformer":
    model, x = Transformer(), torch.randint(0, 1000, (32, 64))
else:
    width = 1024 if net == "mlp" else 128
    inner = [nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()]
    model, x = nn.Sequential(*inner, nn.Linear(width, 10)), torch.randn(32, width)
optimizer, loss_of = torch.optim.Adam(model.parameters(), 1e-3), nn.CrossEntropyLoss()
def step():
    with mark("hand_forward"):
        loss = loss_of(model(x), y)
    with mark("hand_optimizer"):
        optimizer.zero_grad()
    with mark("hand_backward"):
        loss.backward()
    with mark("hand_optimizer"):
        optimizer.step()
"""

JAX = """
import sys, time, json, jax, jax.numpy as jnp, optax
net, way, out, steps = sys.argv[1:4] + [int(sys.argv[4])]
keys = iter(jax.random.split(jax.random.PRNGKey(0), 64))
def dense(i, o):
    return {"w": jax.random.normal(next(keys), (i, o)) * 0.05, "b": jnp.zeros(o)}
def linear(p, x):
    return x @ p["w"] + p["b"]
n = 512 if net == "mlp" else 64
x, y = jax.random.normal(next(keys), (n, 32, 32, 3)), jax.random.randint(next(keys), (n,), 0, 10)
if net == "mlp":
    params, x = [dense(512, 1024), dense(1024, 1024), dense(1024, 10)], jax.random.normal(next(keys), (512, 512))
    def apply(p, x):
        for layer in p[:-1]:
            x = jax.nn.relu(linear(layer, x))
        return linear(p[-1], x)
elif net == "cnn":
    params = [jax.random.normal(next(keys), s) * 0.1 for s in ((3, 3, 3, 16), (3, 3, 16, 32))] + [dense(32 * 64, 10)]
    def conv(x, w):
        order = ("NHWC", "HWIO", "NHWC")
        return jax.nn.relu(jax.lax.conv_general_dilated(x, w, (2, 2), "SAME", dimension_numbers=order))
    def apply(p, x):
        return linear(p[2], conv(conv(x, p[0]), p[1]).reshape(len(x), -1))
else:
    d, heads = 128, 4
    x = jax.random.randint(next(keys), (64, 64), 0, 1000)
    sizes = {"qkv": (d, 3 * d), "out": (d, d), "up": (d, 4 * d), "down": (4 * d, d)}
    layers = [{name: dense(*size) for name, size in sizes.items()} for _ in range(2)]
    params = {"embed": jax.random.normal(next(keys), (1000, d)) * 0.05, "layers": layers, "head": dense(d, 10)}
    def norm(x):
        return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)
    def apply(p, x):
        h = p["embed"][x]
        for layer in p["layers"]:
            q, k, v = jnp.split(linear(layer["qkv"], norm(h)).reshape(*x.shape, heads, 3 * d // heads), 3, -1)
            scores = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k) / 5.7, -1)
            h = h + linear(layer["out"], jnp.einsum("bhqk,bkhd->bqhd", scores, v).reshape(h.shape))
            h = h + linear(layer["down"], jax.nn.gelu(linear(layer["up"], norm(h))))
        return linear(p["head"], norm(h).mean(1))
optimizer = optax.adam(1e-3)
state = optimizer.init(params)
def loss_of(p):
    return optax.softmax_cross_entropy_with_integer_labels(apply(p, x), y).mean()
def update_of(p, s, g):
    changes, s = optimizer.update(g, s, p)
    return optax.apply_updates(p, changes), s
forward = jax.jit(lambda p: jax.vjp(loss_of, p))
backward = jax.jit(lambda pull: pull(jnp.float32(1))[0])
update = jax.jit(update_of)
fused = jax.jit(lambda p, s: update_of(p, s, jax.grad(loss_of)(p)))
spent = {"forward": 0.0, "backward": 0.0, "optimizer": 0.0}
def timed(name, call, *given):
    begin = time.perf_counter()
    found = jax.block_until_ready(call(*given))
    spent[name] += time.perf_counter() - begin
    return found
def step():
    global params, state
    if way == "fused":
        params, state = jax.block_until_ready(fused(params, state))
        return
    loss, pull = timed("forward", forward, params)
    gradient = timed("backward", backward, pull)
    params, state = timed("optimizer", update, params, state, gradient)
def tell():
    print("SPENT", json.dumps(spent))
for _ in range(3):
    step()
spent = dict.fromkeys(spent, 0.0)
"""

LOOP = """
import contextlib
if way == "zero":
    for _ in range(steps):
        step()
else:
    import phasepoint
    with phasepoint.record(out, budget=None) as run:
        for _ in run.steps(range(steps)):
            step()
if "tell" in globals():
    tell()
"""

JOBS = [f"torch/{net}/{way}" for net in ("cnn", "transformer", "mlp", "mlp-small") for way in ("lines", "zero")]
JOBS += [f"jax/{net}/{way}" for net in ("cnn", "transformer", "mlp") for way in ("lines", "fused")]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--jobs", nargs="+", default=JOBS)
    arguments.add_argument("--steps", type=int, default=60)
    arguments.add_argument("--json", type=Path)
    given = arguments.parse_args()
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, {datetime.date.today()}")
    print("| job | captured steps | | forward | backward | optimizer | largest difference |")
    print("|---|--:|---|--:|--:|--:|--:|")
    rows, alone = [], {}
    for job in given.jobs:
        for row in measure(job, given.steps, alone):
            rows.append(row)
            cells = [f"{100 * row['told'][name]:.1f} ({100 * row['marked'][name]:.1f}) %" for name in PASSES]
            print(
                f"| {job} | {row['steps']} | {row['what']} | {' | '.join(cells)} | {100 * row['worst']:.1f} % |",
                flush=True,
            )
    judged = [row for row in rows if not row["job"].endswith("fused")]
    within = sum(row["worst"] <= AIM for row in judged)
    print(f"\ntold (marked); {within} of {len(judged)} within {100 * AIM:.0f} % of the step's time")
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1))


def measure(job: str, steps: int, alone: dict[str, dict[str, float]]) -> list[dict[str, object]]:
    """Run a job and compare; `alone` keeps the parts of the JAX jobs of three functions for the fused ones."""
    framework, net, way = job.split("/")
    with tempfile.TemporaryDirectory() as folder:
        script, out = Path(folder) / "job.py", str(Path(folder) / "run")
        script.write_text((TORCH if framework == "torch" else JAX) + LOOP)
        command = [sys.executable, str(script), net, way, out, str(steps if way != "zero" else 10 * steps)]
        if way == "zero":
            command = [sys.executable, "-m", "phasepoint", "record", "--budget", "0.1", "--out", out, "--", *command]
        flags = {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false", "JAX_PLATFORMS": "cpu"}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | flags)
        if done.returncode:
            raise SystemExit(f"{job}: {done.stderr[-2000:]}")
        return _compare(job, out, done.stdout, alone)


def _compare(job: str, out: str, printed: str, alone: dict[str, dict[str, float]]) -> list[dict[str, object]]:
    from phasepoint import open_run
    from phasepoint.sources.ingest.convert import convert_windows

    convert_windows(out)
    run = open_run(out)
    told = defaultdict(int)
    for row in run.table("stages").to_pylist():
        told[row["stage"], row["category"] in ("compute", "data_movement")] += row["wall_ps"]
    steps_ps = sum(told.values())
    if not steps_ps:
        raise SystemExit(f"{job}: no window was captured; give it more --steps")
    seen = {(row["window"], row["step"]) for row in run.table("breakdowns").to_pylist()}
    work = {name: told[name, True] / steps_ps for name in PASSES}
    wall = {name: (told[name, True] + told[name, False]) / steps_ps for name in PASSES}
    if job.startswith("torch"):
        marks_ps, ops_ps = _marks(run, seen)
        pairs = [("wall", wall, marks_ps), ("work", work, ops_ps)]
        return [_row(job, len(seen), what, of, {k: v / steps_ps for k, v in ps.items()}) for what, of, ps in pairs]
    net = job.split("/")[1]
    if job.endswith("fused"):
        return [_row(job, len(seen), "wall", wall, alone[net])] if net in alone else []
    spent = json.loads(printed.partition("SPENT ")[2])
    dur_ps = sum(run.table("steps").column("dur_ps").to_pylist())
    marked = {name: spent[name] * 1e12 / dur_ps for name in PASSES}
    alone[net] = marked
    return [_row(job, len(seen), "wall", wall, marked)]


def _marks(run, seen) -> tuple[dict[str, int], dict[str, int]]:
    """Of the captured steps: the marks' durations, and the time in which any operator works inside them, ps."""
    spans = run.table("spans").select(["window", "step", "name", "device", "category", "start_ps", "dur_ps", "self_ps"])
    marks, ops = defaultdict(list), defaultdict(list)
    for span in spans.to_pylist():
        if span["name"].startswith("hand_") and (span["window"], span["step"]) in seen:
            marks[span["window"]].append((span["start_ps"], span["start_ps"] + span["dur_ps"], span["name"][5:]))
        elif span["device"] != "host" and span["category"] in ("compute", "data_movement"):
            ops[span["window"]].append((span["start_ps"], span["self_ps"]))
    length, works = defaultdict(int), defaultdict(int)
    for window, placed in marks.items():
        for begin, end, name in placed:
            length[name] += end - begin
            works[name] += sum(self_ps for start, self_ps in ops[window] if begin <= start < end)
    return length, works


def _row(job: str, steps: int, what: str, told: dict[str, float], marked: dict[str, float]) -> dict[str, object]:
    worst = max(abs(told[name] - marked[name]) for name in PASSES)
    return {
        "job": job,
        "steps": steps,
        "what": what,
        "told": told,
        "marked": {k: marked[k] for k in PASSES},
        "worst": worst,
    }


if __name__ == "__main__":
    main()
