"""A job recorded on one host device, and its steps on two of this machine: planned from the recording, and measured.

    python benchmarks/pod_recorded.py                     # the networks that nothing was chosen on
    python benchmarks/pod_recorded.py --calibration       # the others

Both devices share the machine's cores. Each job runs with the batch of one device on each ("own"), and with the same
batch divided among them ("divided"). Networks are the package's, with Adam, each in processes of its own.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CALIBRATION = ("encoder/pre-norm", "convnet/plain", "mixer/plain")
REPORTED = (
    *("encoder/vision", "decoder/language-model", "resnet/basic", "recurrent/long-short", "attention/windowed"),
    *("unet/segmentation", "mobile/separable"),
)
STEPS, ROUNDS, LEAST_MS = 120, 2, 4.0


def networks():
    """Networks whose size has a batch; their largest size is taken, with batches of 32."""
    from phasepoint.zoo.catalogue import zoo_networks

    found = {}
    for network in zoo_networks():
        if "batch" in network.sizes[-1] and "train" in network.modes:
            found[f"{network.family}/{network.name}"] = network
    return found


def run_job(name: str, count: int, batch: int, folder: str | None) -> None:
    """The child: trains on so many host devices, and prints the median step."""
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={count}"
    import jax
    import numpy as np
    from jax.sharding import NamedSharding, PartitionSpec

    import phasepoint as pp
    from phasepoint.zoo.modes import train_program

    network = networks()[name]
    net = network.make(**{**network.sizes[-1], "batch": batch}, **network.options)
    function, shapes = train_program(net, update="adam")
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("data",))
    whole, divided = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("data"))
    draw = np.random.default_rng(0)

    def array(leaf, at):
        if np.issubdtype(leaf.dtype, np.integer):
            return jax.device_put(draw.integers(0, 2, leaf.shape).astype(leaf.dtype), at)
        return jax.device_put((draw.standard_normal(leaf.shape) * 0.05).astype(leaf.dtype), at)

    state = [jax.tree.map(lambda leaf: array(leaf, whole), one) for one in shapes[:2]]
    data = [
        jax.tree.map(lambda leaf: array(leaf, divided if leaf.shape and leaf.shape[0] == batch else whole), one)
        for one in shapes[2:]
    ]
    step = jax.jit(function, donate_argnums=(0, 1))
    times = []

    def train(run) -> None:
        for number in range(STEPS) if run is None else run.steps(range(STEPS)):
            began = time.perf_counter()
            loss, *state[:] = step(*state, *data)
            loss.block_until_ready()
            if number >= 10:
                times.append(time.perf_counter() - began)

    if folder is None:
        train(None)
    else:
        with pp.record(folder) as run:
            train(run)
    print(json.dumps({"step_ms": statistics.median(times) * 1e3}))


def child(name: str, count: int, batch: int, folder: str | None = None) -> float:
    command = [sys.executable, __file__, "--job", name, "--count", str(count), "--batch", str(batch)]
    command += ["--folder", folder] if folder else []
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-300:])
    return json.loads(done.stdout.splitlines()[-1])["step_ms"]


def planned(folder: str) -> tuple[float, dict[str, float], float]:
    """Milliseconds of a step of one device, and of two, as the command tells them."""
    found, busy = {}, 0.0
    for way in ("own", "divided"):
        words = ["scale", "plan", folder, "--to", "2*cpu", "--json", *(["--divided"] if way == "divided" else [])]
        command = [sys.executable, "-m", "phasepoint", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr[-300:])
        said = json.loads(done.stdout)
        one, two = said["rows"]
        found[way], busy = sum(two["parts_ps"].values()) / 1e9, said["step"]["busy_cores"]
    return sum(one["parts_ps"].values()) / 1e9, found, busy


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--job")
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--folder")
    parser.add_argument("--calibration", action="store_true")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    if asked.job:
        run_job(asked.job, asked.count, asked.batch, asked.folder)
        return
    rows = []
    for name in CALIBRATION if asked.calibration else REPORTED:
        with tempfile.TemporaryDirectory() as folder:
            try:
                told, measured = [], {"own": [], "divided": []}
                for turn in range(ROUNDS):
                    run = f"{folder}/run{turn}"
                    if child(name, 1, 32, run) < LEAST_MS:
                        break
                    measured["own"].append(child(name, 2, 64))
                    measured["divided"].append(child(name, 2, 32))
                    told.append(planned(run))
            except RuntimeError as error:
                print(f"{name}: {error}".replace("\n", " ")[:200], flush=True)
                continue
        if len(told) < ROUNDS:
            continue
        for way, times in measured.items():
            plan = statistics.median(one[1][way] for one in told)
            real = statistics.median(times)
            rows.append({
                "job": name, "way": way, "planned_ms": plan, "measured_ms": real,
                "one_ms": statistics.median(one[0] for one in told),
                "busy_cores": statistics.median(one[2] for one in told),
            })  # fmt: skip
            last = rows[-1]
            print(f"{name} {way}: one device {last['one_ms']:.1f} ms ({last['busy_cores']:.2f} cores), two planned "
                  f"{plan:.1f}, measured {real:.1f}: {100 * (plan / real - 1):+.0f} %", flush=True)  # fmt: skip
    errors = [abs(row["planned_ms"] / row["measured_ms"] - 1) for row in rows]
    if errors:
        within = sum(error <= 0.15 for error in errors)
        mean, worst = 100 * statistics.mean(errors), 100 * max(errors)
        print(f"{within} of {len(errors)} within 15 %; mean {mean:.1f} %, worst {worst:.0f} %")
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
