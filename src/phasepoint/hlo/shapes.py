"""Shapes of HLO values: element types, sizes in bytes and the text that HLO writes, `f32[128,768]{1,0}`.

Source: openxla/xla, `xla/xla_data.proto` (element types), `xla/shape_util.cc` (sizes), `xla/layout.cc` (layout text).
"""

import re
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any, NamedTuple

_ELEMENT_TYPES: dict[int, tuple[str, int]] = {
    1: ("pred", 8),
    2: ("s8", 8),
    3: ("s16", 16),
    4: ("s32", 32),
    5: ("s64", 64),
    6: ("u8", 8),
    7: ("u16", 16),
    8: ("u32", 32),
    9: ("u64", 64),
    10: ("f16", 16),
    11: ("f32", 32),
    12: ("f64", 64),
    15: ("c64", 64),
    16: ("bf16", 16),
    18: ("c128", 128),
    19: ("f8e5m2", 8),
    20: ("f8e4m3fn", 8),
    21: ("s4", 4),
    22: ("u4", 4),
    23: ("f8e4m3b11fnuz", 8),
    24: ("f8e5m2fnuz", 8),
    25: ("f8e4m3fnuz", 8),
    26: ("s2", 2),
    27: ("u2", 2),
    28: ("f8e4m3", 8),
    29: ("f8e3m4", 8),
    30: ("s1", 1),
    31: ("u1", 1),
    32: ("f4e2m1fn", 4),
    33: ("f8e8m0fnu", 8),
}
"""Number in the proto → (text, bits of one element)."""

ELEMENT_BYTES = {name: max(bits, 8) // 8 for name, bits in _ELEMENT_TYPES.values()}
ELEMENT_BYTES |= {"bool": 1} | {f"i{bits}": bits // 8 for bits in (8, 16, 32, 64)}
"""Bytes of one element, by the names of XLA and of our shapes. Types of fewer than eight bits take a whole byte, as XLA
stores them unless told to pack them."""

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


POINTER_BYTES = 8
"""Size of one entry of a tuple's index table, as XLA counts it on 64-bit hosts."""

TUPLE, OPAQUE, TOKEN, BUFFER = 13, 14, 17, 34
_BARE = {OPAQUE: "opaque", TOKEN: "token"}


@dataclass(frozen=True, slots=True)
class Shape:
    """Shape of one HLO value.

    Attributes:
        element_type: number of the element type in `xla_data.proto`.
        dims: dimensions; empty for a scalar and for a tuple.
        parts: shapes of a tuple's entries.
        text: as HLO writes it, with layout: `f32[8,8]{1,0}`.
        elements: elements in the array; for a tuple 0.
        size_bytes: bytes of the array; for a tuple its index table, which is what touching the tuple itself costs.
        minor_to_major: order of the dimensions in memory, fastest first.
    """

    element_type: int
    dims: tuple[int, ...]
    parts: tuple["Shape", ...]
    text: str
    elements: int
    size_bytes: int
    minor_to_major: tuple[int, ...]

    @property
    def is_tuple(self) -> bool:
        """Whether the value is a tuple."""
        return self.element_type == TUPLE

    @property
    def is_array(self) -> bool:
        """Whether the value is an array (or a scalar)."""
        return self.element_type in _ELEMENT_TYPES

    def leaves(self) -> list["Shape"]:
        """The arrays (and tokens) in it, depth first; the shape itself where it is no tuple."""
        return [leaf for part in self.parts for leaf in part.leaves()] if self.is_tuple else [self]


class ShapeCache:
    """Shapes by their wire bytes: a program of 50,000 instructions has a few hundred different ones."""

    def __init__(self) -> None:
        self._by_wire: dict[bytes, Shape] = {}

    def shape(self, proto: Any) -> Shape:
        """The shape of a `ShapeProto`."""
        wire = proto.SerializeToString()
        shape = self._by_wire.get(wire)
        if shape is None:
            shape = self._by_wire[wire] = read_shape(proto)
        return shape


def read_shape(proto: Any) -> Shape:
    """`ShapeProto` → `Shape`. An element type that is not known here is taken for an opaque value of no size."""
    kind = proto.element_type
    dims = tuple(proto.dimensions)
    parts = tuple(read_shape(part) for part in proto.tuple_shapes)
    minor_to_major = tuple(proto.layout.minor_to_major)
    if kind in _ELEMENT_TYPES:
        elements = prod(dims)
        bits = proto.layout.element_size_in_bits or max(_ELEMENT_TYPES[kind][1], 8)
        size = -(-elements * bits // 8)
    elif kind == TUPLE:
        elements, size = 0, POINTER_BYTES * len(parts)
    else:
        elements, size = 0, POINTER_BYTES if kind == OPAQUE else 0
    return Shape(kind, dims, parts, _text(proto, parts), elements, size, minor_to_major)


def _text(proto: Any, parts: tuple[Shape, ...]) -> str:
    kind = proto.element_type
    if kind == TUPLE:
        return f"({', '.join(part.text for part in parts)})"
    if kind == BUFFER:
        return f"b({', '.join(part.text for part in parts)})"
    if kind not in _ELEMENT_TYPES:
        return f"{_BARE.get(kind, f'type{kind}')}[]"
    dynamic = list(proto.is_dynamic_dimension) or [False] * len(proto.dimensions)
    dims = ",".join(f"{'<=' if free else ''}{dim}" for dim, free in zip(proto.dimensions, dynamic, strict=False))
    return f"{_ELEMENT_TYPES[kind][0]}[{dims}]{_layout_text(proto.layout)}"


def _layout_text(layout: Any) -> str:
    """`{1,0:T(8,128)S(1)}`: order of dimensions, tiles, tail padding, element size, memory space."""
    extras = []
    if layout.tiles:
        extras.append("T" + "".join(f"({','.join(map(_tile_dim, tile.dimensions))})" for tile in layout.tiles))
    if layout.tail_padding_alignment_in_elements > 1:
        extras.append(f"L({layout.tail_padding_alignment_in_elements})")
    if layout.element_size_in_bits:
        extras.append(f"E({layout.element_size_in_bits})")
    if layout.memory_space:
        extras.append(f"S({layout.memory_space})")
    order = ",".join(map(str, layout.minor_to_major))
    if not order and not extras:
        return ""
    return f"{{{order}:{''.join(extras)}}}" if extras else f"{{{order}}}"


def _tile_dim(dim: int) -> str:
    """A tile dimension that combines with the next is the least int64 in the proto and `*` in the text."""
    return "*" if dim == -(2**63) else str(dim)
