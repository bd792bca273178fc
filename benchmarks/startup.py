"""How long the command line takes to say something: `--help`, beside an interpreter that does nothing.

    python benchmarks/startup.py [--runs 25] [--quick] [--json PATH]

The runs of all commands are interleaved, so that a busy moment of the machine hits them alike.
"""

import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "phasepoint --help": [sys.executable, "-m", "phasepoint", "--help"],
    "phasepoint summary --help": [sys.executable, "-m", "phasepoint", "summary", "--help"],
    "phasepoint version": [sys.executable, "-m", "phasepoint", "version"],
    "import phasepoint": [sys.executable, "-c", "import phasepoint"],
}
BASE = "python -c pass"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=25)
    parser.add_argument("--quick", action="store_true", help="5 runs")
    parser.add_argument("--json", type=Path, metavar="PATH")
    arguments = parser.parse_args()
    times_ms = measure(5 if arguments.quick else arguments.runs)
    rows = [describe(name, samples, times_ms[BASE]) for name, samples in times_ms.items()]
    machine = f"{os.cpu_count()} × {platform.machine()}, Python {platform.python_version()}"
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    print(f"{machine}, {date}, {len(times_ms[BASE])} runs each")
    print(f"{'command':28s} {'median':>9s} {'fastest':>9s} {'slowest':>9s} {'ratio':>7s}")
    for row in rows:
        spread = f"{row['fastest_ms']:6.0f} ms {row['slowest_ms']:6.0f} ms"
        print(f"{row['command']:28s} {row['median_ms']:6.0f} ms {spread} {row['ratio']:7.2f}")
    if arguments.json:
        arguments.json.write_text(json.dumps({"machine": machine, "date": date, "rows": rows}, indent=2) + "\n")


def measure(runs: int) -> dict[str, list[float]]:
    """Wall time of every command in milliseconds, after one run that warms the caches."""
    times_ms: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for index in range(runs + 1):
        for name, command in COMMANDS.items():
            begin_ns = time.perf_counter_ns()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
            if index:
                times_ms[name].append((time.perf_counter_ns() - begin_ns) / 1e6)
    return times_ms


def describe(name: str, samples: list[float], base: list[float]) -> dict[str, str | float]:
    """Median, extremes and the ratio of medians to the interpreter alone."""
    median = statistics.median(samples)
    return {
        "command": name,
        "median_ms": median,
        "fastest_ms": min(samples),
        "slowest_ms": max(samples),
        "ratio": median / statistics.median(base),
    }


if __name__ == "__main__":
    main()
