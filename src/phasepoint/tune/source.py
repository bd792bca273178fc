"""What a loader must be able to do to be tuned: an adapter gives a `LoaderSource`, and that opens feeds."""

import hashlib
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

from phasepoint.recorder.resume.loader_state import RandomState
from phasepoint.tune.cache import Cacheable
from phasepoint.tune.knobs import Knob, Setting
from phasepoint.tune.pipeline import Width

Positions = Callable[[int], int | None]
"""From a position on, the first that a feed makes; None where it makes no more."""


class WrongBatchError(Exception):
    """A feed's next batch is not that of the position: a mistake of ours, which must not reach the loop."""


class BatchTime(NamedTuple):
    """What making one batch took, ns: on the clock, of CPU time, waiting for a core; what could be kept; its arrays."""

    wall_ns: int
    cpu_ns: int
    delay_ns: int = 0
    cacheable: Cacheable = Cacheable()
    arrays: int = 0


class Feed(Protocol):
    """A loader of one setting, in one epoch. It gives the batches at its positions, in their order.

    Attributes:
        was_ready: whether the last batch had been made before it was asked for.
    """

    was_ready: bool

    def take(self, position: int) -> Any:
        """The batch at a position, which is the next that the feed makes.

        Raises StopIteration at the end, `WrongBatchError` where it is another, and what the loader raises.
        """

    def time_of(self, position: int) -> BatchTime | None:
        """What making the batch at a position took; None where it is not known."""

    def close(self) -> None:
        """End it. It may return before its processes have ended; those that outlive epochs end with `let_go`."""


class LoaderSource(Protocol):
    """A factory of loaders of one kind.

    Attributes:
        kind: what it makes, in words: `torch DataLoader`.
        can_repeat: whether two feeds can make the same batch.
        as_written: the setting that the factory has of itself.
        worker_bytes: memory that each process of the next feed may take at most, None without a limit.
        silent_s: how long a process of the next feed may be silent before it is taken to hang.
        room_bytes: memory that what is kept from one epoch to the next may take.
    """

    kind: str
    can_repeat: bool
    as_written: Setting
    worker_bytes: int | None
    silent_s: float
    room_bytes: int

    @property
    def knobs(self) -> Sequence[Knob]:
        """What can be turned, as far as is known by now."""

    def length(self) -> int | None:
        """Batches of an epoch, None where that is not known."""

    def width(self, setting: Setting) -> Width:
        """What a setting means for the pipeline."""

    def begin_epoch(self) -> Any:
        """The order of a new epoch's batches, as `open` takes it."""

    def open(
        self, order: Any, setting: Setting, positions: Positions, *, start: int, begins_epoch: bool = False
    ) -> Feed:
        """A feed of the epoch's batches from position `start` on.

        The one that begins the epoch draws random numbers as the loader would without tuning; others leave no trace.
        """

    def let_go(self, setting: Setting, stays: Setting) -> None:
        """A setting is not in force any more, and another one is: what only the first has outlive its epochs ends."""

    def cache_bytes(self) -> int:
        """Memory of what is kept from one epoch to the next, which belongs to no process."""

    def close(self) -> None:
        """There is no more epoch: what outlives epochs ends."""


@contextmanager
def random_numbers_kept() -> Iterator[None]:
    """What is drawn inside from the generators of Python, NumPy and PyTorch leaves no trace in them."""
    state = RandomState.take(with_devices=False)
    try:
        yield
    finally:
        state.put_back()


def seed_random_numbers(seeds: Sequence[int]) -> None:
    """Begin those generators anew, from several numbers."""
    digest = hashlib.blake2b(repr(tuple(seeds)).encode(), digest_size=8).digest()
    seed = int.from_bytes(digest, "little")
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed % 2**32)
    if hasattr(sys.modules.get("torch"), "manual_seed"):
        sys.modules["torch"].default_generator.manual_seed(seed % 2**63)


def random_fingerprint() -> tuple[bytes, ...]:
    """Two of them differ where something was drawn from those generators in between."""
    state = RandomState.take(with_devices=False)
    torch = b"" if state.torch is None else bytes(state.torch.numpy())
    return repr(state.python).encode(), repr(state.numpy).encode(), torch
