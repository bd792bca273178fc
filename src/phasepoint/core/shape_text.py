"""Shapes as HLO writes them: `f32[128,768]{1,0}`."""

import re
from functools import cache
from math import prod
from typing import NamedTuple

_ARRAY = re.compile(r"([a-z][a-z0-9]*)\[([0-9,<=]*)\]")


class ArrayShape(NamedTuple):
    """An array's element type and dimensions."""

    element_type: str
    dims: tuple[int, ...]

    @property
    def elements(self) -> int:
        """How many there are."""
        return prod(self.dims)


@cache
def parse_array(text: str) -> ArrayShape | None:
    """The shape of an array, None for a tuple, a token or an opaque value.

    Example:
        >>> parse_array("f32[128,768]{1,0}")
        ArrayShape(element_type='f32', dims=(128, 768))
    """
    found = _ARRAY.match(text)
    if found is None:
        return None
    return ArrayShape(found[1], tuple(int(dim.removeprefix("<=")) for dim in found[2].split(",") if dim))
