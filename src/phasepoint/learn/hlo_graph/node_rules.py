"""Columns of a node's row: its opcode's number, and what the attributes of each opcode say (windows, dots, slices, …).

Lists of varying length are cut off at `LISTED` (windows: `WINDOWED`) entries and accompanied by sum and product. What
decides on a CPU is whether the innermost dimension in memory is walked in order, so each opcode that may break that
order says what becomes of the innermost dimension ("minor").
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from phasepoint.core.arrays import Float32s
from phasepoint.hlo.shapes import Shape
from phasepoint.learn.hlo_graph.kernels import KernelNode

"""HLO's opcodes, numbered for good: the number of an opcode is part of stored models."""

OPCODES: tuple[str, ...] = (
    *("unknown", "abs", "acos", "acosh", "add", "add-dependency", "after-all", "all-gather", "all-gather-done"),
    *("all-gather-start", "all-reduce", "all-reduce-done", "all-reduce-start", "all-to-all", "and", "asin", "asinh"),
    *("async-done", "async-start", "async-update", "atan2", "atanh", "batch-norm-grad", "batch-norm-inference"),
    *("batch-norm-training", "bitcast", "bitcast-convert", "broadcast", "call", "cbrt", "ceil", "cholesky", "clamp"),
    *("collective-broadcast", "collective-permute", "collective-permute-done", "collective-permute-start", "compare"),
    *("complex", "concatenate", "conditional", "constant", "convert", "convolution", "copy", "copy-done"),
    *("copy-start", "cosine", "cosh", "count-leading-zeros", "custom-call", "divide", "domain", "dot"),
    *("dynamic-reshape", "dynamic-slice", "dynamic-update-slice", "erf", "exponential", "exponential-minus-one"),
    *("fft", "floor", "fusion", "gather", "get-dimension-size", "get-tuple-element", "imag", "infeed", "iota"),
    *("is-finite", "log", "log-plus-one", "logistic", "map", "maximum", "minimum", "mulhi", "multiply", "negate"),
    *("not", "opt-barrier", "or", "outfeed", "pad", "parameter", "partition-id", "popcnt", "power"),
    *("ragged-all-to-all", "ragged-dot", "real", "recv", "recv-done", "reduce", "reduce-precision", "reduce-scatter"),
    *("reduce-window", "remainder", "replica-id", "reshape", "reverse", "rng", "rng-bit-generator"),
    *("rng-get-and-update-state", "round-nearest-afz", "round-nearest-even", "rsqrt", "scaled-dot", "scan"),
    *("scatter", "select", "select-and-scatter", "send", "send-done", "set-dimension-size", "shift-left"),
    *("shift-right-arithmetic", "shift-right-logical", "sign", "sine", "sinh", "slice", "sort", "sqrt"),
    *("stochastic-convert", "subtract", "tan", "tanh", "topk", "transpose", "triangular-solve", "tuple", "while"),
    "xor",
)
"""0 stands for every opcode that this list does not know. New ones go to the end, with a new `FEATURISER_VERSION`.

Source: openxla/xla, `xla/hlo/ir/hlo_opcode.h`, the 133 opcodes of jaxlib 0.10.2.
"""

OPCODE_IDS = {name: place for place, name in enumerate(OPCODES)}
"""Opcode → number."""

MOVEMENT = frozenset(
    {"bitcast", "bitcast-convert", "broadcast", "concatenate", "copy", "copy-start", "dynamic-reshape", "iota", "pad"}
    | {"reshape", "reverse", "slice", "transpose", "get-tuple-element", "tuple", "constant", "parameter"}
)
"""Opcodes that only place values."""

INDEXED = frozenset({"gather", "scatter", "dynamic-slice", "dynamic-update-slice"})
"""Opcodes that find their place at run time."""

REDUCING = frozenset({"reduce", "reduce-window", "select-and-scatter", "map", "scan"})
"""Opcodes that apply a computation of their own to many elements."""

