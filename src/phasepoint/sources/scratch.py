"""Memory that the arrays of one reading stage leave to those of the next.

The first touch of a page costs more than what is then done with it: much of a large capture's reading time is the
system's, for handing out pages. What one stage needs and the next does not therefore stands where the next one's will.
"""

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

_ALIGNMENT = 64


class Scratch:
    """Arrays one behind the other in one piece of memory, of which what is untouched takes none.

    Args:
        size_bytes: its size; arrays for which there is no room left get memory of their own.
    """

    def __init__(self, size_bytes: int) -> None:
        self._memory = np.empty(size_bytes, np.uint8)
        self._used_bytes = 0

    def take(self, size: int, dtype: DTypeLike) -> NDArray[Any]:
        """An array, `[size]`, that is not filled."""
        begin = self._used_bytes
        end = begin + size * np.dtype(dtype).itemsize
        if end > len(self._memory):
            return np.empty(size, dtype)
        self._used_bytes = -(-end // _ALIGNMENT) * _ALIGNMENT
        return self._memory[begin:end].view(dtype)

    def reset(self) -> None:
        """Give the memory out again from its beginning; what was taken before must not be used any more."""
        self._used_bytes = 0
