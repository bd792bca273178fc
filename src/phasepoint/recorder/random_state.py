"""The global generators of random numbers that a data loader may draw from: Python's, NumPy's, PyTorch's."""

import random
import sys
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class RandomState:
    """State of the global generators; None for those of libraries that were not imported, or devices not in use."""

    python: Any
    numpy: Any
    torch: Any
    cuda: Any

    @staticmethod
    def take() -> "RandomState":
        """The state now. Imports nothing and starts no device."""
        numpy, torch = sys.modules.get("numpy.random"), sys.modules.get("torch")
        cuda = torch is not None and torch.cuda.is_initialized()
        return RandomState(
            random.getstate(),
            None if numpy is None else numpy.get_state(),
            None if torch is None else torch.get_rng_state(),
            torch.cuda.get_rng_state_all() if torch is not None and cuda else None,
        )

    def put_back(self) -> None:
        """Let the generators go on from here."""
        random.setstate(self.python)
        if self.numpy is not None:
            sys.modules["numpy.random"].set_state(self.numpy)
        if self.torch is not None:
            sys.modules["torch"].set_rng_state(self.torch)
        if self.cuda is not None:
            sys.modules["torch"].cuda.set_rng_state_all(self.cuda)