MATRIX = frozenset({"dot", "ragged-dot", "scaled-dot", "cholesky", "triangular-solve"})
"""Opcodes of linear algebra."""

COLLECTIVE = frozenset(
    {"all-gather", "all-gather-start", "all-reduce", "all-reduce-start", "all-to-all", "collective-broadcast"}
    | {"collective-permute", "collective-permute-start", "ragged-all-to-all", "reduce-scatter", "recv", "send"}
)
"""Opcodes that exchange with other devices."""


LISTED, WINDOWED = 6, 4
_WINDOW_LISTS = ("size", "stride", "padding_low", "padding_high", "dilation", "base_dilation", "reversed")


def _listed(name: str, length: int = LISTED) -> tuple[str, ...]:
    return tuple(f"{name}_{place}" for place in range(length))


NODE_FEATURE_NAMES: tuple[str, ...] = (
    # the value: type, shape (logical order), layout (minor to major), sizes in the order of memory
    *("is_float", "is_integer", "is_predicate", "is_complex", "element_bytes", "rank"),
    *_listed("dim"),
    *("dim_sum", "elements", "size_bytes"),
    *_listed("layout"),
    *("minor_size", "second_minor_size", "minor_bytes"),
    # its place in the kernel
    *("is_root", "is_parameter", "is_output", "users", "operands", "input_elements", "input_bytes"),
    # its work, and what one application of a reduction's computation costs
    *("flop", "transcendentals", "applied_flop", "applied_instructions"),
    # window: dimensions that do nothing (size 1, stride 1, no padding) are left out
    *(name for entry in _WINDOW_LISTS for name in _listed(f"window_{entry}", WINDOWED)),
    *("window_size_sum", "window_size_product", "window_stride_sum", "window_stride_product", "window_padding_sum"),
    *("window_dilation_product", "window_base_dilation_product", "window_reversed_sum", "window_covers_minor"),
    # dot: sizes, and whether the dimension summed over is innermost in each operand
    *("dot_batch", "dot_m", "dot_n", "dot_k", "dot_lhs_k_minor", "dot_rhs_k_minor"),
    # convolution
    *("conv_batch", "conv_in", "conv_out", "conv_groups", "conv_batch_groups", "conv_output_places"),
    *("conv_kernel_places", "conv_input_feature_minor", "conv_output_feature_minor", "conv_kernel_output_minor"),
    # reduce: which dimensions, in the order of memory
    *_listed("reduced"),
    *("reduced_elements", "reduced_sum", "reduces_minor"),
    # transpose, copy, reshape
    *_listed("permutation"),
    *("moves_minor", "changes_layout"),
    # slice, pad
    *_listed("slice_start"),
    *_listed("slice_limit"),
    *_listed("slice_stride"),
    *("slice_stride_product", "taken_ratio", "takes_whole_minor", "minor_stride"),
    # gather, scatter, dynamic slices
    *("indexed_elements", "index_count", "indexes_whole_minor"),
    # broadcast
    *("broadcast_factor", "broadcasts_minor", "broadcasts_scalar"),
    # concatenate, sort, iota, reverse: the dimension along which
    *("axis_size", "axis_is_minor"),
    # costly arithmetic
    *("is_division", "is_integer_division", "is_comparison", "is_select", "is_conversion"),
    # what the features do not know
    *("is_dynamic", "is_opaque"),
)
"""Name of each column of `node_features`; sizes count elements unless the name says bytes."""

COLUMN_OF = {name: place for place, name in enumerate(NODE_FEATURE_NAMES)}
"""Name → column."""

_FLAG_WORDS = ("is_", "moves_", "changes_", "takes_", "indexes_", "reduces_", "broadcasts_", "window_covers_")
NODE_FLAGS = np.array(
    [name.startswith(_FLAG_WORDS) or name.endswith(("_minor", "_ratio")) for name in NODE_FEATURE_NAMES]
)
"""Which columns are flags or ratios, 0 to 1; the others are sizes and counts."""


