"""A summary made by hand: a training run with evaluation, a recompilation, a slow input stretch and one gap."""

from dataclasses import replace

from phasepoint.core.units import PS_PER_MS, PS_PER_S
from phasepoint.phases.clock.accounting import RecordingCost
from phasepoint.phases.clock.breakdown import (
    AccountPart,
    Anatomy,
    AnatomyPart,
    Breakdown,
    ClockAccount,
    OpTime,
    PartTime,
)
from phasepoint.phases.clock.hosts import HostSummary
from phasepoint.summary.types import (
    SUMMARY_VERSION,
    CheckpointSummary,
    GapSummary,
    NotSeen,
    PhaseSummary,
    RunEvent,
    RunSummary,
    StripSegment,
)

EVIL = "<img src=x onerror=alert(1)></script>[red]\x1b[31m&amp;"
"""A name that is markup in HTML, in rich and in a terminal at once."""

WALL_PS = 60 * PS_PER_S
INSIDE_PS = 57 * PS_PER_S

# name, phase id, stretches as (first step, last step, start s, length s)
_PHASES = (
    ("train", 1, ((1, 499, 3.0, 20.0), (520, 899, 26.0, 16.0), (940, 1199, 49.0, 10.0))),
    ("eval", 2, ((500, 519, 23.0, 3.0), (920, 939, 46.0, 3.0))),
    ("input stall", 3, ((900, 919, 42.0, 4.0),)),
    ("compile", 0, ((0, 0, 2.0, 1.0),)),
)


def part(name: str, total_ps: int, of_ps: int, margin_ps: int = 0) -> PartTime:
    """A part of a total with a symmetric interval."""
    basis = "estimated" if margin_ps else "measured"
    return PartTime(name, total_ps, total_ps - margin_ps, total_ps + margin_ps, total_ps / of_ps, basis)


def op(name: str, category: str, self_ms: int, share: float, *, layer: str | None = None, count: int = 1200) -> OpTime:
    """A top op with an interval of ±5 %."""
    self_ps = self_ms * PS_PER_MS
    return OpTime(
        name, category, layer, "jit_step", count, self_ps, self_ps - self_ps // 20, self_ps + self_ps // 20, share
    )


def account_part(name: str, total_ps: int, kind: str, phase: int | None) -> AccountPart:
    """A measured part of the account."""
    return AccountPart(name, total_ps, total_ps, total_ps, total_ps / WALL_PS, "measured", kind, phase)


