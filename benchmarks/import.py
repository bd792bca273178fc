"""Traces of PyTorch's profiler → a run: speed, memory and what packing costs, beside another tool on the same file.

    python benchmarks/import.py --peer hta=/path/to/venv/bin/python

Records a training job on CPU with shapes until its JSON has 440 MB (`--trace` reuses one), makes one of four times the
size of it by repeating it with shifted times, and packs the first. Then, in fresh processes and in turns: the whole
command `phasepoint import` (from the start of the interpreter to the last part on the disk), and the peers' own load of
the file. The peer `hta` is traceinsight 0.6.1; AMD's TraceLens is not on PyPI (the package of that name is another).
A process's memory is its peak resident size.

The floor is the machine's: the file read once, and its packed form unpacked once. Last comes the parent reconstruction
of ten million generated spans (`core.nesting.nest_spans`).
"""

import argparse
import gzip
import json
import multiprocessing
import os
import platform
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

RECORD = """
import sys
import torch
from torch.profiler import ProfilerActivity, profile

torch.set_num_threads(1)
torch.manual_seed(0)
layers = [torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64), torch.nn.LayerNorm(64), torch.nn.GELU()]
model = torch.nn.Sequential(*layers, torch.nn.Linear(64, 4))
optimizer = torch.optim.Adam(model.parameters())
inputs, labels = torch.randn(16, 32), torch.zeros(16, dtype=torch.long)
with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recorded:
    for _ in range(int(sys.argv[2])):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        recorded.step()
recorded.export_chrome_trace(sys.argv[1])
"""
BYTES_PER_STEP = 160_800

PEERS = {
    "hta": """
import json, sys, time
begin = time.perf_counter()
from hta.common.trace import Trace
imported = time.perf_counter()
trace = Trace({0: sys.argv[1]}, "")
trace.load_traces(False)
assert len(trace.get_trace(0))
print(json.dumps({"load_s": time.perf_counter() - imported}))
""",
}

LOAD = """
import json, sys, time
from phasepoint.sources.ingest.import_run import import_traces
import_traces([sys.argv[1] + ".small"], sys.argv[2] + ".small")
imported = time.perf_counter()
import_traces([sys.argv[1]], sys.argv[2])
print(json.dumps({"load_s": time.perf_counter() - imported}))
"""


def run(command: list[str]) -> dict:
    """Wall time, CPU time and peak memory of one process."""
    before = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    out = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    wall_s = time.perf_counter() - before
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command[:3])} … failed with {process.returncode}:\n{out[-2000:]}")
    line = out.strip().splitlines()[-1] if out.strip() else ""
    more = json.loads(line) if line.startswith("{") else {}
    return {"wall_s": wall_s, "cpu_s": usage.ru_utime + usage.ru_stime, "peak_mb": usage.ru_maxrss / 1024, **more}


def ours(trace: Path) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        return run([sys.executable, "-m", "phasepoint", "import", str(trace), "--out", f"{folder}/run"])


def ours_loaded(trace: Path) -> dict:
    """As `ours`, with the time of the import alone, in a process that has imported a small file before."""
    with tempfile.TemporaryDirectory() as folder:
        return run([sys.executable, "-c", LOAD, str(trace), f"{folder}/run"])


