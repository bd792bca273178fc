"""How much a batch holds: what a step is given to do, without a look at any value.

Its own file: it has a promise of its own. Only attributes that cost nothing are read, of arrays in tuples, lists and
dictionaries: nothing that loads a value, waits for a device or runs a line of the job's own.
"""

from collections import UserDict
from typing import Any

from phasepoint.recorder.clock.step_clock import NOT_KNOWN

_MOST_ITEMS, _MOST_DEPTH = 64, 3


def count_elements(batch: Any) -> int:
    """Numbers in the arrays of a batch; `NOT_KNOWN` where it holds none, or things that are not known here.

    Example:
        >>> import numpy as np
        >>> count_elements((np.zeros((4, 3)), {"label": np.zeros(4)}))
        16
        >>> count_elements("a file's name")
        -1
    """
    count = _count(batch, 0)
    return count if count > 0 else NOT_KNOWN


_ITEMS, _VALUES, _DATA, _NUMEL, _SIZE, _OTHER = range(6)
_SORTS: dict[type, int] = {}
"""How values of a type are counted; asked for at every step, so that each type is looked at once."""


def _sort_of(kind: type) -> int:
    if issubclass(kind, tuple | list):
        plain = (tuple.__iter__, list.__iter__, tuple.__len__, list.__len__)
        return _ITEMS if kind.__iter__ in plain and kind.__len__ in plain else _OTHER
    if issubclass(kind, dict):
        return _VALUES
    if issubclass(kind, UserDict):
        return _DATA
    if kind.__module__.startswith("torch._"):  # a tensor of a tracer's, whose size may be a symbol
        return _OTHER
    if hasattr(kind, "numel"):  # PyTorch: `size` is its shape there
        return _NUMEL
    return _SIZE if hasattr(kind, "__array__") else _OTHER


def _count(value: Any, depth: int) -> int:
    kind = type(value)
    sort = _SORTS.get(kind)
    if sort is None:
        sort = _SORTS[kind] = _sort_of(kind)
    if sort == _NUMEL:
        return int(value.numel())
    if sort == _SIZE:
        size = getattr(value, "size", None)
        return size if type(size) is int else 0
    if sort == _OTHER:
        return 0
    if sort == _DATA:
        return _count(value.data, depth)
    if depth == _MOST_DEPTH or len(value) > _MOST_ITEMS:
        return 0
    count = 0
    for item in dict.values(value) if sort == _VALUES else value:
        count += _count(item, depth + 1)
    return count
