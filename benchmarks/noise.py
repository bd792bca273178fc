"""Verdicts beside other programs: do equal steps stay one phase, and are real changes still found?

    python benchmarks/noise.py                                  # 60 jobs, an hour and a half on two cores
    python benchmarks/noise.py --only clean --first 100         # other seeds: other neighbours, nets and times
    python benchmarks/noise.py --again DIRECTORY                # judge runs that were kept with --keep

Twenty clean jobs and twenty with a real change, in JAX and PyTorch, recorded in two lines or by `phasepoint record`: a
convolutional net, a transformer and dense layers, each beside a neighbour that computes, streams memory or touches
pages, all the time or in turns (`noise_neighbours.py`). What a seed draws is `plan_of`.

Clean: one training phase must hold 95 % of the training time (all steps but those that compile or begin), and no phase
may have a name that nothing in the job answers to. Changed: the adjusted Rand index of the steps' labels against the
stretch in which the job had 1.2 to 3 times as much to do, compiling steps left out. Demo: `phasepoint demo`'s job
beside such neighbours, its index against all that it planted.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from noise_jobs import Job
from phasepoint.demo.planted import read_truth
from phasepoint.sources.ingest.opened import open_run
from phasepoint.summary.analysis import analyse_run

HERE = Path(__file__).parent
NETS = ("cnn", "transformer", "mlp")
NEIGHBOURS = ("compute", "memory", "page", "compute memory")
JOBS = 20
"""Of each kind."""

CLEAN, CHANGED, DEMO = KINDS = ("clean", "changed", "demo")
DEMO_S = 60
"""How long the demo's job would last alone: what `phasepoint demo` gives it."""

LEAST_SHARE, LEAST_INDEX = 0.95, 0.9
HONEST = frozenset(("train", "compile", "warm-up", "slow", "short"))
"""Sorts of steps that a clean job has, and names that say no more than what was seen. All others were invented."""


@dataclass(frozen=True)
class Plan:
    """A job and its neighbours.

    Attributes:
        job: what it does.
        neighbours: kinds, one process each; several come and go apart.
        on_s, off_s: how long they work and sleep, about; 0 for without end.
        two_lines: whether the job records itself.
    """

    job: Job
    neighbours: tuple[str, ...]
    on_s: float
    off_s: float
    two_lines: bool
    seed: int