Rule = Callable[[Float32s, KernelNode, list[Shape]], None]

INTEGER_TYPES = frozenset({2, 3, 4, 5, 6, 7, 8, 9, 21, 22, 26, 27, 30, 31})
"""Numbers of the integer types in `xla_data.proto`."""

_MOST = 1e30
"""Largest number that is put into a row: a damaged module may claim more than float32 holds."""


def number(value: float) -> float:
    """A value that float32 holds."""
    return float(value) if -_MOST < value < _MOST else _MOST


def minor_dim(shape: Shape) -> int | None:
    """The dimension that is innermost in memory, None for a scalar; without a layout it is the last."""
    if not shape.dims:
        return None
    return shape.minor_to_major[0] if shape.minor_to_major else len(shape.dims) - 1


def memory_order(shape: Shape) -> tuple[int, ...]:
    """Dimensions from the innermost outwards."""
    return shape.minor_to_major or tuple(range(len(shape.dims) - 1, -1, -1))


def cut(values: Sequence[Any], length: int = LISTED) -> list[float]:
    """The first values, filled up with 0."""
    kept = [number(value) for value in values[:length]]
    return kept + [0.0] * (length - len(kept))


def _set(row: Float32s, **values: float) -> None:
    for name, value in values.items():
        row[COLUMN_OF[name]] = number(value)


def _set_list(row: Float32s, name: str, values: Sequence[Any], length: int = LISTED) -> None:
    start = COLUMN_OF[f"{name}_0"]
    row[start : start + length] = cut(values, length)


def _window(row: Float32s, node: KernelNode, read: list[Shape]) -> None:
    assert node.instruction is not None
    dims = list(node.instruction.proto.window.dimensions)
    kept = [d for d in dims if d.size != 1 or d.stride > 1 or d.padding_low or d.padding_high or d.base_dilation > 1]
    lists = {
        "size": [d.size for d in kept],
        "stride": [max(d.stride, 1) for d in kept],
        "padding_low": [d.padding_low for d in kept],
        "padding_high": [d.padding_high for d in kept],
        "dilation": [max(d.window_dilation, 1) for d in kept],
        "base_dilation": [max(d.base_dilation, 1) for d in kept],
        "reversed": [d.window_reversal for d in kept],
    }
    for name, values in lists.items():
        _set_list(row, f"window_{name}", values, WINDOWED)
    minor = minor_dim(read[0]) if read else None
    covers = minor is not None and len(dims) == len(read[0].dims) and dims[minor].size > 1
    _set(
        row,
        window_size_sum=sum(lists["size"]),
        window_size_product=prod(lists["size"]),
        window_stride_sum=sum(lists["stride"]),
        window_stride_product=prod(lists["stride"]),
        window_padding_sum=sum(lists["padding_low"]) + sum(lists["padding_high"]),
        window_dilation_product=prod(lists["dilation"]),
        window_base_dilation_product=prod(lists["base_dilation"]),
        window_reversed_sum=sum(lists["reversed"]),
        window_covers_minor=covers and node.opcode != "convolution",
    )


def _dot(row: Float32s, node: KernelNode, read: list[Shape]) -> None:
    assert node.instruction is not None
    numbers = node.instruction.proto.dot_dimension_numbers
    lhs, rhs = read[:2]
    batch, k = list(numbers.lhs_batch_dimensions), list(numbers.lhs_contracting_dimensions)
    sizes = [prod([lhs.dims[dim] for dim in dims]) for dims in (batch, k)]
    rhs_taken = prod([rhs.dims[dim] for dim in (*numbers.rhs_batch_dimensions, *numbers.rhs_contracting_dimensions)])
    _set(
        row,
        dot_batch=sizes[0],
        dot_k=sizes[1],
        dot_m=lhs.elements // max(sizes[0] * sizes[1], 1),
        dot_n=rhs.elements // max(rhs_taken, 1),
        dot_lhs_k_minor=minor_dim(lhs) in k,
        dot_rhs_k_minor=minor_dim(rhs) in list(numbers.rhs_contracting_dimensions),
    )


