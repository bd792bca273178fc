"""Is the first sentence right? Sixty real jobs with one planted cause each, twenty without, and what the verdict says.

    python benchmarks/verdict.py                          # 80 jobs, some 50 minutes on two cores
    python benchmarks/verdict.py --only INPUT-BOUND       # one bound; may be repeated; HEALTHY for the others
    python benchmarks/verdict.py --keep FOLDER            # the runs stay there
    python benchmarks/verdict.py --kept FOLDER            # judge such runs again, without recording

The jobs and their measured costs are those of `benchmarks/findings.py`: three sorts of each bound, at two strengths. A
slow machine is a plain job beside programs that compute, in turns; what they cost is told by how many steps the job
made while they worked and while they were stopped (`verdict_neighbours.py`). Judged are the first words, whether the
verdict is the first finding, how far its seconds are from what the cause cost, and whether a job with nothing in it is
called healthy.
"""

import argparse
import json
import os
import platform
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from findings import Bench, record_cause, record_job, run_job
from findings_jobs import CAUSES, PLAIN
from findings_score import TRUTH_FILE, Truth, read_truth
from phasepoint.findings.judge import judge_analysis
from phasepoint.findings.table import find_rule
from phasepoint.sources.ingest.opened import open_run
from phasepoint.summary.analysis import analyse_run
from verdict_neighbours import in_turns, lost_to_neighbours

STRENGTHS = (0.15, 0.40)
"""Share of the run that a cause is meant to cost: three times what makes a bound, and most of what one meets."""

AHEAD, SYNC, TORCH = ("jax", True), ("jax", False), ("torch", False)

BOUNDS: dict[str, tuple[tuple[str, tuple[str, bool]], ...]] = {
    "INPUT-BOUND": (("INPUT-STALL", AHEAD), ("INPUT-STALL", SYNC), ("INPUT-STALL", TORCH)),
    "HOST-BOUND": (("DEVICE-IDLE", AHEAD), ("DEVICE-IDLE", TORCH), ("HOST-DISPATCH", SYNC)),
    "COMPUTE-BOUND": (("LOW-PRECISION", AHEAD),) * 3,
    "MEMORY-BOUND": (("MEMORY-BOUND", SYNC), ("MEMORY-BOUND", TORCH), ("DATA-MOVEMENT", TORCH)),
    "COMMUNICATION-BOUND": (
        ("EXPOSED-COMMUNICATION", SYNC),
        ("EXPOSED-COMMUNICATION", TORCH),
        ("EXPOSED-COMMUNICATION", TORCH),
    ),
    "STRAGGLER": (("STRAGGLER", TORCH), ("STRAGGLER", SYNC), ("STRAGGLER", TORCH)),
    "CHECKPOINT-BOUND": (("CHECKPOINT-STALL", SYNC), ("CHECKPOINT-STALL", TORCH), ("CHECKPOINT-STALL", TORCH)),
    "EVALUATION-BOUND": (("EVAL-SHARE", SYNC), ("EVAL-SHARE", TORCH), ("EVAL-SHARE", TORCH)),
    "COMPILE-BOUND": (("RECOMPILE", AHEAD), ("COMPILE-SHARE", AHEAD), ("COMPILE-SHARE", SYNC)),
    "SLOW MACHINE": (("SLOW-MACHINE", AHEAD), ("SLOW-MACHINE", TORCH), ("SLOW-MACHINE", TORCH)),
}
"""First words → the cause and the sort of job of three jobs at each strength."""

HEALTHY = "HEALTHY"
HEALTHY_JOBS = 20
LONG = 3
"""Healthy jobs and those beside a neighbour last so many times as long as the others, as a minute is promised."""


@dataclass(frozen=True)
class Row:
    """One job.

    Attributes:
        wanted: first words that are right.
        name: of the job.
        share: what the cause cost, as a ratio of the loop.
        saving_s: the same in seconds; 0 for a healthy job.
        told: the verdict.
        word: its first words; those of what is true of every such job (a loop that waits for each step) apart.
        stated_s: what it says that the next step wins, of one host.
        is_right: whether the word is wanted, or the job is called healthy where it is.
        is_first: whether the verdict is the first finding.
    """

    wanted: str
    name: str
    share: float
    saving_s: float
    told: str
    word: str
    stated_s: float | None
    is_right: bool
    is_first: bool


