"""Jobs of several ranks of which one is late, and clean ones: is the late rank named, and none in the clean ones?

    python benchmarks/stragglers.py                          # 20 late, 10 clean: 25 minutes on two cores
    python benchmarks/stragglers.py --first 100 --jobs 6     # others
    python benchmarks/stragglers.py --keep runs/late         # keeps the runs; --judge runs/late judges them again

Real processes on this machine: DDP over gloo with two and four ranks, `jax.distributed` with two (CPU collectives),
recorded by `phasepoint record` or in two lines. What is drawn by seed: framework, ranks, recording, what makes the rank
late (see `stragglers_jobs.py`), by 15 to 80 % of a step, from the start or from some step on. A job is right if a
finding STRAGGLER names the late rank and no other; a clean job if there is none.
"""

import argparse
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from phasepoint.findings.judge import judge_run
from phasepoint.sources.ingest.opened import open_run
from phasepoint.summary.analysis import analyse_run
from stragglers_jobs import Job

JOB = Path(__file__).with_name("stragglers_jobs.py")
KINDS = ("compute", "input", "core", "host")
LEAST, MOST = 0.15, 0.8
"""Of a step: how late."""

PERIOD_S = 0.02
"""The other program runs for a part of each such period."""

BURN = """
import os, sys, time
os.sched_setaffinity(0, {int(sys.argv[1])})
busy_s, period_s = float(sys.argv[2]), float(sys.argv[3])
while True:
    until = time.thread_time() + busy_s
    while time.thread_time() < until:
        pass
    time.sleep(period_s - busy_s)
"""


@dataclass(frozen=True)
class Plan:
    """A job, its ranks, and how it is recorded."""

    number: int
    ranks: int
    lines: bool
    job: Job


