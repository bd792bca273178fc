"""Is the advice right? Real jobs with one planted cause each, recorded, judged, and held against what the cause cost.

For every rule that can be set off on this machine, jobs in JAX and PyTorch are recorded with its cause planted at
several strengths, and clean controls without it. `phasepoint findings` must name the cause where it costs at least
5 % of the run, name it first, state what its removal saves, and say nothing of the controls. What it costs is measured
apart: blocks of steps with and without the cause take turns in a second process, unrecorded.

    python benchmarks/findings.py                           # everything, an hour and a quarter on two cores
    python benchmarks/findings.py --quick                   # one strength, one framework
    python benchmarks/findings.py --rule INPUT-STALL        # one rule and its controls; may be repeated
    python benchmarks/findings.py --keep runs/findings      # the recorded runs stay there, each with its truth.json
    python benchmarks/findings.py --kept runs/findings      # judge such runs again, without recording
"""

import argparse
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from findings_jobs import CAUSES, NOT_PROVOKED, PLAIN
from findings_nets import one_thread_environ
from findings_plan import Cause, Plan, measured_by
from findings_score import (
    TRUTH_FILE,
    Judged,
    Truth,
    judge,
    print_jobs,
    print_ranges,
    print_rules,
    print_verdict,
    score_rule,
)

JOBS = Path(__file__).with_name("findings_jobs.py")
PROBE_STEPS = 120
PLAIN_CONTROLS = 3
"""Plain jobs of each sort, controls of every rule that shares them."""

PLAIN_TIMES = 2
"""A plain control is so many times as long as the other jobs: of a job of five seconds no profile is more than thin."""

CLEAN = "CLEAN"
"""Jobs with something harmless in them: controls of every rule."""

LONGEST_S = 240
QUICK_STRENGTH = 0.40


@dataclass
class Bench:
    """How jobs are run, and what was probed of them.

    Attributes:
        keep: where recorded runs go, one folder a rule.
        seconds: how long a loop without any cause is to last.
        budget: of the recorder.
        missing_only: whether jobs that are kept already are taken as they are.
        step_s: seconds a step of the plain job, by framework and whether the host runs ahead.
    """

    keep: Path
    seconds: float
    budget: float
    missing_only: bool = False
    step_s: dict[tuple[str, bool], float] = field(default_factory=dict)

    def plan(self, framework: str, ahead: bool, strength: float, *, times: int = 1) -> Plan:
        """The plan of a planted job, less its repeats and its place; `times` as long as usual."""
        if (framework, ahead) not in self.step_s:
            probe = Plan(framework, ahead, 0.0, False, False, PROBE_STEPS, 0.0, 0, None, None, "")
            self.step_s[framework, ahead] = run_job(PLAIN, probe)["step_s"]
        step_s = self.step_s[framework, ahead]
        steps = times * max(int(self.seconds / step_s), 2 * PROBE_STEPS)
        return Plan(framework, ahead, strength, True, False, steps, step_s, 0, None, self.budget, "")


def run_job(cause: Cause, plan: Plan, environ: Mapping[str, str] | None = None) -> dict[str, Any]:
    """One job, in as many processes as it has ranks; the figures of the first."""
    with tempfile.TemporaryDirectory(prefix="phasepoint-findings-") as folder:
        running = [
            _start(cause, replace(plan, folder=folder, rank=rank, ranks=cause.ranks), environ or {})
            for rank in range(cause.ranks)
        ]
        try:
            said = [process.communicate(timeout=LONGEST_S) for process in running]
        finally:
            for process in running:
                process.kill()
    for process, (_, complaint) in zip(running, said, strict=True):
        if process.returncode or "phasepoint:" in complaint:
            raise RuntimeError(f"{cause.code} {_name(plan)}: exit code {process.returncode}\n{complaint[-2000:]}")
    return json.loads(said[0][0].splitlines()[-1])


def _start(cause: Cause, plan: Plan, more: Mapping[str, str]) -> "subprocess.Popen[str]":
    environ = os.environ | one_thread_environ() | more
    for name, value in cause.environ.items():
        environ[name] = f"{environ.get(name, '')} {value}".strip()
    if cause.ranks > 1:
        environ["RANK"] = str(plan.rank)
    command = [sys.executable, str(JOBS), str(CAUSES.index(cause)), json.dumps(asdict(plan))]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ)


def job_name(framework: str, ahead: bool, strength: float, *, planted: bool) -> str:
    """How a job is called: `jax-ahead-0.40`, `torch-control`."""
    waits = "-ahead" if ahead else "-sync" if framework == "jax" else ""
    return f"{framework}{waits}-{strength:.2f}" if planted else f"{framework}{waits}-control"


