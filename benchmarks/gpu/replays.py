"""Replays on this device: the same bits from each checkpoint, and changes predicted from one; called by `child.py`."""

import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.gpu.child import run_command

SCRIPT = Path(__file__).with_name("train.py")
STEPS, SMALL_STEPS = 600, 60
REPLAYED_STEPS, SMALL_REPLAYED_STEPS = 40, 10
LIMIT_S = 150.0
"""Of one process."""


def from_each_checkpoint(*, folder: str, device: str, small: bool) -> dict[str, Any]:
    """Replay a job's longest phase from its start and from every checkpoint before it, and compare the losses.

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
    analysis, full_s = _base(folder, device=device, small=small)
    plan = _plan(analysis, SMALL_REPLAYED_STEPS if small else REPLAYED_STEPS)
    index = index_checkpoints(analysis)
    usable = [one for one in index.checkpoints if one.state == "whole" and (one.step or 0) < plan.target_first]
    starts: list[Any] = usable[-1:] if small else [None, *usable]
    for number, one in enumerate(starts):
        of_start = (None, None, 0) if one is None else (one.path, one.step, one.step + 1)
        mine = replace(plan, checkpoint=of_start[0], checkpoint_step=of_start[1], first_step=of_start[2])
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


def change_predicted(*, change: str, folder: str, device: str, small: bool) -> dict[str, Any]:
    """A change predicted from one replay and its baseline, then the whole job with the change.

    Returns:
        `before_s`, `told_s` with its interval `low_s` and `high_s`, and `after_s`, all inside steps.
    """
    from phasepoint.replay.change.estimate import estimate_change
    from phasepoint.replay.runner import run_replay
    from phasepoint.sources.ingest.opened import open_run

    analysis, _ = _base(folder, device=device, small=small)
    plan = _whole(analysis) if small else _plan(analysis, REPLAYED_STEPS)
    runs = []
    for of in (change,) if small else (change, "none"):
        words = _words(folder, device=device, small=small, change=of)
        outcome = run_replay(plan, words, f"{folder}/{change}-by-{of}")
        if outcome.status != "done":
            raise RuntimeError(f"the replay {outcome.status}: {outcome.record.reason}")
        runs.append(open_run(outcome.run))
    ratio = 0.5 if change == "batch" else 1.0  # the whole job of a batch twice as large needs half of the steps
    like = [str(phase.id) for phase in analysis.result.phases if phase.kind == "train"]
    told = estimate_change(analysis, runs[:1], baselines=runs[1:], like=like, steps_ratio=ratio)
    _record(folder, change, device=device, small=small, change=change)
    ends = (told.steps_after.low_ps, told.steps_after.high_ps)
    return {
        "before_s": _training_s(analysis),
        "told_s": told.steps_after.value_ps / 1e12,
        "low_s": None if ends[0] is None else ends[0] / 1e12,
        "high_s": None if ends[1] is None else ends[1] / 1e12,
        "after_s": ratio * _training_s(_analysed(f"{folder}/{change}")),
    }


def _base(folder: str, *, device: str, small: bool) -> tuple[Any, float]:
    """The job without a change, analysed, and what it took; recorded where the part has not done so yet."""
    told = Path(folder) / "base.json"
    if not told.exists():
        told.write_text(json.dumps(_record(folder, "base", device=device, small=small)))
    return _analysed(f"{folder}/base"), json.loads(told.read_text())


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


def _whole(analysis: Any) -> Any:
    """A small job from its start to its end: from a checkpoint on it may have no step but the captured ones."""
    plan = _plan(analysis, SMALL_REPLAYED_STEPS)
    last = SMALL_STEPS - 1
    plan = replace(plan, target_first=SMALL_STEPS - SMALL_REPLAYED_STEPS, target_last=last, last_step=last)
    return replace(plan, checkpoint=None, checkpoint_step=None, first_step=0)


def _words(folder: str, *, device: str, small: bool, change: str = "none", out: str = "base") -> list[str]:
    steps = SMALL_STEPS if small else STEPS
    words = [sys.executable, str(SCRIPT), "--out", f"{folder}/{out}", "--folder", f"{folder}/{out}-checkpoints"]
    words += ["--steps", str(steps), "--device", device, "--change", change]
    return [*words, *(["--small", "--budget", "0.5"] if small else [])]


def _record(folder: str, out: str, *, device: str, small: bool, change: str = "none") -> float:
    began_s = time.perf_counter()
    run_command(_words(folder, device=device, small=small, change=change, out=out), LIMIT_S)
    return time.perf_counter() - began_s
