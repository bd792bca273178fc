"""Holds what `phasepoint findings` says of the recorded jobs of `benchmarks/findings.py` against what they cost."""

import json
import math
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

LEAST_SHARE = 0.05
"""A cause that costs less of the run need not be found."""

MOST_SPREAD = 0.15
"""Standard error of a measured saving, as a ratio of it, up to which stated savings are held against it."""

MOST_BUSY = 0.15
"""Share of a recorded job's time spent queued for a core, up to which its saving can be told from a second process."""

TRUTH_FILE = "truth.json"


@dataclass(frozen=True)
class Truth:
    """What a recorded job cost.

    Attributes:
        code: of the rule whose cause was in it, or whose control it is.
        name: framework, how it waits, and strength: `jax-ahead-0.40`.
        planted: whether the cause was in.
        costs: whether the rule is judged by time.
        also: other codes that may tell of the same time.
        wall_s: the loop as recorded.
        control_wall_s: the loop without the cause, on a machine as busy as it was.
        saving_s: the difference.
        spread_s: standard error of the saving.
        figures: the clocks of the processes.
    """

    code: str
    name: str
    planted: bool
    costs: bool
    also: tuple[str, ...]
    wall_s: float
    control_wall_s: float
    saving_s: float
    spread_s: float
    figures: dict[str, Any] = field(default_factory=dict)

    @property
    def share(self) -> float:
        """Saving as a ratio of the run's loop."""
        return self.saving_s / self.wall_s

    @property
    def must_be_found(self) -> bool:
        """Whether the cause is in and matters, beyond what the measurement may be off."""
        matters = self.share >= LEAST_SHARE and self.saving_s > 2 * self.spread_s
        return self.planted and (matters or not self.costs)

    @property
    def true_of_it(self) -> tuple[str, ...]:
        """Codes that are true of the job although nothing was planted: its loop waits for the device in every step."""
        plan = self.figures["plan"]
        return ("SYNC-EVERY-STEP",) if plan["framework"] == "jax" and not plan["ahead"] else ()

    def is_control_of(self, code: str) -> bool:
        """Whether a finding of this code would be a false alarm."""
        return not self.planted and code not in self.true_of_it

    @property
    def busy(self) -> float:
        """How long the recorded job was queued for a core that others had, as a ratio of its wall time."""
        recorded = self.figures["recorded"]
        return float(recorded["queued_s"] / recorded["wall_s"])

    @property
    def is_sure(self) -> bool:
        """Whether the saving is known well enough to hold a stated one against it."""
        is_told_apart = not self.figures["turns"] or self.busy <= MOST_BUSY
        return self.spread_s <= MOST_SPREAD * self.saving_s and is_told_apart

    def write(self, run: Path) -> None:
        run.joinpath(TRUTH_FILE).write_text(json.dumps(asdict(self) | {"share": self.share}, indent=1))


def read_truth(run: Path) -> Truth:
    """The truth beside a recorded run."""
    values = json.loads((run / TRUTH_FILE).read_text())
    del values["share"]
    return Truth(**values | {"also": tuple(values["also"])})