def _name(plan: Plan) -> str:
    return job_name(plan.framework, plan.ahead, plan.strength, planted=plan.planted)


def piece_s(cause: Cause, plan: Plan) -> float:
    """What one planted piece of work costs here, seconds.

    Raises:
        RuntimeError: it costs nothing that could be told from noise, so that the cause cannot be planted here.
    """
    probe = replace(plan, steps=PROBE_STEPS, repeats=cause.probe_repeats, toggle=measured_by(cause, plan) == "toggle")
    figures = run_job(cause, probe)
    turns = figures.get("hooks") or figures
    cost_s = turns["more_s"] if probe.toggle else figures[f"{cause.measured}_s"]
    if cost_s <= turns.get("more_spread_s", 0.0):
        raise RuntimeError(f"{cause.probe_repeats} pieces cost {cost_s * 1e3:.3f} ms here: it cannot be planted")
    return cost_s / cause.probe_repeats


def with_repeats(cause: Cause, plan: Plan, unit_s: float) -> Plan:
    """The plan with as many pieces as its strength asks for."""
    if not cause.per:
        return plan
    wanted_s = plan.extra_s * (plan.steps if cause.per == "run" else 1)
    return replace(plan, repeats=max(round(wanted_s / unit_s), 1))


def record_job(bench: Bench, cause: Cause, plan: Plan, *, suffix: str = "") -> Path:
    """Record one job, measure what its cause costs, and write the truth beside the run."""
    out = bench.keep / cause.code / f"{_name(plan)}{suffix}"
    if bench.missing_only and (out / TRUTH_FILE).exists():
        return out
    shutil.rmtree(out, ignore_errors=True)
    figures = run_job(cause, replace(plan, out=str(out)))
    turns: dict[str, Any] = {}
    if plan.planted and cause.costs and measured_by(cause, plan) == "toggle":
        turns = run_job(cause, replace(plan, toggle=True))
    saving_s, spread_s = _saving(cause, plan, figures, turns)
    if plan.planted and cause.remedy is not None:
        saving_s -= left_s(cause, plan)
    told = {"recorded": figures, "turns": turns, "plan": asdict(plan)}
    walls = (figures["wall_s"], figures["wall_s"] - saving_s, saving_s, spread_s)
    is_planted = plan.planted and cause.code != CLEAN
    Truth(cause.code, _name(plan) + suffix, is_planted, cause.costs, cause.also, *walls, told).write(out)
    return out


def left_s(cause: Cause, plan: Plan) -> float:
    """What the cause still costs where the remedy is followed, seconds: of the second such job, which finds caches."""
    assert cause.remedy is not None
    with tempfile.TemporaryDirectory(prefix="phasepoint-findings-cache-") as cache:
        environ = {name: value.format(cache=cache) for name, value in cause.remedy.items()}
        for _ in range(2 if environ else 1):
            figures = run_job(cause, replace(plan, remedied=True), environ)
    return float(figures[f"{cause.measured}_s"])


def _saving(cause: Cause, plan: Plan, figures: dict[str, Any], turns: dict[str, Any]) -> tuple[float, float]:
    """What the cause cost the recorded run, and its standard error, seconds.

    Where no hook's clock says all, turns give the share of the time that the cause costs; the recorded run may have
    been on a busier machine, on which everything lasts longer.
    """
    if not plan.planted or not cause.costs:
        return 0.0, 0.0
    if not turns:
        return figures[f"{cause.measured}_s"], 0.0
    if turns["hooks"] is not None:  # the recorded job's own clock says it, less what the hook takes without the cause
        without_s = turns["hooks"]["without_s"] * figures["steps"]
        return figures["hooks_s"] - without_s, turns["hooks"]["more_spread_s"] * figures["steps"]
    scale = figures["wall_s"] / turns["with_s"]
    return turns["more_s"] * scale, turns["more_spread_s"] * scale


def record_cause(
    bench: Bench, cause: Cause, cases: Sequence[tuple[str, bool, float]], *, controls: bool = True
) -> Iterator[Path]:
    """The jobs of one cause, and a control of each sort where it has controls of its own."""
    for sort in dict.fromkeys(case[:2] for case in cases):
        kept = [bench.keep / cause.code / job_name(*case, planted=True) for case in cases if case[:2] == sort]
        if bench.missing_only and all((run / TRUTH_FILE).exists() for run in kept):
            control = bench.keep / cause.code / job_name(*sort, 0.0, planted=False)
            yield from [*kept, *([control] if (control / TRUTH_FILE).exists() else [])]
            continue
        plans = [bench.plan(*case, times=cause.times) for case in cases if case[:2] == sort]
        unit_s = piece_s(cause, plans[-1]) if cause.per else 0.0
        plans = [with_repeats(cause, plan, unit_s) for plan in plans]
        for plan in plans:
            yield record_job(bench, cause, plan)
        if controls and not cause.shared:
            yield record_job(bench, cause, replace(plans[-1], planted=False))