def plan_of(number: int, *, changed: bool, first: int) -> Plan:
    """The job of a number: frameworks, nets, neighbours and ways by turns, the rest drawn."""
    rng = random.Random(f"{first + number} {changed}")
    factor = rng.choice((1.2, 1.35, 1.5, 2.0, 2.5, 3.0))
    change = rng.choice(("batch", "views")) if changed else ""
    job = Job(
        framework=("jax", "torch")[number % 2],
        net=NETS[number // 2 % 3],
        seconds=rng.uniform(30, 50),
        change=change,
        factor=factor if changed else 1.0,
        for_good=rng.random() < 0.5,
        seed=first + number,
    )
    goes = rng.random() < 0.7
    on_s, off_s = (rng.choice((0.5, 2, 6)), rng.choice((0.5, 2, 6))) if goes else (0.0, 0.0)
    neighbours = tuple(rng.choice(NEIGHBOURS).split())
    return Plan(job, neighbours, on_s, off_s, two_lines=number // 6 % 2 == 0, seed=first + number)


Process = subprocess.Popen[bytes]


@contextmanager
def running_beside(kinds: Sequence[str], *, on_s: float, off_s: float, seed: int) -> Iterator[Sequence[Process]]:
    """Neighbours, while the block runs, and their processes; without end where `on_s` is 0."""
    times = ["--on", str(on_s), "--off", str(off_s)] if on_s else []
    running = [
        subprocess.Popen([sys.executable, HERE / "noise_neighbours.py", kind, *times, "--seed", str(seed + i)])
        for i, kind in enumerate(kinds)
    ]
    try:
        yield running
    finally:
        for process in running:
            process.kill()
            process.wait()


def run_kind(kind: str, plan: Plan, out: Path) -> Mapping[str, Any]:
    """Run the job beside its neighbours, recorded into `out`; returns what is true of it."""
    if kind != DEMO:
        told = run_beside(plan, command_of(plan, out))
        return dict(json.loads(next(line for line in told.splitlines() if line.startswith('{"steps"'))))
    command = ["-m", "phasepoint.demo.train", "--out", str(out), "--seconds", str(DEMO_S), "--seed", str(plan.seed)]
    run_beside(plan, [sys.executable, *command])
    labels = read_truth(str(out)).labels
    return {"steps": len(labels), "labels": labels}


def command_of(plan: Plan, out: Path) -> list[str]:
    """What starts the plan's job and records it."""
    job = asdict(plan.job) | {"record": str(out) if plan.two_lines else ""}
    record = [] if plan.two_lines else ["-m", "phasepoint", "record", "--out", str(out), "--"]
    python = [] if plan.two_lines else [sys.executable]
    return [sys.executable, *record, *python, str(HERE / "noise_jobs.py"), json.dumps(job)]


def run_beside(plan: Plan, command: Sequence[str]) -> str:
    """Run a command beside the plan's neighbours; returns what it printed."""
    with running_beside(plan.neighbours, on_s=plan.on_s, off_s=plan.off_s, seed=plan.seed):
        done = subprocess.run(
            command, env=os.environ | {"JAX_PLATFORMS": "cpu"}, capture_output=True, text=True, timeout=600, check=False
        )
    if done.returncode:
        raise SystemExit(f"{plan}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout


def judge(kind: str, out: Path, truth: Mapping[str, Any]) -> dict[str, Any]:
    """What the summary makes of the run."""
    from sklearn.metrics import adjusted_rand_score

    analysis = analyse_run(open_run(str(out)))
    clock, labels, phases = analysis.clock, analysis.labels, analysis.result.phases
    kinds = {phase.id: phase.kind for phase in phases}
    trains = np.array([kinds[label] not in ("compile", "warm-up") for label in labels.tolist()], bool)
    times = np.bincount(labels[trains], clock.dur_ps[trains], len(phases))
    row: dict[str, Any] = {
        "steps": truth["steps"],
        "recorded": clock.n_steps,
        "phases": {phase.name: round(float(times[phase.id] / max(times.sum(), 1)), 3) for phase in phases},
        "share": float(max((times[p.id] for p in phases if p.kind == "train"), default=0) / max(times.sum(), 1)),
        "invented": sorted({phase.name for phase in phases if phase.kind not in HONEST}),
    }
    if kind == DEMO:
        row["index"] = float(adjusted_rand_score(truth["labels"], labels))
    if kind == CHANGED:
        begin, end = [*truth["stretch"], truth["steps"]][:2]
        inside = (clock.step >= begin) & (clock.step < end)
        row["index"] = float(adjusted_rand_score(inside[trains], labels[trains]))
    clean = row["share"] >= LEAST_SHARE and not row["invented"]
    row["right"] = clean if kind == CLEAN else row["index"] >= LEAST_INDEX
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=KINDS)
    parser.add_argument("--first", type=int, default=0, help="seed of the first job")
    parser.add_argument("--numbers", type=int, nargs="+", default=range(JOBS))
    parser.add_argument("--keep", type=Path, help="keep the runs here")
    parser.add_argument("--again", type=Path, help="judge runs that were kept here")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    rows = []
    for kind in [kind for kind in KINDS if args.only in (None, kind)]:
        for number in args.numbers:
            plan = plan_of(number, changed=kind == CHANGED, first=args.first)
            name = f"{kind}-{args.first}-{number:02d}"
            with tempfile.TemporaryDirectory(prefix="phasepoint-noise-") as folder:
                out = (args.again or args.keep or Path(folder)) / name
                if args.again is None:
                    truth = run_kind(kind, plan, out)
                    out.with_suffix(".json").write_text(json.dumps(truth))
                else:
                    truth = json.loads(out.with_suffix(".json").read_text())
                row = {"name": name, **judge(kind, out, truth), "plan": asdict(plan)}
            rows.append(row)
            clean = f"{row['share']:.1%} {' '.join(row['invented'])}"
            told = clean if kind == CLEAN else f"index {row['index']:.3f}"
            job = DEMO if kind == DEMO else f"{plan.job.framework} {plan.job.net} {plan.job.change} {plan.job.factor:g}"
            beside_ = f"{'+'.join(plan.neighbours)} {plan.on_s:g}/{plan.off_s:g}"
            print(f"{name} {'ok' if row['right'] else '–':3} {told:24} {job} | {beside_} | {row['phases']}", flush=True)
    for kind in KINDS:
        mine = [row for row in rows if row["name"].startswith(kind)]
        if mine:
            print(f"{kind}: {sum(row['right'] for row in mine)} of {len(mine)} right")
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