@dataclass(frozen=True)
class Judged:
    """One job, and what was said of it."""

    truth: Truth
    findings: list[dict[str, Any]]
    unavailable: dict[str, str]
    hosts: int = 1

    @property
    def alarms(self) -> list[str]:
        """Codes of what was said of a control that is not true of it."""
        return [finding["code"] for finding in self.findings if self.truth.is_control_of(finding["code"])]

    @property
    def mine(self) -> list[dict[str, Any]]:
        """Findings of the rule whose cause was planted."""
        return [finding for finding in self.findings if finding["code"] == self.truth.code]

    @property
    def is_first(self) -> bool:
        """Whether the rule's finding is the first of those that claim time; what is true of the job anyway apart."""
        codes = [f["code"] for f in self.findings]
        planted = [code for code in codes if code == self.truth.code or code not in self.truth.true_of_it]
        return planted[:1] == [self.truth.code]

    @property
    def error(self) -> float | None:
        """Stated less measured saving, as a ratio of the measured one; None where either is not known."""
        if not self.mine or not self.truth.costs or not self.truth.is_sure or self.truth.saving_s <= 0:
            return None
        return self.stated_s / self.truth.saving_s - 1

    @property
    def stated_s(self) -> float:
        """Stated saving of one host: a run's time is that of all hosts together, and so are its savings."""
        return sum(finding["seconds"] for finding in self.mine) / self.hosts

    @property
    def interval_s(self) -> tuple[float, float]:
        """Ends of the stated interval of one host's saving."""
        low_s, high_s = (sum(finding[name] for finding in self.mine) for name in ("seconds_low", "seconds_high"))
        return low_s / self.hosts, high_s / self.hosts

    @property
    def is_held(self) -> bool | None:
        """Whether the stated interval holds the measured saving; None where either is not known."""
        if self.error is None:
            return None
        low_s, high_s = self.interval_s
        return low_s <= self.truth.saving_s <= high_s

    @property
    def is_held_within_errors(self) -> bool | None:
        """The same with the interval widened by the measurement's own 95 %."""
        if self.error is None:
            return None
        (low_s, high_s), more_s = self.interval_s, 1.96 * self.truth.spread_s
        return low_s - more_s <= self.truth.saving_s <= high_s + more_s

    @property
    def others(self) -> list[str]:
        """Codes of findings of at least LEAST_SHARE that neither are the planted cause, stand for it, nor are true."""
        own = {self.truth.code, *self.truth.also, *self.truth.true_of_it}
        return [f["code"] for f in self.findings if f["code"] not in own and f["share"] >= LEAST_SHARE]


def judge(run: Path) -> Judged:
    """Ask the command for its findings, as a user would."""
    command = [sys.executable, "-m", "phasepoint", "findings", str(run), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr[-3000:]}")
    said = json.loads(done.stdout)
    reasons = {entry["code"]: entry["reason"] for entry in said["unavailable"]}
    return Judged(read_truth(run), said["findings"], reasons, len(list(run.glob("host=*"))))


def score_rule(code: str, jobs: Sequence[Judged], controls: Sequence[Judged]) -> dict[str, Any]:
    """The row of one rule.

    Args:
        code: of the rule.
        jobs: jobs with its cause planted.
        controls: every clean control, of whatever rule; those of which it is true all the same do not count.
    """
    due = [job for job in jobs if job.truth.must_be_found]
    mine = [job for job in controls if job.truth.is_control_of(code)]
    errors = [abs(job.error) for job in due if job.error is not None]
    others = Counter(other for job in jobs for other in job.others)
    return {
        "code": code,
        "jobs": len(jobs),
        "due": len(due),
        "found": sum(bool(job.mine) for job in due),
        "first": sum(job.is_first for job in due if job.truth.costs),
        "first_due": sum(job.truth.costs for job in due),
        "error_median": median(errors) if errors else None,
        "error_worst": max(errors) if errors else None,
        "held": sum(job.is_held is True for job in due),
        "held_due": sum(job.is_held is not None for job in due),
        "controls": len(mine),
        "alarms": sum(code in job.alarms for job in mine),
        "unavailable": sum(code in job.unavailable for job in jobs),
        "others": dict(others),
    }


def saved_range(judged: Sequence[Judged], code: str) -> tuple[float, float, int] | None:
    """Between how many times its claim a rule's remedy saved, 95 % of jobs, and from how many jobs this is known.

    The logarithm of measured ÷ stated is taken to be normal; that the mean is known from few jobs widens it.
    """
    mine = [job for job in judged if job.truth.code == code and job.truth.must_be_found and job.truth.costs]
    ratios = [job.truth.saving_s / job.stated_s for job in mine if job.mine and job.stated_s > 0]
    if len(ratios) < 3:
        return None
    logs = [math.log(ratio) for ratio in ratios]
    half = 1.96 * stdev(logs) * math.sqrt(1 + 1 / len(logs))
    return math.exp(mean(logs) - half), math.exp(mean(logs) + half), len(logs)


def print_ranges(judged: Sequence[Judged]) -> None:
    """What `Rule.saved` is taken from."""
    for code in dict.fromkeys(job.truth.code for job in judged):
        found = saved_range(judged, code)
        if found is not None:
            print(f"{code:22} saved {found[0]:.2f} to {found[1]:.2f} times the claim, in {found[2]} jobs")