def _convolution(row: Float32s, node: KernelNode, read: list[Shape]) -> None:
    assert node.instruction is not None
    proto = node.instruction.proto
    numbers = proto.convolution_dimension_numbers
    lhs, rhs = read[:2]
    output = node.shape
    _window(row, node, read)
    _set(
        row,
        conv_batch=lhs.dims[numbers.input_batch_dimension],
        conv_in=lhs.dims[numbers.input_feature_dimension],
        conv_out=output.dims[numbers.output_feature_dimension],
        conv_groups=max(proto.feature_group_count, 1),
        conv_batch_groups=max(proto.batch_group_count, 1),
        conv_output_places=prod([output.dims[dim] for dim in numbers.output_spatial_dimensions]),
        conv_kernel_places=prod([rhs.dims[dim] for dim in numbers.kernel_spatial_dimensions]),
        conv_input_feature_minor=minor_dim(lhs) == numbers.input_feature_dimension,
        conv_output_feature_minor=minor_dim(output) == numbers.output_feature_dimension,
        conv_kernel_output_minor=minor_dim(rhs) == numbers.kernel_output_feature_dimension,
    )


def _reduce(row: Float32s, node: KernelNode, read: list[Shape]) -> None:
    assert node.instruction is not None
    dims = set(node.instruction.proto.dimensions)
    order = memory_order(read[0])
    _set_list(row, "reduced", [float(dim in dims) for dim in order])
    _set(
        row,
        reduced_elements=prod([read[0].dims[dim] for dim in dims]),
        reduced_sum=len(dims),
        reduces_minor=bool(order) and order[0] in dims,
    )


def _moved(row: Float32s, node: KernelNode, read: list[Shape]) -> None:
    """Transposes rename dimensions and copies change layouts: either may bring another dimension innermost."""
    assert node.instruction is not None
    source, result = read[0], node.shape
    renamed = list(node.instruction.proto.dimensions) if node.opcode == "transpose" else list(range(len(result.dims)))
    if node.opcode == "transpose":
        _set_list(row, "permutation", renamed)
    order = tuple(renamed[dim] for dim in memory_order(result))
    before = memory_order(source)
    wide = [tuple(dim for dim in dims if source.dims[dim] > 1) for dims in (before, order)]
    _set(row, moves_minor=wide[0][:1] != wide[1][:1], changes_layout=wide[0] != wide[1])


def _sliced(row: Float32s, node: KernelNode, read: list[Shape]) -> None:
    assert node.instruction is not None
    slices = list(node.instruction.proto.slice_dimensions)
    for name in ("start", "limit", "stride"):
        _set_list(row, f"slice_{name}", [getattr(one, name) for one in slices])
    minor = minor_dim(read[0])
    _set(row, slice_stride_product=prod([max(one.stride, 1) for one in slices]))
    _taken(row, node.shape, read[0])
    _set(row, minor_stride=1 if minor is None else max(slices[minor].stride, 1))


def _taken(row: Float32s, part: Shape, whole: Shape) -> None:
    minor = minor_dim(whole)
    takes_all = minor is None or len(part.dims) != len(whole.dims) or part.dims[minor] == whole.dims[minor]
    _set(row, taken_ratio=part.elements / max(whole.elements, 1), takes_whole_minor=takes_all)


def _dynamic_slice(row: Float32s, node: KernelNode, read: list[Shape]) -> None:
    part = read[1] if node.opcode == "dynamic-update-slice" else node.shape
    _taken(row, part, read[0])
    minor = minor_dim(read[0])
    whole = minor is None or part.dims[minor] == read[0].dims[minor]
    _set(row, indexed_elements=part.elements, index_count=1, indexes_whole_minor=whole)


def _padded(row: Float32s, node: KernelNode, read: list[Shape]) -> None:
    _taken(row, read[0], node.shape)