def plan_of(number: int, *, late: bool, seconds: float) -> Plan:
    """The kinds take turns, and so does what they are planted in; the rest is drawn."""
    rng = random.Random(f"{'late' if late else 'clean'} {number}")
    kind = KINDS[number % len(KINDS)] if late else ""
    framework, ranks = (("torch", 2), ("jax", 2), ("torch", 4))[(number // len(KINDS) + number) % 3]
    if kind == "core":
        ranks = 2  # two cores: with four ranks every core is shared anyway
    share = 0.0 if not late else rng.uniform(LEAST, MOST)
    start = 0.0 if rng.random() < 0.5 else rng.uniform(0.25, 0.6)
    job = Job(framework, kind, rng.randrange(ranks), round(share, 3), round(start, 3), seconds, kind == "core")
    return Plan(number, ranks, rng.random() < 0.5, replace(job, seed=number))


def free_port() -> int:
    """A port of the loopback that nobody uses now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def run_job(plan: Plan, out: Path) -> dict[str, Any]:
    """Run the ranks, recorded into a folder; what rank 0 printed."""
    job = replace(plan.job, record=str(out) if plan.lines else "")
    record = [] if plan.lines else [sys.executable, "-m", "phasepoint", "record", "--out", str(out), "--"]
    port = free_port()
    shared = {
        **{"OMP_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu", "WORLD_SIZE": str(plan.ranks)},
        **{"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "COORDINATOR": f"127.0.0.1:{port}"},
        "JAX_CPU_COLLECTIVES_IMPLEMENTATION": "gloo",
    }
    command = [*record, sys.executable, str(JOB), json.dumps(asdict(job))]
    said: list[list[str]] = [[] for _ in range(plan.ranks)]
    burners: list[subprocess.Popen[bytes]] = []

    def listen(rank: int, process: subprocess.Popen[str]) -> None:
        for line in process.stdout or ():
            said[rank].append(line)
            if line.strip() == "begin":
                core = sorted(os.sched_getaffinity(0))[rank % len(os.sched_getaffinity(0))]
                busy_s = PERIOD_S * job.share / (1 + job.share)
                burners.append(subprocess.Popen([sys.executable, "-c", BURN, str(core), str(busy_s), str(PERIOD_S)]))

    processes, listeners = [], []
    try:
        for rank in range(plan.ranks):
            environ = os.environ | shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
            processes.append(subprocess.Popen(command, env=environ, **pipes))
            listeners.append(threading.Thread(target=listen, args=(rank, processes[-1])))
            listeners[-1].start()
        for process in processes:
            if process.wait(timeout=400):
                time.sleep(1)
                lines = [line for lines in said for line in lines]
                raise SystemExit(f"{plan}: exit code {process.returncode}\n{''.join(lines)[-3000:]}")
        for listener in listeners:
            listener.join()
    finally:
        for process in (*burners, *processes):
            process.kill()
            process.wait()
    told: dict[str, Any] = json.loads(next(line for line in said[0] if line.startswith("{")))
    return told


def judge(out: Path, plan: Plan) -> dict[str, Any]:
    """What the findings say of a run."""
    run = open_run(out)
    findings, analysis = judge_run(run), analyse_run(run)
    told = [finding for finding in findings.findings if finding.code == "STRAGGLER"]
    late = f"host {plan.job.rank} "
    right = len(told) == 1 and late in told[0].title.lower() if plan.job.kind else not told
    return {
        "right": right,
        "title": told[0].title if told else "",
        "first": findings.findings[0].code if findings.findings else "",
        "unavailable": next((one.reason for one in findings.unavailable if one.code == "STRAGGLER"), ""),
        "phases": {phase.name: round(phase.share, 3) for phase in analysis.result.phases},
        "windows": analysis.tables["windows"].num_rows,
    }


def told(plan: Plan, row: dict[str, Any]) -> str:
    """A line of the table."""
    job = plan.job
    what = f"{job.kind or 'clean'} | {job.rank if job.kind else '–'} | {job.share:.0%} | {job.start:.0%}"
    where = f"{job.framework} {plan.ranks} | {'two lines' if plan.lines else 'record'}"
    said = row["title"] or row["unavailable"] or f"nothing; first is {row['first'] or 'nothing'}"
    measured = " → ".join(map(str, row.get("medians_ms", ())))
    phases = ", ".join(f"{name} {share:.0%}" for name, share in row["phases"].items())
    mark = "yes" if row["right"] else "NO"
    return f"| {plan.number} | {where} | {what} | {measured} | {row['windows']} | {mark} | {said} | {phases} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=0, help="seed of the first job; development uses 100 and more")
    parser.add_argument("--jobs", type=int, default=20)
    parser.add_argument("--clean", type=int, default=10)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, help="of the late ones only these")
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--judge", type=Path, help="judge the runs of a folder again")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rows = []
    print("| job | ranks | recorded | late by | rank | of a step | from | step, ms | windows | right | said | phases |")
    print("|---|---|---|---|---|---|---|---|---|---|---|---|")
    for late, jobs in ((True, args.jobs), (False, args.clean)):
        for number in range(args.first, args.first + jobs):
            plan = plan_of(number, late=late, seconds=args.seconds)
            if late and plan.job.kind not in args.kinds:
                continue
            name = f"{'late' if late else 'clean'}-{number}"
            with tempfile.TemporaryDirectory(prefix="phasepoint-stragglers-") as folder:
                out = (args.judge or args.keep or Path(folder)) / name
                notes = out.with_suffix(".json")
                if args.judge and not notes.exists():
                    continue
                ran = json.loads(notes.read_text()) if args.judge else run_job(plan, out)
                notes.write_text(json.dumps(ran))
                row = {"name": name, "plan": asdict(plan), **ran, **judge(out, plan)}
            rows.append(row)
            print(told(plan, row), flush=True)
    for kind in (*KINDS, ""):
        mine = [row["right"] for row in rows if row["plan"]["job"]["kind"] == kind]
        if mine:
            print(f"{kind or 'clean'}: {sum(mine)} of {len(mine)} right")
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
