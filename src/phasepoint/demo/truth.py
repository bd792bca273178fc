"""What the demo planted, written down by the job itself, and whether a summary names it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from phasepoint.demo.schedule import Block

TRUTH_FILE = "truth.json"


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

    def add_block(self, block: Block) -> None:
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
