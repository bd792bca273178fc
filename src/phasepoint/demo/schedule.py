"""The demo's schedule: what is planted, where, and how long. Pure; the truth follows from it."""

from dataclasses import dataclass

LEAST_SECONDS = 10
"""Below it some planted events would have too few steps to be found: a choice, with slack for a slow machine."""
CYCLES = 12
"""Pairs of a training stretch and an evaluation: a choice, enough of each for a phase to recur."""
SLOW_INPUT_CYCLES = (5, 6)
"""Cycles (counted from 0) in which the input pipeline is slow."""
SHAPE_CHANGE_CYCLE = 9
"""First cycle with the larger batch."""

_SMALL_BATCH, _LARGE_BATCH = 128, 192
"""Rows of a batch in training, before and after the change: a choice, milliseconds apart on two cores."""
_EVAL_BATCH = 256
"""Rows of a batch in an evaluation: a choice, all but five of the 261 images that are held back."""
_EVAL_STEPS = 1 / 3
"""Steps of an evaluation, as a ratio of those of the training block before it."""
_NOMINAL_STEP_S = 0.0335
"""Mean step time on two idle cores (0.035 s, measured 2026-11-21); only sets how many steps make a minute."""


@dataclass(frozen=True)
class StepBlock:
    """A stretch of steps of one sort.

    Attributes:
        kind: "train" or "eval".
        steps: how many.
        batch_size: rows of a batch.
        slow_input: whether the loader distorts its images.
        input_passes: how often it distorts each.
        compiles: whether the first step compiles a program.
        checkpoint: whether the last step saves the state.
        name: label of its steps in the truth.
    """

    kind: str
    steps: int
    batch_size: int
    slow_input: bool = False
    input_passes: int = 0
    compiles: bool = False
    checkpoint: bool = False
    name: str = ""

    def saves_at(self, index: int) -> bool:
        """Whether the step at `index` of the block saves a checkpoint."""
        return self.checkpoint and index == self.steps - 1

    def label_of(self, index: int) -> str:
        """What the step at `index` of the block is, in truth."""
        if self.compiles and index == 0:
            return "compile"
        return "checkpoint" if self.saves_at(index) else self.name


def plan_schedule(seconds: float) -> tuple[StepBlock, ...]:
    """Twelve cycles of training and evaluation that last about `seconds` on two cores.

    Raises:
        ValueError: `seconds` is too short for every planted event to be there (less than 10).
    """
    if seconds < LEAST_SECONDS:
        raise ValueError(f"the demo needs at least {LEAST_SECONDS} seconds for its events, got {seconds:g}")
    steps = max(int(0.9 * seconds / (CYCLES * (1 + _EVAL_STEPS) * _NOMINAL_STEP_S)), 20)
    blocks: list[StepBlock] = []
    for cycle in range(CYCLES):
        blocks.append(_train_block(cycle, steps))
        eval_steps = max(int(steps * _EVAL_STEPS), 8)
        blocks.append(StepBlock("eval", eval_steps, _EVAL_BATCH, compiles=cycle == 0, name="eval"))
    return tuple(blocks)


def _train_block(cycle: int, steps: int) -> StepBlock:
    slow = cycle in SLOW_INPUT_CYCLES
    large = cycle >= SHAPE_CHANGE_CYCLE
    return StepBlock(
        "train",
        steps,
        _LARGE_BATCH if large else _SMALL_BATCH,
        slow_input=slow,
        input_passes=5 if slow else 0,
        compiles=cycle in (0, SHAPE_CHANGE_CYCLE),
        checkpoint=cycle % 2 == 1,
        name="input-stall" if slow else ("train-large-batch" if large else "train"),
    )