def print_rules(rows: Iterable[dict[str, Any]]) -> None:
    """One line a rule, and all together."""
    rows = list(rows)
    print(
        f"\n{'rule':22} {'jobs':>4} {'≥ 5 %':>5} {'found':>7} {'first':>7} {'saving off, median':>18} {'worst':>7} "
        f"{'held':>6} {'alarms on controls':>18}  others"
    )
    for row in rows:
        off = ["–" if row[key] is None else f"{row[key]:.0%}" for key in ("error_median", "error_worst")]
        others = ", ".join(f"{code} × {count}" for code, count in row["others"].items())
        if row["unavailable"]:
            others = f"could not judge × {row['unavailable']}; {others}"
        print(
            f"{row['code']:22} {row['jobs']:4} {row['due']:5} {_of(row['found'], row['due']):>7} "
            f"{_of(row['first'], row['first_due']):>7} {off[0]:>18} {off[1]:>7} "
            f"{_of(row['held'], row['held_due']):>6} {_of(row['alarms'], row['controls']):>18}  {others}"
        )


def print_jobs(judged: Iterable[Judged]) -> None:
    """One line a job: what it cost, and what was said first."""
    print(
        f"\n{'job':46} {'wall':>7} {'cost':>7} {'±':>6} {'share':>6} {'busy':>5} {'stated':>8} {'interval':>17}  said"
    )
    for job in judged:
        truth = job.truth
        stated = f"{job.stated_s:7.2f}s" if job.mine else "–"
        interval = "{:7.2f}–{:.2f}s{}".format(*job.interval_s, "!" if job.is_held is False else "") if job.mine else "–"
        said = ", ".join(f"{f['code']} {f['share']:.0%}" for f in job.findings[:3])
        print(
            f"{truth.code + ' ' + truth.name:46} {truth.wall_s:6.2f}s {truth.saving_s:6.2f}s {truth.spread_s:5.2f}s "
            f"{truth.share:6.1%} {truth.busy:5.0%} {stated:>8} {interval:>17}  {said}"
        )


def print_verdict(judged: Sequence[Judged], rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """All rules together, beside what is aimed at."""
    due, found = sum(row["due"] for row in rows), sum(row["found"] for row in rows)
    first, first_due = sum(row["first"] for row in rows), sum(row["first_due"] for row in rows)
    errors = [abs(job.error) for job in judged if job.truth.must_be_found and job.error is not None]
    controls = [job for job in judged if not job.truth.planted]
    alarmed = sum(bool(job.alarms) for job in controls)
    print(f"\nfound where it costs at least {LEAST_SHARE:.0%} of the run: {_of(found, due)} (aim 95 %)")
    print(f"first where it is the largest: {_of(first, first_due)}")
    print(f"controls of which anything is said that is not true: {_of(alarmed, len(controls))} (aim 5 %)")
    unsure = sum(job.truth.must_be_found and job.truth.costs and not job.truth.is_sure for job in judged)
    if unsure:
        print(f"{unsure} savings are not known well enough (busy machine): no stated one is held against them")
    held = [job for job in judged if job.truth.must_be_found and job.is_held is not None]
    strictly = sum(bool(job.is_held) for job in held)
    within = sum(bool(job.is_held_within_errors) for job in held)
    print(
        f"stated intervals that hold the measured saving: {_of(strictly, len(held))} (aim 90 %); "
        f"with the measurement's own error {_of(within, len(held))}"
    )
    if errors:
        print(
            f"stated saving off the measured one by {median(errors):.0%} (median; aim 25 %), {max(errors):.0%} at worst"
        )
    return {
        "found": found,
        "due": due,
        "first": first,
        "first_due": first_due,
        "controls": len(controls),
        "alarmed": alarmed,
        "error_median": median(errors) if errors else None,
        "held": strictly,
        "held_within_errors": within,
        "held_due": len(held),
        "unsure": unsure,
    }


def _of(part: int, whole: int) -> str:
    return f"{part}/{whole}"