def record(path: Path, size: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", RECORD, str(path), str(size // BYTES_PER_STEP)], capture_output=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"recording failed:\n{done.stderr.decode()[-2000:]}")


def repeat(path: Path, target: Path, times: int) -> None:
    """The trace several times over, each a little after the one before."""
    data = path.read_bytes()
    begin, end = data.index(b'"traceEvents": [') + 16, data.rindex(b"]")
    body = data[begin:end]
    pattern = re.compile(rb'"ts": (\d+)')
    starts = [int(text) for text in pattern.findall(body)]
    span = max(starts) - min(starts) + 1000
    with target.open("wb") as out:
        out.write(data[:begin] + body)
        for k in range(1, times):
            out.write(b"," + pattern.sub(lambda match: b'"ts": %d' % (int(match[1]) + k * span), body))  # noqa: B023
        out.write(data[end:])


def floor(trace: Path, packed: Path) -> dict:
    """Seconds to read the file once, and to unpack it once."""
    from isal import igzip

    room = bytearray(8 << 20)
    figures = {}
    for name, path, opener in (
        ("read_s", trace, lambda p: p.open("rb", buffering=0)),
        ("unpack_s", packed, igzip.open),
    ):
        begin = time.perf_counter()
        with opener(path) as file:
            while file.readinto(room):
                pass
        figures[name] = time.perf_counter() - begin
    return figures


def nest(n: int) -> dict:
    """Parents of generated spans on eight tracks, in any order: trees of up to six levels."""
    from phasepoint.core.nesting import nest_spans

    random = np.random.default_rng(0)
    n_trees = n // 64
    level = random.integers(0, 6, n)
    tree = random.integers(0, n_trees, n)
    width = 1_000_000 >> (2 * level)
    start = tree * 2_000_000 + random.integers(0, 1 << 20, n) // width * width
    nest_spans(tree[:100] % 8, start[:100], (start + width)[:100])
    begin, cpu = time.perf_counter(), time.process_time()
    found = nest_spans(tree % 8, start, start + width)
    times = {"wall_s": time.perf_counter() - begin, "cpu_s": time.process_time() - cpu}
    return {**times, "spans": n, "with_parent": int((found.parent >= 0).sum())}


def measure(trace: Path, peers: dict[str, str], repeats: int) -> dict:
    large, packed = trace.with_suffix(".x4.json"), trace.with_suffix(".json.gz")
    if not large.exists():  # in a process of its own: a child's peak memory begins at that of its parent
        making = multiprocessing.get_context("fork").Process(target=repeat, args=(trace, large, 4))
        making.start()
        making.join()
    if not packed.exists():
        with trace.open("rb") as plain, gzip.open(packed, "wb", compresslevel=6) as out:
            shutil.copyfileobj(plain, out, 8 << 20)
    ours(trace)  # compiles, where nothing is compiled yet
    rows: dict[str, list[dict]] = {}
    for turn in range(repeats):
        for name, file in (("plain", trace), ("gz", packed), ("four times", large)):
            rows.setdefault(name, []).append(ours(file))
        rows.setdefault("loaded", []).append(ours_loaded(trace))
        for name, python in peers.items():
            if turn == 0:  # a minute or more each
                rows.setdefault(name, []).append(run([python, "-c", PEERS[name], str(trace)]))
                rows["plain"].append(ours(trace))
    figures: dict = {"bytes": trace.stat().st_size, "floor": floor(trace, packed), "nest": nest(10_000_000)}
    for name, found in rows.items():
        figures[name] = {key: statistics.median(row[key] for row in found) for key in found[0]}
        figures[name]["least_wall_s"] = min(row["wall_s"] for row in found)
    return figures


def show(figures: dict, peers: dict[str, str]) -> None:
    size = figures["bytes"]
    print(f"{'':14}{'process':>10}{'least':>9}{'CPU':>9}{'load':>9}{'memory':>10}   {size / 1e6:.0f} MB of JSON")
    for name in ("plain", "gz", "four times", "loaded", *peers):
        row = figures[name]
        load = f"{row['load_s']:7.2f} s" if "load_s" in row else f"{'–':>9}"
        print(
            f"{name:14}{row['wall_s']:8.2f} s{row['least_wall_s']:7.2f} s{row['cpu_s']:7.2f} s{load}"
            f"{row['peak_mb']:7.0f} MB"
        )
    plain, loaded = figures["plain"], figures["loaded"]
    for name in peers:
        peer = figures[name]
        ratios = {
            "whole process": peer["wall_s"] / plain["wall_s"],
            "load alone": peer["load_s"] / loaded["load_s"],
            "CPU time": peer["cpu_s"] / plain["cpu_s"],
            "memory": peer["peak_mb"] / plain["peak_mb"],
        }
        print(f"× {name}: " + ", ".join(f"{ratio:.1f} {what}" for what, ratio in ratios.items()))
    print(f"gz / plain: {figures['gz']['wall_s'] / plain['wall_s']:.2f}")
    print(f"memory, four times / once: {figures['four times']['peak_mb'] / plain['peak_mb']:.2f}")
    speeds = {"import": loaded["load_s"], "read": figures["floor"]["read_s"], "unpack": figures["floor"]["unpack_s"]}
    print(", ".join(f"{what} {size / seconds / 1e6:.0f} MB/s" for what, seconds in speeds.items()))
    nested = figures["nest"]
    print(f"parents of {nested['spans']:,} spans: {nested['wall_s']:.2f} s, {nested['cpu_s']:.2f} s of CPU time")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", type=Path, help="a recorded trace, plain JSON; made if it is not there")
    parser.add_argument("--size-mb", type=int, default=440)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--peer", action="append", default=[], help="hta=PYTHON")
    parser.add_argument("--quick", action="store_true", help="a trace of 30 MB, once")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.quick:
        options.size_mb, options.repeats = 30, 1
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    peers = dict(one.split("=", 1) for one in options.peer)
    machine = f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    print(f"{machine}, Python {platform.python_version()}, {datetime.now(UTC):%Y-%m-%d}")
    with tempfile.TemporaryDirectory() as folder:
        trace = options.trace or Path(folder) / "trace.json"
        if not trace.exists():
            record(trace, options.size_mb * 1_000_000)
        small = trace.with_name(trace.name + ".small")
        if not small.exists():
            record(small, 2_000_000)
        figures = measure(trace, peers, options.repeats)
    show(figures, peers)
    if options.json:
        options.json.write_text(json.dumps({"date": str(datetime.now(UTC).date()), **figures}, indent=1))


if __name__ == "__main__":
    main()
