"""Replays on this device: the same bits from each checkpoint, and changes predicted from one; called by `child.py`."""

import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.gpu.child import run_command

SCRIPT = Path(__file__).with_name("train.py")
STEPS, SMALL_STEPS = 600, 60
REPLAYED_STEPS = 40
LIMIT_S = 150.0
"""Of one process."""


def from_each_checkpoint(*, device: str, small: bool) -> dict[str, Any]:
    """Record a job, replay its longest phase from every checkpoint before it, and compare the losses.

    Returns:
        For each replay the step it began with, values that both have, and those equal bit for bit; `dur_s` of each and
        `full_s` of the job.
    """
    from phasepoint.core.errors import PhasepointError
    from phasepoint.replay.checkpoints import index_checkpoints
    from phasepoint.replay.fidelity.fidelity import compare_replay
    from phasepoint.replay.runner import run_replay
    from phasepoint.sources.ingest.opened import open_run

    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="phasepoint-gpu-") as folder:
        full_s = _record(folder, "base", device=device, small=small)
        analysis = _analysed(f"{folder}/base")
        plan = _plan(analysis, 10 if small else REPLAYED_STEPS)
        index = index_checkpoints(analysis)
        usable = [one for one in index.checkpoints if one.state == "whole" and (one.step or 0) < plan.target_first]
        starts: list[Any] = [None, *usable]
        for number, one in enumerate(starts):
            mine = replace(
                plan,
                checkpoint=None if one is None else one.path,
                checkpoint_step=None if one is None else one.step,
                first_step=0 if one is None else one.step + 1,
            )
            outcome = run_replay(mine, _words(folder, device=device, small=small), f"{folder}/replay-{number}")
            row = {"first_step": mine.first_step, "dur_s": outcome.dur_ps / 1e12, "status": outcome.status}
            try:
                fidelity = compare_replay(analysis, open_run(outcome.run), outcome.record)
                loss = next(scalar for scalar in fidelity.scalars if scalar.name == "loss")
                row |= {"values": loss.values, "equal": loss.equal, "verdict": fidelity.verdict}
            except (PhasepointError, StopIteration) as error:
                row |= {"values": 0, "equal": 0, "verdict": f"{outcome.status}: {error or outcome.record.reason}"}
            found.append(row)
        return {"full_s": full_s, "replays": found, "checkpoints": len(index.checkpoints), "plan": plan.phase}


def change_predicted(*, change: str, device: str, small: bool) -> dict[str, Any]:
    """A change predicted from one replay and its baseline, then the whole job with the change.

    Returns:
        `before_s`, `told_s` with its interval `low_s` and `high_s`, and `after_s`, all inside steps.
    """
    from phasepoint.replay.change.estimate import estimate_change
    from phasepoint.replay.runner import run_replay
    from phasepoint.sources.ingest.opened import open_run

    with tempfile.TemporaryDirectory(prefix="phasepoint-gpu-") as folder:
        _record(folder, "base", device=device, small=small)
        analysis = _analysed(f"{folder}/base")
        plan = _plan(analysis, 10 if small else REPLAYED_STEPS)
        runs = []
        for name, of in (("changed", change), ("baseline", "none")):
            outcome = run_replay(plan, _words(folder, device=device, small=small, change=of), f"{folder}/{name}")
            if outcome.status != "done":
                raise RuntimeError(f"the replay {outcome.status}: {outcome.record.reason}")
            runs.append(open_run(outcome.run))
        ratio = 0.5 if change == "batch" else 1.0
        like = [str(phase.id) for phase in analysis.result.phases if phase.kind == "train"]
        told = estimate_change(analysis, runs[:1], baselines=runs[1:], like=like, steps_ratio=ratio)
        _record(folder, "after", device=device, small=small, change=change)
        after = _analysed(f"{folder}/after")
        after_s = _training_s(after) * ratio
        ends = (told.steps_after.low_ps, told.steps_after.high_ps)
        return {
            "before_s": _training_s(analysis),
            "told_s": told.steps_after.value_ps / 1e12,
            "low_s": None if ends[0] is None else ends[0] / 1e12,
            "high_s": None if ends[1] is None else ends[1] / 1e12,
            "after_s": after_s,
        }


def _training_s(analysis: Any) -> float:
    return float(analysis.clock.inside_ps / 1e12)


def _analysed(path: str) -> Any:
    from phasepoint.sources.ingest.opened import open_run
    from phasepoint.summary.analysis import analyse_run

    return analyse_run(open_run(path))


def _plan(analysis: Any, steps: int) -> Any:
    """Of the longest phase that trains."""
    from phasepoint.core.errors import PhasepointError
    from phasepoint.replay.plan.plan import plan_replay

    phases = [phase for phase in analysis.result.phases if phase.kind == "train"] or list(analysis.result.phases)
    longest = str(max(phases, key=lambda phase: phase.total_ps).id)
    try:
        return plan_replay(analysis, longest, steps=steps)
    except PhasepointError:
        return plan_replay(analysis, longest, steps=steps, from_start=True)


def _words(folder: str, *, device: str, small: bool, change: str = "none", out: str = "base") -> list[str]:
    steps = SMALL_STEPS if small else STEPS
    words = [sys.executable, str(SCRIPT), "--out", f"{folder}/{out}", "--folder", f"{folder}/{out}-checkpoints"]
    words += ["--steps", str(steps), "--device", device, "--change", change]
    return [*words, *(["--small", "--budget", "0.5"] if small else [])]


def _record(folder: str, out: str, *, device: str, small: bool, change: str = "none") -> float:
    began_s = time.perf_counter()
    run_command(_words(folder, device=device, small=small, change=change, out=out), LIMIT_S)
    return time.perf_counter() - began_s
