"""Busy time of the devices in real traces: ours, HTA's, and what TraceLens's rule would leave of it.

    PHASEPOINT_DATA=/path/to/data python benchmarks/device_time.py --peer-python /path/to/venv/bin/python

The peer's environment holds `traceinsight` (Holistic Trace Analysis). Its busy time is kernel time less idle time of
its temporal breakdown; where that stops at an assertion of its own, it is run once more with assertions off. AMD's
TraceLens is not on PyPI (the name belongs to another project there), so its rule, to count only executions linked to
the host's calls, is applied to our tables. Every difference is taken apart: what rounding to whole microseconds of the
file's clock alone does, and which events the peer counts that are no executions, or leaves out.
"""

import argparse
import gzip
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import numpy as np

PEER = """
import collections, json, os, shutil, sys, tempfile, warnings
warnings.simplefilter("ignore")
from hta.trace_analysis import TraceAnalysis
folder = tempfile.mkdtemp()
file = os.path.join(folder, "rank-0.json.gz")
shutil.copy(sys.argv[1], file)
analysis = TraceAnalysis(trace_files={0: file}, trace_dir=folder)
frame = analysis.t.get_trace(0)
texts = analysis.t.symbol_table.get_sym_table()
device = frame[frame["stream"].ne(-1)]
counted = collections.Counter(texts[cat] for cat in device["cat"])
row = analysis.get_temporal_breakdown(visualize=False).to_dict("records")[0]
print("FOUND " + json.dumps({
    "busy_us": row["kernel_time(us)"] - row["idle_time(us)"], "span_us": row["kernel_time(us)"], "counted": counted,
    "negative": int((device["dur"] < 0).sum()),
}))
"""

EXECUTIONS = ("kernel", "gpu_memcpy", "gpu_memset", "mtia_ccp_events")
FORMATS = ("kineto", "xplane", "nsys", "rocprof")
PS_PER_US = 10**6


def ours(path: Path) -> list[dict[str, object]]:
    """Rows of device time through the command line, each with what other rules make of the same executions."""
    from phasepoint.core.intervals import union
    from phasepoint.stack.shard.executions import read_executions
    from phasepoint.stack.shard.shard import shards_of
    from phasepoint.store import open_run

    rounded = rounded_busy_us(path) if path.parent.name == "kineto" else {}
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "phasepoint"]
        subprocess.run([*command, "import", str(path), "--out", f"{folder}/run"], check=True, capture_output=True)
        stack = [*command, "stack", f"{folder}/run", "--analysis", "device-time", "--json"]
        rows = json.loads(subprocess.run(stack, check=True, capture_output=True).stdout)["rows"]
        (shard,) = shards_of(open_run(f"{folder}/run"))
        executions = read_executions(shard)
        for row in rows:
            mine = executions.of(row["device"])
            launched = union(mine.start_ps, mine.end_ps, where=~mine.orphan)
            row["launched_busy_ps"] = launched.total_ps
            row["rounded_busy_us"] = rounded.get(row["device"])
    return rows


def rounded_busy_us(path: Path) -> dict[str, int]:
    """Busy time by device of a Kineto file if starts are rounded up and ends down to whole microseconds."""
    from phasepoint.core.intervals import union

    stretches = defaultdict(list)
    for event in json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)["traceEvents"]:
        if event.get("cat") in EXECUTIONS and event.get("ph") == "X":
            start, end = math.ceil(event["ts"]), math.floor(event["ts"] + event["dur"])
            family = "mtia" if event["cat"].startswith("mtia") else "gpu"
            stretches[f"{family}:{event['args'].get('device', event['pid'])}"].append((start, max(start, end)))
    return {device: union(*np.array(found, np.int64).T).total_ps for device, found in stretches.items()}


def peers(python: str, path: Path) -> dict[str, object] | None:
    """What HTA says; None where it says nothing."""
    for options in ([], ["-O"]):
        done = subprocess.run([python, *options, "-c", PEER, str(path)], capture_output=True, text=True, check=False)
        for line in done.stdout.splitlines():
            if line.startswith("FOUND "):
                return {**json.loads(line.removeprefix("FOUND ")), "asserted": bool(options)}
        if "AssertionError" not in done.stderr:
            return {"error": done.stderr.strip().splitlines()[-1]}
    return None


def percent(part: float, whole: float) -> str:
    """A difference as a share of ours."""
    share = 100 * (part - whole) / whole
    return "equal" if part == whole else f"{share:+.1f} %" if abs(share) >= 0.05 else f"{share:+.2g} %"


def reasons(row: dict, peer: dict | None) -> str:
    """Why HTA differs, from what it counted."""
    if peer is None or "error" in peer:
        return f"stops: {peer['error']}" if peer else "stops"
    words = []
    if peer["asserted"]:
        words.append("stops at its own assertion; figure with assertions off")
    counted = Counter(peer["counted"])
    extra = {kind: n for kind, n in counted.items() if kind not in EXECUTIONS}
    kept = sum(counted[kind] for kind in EXECUTIONS)
    if kept < row["events"]:
        words.append(f"leaves out {row['events'] - kept} of {row['events']} executions")
    if extra:
        listed = ", ".join(f"{n} {kind}" for kind, n in sorted(extra.items()))
        words.append(f"counts as executions: {listed}")
    if row["rounded_busy_us"] * PS_PER_US != row["busy_ps"]:
        words.append(f"rounding alone: {percent(row['rounded_busy_us'] * PS_PER_US, row['busy_ps'])}")
    if peer["negative"]:
        words.append(f"{peer['negative']} durations below 0")
    return "; ".join(words) or "none"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=os.environ.get("PHASEPOINT_DATA"), help="folder that holds traces/")
    parser.add_argument("--peer-python", help="Python of an environment with traceinsight")
    parser.add_argument("--quick", action="store_true", help="only files below 100 kB")
    parser.add_argument("--json", help="write the figures here")
    options = parser.parse_args()
    if not options.data:
        parser.error("--data or PHASEPOINT_DATA must name a folder that holds traces/")
    folder, found = Path(options.data) / "traces", []
    print(f"{platform.machine()}, Python {platform.python_version()}, {datetime.now(UTC):%Y-%m-%d}\n")
    print("| trace | device | busy | without a launch | HTA | TraceLens's rule | why HTA differs |")
    print("|---|---|--:|--:|--:|--:|---|")
    for path in sorted(path for form in FORMATS for path in (folder / form).glob("*")):
        if options.quick and path.stat().st_size > 100_000:
            continue
        kineto = path.parent.name == "kineto"
        peer = peers(options.peer_python, path) if options.peer_python and kineto else None
        for row in ours(path):
            found.append({"trace": path.name, **row, "peer": peer})
            print(line(path, row, peer, kineto=kineto), flush=True)
    if options.json:
        Path(options.json).write_text(json.dumps(found, indent=1))


def line(path: Path, row: dict, peer: dict | None, *, kineto: bool) -> str:
    """A row of the table."""
    busy_us = row["busy_ps"] / PS_PER_US
    theirs = peer.get("busy_us") if peer else None
    cells = [
        f"{path.parent.name}/{path.name.removesuffix('.gz').removesuffix('.pb').rpartition('.')[0]}",
        row["device"],
        f"{busy_us:,.3f} µs",
        f"{row['orphan_events']:,} of {row['events']:,}",
        "–" if theirs is None or math.isnan(theirs) else f"{percent(theirs, busy_us)}",
        percent(row["launched_busy_ps"], row["busy_ps"]) if kineto else "–",
        reasons(row, peer) if kineto else "does not read the format",
    ]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