def record(bench: Bench, only: Sequence[str]) -> Iterator[Path]:
    """Every job that is asked for; one that fails is told and left out."""
    for word, jobs in BOUNDS.items():
        if only and word not in only:
            continue
        for number, (code, sort) in enumerate(jobs):
            mine = replace(bench, keep=bench.keep / word.replace(" ", "-") / str(number))
            try:
                yield from beside(mine, sort) if code == "SLOW-MACHINE" else planted(mine, code, sort)
            except RuntimeError as error:
                sys.stderr.write(f"{code} {sort[0]}: left out: {error}\n")
    if not only or HEALTHY in only:
        sorts = [AHEAD, TORCH] * (HEALTHY_JOBS // 2)
        for number, sort in enumerate(sorts[:HEALTHY_JOBS]):
            plan = replace(bench.plan(*sort, 0.0, times=LONG), planted=False)
            yield record_job(replace(bench, keep=bench.keep / HEALTHY), PLAIN, plan, suffix=f"-{number}")


def planted(bench: Bench, code: str, sort: tuple[str, bool]) -> Iterator[Path]:
    """The jobs of a cause at both strengths."""
    cause = next(c for c in CAUSES if c.code == code and any(case[:2] == sort for case in c.cases))
    yield from record_cause(bench, cause, [(*sort, strength) for strength in STRENGTHS], controls=False)


def beside(bench: Bench, sort: tuple[str, bool]) -> Iterator[Path]:
    """Plain jobs beside programs that take the cores for a part of the time."""
    for strength in STRENGTHS:
        plan = replace(bench.plan(*sort, strength, times=LONG), planted=False)
        out = bench.keep / "SLOW-MACHINE" / f"{sort[0]}-{strength:.2f}"
        with in_turns(strength, seed=round(100 * strength)) as stretches:
            figures = run_job(PLAIN, replace(plan, out=str(out)))
        lost_s, spread_s = lost_to_neighbours(out, stretches)
        told = {"recorded": figures, "turns": {}, "plan": asdict(plan), "stretches": stretches}
        walls = (figures["wall_s"], figures["wall_s"] - lost_s, lost_s, spread_s)
        Truth("SLOW-MACHINE", out.name, True, True, (), *walls, told).write(out)
        yield out


def judge(out: Path, wanted: str) -> Row:
    """What the verdict makes of a run."""
    truth = read_truth(out)
    found = judge_analysis(analyse_run(open_run(str(out))))
    others = [bound for bound in found.verdict.bounds if bound.code not in truth.true_of_it]
    first = others[0] if others else None
    codes = [f.code for f in found.findings if f.saved_ps and f.low_ps and find_rule(f.code).bound]
    bounds = [bound.code for bound in found.verdict.bounds if bound.code]
    hosts = len({shard.host for shard in open_run(str(out)).shards})
    word = first.word if first is not None else "NOT KNOWN"
    return Row(
        wanted=wanted,
        name=f"{truth.code} {truth.name}",
        share=truth.share if truth.planted else 0.0,
        saving_s=truth.saving_s if truth.planted else 0.0,
        told=found.verdict.text,
        word=word,
        stated_s=first.saved_ps / 1e12 / hosts if first is not None and first.saved_ps else None,
        is_right=found.verdict.is_healthy if wanted == HEALTHY else word == wanted,
        is_first=not bounds or codes[:1] == bounds[:1],
    )


def report(rows: Sequence[Row], path: str | None) -> None:
    print(f"{datetime.now(UTC):%Y-%m-%d}  {platform.platform()}, {os.cpu_count()} cores")
    for row in rows:
        mark = "  " if row.is_right else "✗ "
        print(f"{mark}{row.wanted:20} {row.name:34} {row.share:6.1%} {row.saving_s:6.2f} s  {row.told[:150]}")
    causes, healthy = [r for r in rows if r.wanted != HEALTHY], [r for r in rows if r.wanted == HEALTHY]
    for word in dict.fromkeys(row.wanted for row in rows):
        mine = [row for row in rows if row.wanted == word]
        print(f"{word:20} {sum(row.is_right for row in mine)} of {len(mine)}")
    right = sum(row.is_right for row in causes)
    errors = [abs(r.stated_s / r.saving_s - 1) for r in causes if r.is_right and r.stated_s and r.saving_s > 0]
    figures = {
        "first words right": f"{right} of {len(causes)}",
        "healthy called healthy": f"{sum(row.is_right for row in healthy)} of {len(healthy)}",
        "verdict is the first finding": f"{sum(row.is_first for row in rows)} of {len(rows)}",
        "seconds off, in the median": f"{median(errors):.1%}" if errors else "–",
    }
    for name, figure in figures.items():
        print(f"{name}: {figure}")
    if path is not None:
        Path(path).write_text(json.dumps({"figures": figures, "rows": [asdict(row) for row in rows]}, indent=1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=(*BOUNDS, HEALTHY), default=[])
    parser.add_argument("--seconds", type=float, default=8.0, help="length of a loop without any cause")
    parser.add_argument("--budget", type=float, default=0.05, help="of the recorder: runs this short need a large one")
    parser.add_argument("--keep", metavar="FOLDER")
    parser.add_argument("--kept", metavar="FOLDER")
    parser.add_argument("--json", metavar="PATH")
    args = parser.parse_args()
    words = {word.replace(" ", "-"): word for word in (*BOUNDS, HEALTHY)}
    with tempfile.TemporaryDirectory(prefix="phasepoint-verdict-") as folder:
        root = Path(args.kept or args.keep or folder).absolute()
        runs: Iterator[Path] = (path.parent for path in sorted(root.glob(f"**/{TRUTH_FILE}")))
        if not args.kept:
            runs = record(Bench(root, args.seconds, args.budget), args.only)
        rows = []
        for out in runs:
            wanted = words[out.relative_to(root).parts[0]]
            if args.only and wanted not in args.only:
                continue
            rows.append(judge(out, wanted))
            sys.stderr.write(f"{datetime.now(UTC):%H:%M:%S} {wanted} {out.name}: {rows[-1].told[:100]}\n")
        report(rows, args.json)


if __name__ == "__main__":
    main()
