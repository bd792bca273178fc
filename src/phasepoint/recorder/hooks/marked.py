"""Checkpoints that the job itself marks: `run.checkpoint(path)` after a save, or `with` that around it.

Its own file: the object that the job holds, beside hooks that it never sees.
"""

from collections.abc import Callable
from types import TracebackType

from phasepoint.recorder.seam.session import CheckpointWritten


class MarkedCheckpoint:
    """A mark; entered, the block is the checkpoint, and the mark is none.

    Args:
        written: the checkpoint, at the time of the call.
        end: called at the end of the block, unless it fails: what was not written whole is no checkpoint.

    Attributes:
        is_block: whether it was entered.
    """

    def __init__(self, written: CheckpointWritten, end: Callable[[CheckpointWritten], object]) -> None:
        self.written = written
        self.is_block = False
        self._end = end

    def __enter__(self) -> None:
        self.is_block = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self._end(self.written)
