"""A recording that lasts: does its memory stay as it is, and how many files are there?

    python benchmarks/soak.py --steps 10_000_000                       # some 300 windows, five minutes
    python benchmarks/soak.py --steps 500_000 --budget all             # some 20,000 windows, back to back
    python benchmarks/soak.py --steps 500_000 --job torch --plain

A job of tiny steps runs under the recorder with half of its time as the budget, or with windows back to back; they are
converted as in any job. Every second the kernel is asked how much memory belongs to the job's process alone, and the
folder how many files the run has. Readings of the first tenth are left out, in which a job makes its buffers. Compared
are the medians of the two halves of the rest; `--plain` tells what the job does by itself.
"""

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from phasepoint.store import open_run

HEAD = """
import sys
from phasepoint.recorder import record
out, steps, share, side = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
"""
LOOP = """
if share != "plain":
    with record(out, budget=None if share == "all" else float(share), window_steps=2) as run:
        for number in run.steps(range(steps)):
            step()
else:
    for number in range(steps):
        step()
"""
JOBS = {
    "jax": """
import jax, jax.numpy as jnp
update = jax.jit(lambda w: w - 1e-3 * jnp.tanh(w))
w = jnp.ones((side, side))
def step():
    global w
    w = update(w)
""",
    "torch": """
import torch
torch.set_num_threads(1)
w = torch.ones(side, side)
def step():
    w.sub_(torch.tanh(w), alpha=1e-3)
""",
}
WARM = 0.1
"""Share of the readings that are left out at the beginning."""


def soak(job: str, steps: int, side: int, budget: float | str, folder: Path) -> dict:
    """Run the job to its end, watching."""
    out = folder / "run"
    command = [sys.executable, "-c", HEAD + JOBS[job] + LOOP, str(out), str(steps), str(budget or "plain"), str(side)]
    began, readings, files, converter = time.monotonic(), [], [], []
    with subprocess.Popen(command) as process:
        while process.poll() is None:
            readings.append(own_kib(process.pid))
            converter.append(max(map(own_kib, children(process.pid)), default=0))
            files.append(sum(1 for path in out.rglob("*") if path.is_file()))
            time.sleep(1)
    if process.returncode:
        raise SystemExit(f"the job ended with exit code {process.returncode}")
    kept = np.array([kib for kib in readings if kib][int(len(readings) * WARM) :], np.float64)
    first, last = np.array_split(kept, 2)
    row = {"job": job, "budget": budget, "seconds": round(time.monotonic() - began), "readings": len(kept)}
    row |= {"first_mib": np.median(first) / 1024, "last_mib": np.median(last) / 1024, "most_mib": kept.max() / 1024}
    if budget:
        run = open_run(str(out))
        row |= {"steps": run.table("steps").num_rows, "windows": run.table("windows").num_rows}
        row |= {"problems": list(run.problems), "converter_most_mib": max(converter) / 1024}
        row |= {"most_files": max(files), "files": sum(1 for path in out.rglob("*") if path.is_file())}
        row["mib"] = sum(path.stat().st_size for path in out.rglob("*") if path.is_file()) / 2**20
        row["kib_a_window"] = (row["last_mib"] - row["first_mib"]) * 1024 / max(row["windows"] * (1 - WARM) / 2, 1)
    return row


def own_kib(pid: int) -> int:
    """Resident memory that belongs to a process alone, KiB; 0 where it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("RssAnon:")), 0)


def children(pid: int) -> list[int]:
    """Processes that a process started, on any of its threads."""
    try:
        lists = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:
        return []
    return [int(word) for text in lists for word in text.split()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10_000_000)
    parser.add_argument("--budget", type=lambda text: text if text == "all" else float(text), default=0.5)
    parser.add_argument("--job", choices=JOBS, default="jax")
    parser.add_argument("--side", type=int, default=128, help="rows and columns of the matrix that a step works on")
    parser.add_argument("--plain", action="store_true", help="the job without the recorder as well")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rows = []
    for budget in (0.0, args.budget) if args.plain else (args.budget,):
        with tempfile.TemporaryDirectory(prefix="phasepoint-soak-") as folder:
            rows.append(soak(args.job, args.steps, args.side, budget, Path(folder)))
        print(json.dumps(rows[-1]), flush=True)
    if args.json:
        machine = {"machine": platform.machine(), "date": f"{datetime.now(UTC):%Y-%m-%d}"}
        args.json.write_text(json.dumps(machine | {"rows": rows}, indent=1))


if __name__ == "__main__":
    main()
