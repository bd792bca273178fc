"""How long `phasepoint predict` takes on whole models: HLO files as processes of their own, start-up apart.

    python benchmarks/learned_predict.py [--device NAME …] [--runs 5] [--quick] [--json PATH]

The models are compiled here first (JAX), which is no part of what is measured. Start-up is `phasepoint version`, run in
turn with the others, so that a busy moment of the machine hits both.
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
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

LEAST_KERNELS = 500
"""Kernels of a large program: the bound of two seconds is meant for such a one."""

BOUND_S = 2.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", action="append", metavar="NAME", help="cpu, T4 and TPU v4 if left out")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="the small model, one device, 2 runs")
    parser.add_argument("--json", type=Path, metavar="PATH")
    arguments = parser.parse_args()
    devices = arguments.device or (["TPU v4"] if arguments.quick else ["cpu", "T4", "TPU v4"])
    models = {"dense, 3 layers": dense} if arguments.quick else MODELS
    with tempfile.TemporaryDirectory() as folder:
        files = {
            name: compiled(build, Path(folder) / f"{number}.pb") for number, (name, build) in enumerate(models.items())
        }
        rows = [
            row
            for name, path in files.items()
            for row in measure(name, path, devices, runs=2 if arguments.quick else arguments.runs)
        ]
    machine = f"{os.cpu_count()} × {platform.machine()}, Python {platform.python_version()}"
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    print(f"{machine}, {date}, medians; the bound is {BOUND_S:g} s after start-up with {LEAST_KERNELS} kernels")
    print(f"{'model':26s} {'device':8s} {'kernels':>7s} {'start-up':>9s} {'predict':>9s} {'after':>9s} {'CPU':>9s}")
    for row in rows:
        times = "".join(f" {row[name]:7.2f} s" for name in ("start_s", "whole_s", "after_s", "cpu_s"))
        print(f"{row['model']:26s} {row['device']:8s} {row['kernels']:7d}{times}")
    if arguments.json:
        arguments.json.write_text(json.dumps({"machine": machine, "date": date, "rows": rows}, indent=2) + "\n")


def measure(name: str, path: Path, devices: list[str], *, runs: int) -> list[dict[str, Any]]:
    """One row per device: wall times, medians of the runs after one that warms the caches."""
    predict = [sys.executable, "-m", "phasepoint", "predict", str(path), "--device"]
    rows = []
    for device in devices:
        kernels = len(json.loads(output([*predict, device, "--json"]))["programs"][0]["kernels"])
        times: list[tuple[float, float, float]] = []
        for _ in range(runs):
            start_s, _ = timed([sys.executable, "-m", "phasepoint", "version"])
            times.append((start_s, *timed([*predict, device])))
        start_s, whole_s, cpu_s = (statistics.median(column) for column in zip(*times, strict=True))
        row = {"model": name, "device": device, "kernels": kernels, "start_s": start_s, "whole_s": whole_s}
        rows.append({**row, "after_s": whole_s - start_s, "cpu_s": cpu_s, "runs": runs})
    return rows


def timed(command: list[str]) -> tuple[float, float]:
    """Wall and CPU time of a command, seconds."""
    before, begin_ns = os.times(), time.perf_counter_ns()
    output(command)
    after = os.times()
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    return (time.perf_counter_ns() - begin_ns) / 1e9, cpu_s


def output(command: list[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout


def compiled(build: Callable[[], tuple[Any, tuple[Any, ...]]], path: Path) -> Path:
    """Write a model's optimised HLO to a file."""
    import jax

    function, shapes = build()
    executable = jax.jit(function).lower(*shapes).compile().runtime_executable()
    path.write_bytes(executable.hlo_modules()[0].as_serialized_hlo_module_proto())
    return path


def dense() -> tuple[Any, tuple[Any, ...]]:
    """A dense network of three layers, one training step."""
    import jax
    import jax.numpy as jnp

    def loss(weights: Any, x: Any) -> Any:
        for weight in weights:
            x = jnp.tanh(x @ weight)
        return (x * x).mean()

    weights = [jax.ShapeDtypeStruct(size, jnp.float32) for size in ((784, 512), (512, 256), (256, 10))]
    return jax.grad(loss), (weights, jax.ShapeDtypeStruct((64, 784), jnp.float32))


def transformer(layers: int) -> tuple[Any, tuple[Any, ...]]:
    """An encoder of so many layers, one training step."""
    import jax
    import jax.numpy as jnp

    width = 128

    def normal(x: Any) -> Any:
        x = x - x.mean(-1, keepdims=True)
        return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5)

    def layer(p: Any, x: Any) -> Any:
        h = normal(x)
        scores = jax.nn.softmax((h @ p["q"]) @ (h @ p["k"]).swapaxes(-1, -2) * width**-0.5)
        x = x + (scores @ (h @ p["v"])) @ p["o"]
        return x + jax.nn.gelu(normal(x) @ p["up"]) @ p["down"]

    def loss(parameters: Any, x: Any) -> Any:
        for p in parameters:
            x = layer(p, x)
        return (x * x).mean()

    square, up, down = ((width, width), (width, 4 * width), (4 * width, width))
    sizes = {**dict.fromkeys("qkvo", square), "up": up, "down": down}
    parameters = [
        {name: jax.ShapeDtypeStruct(size, jnp.float32) for name, size in sizes.items()} for _ in range(layers)
    ]
    return jax.grad(loss), (parameters, jax.ShapeDtypeStruct((4, 64, width), jnp.float32))


MODELS: dict[str, Callable[[], tuple[Any, tuple[Any, ...]]]] = {
    "dense, 3 layers": dense,
    "encoder, 4 layers": lambda: transformer(4),
    "encoder, 12 layers": lambda: transformer(12),
}


if __name__ == "__main__":
    main()
