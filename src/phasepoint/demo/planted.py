"""The demo from outside: runs its job, and holds a summary of the run against what the job says that was planted."""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import msgspec

from phasepoint.core.errors import MissingExtraError, RecordError
from phasepoint.demo.schedule import StepBlock
from phasepoint.summary.types import RunSummary

TRUTH_FILE, CHECKPOINTS_FOLDER = "truth.json", "demo-checkpoints"
"""What the demo's job leaves beside its run."""

_NEEDS = ("jax", "flax", "optax", "orbax.checkpoint")


def run_training(out: str, *, seconds: float, budget: float | None, seed: int = 0) -> None:
    """Train under the recorder into the run at `out`; returns when the job has ended.

    Raises:
        MissingExtraError: JAX, Flax, Optax or Orbax is not installed.
        RecordError: the job failed; its own messages stand above on stderr.
    """
    missing = [name for name in _NEEDS if not _is_installed(name)]
    if missing:
        raise MissingExtraError(f"the demo trains with JAX; {', '.join(missing)} is missing: pip install '.[jax]'")
    command = [sys.executable, "-m", "phasepoint.demo.train", "--out", out, "--seconds", str(seconds)]
    command += ["--seed", str(seed)] + ([] if budget is None else ["--budget", str(budget)])
    environment = {**os.environ, "JAX_PLATFORMS": os.environ.get("JAX_PLATFORMS", "cpu")}
    code = subprocess.run(command, env=environment, check=False).returncode
    if code:
        raise RecordError(f"the demo's training job ended with exit code {code}; its messages stand above")


def _is_installed(name: str) -> bool:
    """Whether a module is there; Python raises where a package that should hold it is not."""
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False


@dataclass
class TruthLog:
    """Label of every step in the order in which the job took them."""

    labels: list[str] = field(default_factory=list)
    final_loss: float | None = None
    wall_s: float | None = None

    @property
    def n_steps(self) -> int:
        """Steps taken so far."""
        return len(self.labels)

    def add_block(self, block: StepBlock) -> None:
        """Note what the steps of a block were."""
        self.labels.extend(block.label_of(index) for index in range(block.steps))

    def write(self, run_path: str) -> None:
        """Write `truth.json` into the run's directory (local runs only)."""
        (Path(run_path) / TRUTH_FILE).write_bytes(msgspec.json.encode(self))


def read_truth(run_path: str) -> TruthLog:
    """The truth that the demo left in a run's directory."""
    return msgspec.json.decode((Path(run_path) / TRUTH_FILE).read_bytes(), type=TruthLog)


def stretches(labels: Sequence[str], label: str) -> list[tuple[int, int]]:
    """First and last step of every maximal stretch of `label`, in order."""
    found: list[tuple[int, int]] = []
    for step, name in enumerate(labels):
        if name != label:
            continue
        if found and found[-1][1] == step - 1:
            found[-1] = (found[-1][0], step)
        else:
            found.append((step, step))
    return found


SLACK_STEPS = 5
"""How far, in steps, a boundary may be from the truth: one capture window."""


@dataclass(frozen=True)
class Planted:
    """One planted event and what the summary says of it.

    Attributes:
        name: compile, evaluation, checkpoints, slow input, shape change.
        truth: where it was planted, in words.
        found: the summary's own words for it, None where it does not name it.
    """

    name: str
    truth: str
    found: str | None


def check_planted(summary: RunSummary, truth: TruthLog) -> tuple[Planted, ...]:
    """Every planted event with the summary's words for it, in the order of the schedule."""
    rows: tuple[tuple[str, str, Callable[[RunSummary, list[tuple[int, int]]], str | None]], ...] = (
        ("compile", "compile", _find_compiles),
        ("evaluation", "eval", _find_eval),
        ("checkpoints", "checkpoint", _find_checkpoints),
        ("slow input", "input-stall", _find_slow_input),
        ("shape change", "train-large-batch", _find_shape_change),
    )
    checked = []
    for name, label, find in rows:
        where = stretches(truth.labels, label)
        shown = ", ".join(str(a) if a == b else f"{a}–{b}" for a, b in where[:4])
        more = f" and {len(where) - 4} more" if len(where) > 4 else ""
        checked.append(Planted(name, f"steps {shown}{more}", find(summary, where)))
    return tuple(checked)


def _event(summary: RunSummary, kinds: set[str], first: int, last: int) -> str | None:
    """The first event of a kind that touches the stretch, in its own words."""
    for event in summary.events:
        if event.kind not in kinds or event.first_step is None or event.last_step is None:
            continue
        if event.first_step <= last + SLACK_STEPS and event.last_step >= first - SLACK_STEPS:
            return event.text
    return None


def _find_compiles(summary: RunSummary, where: list[tuple[int, int]]) -> str | None:
    texts = [_event(summary, {"compile", "recompile", "shape-change"}, first, last) for first, last in where]
    return texts[0] if all(texts) else None


def _find_eval(summary: RunSummary, where: list[tuple[int, int]]) -> str | None:
    steps = sum(last - first + 1 for first, last in where)
    for phase in summary.phases:
        if "eval" in phase.name and abs(phase.steps - steps) <= SLACK_STEPS + len(where):
            return f"phase {phase.name}: {phase.steps} steps in {phase.segments} stretches"
    return None


def _find_checkpoints(summary: RunSummary, where: list[tuple[int, int]]) -> str | None:
    noticed = {checkpoint.step for checkpoint in summary.checkpoints}
    return f"{len(noticed)} checkpoints" if {first for first, _ in where} <= noticed else None


def _find_slow_input(summary: RunSummary, where: list[tuple[int, int]]) -> str | None:
    texts = [_event(summary, {"input-stall"}, first, last) for first, last in where]
    return texts[0] if all(texts) else None


def _find_shape_change(summary: RunSummary, where: list[tuple[int, int]]) -> str | None:
    first = where[0][0]
    return _event(summary, {"shape-change", "recompile"}, first - 1, first)
