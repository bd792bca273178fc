"""Short jobs, recorded without a line of code: are all steps kept, and is the cost that is told the cost?

    python benchmarks/short_jobs.py [--seconds 0.2 1 3 10 30] [--turns 3] [--json PATH]

For each framework and length a number of steps is found that takes about so long; the job then does that many, plain
and as `phasepoint record -- …`, in turns. Compared are the steps recorded with the steps done, and what the recorder
says it cost with the CPU time that the recorded job takes more (user and system, all processes, `phasepoint record`
itself included, which the recorder's own account does not hold).
"""

import argparse
import datetime
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

JOBS = {
    "torch": """
import sys, time, torch
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x = torch.ones(32, 64)
def step():
    optimizer.zero_grad()
    model(x).pow(2).mean().backward()
    optimizer.step()
""",
    "jax": """
import sys, time, jax, jax.numpy as jnp
params = {"a": jnp.ones((64, 128)), "b": jnp.ones((128, 8))}
x = jnp.ones((32, 64))
def loss(p):
    return ((jax.nn.relu(x @ p["a"]) @ p["b"]) ** 2).mean()
@jax.jit
def update(p):
    return jax.tree_util.tree_map(lambda v, g: v - 1e-3 * g, p, jax.grad(loss)(p))
def step():
    global params
    params = jax.block_until_ready(update(params))
""",
}
LOOP = """
if sys.argv[1] == "steps":
    for _ in range(int(sys.argv[2])):
        step()
else:
    step()
    end, done = time.perf_counter() + float(sys.argv[2]), 0
    while time.perf_counter() < end:
        step()
        done += 1
    print(max(done, 1))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, nargs="+", default=[0.2, 1, 3, 10, 30])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--json", type=Path, metavar="PATH")
    arguments = parser.parse_args()
    machine = f"{os.cpu_count()} × {platform.machine()}, Python {platform.python_version()}"
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    print(f"{machine}, {date}, {arguments.turns} turns; CPU seconds, medians")
    print("| job | steps done | steps recorded | CPU plain | more when recorded | told | windows |")
    print("|---|---|---|---|---|---|---|")
    rows = [measure(name, seconds, arguments.turns) for name in JOBS for seconds in arguments.seconds]
    if arguments.json:
        arguments.json.write_text(json.dumps({"machine": machine, "date": date, "rows": rows}, indent=1))


def measure(framework: str, seconds: float, turns: int) -> dict[str, object]:
    """One job: prints its row and returns it."""
    with tempfile.TemporaryDirectory() as folder:
        job = Path(folder) / "job.py"
        job.write_text(JOBS[framework] + LOOP)
        python = [sys.executable, str(job)]
        found = subprocess.run([*python, "seconds", str(seconds)], capture_output=True, text=True, check=True)
        command = [*python, "steps", found.stdout.strip()]
        run = str(Path(folder) / "run")
        plain, more, tallies = [], [], []
        for _ in range(turns):
            base_s = cpu_s(command)
            shutil.rmtree(run, ignore_errors=True)  # `--force` would do it, and load pyarrow for that before the job
            more.append(cpu_s([sys.executable, "-m", "phasepoint", "record", "--out", run, "--", *command]) - base_s)
            plain.append(base_s)
            [session] = Path(run).glob("host=*/session.json")
            tallies.append(json.loads(session.read_text())["tally"])
    row = {
        "job": f"{framework}, {seconds:g} s",
        "steps": int(found.stdout),
        "recorded": sorted({tally["steps"] for tally in tallies}),
        "plain_cpu_s": statistics.median(plain),
        "more_cpu_s": statistics.median(more),
        "told_s": statistics.median(tally["cost_ps"] / 1e12 for tally in tallies),
        "windows": [tally["windows"] for tally in tallies],
    }
    figures = [f"{row[name]:.2f}" for name in ("plain_cpu_s", "more_cpu_s", "told_s")]
    recorded = ", ".join(map(str, row["recorded"]))
    windows = ", ".join(map(str, row["windows"]))
    print(f"| {row['job']} | {row['steps']} | {recorded} | {' | '.join(figures)} | {windows} |", flush=True)
    return row


def cpu_s(command: list[str]) -> float:
    """CPU time of a command and all its children, user and system."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if os.waitstatus_to_exitcode(status):
        raise SystemExit(f"{' '.join(command)}: exit code {os.waitstatus_to_exitcode(status)}")
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
