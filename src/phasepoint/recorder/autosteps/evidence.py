"""What tells that a training step has ended, from the strongest to the weakest.

Its own file: it is the ranking, which every source names its place in and which knows nothing of a recording.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

Framework = Literal["jax", "torch"]


class Rank(IntEnum):
    """How much a piece of evidence says. Of two that are seen in one process the higher one leads."""

    REPEATED_PROGRAM = 10
    """A compiled program runs again and again: it may as well evaluate or prepare data."""
    GRADIENT = 20
    """A gradient is taken outside of a compiled program."""
    PARAMETER_UPDATE = 30
    """Parameters changed between two backward passes, without an optimizer."""
    FRAMEWORK_LOOP = 40
    """A framework's loop says that it did a step; it may count batches and not updates."""
    GRADIENT_PROGRAM = 50
    """A compiled program that takes a gradient was executed."""
    UPDATE_PROGRAM = 60
    """A compiled program that applies an optimizer's update was executed."""
    OPTIMIZER_STEP = 70
    """An optimizer updated the parameters."""
    STEP_ANNOTATION = 80
    """The job itself marks its steps for a profiler."""
    TRAINING_LOOP = 90
    """The loop of a framework whose batches are its updates."""


@dataclass(frozen=True)
class StepEvidence:
    """One source of steps.

    Attributes:
        rank: how much it says.
        framework: whose profiler captures the windows.
        text: what the steps are, for people: `optimizer steps (torch.optim)`.
    """

    rank: Rank
    framework: Framework
    text: str
