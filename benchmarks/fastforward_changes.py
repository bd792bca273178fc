"""A change predicted from one short replay, then checked against the full run with the change.

    python benchmarks/fastforward_changes.py                    # six changes, 110 s a run: about 20 minutes
    python benchmarks/fastforward_changes.py --quick            # 15 s a run, to see that everything works
    python benchmarks/fastforward_changes.py --only remat,batch

For each job of `fastforward_change_jobs.py`: the full run as it is and the full run with the change; replays of its
longest phase without the change, with it, and without it again (`--baseline`, so that a machine that grows slower or
faster meanwhile cancels to first order); the estimate from the first run and the replays; its error against the second
run's time in steps.

Machines drift by several percent within minutes. So the two full runs run side by side, each on a core of its own, and
every recorded process has the other variant of its job as its neighbour on the other core all the time, replays too.
The job whose change needs both cores runs by itself, one full run after the other; what the machine did meanwhile is
told by `drift`: the baseline replays over the full run at the same steps.
"""

import argparse
import datetime
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fastforward_change_jobs import JOBS, Job
from phasepoint.phases.detection.result import Phase
from phasepoint.recorder.recording import OFF_VARIABLE
from phasepoint.replay.change.estimate import estimate_change
from phasepoint.replay.change.types import Estimate
from phasepoint.replay.checkpoints import IndexedCheckpoint, index_checkpoints
from phasepoint.replay.plan.plan import ReplayPlan, plan_replay
from phasepoint.replay.plan.ways import LEAD_STEPS
from phasepoint.replay.runner import ReplayOutcome, run_replay
from phasepoint.sources.ingest.convert import convert_windows
from phasepoint.store import open_run
from phasepoint.summary.analysis import Analysis, analyse_run
from steady_heap import keep_memory

PROGRAM = Path(__file__).with_name("fastforward_change_jobs.py")
FOREVER = 10**8
PROBE_STEPS = 200
SHORT_STEPS, SHORT_BUDGET, USUAL_BUDGET = 1500, 0.05, 0.01
"""In a run of seconds, 1 % is less than a capture window costs, and a run without windows cannot be replayed."""
LEAST_STEPS, REPLAYED_SHARE = 40, 0.04
"""Steps of a replay that are compared: that share of the run, so many at least."""


@dataclass(frozen=True)
class Checked:
    """One change, predicted and checked. Times in seconds."""

    job: Job
    phases: str
    estimate: Estimate
    before_s: float
    after_s: float
    full_s: float
    replay_s: tuple[float, ...]

    @property
    def error(self) -> float:
        return self.estimate.steps_after.value_ps / 1e12 / self.after_s - 1

    @property
    def holds(self) -> bool:
        low, high = self.estimate.steps_after.low_ps, self.estimate.steps_after.high_ps
        return low is not None and high is not None and low / 1e12 <= self.after_s <= high / 1e12


