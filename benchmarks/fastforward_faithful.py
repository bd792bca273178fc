"""Whether replays do what the original did: every phase of six jobs, planned, replayed and compared.

    python benchmarks/fastforward_faithful.py [--quick] [--only JOB …] [--keep FOLDER] > table.md

Each job (`fastforward_jobs.py`) is recorded once. Every phase is planned as `phasepoint replay plan` does (with
`--from-start` where no checkpoint lies before it), replayed as `phasepoint replay run` does, and compared as
`phasepoint replay check` does. The longest phase is replayed twice: what the same steps of these two differ by, is the
machine's noise, as is what stretches of the original itself differ by.
"""

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fastforward_jobs import BUDGET, JOBS
from phasepoint.core.errors import PhasepointError
from phasepoint.core.units import format_ps
from phasepoint.replay.fidelity.fidelity import LEAST_COSINE, MOST_TIME_RATIO, Fidelity, compare_replay
from phasepoint.replay.fidelity.sides import CLEAR, SideTables, window_states
from phasepoint.replay.plan.plan import ReplayPlan, plan_replay
from phasepoint.replay.runner import ReplayOutcome, run_replay
from phasepoint.sources.ingest.convert import convert_windows
from phasepoint.store import open_run
from phasepoint.summary.analysis import Analysis, analyse_run
from steady_heap import keep_memory

SCRIPT = Path(__file__).with_name("fastforward_jobs.py")
QUICK = ("jax-cnn", "torch-buckets")
HEADER = ("job", "phase", "share", "from", "cosine", "step time", "95 %", "own noise", "loss", "verdict", "cost")

LEGEND = """
Cosine: of the ops' typical times, in brackets of their means. Step time: the ratio, with the steps it is made of (c:
captured ones, because too few others are of the phase; a: captured in the replay alone, which tells nothing). Own
noise: what as long stretches of the phase in the original differ by from its median, in 95 % of cases. Loss: values
equal bit for bit. Cost: the whole replay, and its share of the run."""


@dataclass(frozen=True)
class Row:
    """One phase of one job.

    Attributes:
        cells: as printed.
        cosine: of the op vectors, None where there is none.
        ratio: of the step times, None where there is none.
        apart: whether the times are of steps captured on one side alone.
        faithful: the verdict.
    """

    cells: tuple[str, ...]
    cosine: float | None = None
    ratio: float | None = None
    apart: bool = False
    faithful: bool = False


def main() -> None:
    keep_memory()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"{' and '.join(QUICK)}, 10 s each: a try, no measurement")
    parser.add_argument("--only", nargs="+", choices=JOBS, metavar="JOB", help=f"of {', '.join(JOBS)}")
    parser.add_argument("--seconds", type=float, default=30, help="length of the recordings")
    parser.add_argument("--keep", type=Path, help="keep runs and replays here")
    args = parser.parse_args()
    jobs = args.only or (QUICK if args.quick else tuple(JOBS))
    began, rows, noise = time.monotonic(), [], []
    with tempfile.TemporaryDirectory() as scratch:
        for job in jobs:
            found, differ = measure_job(job, args.keep or Path(scratch), 10 if args.quick else args.seconds)
            rows += found
            noise.append(f"{job}: {differ}")
    print(write_table(rows))
    print(write_totals(rows))
    print(f"\nSame steps of two replays of the longest phase, one over the other: {'; '.join(noise)}.")
    minutes = (time.monotonic() - began) / 60
    print(
        f"\n{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, Python "
        f"{platform.python_version()}, {time.strftime('%Y-%m-%d')}; budget {BUDGET:.0%}; {minutes:.1f} minutes in all"
    )


def measure_job(job: str, folder: Path, seconds: float) -> tuple[list[Row], str]:
    """Record a job, replay all its phases; rows, and what two replays of the longest differ by."""
    out = folder / job
    command = [sys.executable, str(SCRIPT), job, "--out", str(out), "--seconds", str(seconds)]
    progress(f"{job}: recording")
    subprocess.run(command, check=True)
    convert_windows(out / "run")
    analysis = analyse_run(open_run(out / "run"))
    rows, longest = [], None
    for phase in sorted(analysis.result.phases, key=lambda one: -one.total_ps):
        progress(f"{job}: phase {phase.name}, {phase.n_steps} steps")
        replay = folder / f"{job}-{phase.id}"
        try:
            plan = plan_phase(analysis, phase.id)
        except PhasepointError as error:
            rows.append(Row((job, phase.name, f"{phase.share:.1%}", "–", *("–",) * 5, f"no plan: {error}", "–")))
            continue
        outcome, found = replay_phase(analysis, plan, command, replay)
        rows.append(write_row(job, phase.share, plan, outcome, found))
        longest = longest or (plan, replay)
    if longest is None:
        return rows, "no replay"
    plan, first = longest
    again = folder / f"{job}-again"
    replay_phase(analysis, plan, command, again)
    return rows, write_noise(first, again)