def _gather(row: Float32s, node: KernelNode, read: list[Shape]) -> None:
    assert node.instruction is not None
    sizes = list(node.instruction.proto.gather_slice_sizes)
    minor = minor_dim(read[0])
    _set(
        row,
        indexed_elements=prod(sizes),
        index_count=node.shape.elements // max(prod(sizes), 1),
        indexes_whole_minor=minor is None or sizes[minor] == read[0].dims[minor],
    )


def _scatter(row: Float32s, node: KernelNode, read: list[Shape]) -> None:
    _applied(row, node, read)
    inputs = len(read) // 2
    places, updates = read[inputs], read[inputs + 1]
    count = max(places.elements // max(places.dims[-1] if places.dims else 1, 1), 1)
    minor = minor_dim(read[0])
    whole = minor is not None and bool(updates.dims) and read[0].dims[minor] in updates.dims
    _set(row, indexed_elements=updates.elements // count, index_count=count, indexes_whole_minor=whole)


def _broadcast(row: Float32s, node: KernelNode, read: list[Shape]) -> None:
    assert node.instruction is not None
    kept = list(node.instruction.proto.dimensions)
    _set(
        row,
        broadcast_factor=node.shape.elements / max(read[0].elements, 1),
        broadcasts_minor=minor_dim(node.shape) not in kept,
        broadcasts_scalar=read[0].elements == 1,
    )


def _along_axis(row: Float32s, node: KernelNode, read: list[Shape]) -> None:
    assert node.instruction is not None
    axes = list(node.instruction.proto.dimensions)
    shape = read[0] if read else node.shape
    if shape.dims and axes:
        _set(row, axis_size=prod([shape.dims[axis] for axis in axes]), axis_is_minor=minor_dim(shape) in axes)


def _applied(row: Float32s, node: KernelNode, _: list[Shape]) -> None:
    """The computation that is applied to each element: how many instructions, how many of them arithmetic."""
    assert node.instruction is not None
    inner = [one for called in node.instruction.called for one in called.instructions]
    costing = [one for one in inner if one.opcode not in ("parameter", "constant", "tuple", "bitcast")]
    _set(row, applied_instructions=len(costing), applied_flop=sum([one.shape.elements for one in costing]))


def _flag(*names: str) -> Rule:
    def mark(row: Float32s, node: KernelNode, _: list[Shape]) -> None:
        for name in names:
            row[COLUMN_OF[name]] = 1
        if node.shape.element_type in INTEGER_TYPES and "is_division" in names:
            row[COLUMN_OF["is_integer_division"]] = 1

    return mark


def _both(*rules: Rule) -> Rule:
    def run(row: Float32s, node: KernelNode, read: list[Shape]) -> None:
        for rule in rules:
            rule(row, node, read)

    return run


RULES: dict[str, Rule] = {
    "broadcast": _broadcast,
    "clamp": _flag("is_select"),
    "compare": _flag("is_comparison"),
    "concatenate": _along_axis,
    "convert": _flag("is_conversion"),
    "convolution": _convolution,
    "copy": _moved,
    "custom-call": _flag("is_opaque"),
    "divide": _flag("is_division"),
    "dot": _dot,
    "dynamic-reshape": _flag("is_dynamic"),
    "dynamic-slice": _dynamic_slice,
    "dynamic-update-slice": _dynamic_slice,
    "gather": _gather,
    "iota": _along_axis,
    "map": _applied,
    "pad": _padded,
    "reduce": _both(_reduce, _applied),
    "reduce-window": _both(_window, _applied),
    "remainder": _flag("is_division"),
    "reverse": _along_axis,
    "scatter": _scatter,
    "select": _flag("is_select"),
    "select-and-scatter": _both(_window, _applied),
    "set-dimension-size": _flag("is_dynamic"),
    "slice": _sliced,
    "sort": _both(_along_axis, _applied),
    "transpose": _moved,
}
"""What an opcode's attributes say, by opcode; the others have none, or none that costs."""
