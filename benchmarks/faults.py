"""Kill a recorded training job at random moments: does the run open, and how much is lost?

A real JAX job trains under the recorder and prints the number of each finished step. It is ended with SIGKILL at
a random moment; then the run is opened and read. Lost is the time from the last step that the run holds to the
last step that the job printed before it died.

    python benchmarks/faults.py --kills 50
"""

import argparse
import json
import platform
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from phasepoint.core.errors import PhasepointError
from phasepoint.store import open_run

JOB = """
import sys
import jax, jax.numpy as jnp
from phasepoint.recorder import record

@jax.jit
def step(w, x):
    grad = jax.grad(lambda w: jnp.tanh(x @ w).sum())(w)
    return w - 1e-3 * grad

w, x = jnp.ones((256, 256)), jnp.ones((128, 256))
with record(sys.argv[1]) as run:
    for i in run.steps(range(10**9)):
        w = step(w, x)
        w.block_until_ready()
        print(i, flush=True)
"""


@dataclass(frozen=True)
class Trial:
    """One killed job."""

    after_s: float
    opened: bool
    steps_done: int
    steps_read: int
    lost_s: float
    problems: int
    error: str


def run_trial(folder: Path, after_s: float) -> Trial:
    """Start the job, kill it `after_s` seconds after its first step, open what it left."""
    run_path = folder / "run"
    job = subprocess.Popen([sys.executable, "-c", JOB, str(run_path)], stdout=subprocess.PIPE, text=True)
    assert job.stdout is not None
    first = job.stdout.readline()
    if not first:
        raise SystemExit(f"the job ended before its first step, exit code {job.wait()}")
    finished_at = [time.monotonic()]
    deadline = time.monotonic() + after_s
    while time.monotonic() < deadline and job.stdout.readline():
        finished_at.append(time.monotonic())
    job.send_signal(signal.SIGKILL)
    for _ in job.stdout.read().splitlines():
        finished_at.append(finished_at[-1])
    job.wait()
    try:
        steps = open_run(str(run_path)).table("steps")
        problems = len(open_run(str(run_path)).problems)
    except PhasepointError as error:
        return Trial(after_s, False, len(finished_at), 0, float("nan"), 0, str(error))
    read = steps.num_rows
    last_read_at = finished_at[min(read, len(finished_at)) - 1] if read else finished_at[0]
    return Trial(after_s, True, len(finished_at), read, finished_at[-1] - last_read_at, problems, "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--longest-s", type=float, default=12.0, help="latest kill, seconds after the first step")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="5 kills, at most 5 s each")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    kills, longest_s = (5, 5.0) if args.quick else (args.kills, args.longest_s)
    rng, trials = random.Random(args.seed), []
    for index in range(kills):
        folder = Path(tempfile.mkdtemp(prefix="phasepoint-faults-"))
        trials.append(run_trial(folder, rng.uniform(0.0, longest_s)))
        shutil.rmtree(folder)
        print(f"{index + 1:3d}/{kills} {trials[-1]}", file=sys.stderr)
    report(trials, args.json)


def report(trials: list[Trial], path: Path | None) -> None:
    opened = [t for t in trials if t.opened]
    figures = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{platform.machine()}, {platform.python_version()}",
        "kills": len(trials),
        "opened": len(opened),
        "lost_s_median": median(t.lost_s for t in opened),
        "lost_s_max": max(t.lost_s for t in opened),
        "unreadable_parts": sum(t.problems for t in opened),
    }
    for name, value in figures.items():
        print(f"{name:18s} {value}")
    if path:
        path.write_text(json.dumps({"figures": figures, "trials": [asdict(t) for t in trials]}, indent=1))


if __name__ == "__main__":
    main()
