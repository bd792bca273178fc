"""Verdict and findings speak of the same time: no finding claims more of a part than the account has of it, and what
the account shows as a large part has a finding, or a rule that says why it has none."""

import numpy as np
import pytest
from contract_runs import RUNS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from planted_runs import MS, noisy_steps, steps_of, view_of
from planted_spans import busy_step, captured_run
from test_rule_slow_machine import looks

from phasepoint.findings.evidence.held_time import EVALUATION_WORDS, unnamed_time
from phasepoint.findings.finding import Unavailable
from phasepoint.findings.judge import judge_analysis
from phasepoint.findings.table import RULES
from phasepoint.findings.view import FindingsView
from phasepoint.summary.analysis import analyse_run

LARGE = 0.05
"""Ratio of the run from which on a part of the account must not be passed over."""

RULES_OF = {
    "input wait": {"INPUT-STALL"},
    "compiling": {"COMPILE-SHARE", "RECOMPILE"},
    "checkpoint": {"CHECKPOINT-STALL"},
    "slower machine": {"SLOW-MACHINE"},
    "eval": {"EVAL-SHARE"},
}
"""By kind of a part (and `eval`, the phases of that kind), whose it is."""


def findings_of(view):
    for rule in RULES:
        try:
            yield from rule.find(view)
        except Unavailable:
            continue


def rooms(view):
    """By code or part of a claim, what of each step it may be of; a device's own time may hide behind a wait."""
    parts, unnamed = view.step_parts, unnamed_time(view)
    return {
        "SLOW-MACHINE": parts.machine_ps,
        "EVAL-SHARE": parts.rest_ps,
        "SLOW-STEPS": unnamed,
        # A trace that was imported has no waits by the clock: its loader's time is of what is left.
        "input": parts.input_ps if view.clock.input_known else parts.rest_ps,
        "compiling": parts.compile_ps + parts.rest_ps,
        "checkpoint": parts.checkpoint_ps,
        "idle": unnamed,
        "host": unnamed,
    }


def outside_of(view, code):
    """What the account has between steps, of what a rule claims."""
    account = view.analysis.account.parts
    if code == "CHECKPOINT-STALL":
        return sum(part.total_ps for part in account if part.kind == "checkpoint") - int(
            view.step_parts.checkpoint_ps.sum()
        )
    named = [part for part in account if part.kind == "named"]
    return sum(part.total_ps for part in named if any(word in part.name.lower() for word in EVALUATION_WORDS))


def check_one_account(view):
    parts = view.step_parts
    whole = parts.input_ps + parts.compile_ps + parts.checkpoint_ps + parts.machine_ps + parts.rest_ps
    assert np.array_equal(whole, view.clock.dur_ps)
    assert min(int(part.min(initial=0)) for part in vars(parts).values()) >= 0
    for finding in findings_of(view):
        room = rooms(view).get(finding.code, rooms(view).get(finding.claim.part))
        if room is not None:
            over = finding.claim.by_step - room
            assert over.max(initial=0) <= 0, (finding.code, int(over.argmax()), int(over.max()))
        if finding.code in ("CHECKPOINT-STALL", "EVAL-SHARE"):
            assert finding.claim.outside_ps <= outside_of(view, finding.code), finding.code
    clear = set(judge_analysis(view.analysis).clear)
    for name, rules in RULES_OF.items():
        mine = [part for part in view.analysis.account.parts if name == sort_of(view, part)]
        if sum(part.share for part in mine) >= LARGE:
            assert rules - clear, f"{name} is {sum(part.share for part in mine):.1%} of the run"


def sort_of(view, part):
    is_eval = part.phase is not None and view.analysis.result.phases[part.phase].kind == "eval"
    return "eval" if is_eval else part.kind


@pytest.mark.parametrize("write", RUNS, ids=lambda write: write.__name__)
def test_on_every_sort_of_run(write, tmp_path):
    check_one_account(FindingsView(analyse_run(write(tmp_path))))


N = 360
PARTS = ("input", "compile", "save", "mark", "eval", "machine", "own code")