def record_plain(bench: Bench, count: int) -> Iterator[Path]:
    """Plain jobs of each sort."""
    for sort in (("jax", True), ("jax", False), ("torch", False)):
        for index in range(count):
            plan = replace(bench.plan(*sort, 0.0, times=PLAIN_TIMES), planted=False)
            yield record_job(bench, PLAIN, plan, suffix=f"-{index}")


def record_all(bench: Bench, args: argparse.Namespace) -> Iterator[Path]:
    """Every job that is asked for; one that fails is told and left out."""
    for cause in CAUSES:
        if cause is PLAIN or (args.rule and cause.code not in args.rule):
            continue
        cases = [case for case in cause.cases if not args.framework or case[0] == args.framework]
        if args.strength:
            cases = [case for case in cases if case[2] in args.strength]
        if args.quick:
            cases = [case for case in cases if case[2] in (QUICK_STRENGTH, 0.15)][-1:]
        for sort in dict.fromkeys(case[:2] for case in cases):
            try:
                yield from record_cause(bench, cause, [case for case in cases if case[:2] == sort])
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                sys.stderr.write(f"{cause.code} {sort[0]}: left out: {error}\n")
    yield from record_plain(bench, 1 if args.quick or args.rule else PLAIN_CONTROLS)


def report(judged: list[Judged], path: str | None) -> None:
    """Print the tables; write the figures."""
    print(f"{datetime.now(UTC):%Y-%m-%d}  {platform.platform()}, {os.cpu_count()} cores")
    print_jobs(judged)
    controls = [job for job in judged if not job.truth.planted]
    codes = dict.fromkeys(job.truth.code for job in judged if job.truth.planted)
    rows = [
        score_rule(code, [j for j in judged if j.truth.code == code and j.truth.planted], controls) for code in codes
    ]
    print_rules(rows)
    verdict = print_verdict(judged, rows)
    for code, reason in NOT_PROVOKED.items():
        print(f"not provoked: {code}: {reason}")
    if path is not None:
        jobs = [asdict(j) | {"error": j.error, "share": j.truth.share} for j in judged]
        Path(path).write_text(json.dumps({"rules": rows, "verdict": verdict, "jobs": jobs}, indent=1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rule", action="append", metavar="CODE", help="one rule only; may be repeated")
    parser.add_argument("--framework", choices=("jax", "torch"))
    parser.add_argument("--strength", action="append", type=float, help="such jobs only; may be repeated")
    parser.add_argument("--quick", action="store_true", help="one strength, one framework")
    parser.add_argument("--seconds", type=float, default=6.0, help="length of a loop without any cause")
    parser.add_argument("--budget", type=float, default=0.05, help="of the recorder: runs this short need a large one")
    parser.add_argument("--keep", metavar="FOLDER", help="keep the recorded runs there")
    parser.add_argument("--missing", action="store_true", help="record only jobs that are not kept there yet")
    parser.add_argument("--kept", metavar="FOLDER", help="judge runs kept there instead of recording")
    parser.add_argument("--ranges", action="store_true", help="print what `saved` in the table of rules is taken from")
    parser.add_argument("--record-only", action="store_true", help="do not judge")
    parser.add_argument("--json", metavar="PATH")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # the job that runs is ended too
    with tempfile.TemporaryDirectory(prefix="phasepoint-findings-") as folder:
        bench = Bench(Path(args.keep or folder).absolute(), args.seconds, args.budget, args.missing)
        if args.kept:
            found = sorted(path.parent for path in Path(args.kept).glob("*/*/truth.json"))
            runs = iter([run for run in found if not args.rule or run.parent.name in (*args.rule, PLAIN.code, CLEAN)])
        else:
            runs = record_all(bench, args)
        judged = []
        for run in runs:
            sys.stderr.write(f"{datetime.now(UTC):%H:%M:%S} {run.parent.name} {run.name}\n")
            if not args.record_only:
                judged.append(judge(run))
        if judged:
            report(judged, args.json)
        if args.ranges:
            print_ranges(judged)


if __name__ == "__main__":
    main()
