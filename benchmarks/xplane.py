"""Reading speed and memory of the XPlane source, beside XProf's overview page on the same file in the same run.

    python benchmarks/xplane.py --peer-python /path/to/venv/bin/python

Records a training job on CPU in one continuous capture of at least 90 MB (`--trace` reuses one), then reads it in fresh
processes, ours and the peer's in turns. Every process times itself; ours is warm (one small capture read before), the
first read of a process and the first ever (no compiled kernels yet) are given apart.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

RECORD = """
import sys, time
import jax, jax.numpy as jnp, optax
from flax import linen as nn
from jax._src.lib import _profiler

class Net(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Conv(8, (3, 3))(x))
        x = nn.relu(nn.Conv(16, (3, 3), strides=(2, 2))(x)).reshape((x.shape[0], -1))
        for _ in range(4):
            x = nn.relu(nn.Dense(32)(x))
        return nn.Dense(10)(x)

net, tx = Net(), optax.adam(1e-3)
x, y = jnp.ones((8, 12, 12, 1)), jnp.zeros((8,), int)
params = net.init(jax.random.key(0), x)
state = tx.init(params)

@jax.jit
def step(params, state):
    def loss(p):
        return optax.softmax_cross_entropy_with_integer_labels(net.apply(p, x), y).mean()
    value, grads = jax.value_and_grad(loss)(params)
    updates, state = tx.update(grads, state, params)
    return optax.apply_updates(params, updates), state, value

params, state, value = step(params, state)
options = _profiler.ProfileOptions()
options.python_tracer_level, options.host_tracer_level = 0, 2

def record(n_steps):
    global params, state
    session = _profiler.ProfilerSession(options)
    for k in range(n_steps):
        with jax.profiler.StepTraceAnnotation("phasepoint.step", step_num=k):
            params, state, value = step(params, state)
            if k % 8 == 0:
                value.block_until_ready()
    jax.block_until_ready(params)
    return session.stop()

target, small = int(sys.argv[2]), record(20)
more = record(200)
per_step = (len(more) - len(small)) / 180
data = record(int(1.05 * target / per_step))
open(sys.argv[1], "wb").write(data)
open(sys.argv[1] + ".small", "wb").write(small)
"""

OURS = """
import json, resource, sys, time
begin = time.perf_counter()
from phasepoint.sources.events.capture import CaptureRequest
from phasepoint.sources.xplane.reader import read_xplane
imported = time.perf_counter()
read_xplane(open(sys.argv[1] + ".small", "rb").read(), CaptureRequest())
warm = time.perf_counter()
base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
data = open(sys.argv[1], "rb").read()
start, cpu = time.perf_counter(), time.process_time()
capture = read_xplane(data, CaptureRequest())
wall, cpu = time.perf_counter() - start, time.process_time() - cpu
print(json.dumps({
    "wall_s": wall, "cpu_s": cpu, "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    "base_bytes": base, "import_s": imported - begin, "warm_up_s": warm - imported,
    "events": capture.conversion.column("events")[0].as_py(),
}))
"""

PEER = """
import json, resource, sys, time
from xprof.convert import raw_to_tool_data
base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
start, cpu = time.perf_counter(), time.process_time()
result, _ = raw_to_tool_data.xspace_to_tool_data([sys.argv[1]], "overview_page", {})
wall, cpu = time.perf_counter() - start, time.process_time() - cpu
assert result
print(json.dumps({
    "wall_s": wall, "cpu_s": cpu, "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    "base_bytes": base, "result_bytes": len(result),
}))
"""


def run_python(python, code, *arguments, cache=None):
    env = os.environ | {"JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}
    if cache is not None:
        env["NUMBA_CACHE_DIR"] = str(cache)
    command = [str(python), "-c", code, *map(str, arguments)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=900, check=False)
    if done.returncode:
        raise SystemExit(f"{python} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1]) if done.stdout.strip() else None


def fresh_copy(trace):
    """XProf keeps results beside the file it reads: each of its runs gets the file under a new name."""
    folder = Path(tempfile.mkdtemp())
    target = folder / "host.xplane.pb"
    target.symlink_to(trace.resolve())
    return target


def measure(trace, peer, repeats):
    ours, theirs = [], []
    with tempfile.TemporaryDirectory() as cache:
        cold = run_python(sys.executable, OURS, trace, cache=cache)
    for _ in range(repeats):
        ours.append(run_python(sys.executable, OURS, trace))
        if peer is not None:
            theirs.append(run_python(peer, PEER, fresh_copy(trace)))
    return cold, ours, theirs


def median(rows, name):
    return statistics.median(row[name] for row in rows)


def summarize(trace, cold, ours, theirs):
    size = trace.stat().st_size
    figures = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
        "trace_bytes": size,
        "events": ours[0]["events"],
        "ours_wall_s": median(ours, "wall_s"),
        "ours_cpu_s": median(ours, "cpu_s"),
        "ours_bytes_per_s": size / median(ours, "wall_s"),
        "ours_bytes_per_cpu_s": size / median(ours, "cpu_s"),
        "ours_peak_bytes": median(ours, "peak_bytes"),
        "ours_base_bytes": median(ours, "base_bytes"),
        "import_s": median(ours, "import_s"),
        "warm_up_s": median(ours, "warm_up_s"),
        "first_warm_up_s": cold["warm_up_s"],
    }
    figures["ours_peak_ratio"] = figures["ours_peak_bytes"] / size
    figures["ours_peak_above_base_ratio"] = (figures["ours_peak_bytes"] - figures["ours_base_bytes"]) / size
    if theirs:
        figures["peer_wall_s"] = median(theirs, "wall_s")
        figures["peer_cpu_s"] = median(theirs, "cpu_s")
        figures["peer_peak_bytes"] = median(theirs, "peak_bytes")
        figures["speed_ratio"] = median(theirs, "wall_s") / median(ours, "wall_s")
        figures["cpu_ratio"] = median(theirs, "cpu_s") / median(ours, "cpu_s")
    return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", type=Path, help="a recorded capture; with it goes a small one named TRACE.small")
    parser.add_argument("--size-mb", type=int, default=95)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--peer-python", type=Path, help="interpreter of an environment with xprof")
    parser.add_argument("--quick", action="store_true", help="a capture of 10 MB, one repeat")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.quick:
        options.size_mb, options.repeats = 10, 1
    trace = options.trace
    if trace is None:
        trace = Path(tempfile.mkdtemp()) / "host.xplane.pb"
        run_python(sys.executable, RECORD, trace, options.size_mb * 1_000_000)
    figures = summarize(trace, *measure(trace, options.peer_python, options.repeats))
    for name, value in figures.items():
        print(f"{name:28} {value:,.3f}" if isinstance(value, float) else f"{name:28} {value}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