def breakdown(total_ps: int) -> Breakdown:
    """Categories with round shares that add up to the total."""
    compute, movement, host, idle, waiting = (total_ps * percent // 100 for percent in (61, 4, 5, 8, 20))
    rest = total_ps - compute - movement - host - idle - waiting
    parts = (
        part("compute", compute, total_ps, total_ps // 80),
        part("communication", 0, total_ps, 1),
        part("data_movement", movement, total_ps, total_ps // 300),
        part("host", host, total_ps, total_ps // 200),
        part("idle", idle, total_ps, total_ps // 150),
        part("input", waiting, total_ps),
        PartTime("unattributed", rest, rest, rest, rest / total_ps, "unattributed"),
    )
    return Breakdown(total_ps, parts, windows=12, captured_steps=60)


def anatomy(total_ps: int) -> Anatomy:
    """What a step's time served, of the same total; the waits inside the passes are 12 % of it."""
    shares = {"input": (20, 0), "to_device": (1, 0), "forward": (21, 4), "backward": (34, 6), "optimizer": (9, 2)}
    shares |= {"other work": (0, 0), "communication": (0, 0), "host": (5, 0), "idle": (8, 0), "compiling": (0, 0)}
    of = {name: (total_ps * percent // 100, total_ps * within // 100) for name, (percent, within) in shares.items()}
    of["unattributed"] = total_ps - sum(part_ps for part_ps, _ in of.values()), 0
    parts = [
        AnatomyPart(name, part_ps, part_ps, part_ps, part_ps / total_ps, "estimated", within_ps)
        for name, (part_ps, within_ps) in of.items()
    ]
    return Anatomy(total_ps, tuple(parts), windows=12, captured_steps=60)


def _phase(name: str, phase_id: int, stretches: tuple[tuple[int, int, float, float], ...]) -> PhaseSummary:
    total_ps = int(sum(length for *_, length in stretches) * PS_PER_S)
    steps = sum(last - first + 1 for first, last, *_ in stretches)
    median_ps = total_ps // steps
    captured = 0 if name == "input stall" else 5 * len(stretches)
    ops = (
        op("fusion.1234", "compute", 14_000, 0.5, layer="Net/Block_0/Conv_0"),
        op("copy.7", "data_movement", 2_000, 0.08, layer=None),
        op(EVIL, "compute", 1_500, 0.05, layer=EVIL),
        OpTime("other", "mixed", None, None, None, 9 * PS_PER_S, 8 * PS_PER_S, 10 * PS_PER_S, 0.37),
    )
    return PhaseSummary(
        id=phase_id,
        name=name,
        kind=name if name in ("train", "eval", "input stall") else "named",
        steps=steps,
        segments=len(stretches),
        total_ps=total_ps,
        share=total_ps / INSIDE_PS,
        median_ps=median_ps,
        p05_ps=median_ps * 95 // 100,
        p95_ps=median_ps * 109 // 100,
        period_steps=420.0 if len(stretches) > 1 else None,
        representative_window=3 if captured else None,
        representative_step=stretches[0][0],
        representative_host=0,
        representative_attempt=0,
        weight=total_ps / INSIDE_PS,
        captured_steps=captured,
        captured_windows=captured // 5,
        input_ps=total_ps // 10,
        compile_ps=None,
        restart_from="ckpt/500" if stretches[0][0] > 500 else None,
        restart_step=500 if stretches[0][0] > 500 else None,
        top_ops=ops if captured else (),
        breakdown=breakdown(total_ps),
        anatomy=anatomy(total_ps) if captured else None,
    )


def _strip() -> tuple[StripSegment, ...]:
    rows = [
        (start, length, phase_id, name, first, last)
        for name, phase_id, stretches in _PHASES
        for first, last, start, length in stretches
    ]
    outside = [(0.0, 2.0, None, "outside steps", None, None), (59.0, 1.0, None, "outside steps", None, None)]
    ordered = sorted([*rows, *outside], key=lambda row: row[0])
    return tuple(
        StripSegment(int(start * PS_PER_S), int(length * PS_PER_S), phase, name, first, last)
        for start, length, phase, name, first, last in ordered
    )


ADVICE = "Next: give the loader worker processes; that should win about 11.0 s (9.00 s to 12.0 s)."


def sample_summary(**changes: object) -> RunSummary:
    """The summary, with some of its fields changed."""
    phases = tuple(_phase(*row) for row in _PHASES)
    account = [account_part(p.name, p.total_ps, "phase", p.id) for p in phases]
    account.append(account_part("outside steps", WALL_PS - INSIDE_PS, "outside steps", None))
    summary = RunSummary(
        version=SUMMARY_VERSION,
        run="runs/demo",
        verdict=f"INPUT-BOUND: the device waits 12.0 s for data, 20 % of the run. {ADVICE}",
        advice=ADVICE,
        time_went="61 % of 60.0 s went into train steps; 20 % waiting for input, most of it in steps 900–919",
        state="closed",
        notes=(),
        method="recurrent",
        wall_ps=WALL_PS,
        inside_ps=INSIDE_PS,
        outside_ps=WALL_PS - INSIDE_PS,
        elapsed_ps=WALL_PS,
        steps=1200,
        reference_host=0,
        account=ClockAccount(WALL_PS, tuple(account)),
        phases=phases,
        strip=_strip(),
        categories=breakdown(INSIDE_PS),
        anatomy=anatomy(INSIDE_PS),
        input_wait_ps=6 * PS_PER_S,
        top_ops=phases[0].top_ops,
        events=(
            RunEvent("compile", 0, 0, 0, 0, 2 * PS_PER_S, PS_PER_S, PS_PER_S, "Step 0 compiled for 1.00 s."),
            RunEvent("input-stall", 0, 0, 900, 919, 42 * PS_PER_S, 4 * PS_PER_S, 3 * PS_PER_S, f"Slow input {EVIL}"),
        ),
        checkpoints=(
            CheckpointSummary(0, 0, 500, "ckpt/500", 23 * PS_PER_S, 90 * PS_PER_MS, "orbax", 12 << 20, False, True),
            CheckpointSummary(0, 0, 900, EVIL, 42 * PS_PER_S, 80 * PS_PER_MS, "orbax", None, None, None),
        ),
        hosts=(HostSummary(0, 1, "closed", 1200, WALL_PS, INSIDE_PS, 41 * PS_PER_MS, 0, 12, None, False, None),),
        not_seen=NotSeen(
            gaps=(GapSummary("outside-steps", 2, 3 * PS_PER_S, None, "what the job did before and after its loop"),),
            steps=1200,
            missing_steps=0,
            captured_steps=60,
            captured_step_share=0.05,
            captured_time_share=0.048,
            windows=12,
            pending_windows=0,
            empty_windows=1,
            events=120_000,
            dropped_events=3,
            ignored_events=40,
            orphan_events=0,
            misnested_events=0,
            problems=(),
        ),
        cost=RecordingCost(
            start_ps=2 * PS_PER_MS,
            slowdown_ps=100 * PS_PER_MS,
            stop_ps=300 * PS_PER_MS,
            write_ps=50 * PS_PER_MS,
            convert_ps=900 * PS_PER_MS,
            total_ps=452 * PS_PER_MS,
            share=0.452 / 60,
            budget=0.01,
            within_budget=True,
        ),
        environment=(("framework", "jax 0.10.2"), ("command", f"python train.py {EVIL}")),
    )
    return replace(summary, **changes)  # type: ignore[arg-type]
