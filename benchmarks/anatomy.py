"""The anatomy of a step against marks placed by hand, in live jobs.

    python benchmarks/anatomy.py [--jobs torch/cnn/lines jax/mlp/lines …] [--steps 60] [--json PATH]

A PyTorch job has `record_function` around forward (with the loss), backward and the optimizer (with `zero_grad`); the
marks stand in the captured steps. A JAX job calls three compiled functions, forward (which gives what backward needs,
`jax.vjp`), backward and update, each in a `TraceAnnotation` in which it waits for its end. Compared are, in shares of
the steps' time:

- `wall`: the mark's length, as far as it lies in its step, against the anatomy's pass with the waits in its midst;
- `work` (PyTorch, whose operators run one by one here): operators' time inside the mark, counted from the spans one by
  one, against the pass alone.

Beside the largest difference of all captured steps together stand, without being judged: that of the median step, for
a mark of a millisecond that waits for a core is as long as the wait; `edges`, the most that any pass's marks have
before the first and behind the last event in them, when the trace shows nothing at all; and `own`, the length of an
empty mark times the most that a pass has, which is part of the edges: it is the mark's own cost.

`jax/…/fused` is the same network as one compiled function; the parts of the job of three functions, timed apart, are
its marks. It is no like for like: XLA fuses across passes and keeps what it wants, so this informs and is not judged.
"""

import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

PASSES = ("forward", "backward", "optimizer")
AIM = 0.03  # of the step's time
TIMES = ("start_ps", "dur_ps", "self_ps")

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
    with mark("empty"):
        pass
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
import sys, jax, jax.numpy as jnp, optax
from jax.profiler import TraceAnnotation as mark
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
def timed(name, call, *given):
    with mark("hand_" + name):
        return jax.block_until_ready(call(*given))
def step():
    global params, state
    if way == "fused":
        params, state = jax.block_until_ready(fused(params, state))
        return
    with mark("empty"):
        pass
    loss, pull = timed("forward", forward, params)
    gradient = timed("backward", backward, pull)
    params, state = timed("optimizer", update, params, state, gradient)
for _ in range(3):
    step()
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
    print("| job | steps | | forward | backward | optimizer | largest difference | median step's | edges | own |")
    print("|---|--:|---|--:|--:|--:|--:|--:|--:|--:|")
    rows, alone = [], {}
    for job in given.jobs:
        for row in measure(job, given.steps, alone):
            rows.append(row)
            cells = [f"{100 * row['told'][name]:.1f} ({100 * row['marked'][name]:.1f}) %" for name in PASSES]
            cells += [f"{100 * row[name]:.1f} %" for name in ("worst", "median", "edges", "own")]
            print(f"| {job} | {row['steps']} | {row['what']} | {' | '.join(cells)} |", flush=True)
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
        environ = os.environ | {"JAX_PLATFORMS": "cpu"}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environ)
        if done.returncode:
            raise SystemExit(f"{job}: {done.stderr[-2000:]}")
        return _compare(job, out, alone)


def _compare(job: str, out: str, alone: dict[str, dict[str, float]]) -> list[dict[str, object]]:
    from phasepoint import open_run
    from phasepoint.sources.ingest.convert import convert_windows

    convert_windows(out)
    run = open_run(out)
    told, steps_ps = defaultdict(int), defaultdict(int)
    for row in run.table("stages").to_pylist():
        step, is_work = (row["window"], row["step"]), row["category"] in ("compute", "data_movement")
        steps_ps[step] += row["wall_ps"]
        told[step, "wall", row["stage"]] += row["wall_ps"]
        told[step, "work", row["stage"]] += row["wall_ps"] * is_work
    if not steps_ps:
        raise SystemExit(f"{job}: no window was captured; give it more --steps")
    framework, net, way = job.split("/")
    compared = ("wall", "work") if framework == "torch" else ("wall",)
    marked = _marks(run, steps_ps)
    if way != "fused":
        alone[net] = {name: _share(marked, steps_ps, "wall", name) for name in PASSES}
        return [_row(job, what, told, marked, steps_ps) for what in compared]
    if net not in alone:
        return []
    row = _row(job, "wall", told, told, steps_ps) | {"marked": alone[net]}
    return [row | {"worst": max(abs(row["told"][name] - alone[net][name]) for name in PASSES)}]


def _marks(run, steps_ps):
    """By captured step and pass, in ps: `wall`, the marks' length; `work`, the time in which any operator works inside
    them; `edges`, that before the first and behind the last event inside; `own`, what empty marks would take."""
    spans = run.table("spans").select(["window", "step", "name", "device", "level", "category", *TIMES]).to_pylist()
    marked, empty, ends, inside = defaultdict(int), [], {}, defaultdict(list)
    for span in spans:
        step, start_ps, dur_ps = (span["window"], span["step"]), span["start_ps"], span["dur_ps"]
        if span["level"] == "model":
            ends[step] = start_ps + dur_ps
        elif span["name"] == "empty":
            empty.append(dur_ps)
        elif not span["name"].startswith("hand_"):
            is_work = span["device"] != "host" and span["category"] in ("compute", "data_movement")
            inside[span["window"]].append((start_ps, start_ps + dur_ps, span["self_ps"] * is_work))
    for span in spans:
        step, begin, name = (span["window"], span["step"]), span["start_ps"], span["name"].removeprefix("hand_")
        if name == span["name"] or step not in steps_ps:
            continue
        end = min(begin + span["dur_ps"], ends[step])
        events = [one for one in inside[span["window"]] if begin <= one[0] < end]
        first, last = min([one[0] for one in events] or [end]), max([one[1] for one in events] or [end])
        marked[step, "wall", name] += end - begin
        marked[step, "work", name] += sum(self_ps for *_, self_ps in events)
        marked[step, "edges", name] += first - begin + max(end - last, 0)
        marked[step, "own", name] += int(statistics.median(empty))
    return marked


def _share(ps, steps_ps, what: str, name: str) -> float:
    return sum(ps[step, what, name] for step in steps_ps) / sum(steps_ps.values())


def _row(job: str, what: str, told, marked, steps_ps) -> dict[str, object]:
    shares = [{name: _share(ps, steps_ps, what, name) for name in PASSES} for ps in (told, marked)]
    apart = [
        [(told[step, what, name] - marked[step, what, name]) / ps for step, ps in steps_ps.items()] for name in PASSES
    ]
    return {
        "job": job,
        "steps": len(steps_ps),
        "what": what,
        "told": shares[0],
        "marked": shares[1],
        "worst": max(abs(shares[0][name] - shares[1][name]) for name in PASSES),
        "median": max(abs(statistics.median(one)) for one in apart),
        **{key: max(_share(marked, steps_ps, key, name) for name in PASSES) for key in ("edges", "own")},
    }


if __name__ == "__main__":
    main()
