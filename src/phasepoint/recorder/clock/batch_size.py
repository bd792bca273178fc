"""How much a batch holds: what a step is given to do, without a look at any value.

Its own file: it has a promise of its own. Only attributes that cost nothing are read, of arrays in tuples, lists and
dictionaries: nothing that loads a value, waits for a device or runs a line of the job's own.
"""

from collections import UserDict
from typing import Any

NOT_COUNTED = -1
"""What `count_elements` gives where it does not know."""

_MOST_ITEMS, _MOST_DEPTH = 64, 3


def count_elements(batch: Any) -> int:
    """Numbers in the arrays of a batch; `NOT_COUNTED` where it holds none, or things that are not known here.

    Example:
        >>> import numpy as np
        >>> count_elements((np.zeros((4, 3)), {"label": np.zeros(4)}))
        16
        >>> count_elements("a file's name")
        -1
    """
    count = _count(batch, 0)
    return count if count > 0 else NOT_COUNTED


def _count(value: Any, depth: int) -> int:
    if isinstance(value, UserDict):
        value = value.data
    if isinstance(value, tuple | list | dict):
        items = dict.values(value) if isinstance(value, dict) else value
        if depth == _MOST_DEPTH or len(items) > _MOST_ITEMS:
            return 0
        return sum(_count(item, depth + 1) for item in items)
    kind = type(value)
    if hasattr(kind, "numel"):  # PyTorch: `size` is its shape there
        return int(value.numel())
    size = getattr(value, "size", None) if hasattr(kind, "__array__") else None
    return size if type(size) is int else 0