def main() -> None:
    keep_memory()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="jobs, by commas")
    parser.add_argument("--seconds", type=float, default=110.0, help="of a full run")
    parser.add_argument("--quick", action="store_true", help="15 s a run")
    parser.add_argument("--keep", help="folder for the runs")
    args = parser.parse_args()
    seconds = 15.0 if args.quick else args.seconds
    names = args.only.split(",") if args.only else list(JOBS)
    began = time.perf_counter()
    print(f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, {datetime.date.today()}")
    print(f"full runs of {seconds:.0f} s and more\n")
    print_head()
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        for name in names:
            folder = Path(args.keep or scratch) / name
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            rows.append(check(name, folder, seconds))
            print_row(rows[-1])
    errors, held = [abs(row.error) for row in rows], sum(row.holds for row in rows)
    costs = max(cost(row) for row in rows), max(sum(row.replay_s[1:]) / row.full_s for row in rows)
    print(f"\nerror: mean {np.mean(errors):.1%}, worst {max(errors):.1%}; held by the interval: {held} of {len(rows)}")
    print(f"a replay costs at most {costs[0]:.1%} of its full run, its two baselines {costs[1]:.1%} more")
    print(f"took {(time.perf_counter() - began) / 60:.0f} min")


def check(name: str, folder: Path, seconds: float) -> Checked:
    """Record, replay, estimate, compare."""
    job = JOBS[name]
    steps = count_steps(name, folder, seconds)
    if job.cores == 1:
        record_side_by_side(name, folder, steps)
    else:
        record(name, folder, steps, changed=False)
    original = analyse(folder / "base")
    # The jobs do nothing but train: whatever phases the machine's noise makes of that change alike.
    phases = [phase for phase in original.result.phases if not phase.name.startswith("compile")]
    outcomes = make_replays(name, folder, steps, original, max(phases, key=lambda phase: phase.total_ps))
    if job.cores > 1:
        record(name, folder, steps, changed=True)
    for outcome in outcomes:
        convert_windows(outcome.run)
    runs = [open_run(outcome.run) for outcome in outcomes]
    like = [str(phase.id) for phase in phases]
    found = estimate_change(original, runs[:1], baselines=runs[1:], like=like, steps_ratio=job.steps_ratio)
    changed = analyse(folder / "changed")
    full_s = original.clock.wall_ps / 1e12
    replay_s = tuple(outcome.dur_ps / 1e12 for outcome in outcomes)
    times = original.clock.inside_ps / 1e12, changed.clock.inside_ps / 1e12
    return Checked(job, f"{len(like)} of {len(original.result.phases)}", found, *times, full_s, replay_s)


def analyse(path: Path) -> Analysis:
    convert_windows(path)
    return analyse_run(open_run(str(path)))


def count_steps(name: str, folder: Path, seconds: float) -> int:
    """Steps of a run that lasts for so long, from a short one."""
    record_side_by_side(name, folder, PROBE_STEPS, prefix="probe-")
    run = open_run(str(folder / "probe-base"))
    usual_ps = float(np.mean(run.table("steps").column("dur_ps").to_numpy()[PROBE_STEPS // 2 :]))
    # An even number, so that a batch twice as large takes exactly half of them.
    return max(round(seconds * 1e12 / usual_ps / 2), PROBE_STEPS) * 2


def words(name: str, out: Path, steps: int, *, changed: bool, as_many: bool = False) -> list[str]:
    """A job's command; a changed one does as many steps as it needs, or as many as the unchanged one."""
    ratio = JOBS[name].steps_ratio if changed and not as_many else 1.0
    line = [
        sys.executable,
        str(PROGRAM),
        name,
        str(out),
        str(out.parent / f"ckpt-{out.name}"),
        str(round(steps * ratio)),
    ]
    short = 0.0 if steps == PROBE_STEPS else SHORT_BUDGET
    line += ["--budget", str(USUAL_BUDGET if steps >= SHORT_STEPS else short)]
    return [*line, "--changed"] if changed else line


def start(line: list[str], cores: set[int], **environ: str) -> "subprocess.Popen[bytes]":
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with on_cores(cores):
        return subprocess.Popen(line, env={**os.environ, **environ}, **quiet)  # type: ignore[call-overload]


@contextmanager
def on_cores(cores: set[int]) -> Iterator[None]:
    """What is started inside runs on these cores."""
    whole = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, whole)


def cores() -> tuple[set[int], set[int]]:
    """The core of the unchanged job, and that of the changed one."""
    found = sorted(os.sched_getaffinity(0))
    return {found[0]}, {found[-1]}


@contextmanager
def neighbour(name: str, folder: Path, *, changed: bool) -> Iterator[None]:
    """A variant of a job that runs, unrecorded, on its core."""
    line = words(name, folder / "neighbour", FOREVER, changed=changed)
    process = start(line, cores()[changed], **{OFF_VARIABLE: "1"})
    try:
        yield
    finally:
        process.kill()
        process.wait()


def record_side_by_side(name: str, folder: Path, steps: int, *, prefix: str = "") -> None:
    """Both full runs at once; the one that ends first is replaced by a neighbour like it."""
    outs = [folder / f"{prefix}{kind}" for kind in ("base", "changed")]
    both = [start(words(name, out, steps, changed=c), cores()[c]) for c, out in zip((False, True), outs, strict=True)]
    while all(process.poll() is None for process in both):
        time.sleep(0.2)
    ended = 0 if both[0].poll() is not None else 1
    with neighbour(name, folder, changed=bool(ended)):
        both[1 - ended].wait()
    for process, out in zip(both, outs, strict=True):
        if process.returncode:
            raise SystemExit(f"{out}: the job ended with {process.returncode}")


def record(name: str, folder: Path, steps: int, *, changed: bool) -> None:
    """One full run by itself; changed, it has both cores."""
    out = folder / ("changed" if changed else "base")
    where = cores()[0] | cores()[1] if changed else cores()[0]
    if start(words(name, out, steps, changed=changed), where).wait():
        raise SystemExit(f"{out}: the job failed")


def make_replays(name: str, folder: Path, steps: int, original: Analysis, phase: Phase) -> list[ReplayOutcome]:
    """Replays of a phase: the change first, then the baselines, which were made before and after it."""
    job = JOBS[name]
    # Steps of a batch twice as large take twice as long: half of them tell as much.
    wanted = max(LEAST_STEPS, round(REPLAYED_SHARE * job.steps_ratio * original.clock.n_steps))
    plan = reach_back(plan_replay(original, str(phase.id), steps=wanted), original, wanted)
    made = {}
    for kind, changed in (("before", False), ("replay", True), ("after", False)):
        line = words(name, folder / "base", steps, changed=changed, as_many=True)  # step numbers are the original's
        if job.cores == 1:
            with neighbour(name, folder, changed=not changed), on_cores(cores()[changed]):
                made[kind] = run_replay(plan, line, str(folder / kind))
        else:
            with on_cores(cores()[0] | cores()[1] if changed else cores()[0]):
                made[kind] = run_replay(plan, line, str(folder / kind))
        if made[kind].status != "done":
            raise SystemExit(f"{folder / kind}: the replay {made[kind].status}: {made[kind].record.reason}")
    return [made["replay"], made["before"], made["after"]]


def reach_back(plan: ReplayPlan, original: Analysis, wanted: int) -> ReplayPlan:
    """The plan, from an older checkpoint or for longer where too few steps of the phase's own stretch are compared.

    A plan counts steps of its phase alone; in these jobs all steps change alike, whatever phases noise makes of them.
    """
    if plan.compared_steps >= wanted / 2:
        return plan
    latest = plan.target_first - LEAD_STEPS - wanted
    usable = [one for one in index_checkpoints(original).checkpoints if one.state == "whole"]
    older = max((one for one in usable if one.step is not None and one.step < latest), key=step_of, default=None)
    if older is None:
        needed = plan.target_last + LEAD_STEPS + wanted
        return replace(plan, last_step=max(plan.last_step, min(needed, original.clock.n_steps - 1)))
    return replace(plan, checkpoint=older.path, checkpoint_step=older.step, first_step=step_of(older) + 1)


def step_of(one: IndexedCheckpoint) -> int:
    return -1 if one.step is None else one.step


def cost(row: Checked) -> float:
    return row.replay_s[0] / row.full_s


def print_head() -> None:
    names = ("job and change", "in steps", "estimate (95 %)", "measured", "error", "held", "drift", "replay", "phases")
    print(f"| {' | '.join(names)} |")
    print("|---" * len(names) + "|")


def print_row(row: Checked) -> None:
    one, after = row.estimate.exchanges[0], row.estimate.steps_after
    ends = (
        "–"
        if after.low_ps is None or after.high_ps is None
        else f"{after.low_ps / 1e12:.1f}–{after.high_ps / 1e12:.1f}"
    )
    cells = (
        row.job.title,
        f"{row.before_s:.1f} s",
        f"{after.value_ps / 1e12:.1f} s ({ends})",
        f"{row.after_s:.1f} s",
        f"{row.error:+.1%}",
        "yes" if row.holds else "no",
        f"{(one.machine_ratio or float('nan')) - 1:+.1%}",
        f"{row.replay_s[0]:.1f} s, {cost(row):.1%}; {one.compared_steps} steps",
        row.phases,
    )
    print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