def planted(strength, between, seed):
    """Steps of 30 ms with each of `PARTS` planted at a strength: its part of the run, 0 for none.

    Args:
        strength: by part.
        between: whether saves and evaluations stand between steps.
        seed: of the noise.
    """

    def fill(timeline, where, dur_ps):
        busy_step(timeline, where, int(dur_ps * (1 - min(strength["own code"], 0.8))))

    steps, rows = captured_run(fill, n=N, step_ms=30.0, seed=seed, every=40)
    dur_ps = noisy_steps(N, noise=0.02, seed=seed)
    total_ps = int(dur_ps.sum())
    rng = np.random.default_rng(seed)
    columns = {"input_ps": np.asarray(strength["input"] * dur_ps, np.int64), "compile_ps": np.zeros(N, np.int64)}
    at = {"compile": [0, 120], "save": np.arange(20, N - 9, 40), "mark": np.arange(30, N - 9, 40)}
    added = {name: int(strength[name] * total_ps / len(where)) for name, where in at.items()}
    dur_ps += columns["input_ps"]
    dur_ps[at["compile"]] += added["compile"]
    columns["compile_ps"][at["compile"]] = added["compile"]
    for name in ("save", "mark"):
        dur_ps[at[name]] += 0 if between and name == "save" else added[name]
    is_busy = np.arange(N) // 60 % 2 == 1
    dur_ps = np.where(is_busy, dur_ps * (1 + 2 * strength["machine"]), dur_ps).astype(np.int64)
    kind = np.full(N, None, object)
    evaluations = [(first, int(12 * strength["eval"] * 10)) for first in range(60, N, 60)]
    for first, length in evaluations:
        kind[first : first + length] = "eval"
    new = steps_of(dur_ps, kind=kind.tolist(), **columns)
    gap_ps = added["save"] if between else 0
    new["start_ps"] += gap_ps * np.searchsorted(at["save"], np.arange(N))
    moved = new["start_ps"] - steps["start_ps"]
    for name in ("windows", "spans"):
        for row in rows[name]:
            row["start_ps"] += int(moved[row["first_step" if name == "windows" else "step"]])
    ends = new["start_ps"] + dur_ps
    saves = [
        {"step": int(i), "path": f"ckpt/{i}", "start_ps": int(ends[i]) - (0 if between else added["save"]),
         "dur_ps": added["save"], "framework": "torch", "asynchronous": bool(rng.random() < 0.5), "bytes": None}
        for i in at["save"] if added["save"]
    ]  # fmt: skip
    marks = [
        {"step": int(i), "path": f"mark/{i}", "start_ps": int(ends[i]), "dur_ps": 0, "framework": "user"}
        for i in at["mark"] if added["mark"]
    ]  # fmt: skip
    rows["checkpoints"] = saves + marks
    rows["hints"] = [
        {"name": "eval", "start_ps": int(new["start_ps"][first]), "first_step": first, "last_step": first + length - 1,
         "dur_ps": int(ends[first + length - 1] - new["start_ps"][first])}
        for first, length in evaluations if length
    ]  # fmt: skip
    return new, rows | looks(dur_ps, is_busy & (strength["machine"] > 0))


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    strength=st.fixed_dictionaries({name: st.sampled_from([0.0, 0.0, 0.07, 0.3]) for name in PARTS}),
    between=st.booleans(),
    seed=st.integers(0, 5),
)
def test_on_any_mixture_of_causes(tmp_path_factory, strength, between, seed):
    check_one_account(view_of(tmp_path_factory.mktemp("mixture"), planted(strength, between, seed)))


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("input", "INPUT-STALL"),
        ("compile", "COMPILE-SHARE"),
        ("save", "CHECKPOINT-STALL"),
        ("mark", "CHECKPOINT-STALL"),
        ("eval", "EVAL-SHARE"),
        ("machine", "SLOW-MACHINE"),
        ("own code", "DEVICE-IDLE"),
    ],
)
def test_each_cause_alone_is_the_first_finding(tmp_path, name, code):
    strength = dict.fromkeys(PARTS, 0.0) | {name: 0.3}
    found = judge_analysis(view_of(tmp_path, planted(strength, False, 0)).analysis).findings
    assert found[0].code == code
    assert found[0].saved_ps > MS


def test_of_a_step_that_evaluates_and_saves_the_checkpoint_has_the_save_alone(tmp_path):
    """As nanoGPT does: 600 ms of evaluation that nobody named, 20 ms of `torch.save`, in one step of 50."""
    at, dur_ps = np.arange(49, N, 50), noisy_steps(N, noise=0.02)
    dur_ps[at] += 620 * MS
    steps = steps_of(dur_ps)
    ends = steps["start_ps"] + dur_ps
    rows = [
        {"step": int(i), "path": f"ckpt/{i}", "start_ps": int(ends[i]) - 20 * MS, "dur_ps": 20 * MS,
         "framework": "torch", "asynchronous": False, "bytes": None}
        for i in at
    ]  # fmt: skip
    view = view_of(tmp_path, (steps, {"checkpoints": rows}))
    account = {part.name: part.total_ps for part in view.analysis.account.parts}
    assert account["checkpoint"] == 20 * MS * len(at)
    (slow,) = [name for name in account if name.startswith("slow")]
    assert abs(account[slow] - 630 * MS * len(at)) < 0.05 * account[slow]


def test_a_wait_that_the_device_hides_is_told(tmp_path):
    """The device works on while the job waits for the next batch."""
    steps, rows = captured_run(busy_step, n=N)
    shown = {(row["step"], row["category"]): row for row in rows["breakdowns"]}
    for (step, category), row in shown.items():
        row["wall_ps"] = int(steps["dur_ps"][step]) if category == "compute" else 0
    steps["input_ps"] = np.asarray(steps["dur_ps"]) // 5
    findings = judge_analysis(view_of(tmp_path, (steps, rows)).analysis)
    reason = next(one.reason for one in findings.unavailable if one.code == "INPUT-STALL")
    assert "20.0 % of the run, but the device works meanwhile" in reason
