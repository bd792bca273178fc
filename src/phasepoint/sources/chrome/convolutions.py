"""What convolutions of PyTorch give, from their arguments: stride, padding and dilation are not among the shapes.

Source of the arguments' places: `aten/src/ATen/native/native_functions.yaml` (PyTorch 2.13, read 2026-11-27).
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class _Places(NamedTuple):
    """Where in a convolution's arguments stand stride, padding, dilation, and whether it is transposed."""

    stride: int
    padding: int
    dilation: int | None = None
    transposed: int | None = None


_USUAL = _Places(3, 4, 5)
FORWARD: Mapping[str, _Places] = {
    **{f"aten::conv{rank}d": _USUAL for rank in (1, 2, 3)},
    "aten::convolution": _Places(3, 4, 5, 6),
    "aten::_convolution": _Places(3, 4, 5, 6),
    "aten::cudnn_convolution": _Places(3, 2, 4),
    "aten::cudnn_convolution_relu": _USUAL,
    "aten::miopen_convolution": _Places(4, 3, 5),
    "aten::mkldnn_convolution": _Places(4, 3, 5),
    "aten::_conv_depthwise2d": _Places(4, 5, 6),
    "aten::conv_depthwise3d": _Places(4, 5, 6),
    "aten::_slow_conv2d_forward": _Places(4, 5),
    "aten::thnn_conv2d": _Places(4, 5),
    "aten::slow_conv3d": _Places(4, 5),
    "aten::slow_conv_dilated2d": _Places(4, 5, 6),
}
"""Operator → places in its arguments; an input and a weight come first in each."""

BACKWARD = "aten::convolution_backward"
"""The operator that gives a convolution's gradients."""

_TRANSPOSED, _MASK = 7, 10
"""Where its arguments say whether the convolution is transposed, and which gradients are wanted."""


def is_convolution(name: str) -> bool:
    """Whether an operator is one whose result can be told."""
    return name in FORWARD or name == BACKWARD


def convolution_result(name: str, dims: bytes, concrete: bytes) -> list[list[int]]:
    """Shapes of what a convolution gives: its result, or backwards the gradients of its input and weight.

    Args:
        name: operator: `aten::conv2d`.
        dims: JSON of `Input Dims`.
        concrete: JSON of `Concrete Inputs`: a list of texts.

    Returns:
        Nothing where it is not known: other operators, transposed convolutions, arguments that do not fit.

    Example:
        >>> convolution_result("aten::conv2d", b"[[1,3,8,8],[4,3,3,3]]", b'["","","","[2,2]","[1,1]","[1,1]","1"]')
        [[1, 4, 4, 4]]
    """
    try:
        shapes, arguments = json.loads(dims), json.loads(concrete)
        if name == BACKWARD:
            wanted = json.loads(arguments[_MASK].lower()) if arguments[_TRANSPOSED].lower() == "false" else []
            return [list(shape) for shape, is_wanted in zip(shapes[1:3], wanted, strict=False) if is_wanted]
        places = FORWARD.get(name)
        return [] if places is None else _result(places, shapes, arguments)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError, ZeroDivisionError):
        return []


def _result(places: _Places, shapes: Any, arguments: Any) -> list[list[int]]:
    given, weight = shapes[:2]
    rank = len(weight) - 2
    if places.transposed is not None and arguments[places.transposed].lower() != "false":
        return []
    stride, padding = (_each(arguments[place], rank) for place in (places.stride, places.padding))
    dilation = [1] * rank if places.dilation is None else _each(arguments[places.dilation], rank)
    if rank < 1 or len(given) not in (rank + 1, rank + 2):
        return []
    sides = [
        (size + 2 * around - apart * (kernel - 1) - 1) // step + 1
        for size, kernel, step, around, apart in zip(given[-rank:], weight[2:], stride, padding, dilation, strict=True)
    ]
    found = [*given[: len(given) - rank - 1], weight[0], *sides]
    return [found] if min(found) >= 0 else []


def _each(text: str, rank: int) -> Sequence[int]:
    """A number for each dimension: `[2, 2]`, or one for all."""
    value = json.loads(text)
    values: list[int] = value if isinstance(value, list) else [value]
    return values * rank if len(values) == 1 else values