def plan_phase(analysis: Analysis, phase_id: int) -> ReplayPlan:
    """From a checkpoint where there is one before the phase, else from the start of the job."""
    try:
        return plan_replay(analysis, str(phase_id))
    except PhasepointError:
        return plan_replay(analysis, str(phase_id), from_start=True)


def replay_phase(
    analysis: Analysis, plan: ReplayPlan, command: list[str], replay: Path
) -> tuple[ReplayOutcome, Fidelity | None]:
    """Replay, and compare; None where the replay holds nothing to compare."""
    outcome = run_replay(plan, command, str(replay))
    try:
        convert_windows(replay)
        return outcome, compare_replay(analysis, open_run(replay), outcome.record)
    except PhasepointError as error:
        progress(f"{replay.name}: {error}")
        return outcome, None


def write_row(job: str, share: float, plan: ReplayPlan, outcome: ReplayOutcome, found: Fidelity | None) -> Row:
    """The row of one phase."""
    start = "start" if plan.checkpoint is None else f"step {plan.first_step}"
    cost = f"{format_ps(outcome.dur_ps)}, {outcome.dur_ps / plan.full_ps:.0%}"
    front = (job, plan.phase, f"{share:.1%}", start)
    if found is None:
        return Row((*front, *("–",) * 5, f"{outcome.status}: {outcome.record.reason}", cost))
    times, cosine = found.times, found.ops.cosine
    interval = "–" if times.low is None or times.high is None else f"{times.low:.3f}–{times.high:.3f}"
    loss = next((one for one in found.scalars if one.name == "loss" and one.values), None)
    said = ", ".join(one.code for one in found.differences) or found.verdict
    cells = (
        *front,
        "–" if cosine is None else f"{cosine:.4f} ({found.ops.cosine_of_means:.3f})",
        "–"
        if times.ratio is None
        else f"{times.ratio:.3f} ({times.steps}{'a' if times.apart else 'c' if times.captured else ''})",
        interval,
        "–" if times.noise_ratio is None else f"{times.noise_ratio:.1%}",
        "–" if loss is None else f"{loss.equal}/{loss.values}",
        said,
        cost,
    )
    return Row(cells, cosine, times.ratio, times.apart, found.faithful)


def write_noise(first: Path, second: Path) -> str:
    """What the steps that no window saw, less the first ten, took in one replay over the other."""
    taken = []
    for path in (first, second):
        side = SideTables.of_run(open_run(path))
        clear = window_states(side.steps, side.tables["windows"]) == CLEAR
        taken.append(dict(zip(side.keys.step[clear].tolist(), side.dur_ps[clear].tolist(), strict=True)))
    steps = sorted(taken[0].keys() & taken[1].keys())[10:]
    if not steps:
        return "no common steps"
    ratio = np.array([taken[1][step] / taken[0][step] for step in steps])
    low, high = np.quantile(ratio, (0.25, 0.75))
    return f"median {np.median(ratio):.3f}, half of the steps within {low:.2f}–{high:.2f}"


def write_table(rows: list[Row]) -> str:
    """As Markdown."""
    lines = [HEADER, ("---",) * len(HEADER), *(row.cells for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def write_totals(rows: list[Row]) -> str:
    """How many phases hold what is asked of them."""
    cosines = [row.cosine for row in rows if row.cosine is not None]
    ratios = [row.ratio for row in rows if row.ratio is not None and not row.apart]
    near = sum(abs(ratio - 1) <= MOST_TIME_RATIO for ratio in ratios)
    lines = [
        f"\n{len(rows)} phases; faithful: {sum(row.faithful for row in rows)}.",
        f"Cosine of {LEAST_COSINE} or more: {sum(c >= LEAST_COSINE for c in cosines)} of {len(cosines)}"
        + (f", least {min(cosines):.4f}." if cosines else "."),
        f"Median step time within {MOST_TIME_RATIO:.0%}: {near} of {len(ratios)}"
        + (
            f"; median of all {np.median(ratios):.3f}, worst {max(ratios, key=lambda r: abs(r - 1)):.3f}."
            if ratios
            else "."
        ),
        LEGEND,
    ]
    return "\n".join(lines)


def progress(text: str) -> None:
    """Say on stderr what is going on."""
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {text}\n")


if __name__ == "__main__":
    main()
