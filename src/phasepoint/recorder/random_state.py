"""The global generators of random numbers that a data loader may draw from: Python's, NumPy's, PyTorch's."""

import random
import sys
from typing import Any

from msgspec import Struct

from phasepoint.recorder.loader_state import plain_state, rich_state


class RandomState(Struct, frozen=True):
    """State of the global generators; None for those of libraries that were not imported, or devices not in use."""

    python: Any
    numpy: Any
    torch: Any
    cuda: Any

    @staticmethod
    def take(*, with_devices: bool = True) -> "RandomState":
        """The state now. Imports nothing and starts no device.

        Args:
            with_devices: whether to ask devices that are in use for theirs; without, nothing waits for a device.
        """
        numpy, torch = sys.modules.get("numpy.random"), sys.modules.get("torch")
        cuda = with_devices and torch is not None and torch.cuda.is_initialized()
        return RandomState(
            random.getstate(),
            None if numpy is None else numpy.get_state(),
            None if torch is None else torch.get_rng_state(),
            torch.cuda.get_rng_state_all() if torch is not None and cuda else None,
        )

    def put_back(self) -> None:
        """Let the generators go on from here."""
        random.setstate(self.python)
        numpy, torch = sys.modules.get("numpy.random"), sys.modules.get("torch")
        if self.numpy is not None and numpy is not None:
            numpy.set_state(self.numpy)
        if self.torch is not None and torch is not None:
            torch.set_rng_state(self.torch)
        if self.cuda is not None and torch is not None:
            torch.cuda.set_rng_state_all(self.cuda)

    def to_plain(self) -> Any:
        """The host's generators as JSON has them; loaders draw from no others."""
        return plain_state([self.python, self.numpy, self.torch])

    @staticmethod
    def from_plain(plain: Any) -> "RandomState":
        """The state from `to_plain`; raises KeyError, TypeError or ValueError where it is not of its form."""
        python, numpy, torch = rich_state(plain)
        return RandomState(python, numpy, torch, None)
