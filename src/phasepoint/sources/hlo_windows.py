"""Work of windowed operations: how many multiply-adds a convolution really does.

Source: semantics of convolution at openxla.org/xla/operation_semantics; positions that fall into padding or between
dilated elements multiply by nothing and are not counted, as XLA's own `HloCostAnalysis` does it.
"""

from math import prod
from typing import Any

from phasepoint.sources.hlo_shapes import Shape

FLOP_PER_FMA = 2

MAX_KERNEL_SIZE = 2**22
"""Longest kernel whose positions are counted; above it the module is damaged, or the count would take seconds."""


def convolution_flop(proto: Any, lhs: Shape, rhs: Shape, result: Shape) -> int:
    """Floating-point operations of a convolution, two for each multiply-add on a real input element.

    Args:
        proto: the instruction's message: window, dimension numbers, group counts.
        lhs: input of the equivalent forward convolution.
        rhs: its kernel.
        result: its output.

    Raises:
        IndexError: the dimension numbers do not fit the shapes.
        ValueError: a kernel is too long to be real.
    """
    numbers = proto.convolution_dimension_numbers
    positions = [
        valid_positions(
            window,
            lhs.dims[numbers.input_spatial_dimensions[place]],
            rhs.dims[numbers.kernel_spatial_dimensions[place]],
            result.dims[numbers.output_spatial_dimensions[place]],
        )
        for place, window in enumerate(proto.window.dimensions)
    ]
    input_features: int = lhs.dims[numbers.input_feature_dimension] // max(proto.feature_group_count, 1)
    batch: int = lhs.dims[numbers.input_batch_dimension] // max(proto.batch_group_count, 1)
    output_features: int = result.dims[numbers.output_feature_dimension]
    return FLOP_PER_FMA * input_features * output_features * batch * prod(positions)


def valid_positions(window: Any, input_size: int, kernel_size: int, output_size: int) -> int:
    """Pairs (kernel element, output element) of one dimension that meet a real input element.

    Output element `o` and kernel element `k` meet place `o·stride + k·window_dilation − padding_low` of the input
    spread out by `base_dilation`; the place counts if it is a multiple of that and lies inside.

    Args:
        window: one `WindowDimension`.
        input_size: elements of the input along the dimension.
        kernel_size: elements of the kernel.
        output_size: elements of the output.

    Raises:
        ValueError: the kernel is longer than `MAX_KERNEL_SIZE`.
    """
    if kernel_size > MAX_KERNEL_SIZE:
        raise ValueError(f"a kernel of {kernel_size} elements")
    stride, spread = max(window.stride, 1), max(window.base_dilation, 1)
    last_place = (input_size - 1) * spread
    count = 0
    for k in range(kernel_size):
        offset = k * max(window.window_dilation, 1) - window.padding_low
        first = max(0, -(offset // stride))  # least o with o·stride + offset ≥ 0
        last = min(output_size - 1, (last_place - offset) // stride)
        count += _count_multiples(first, last, stride, offset, spread)
    return count


def _count_multiples(first: int, last: int, stride: int, offset: int, spread: int) -> int:
    """How many `o` of `[first, last]` make `o·stride + offset` a multiple of `spread`; hits recur every `spread`."""
    if last < first:
        return 0
    if spread == 1:
        return last - first + 1
    hits = [o for o in range(first, min(first + spread, last + 1)) if (o * stride + offset) % spread == 0]
    return sum((last - o) // spread + 1 for o in hits)


def window_elements(proto: Any) -> int:
    """Elements that one placing of the instruction's window covers."""
    return prod(dimension.size for dimension in proto.window.dimensions)
