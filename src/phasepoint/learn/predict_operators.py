"""HLO kernels as operators: which framework's operation, of which dimensions, does what a kernel does.

A product is a product whoever writes it. Of a fused loop only its traffic counts: it becomes an element-wise operation
that moves as many bytes. What is neither (sorting, gathering, collectives, library calls) is no operator.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isqrt

from phasepoint.learn.graphs import KernelGraph
from phasepoint.learn.kernels import Kernel
from phasepoint.sources.hlo_module import Instruction

_BYTES_OF_UNARY, _BYTES_OF_BINARY = 2, 3
"""Arrays that an element-wise operation of one and of two inputs moves."""

_LOOPS = frozenset({"loop-fusion", "copy", "reduce"})
_INITIAL_VALUES = 4
_STANDARD_DEVIATION = frozenset({"rsqrt", "sqrt"})


@dataclass(frozen=True)
class OperatorForm:
    """An operator that stands for a kernel.

    Attributes:
        op: bmm, linear, conv, softmax, ln, add, mulu, tanh.
        dims: its dimensions by the names that `gpu_ops` gives them.
        dtype: element type.
    """

    op: str
    dims: Mapping[str, int]
    dtype: str


def operator_of_kernel(kernel: Kernel, graph: KernelGraph) -> OperatorForm | None:
    """The operator that does what a kernel does; None where none does.

    Args:
        kernel: with its nodes.
        graph: its features.
    """
    dtype = _element_type(kernel)
    if graph.kind == "dot":
        return _product(graph, dtype)
    if graph.kind == "convolution":
        return _convolution(kernel, dtype)
    if graph.kind in _LOOPS:
        return _normalisation(kernel, graph, dtype) or _element_wise(graph, dtype)
    return None


def _product(graph: KernelGraph, dtype: str) -> OperatorForm | None:
    batch, m, n, k = (int(graph.feature(f"dot_{name}")) for name in ("batch", "m", "n", "k"))
    if min(batch, m, n, k) < 1:
        return None
    return OperatorForm("linear" if batch == 1 else "bmm", {"B": batch, "M": m, "N": n, "K": k}, dtype)


def _convolution(kernel: Kernel, dtype: str) -> OperatorForm | None:
    """A forward convolution of two square dimensions without groups or dilation; others have no measured like."""
    found = [node.instruction for node in kernel.nodes if node.opcode == "convolution"]
    if len(found) != 1 or found[0] is None:
        return None
    one = found[0]
    windows = list(one.proto.window.dimensions)
    if len(windows) != 2 or max(one.proto.feature_group_count, one.proto.batch_group_count, 1) > 1:
        return None
    if any(max(dim.window_dilation, dim.base_dilation, 1) > 1 for dim in windows):
        return None
    numbers = one.proto.convolution_dimension_numbers
    lhs = one.operands[0].shape.dims
    if len({dim.size for dim in windows}) > 1 or len({lhs[place] for place in numbers.input_spatial_dimensions}) > 1:
        return None
    return OperatorForm("conv", _convolution_dims(one), dtype)


def _convolution_dims(one: Instruction) -> dict[str, int]:
    numbers, window = one.proto.convolution_dimension_numbers, one.proto.window.dimensions[0]
    lhs = one.operands[0].shape.dims
    return {
        "B": lhs[numbers.input_batch_dimension],
        "input_channel": lhs[numbers.input_feature_dimension],
        "input_size": lhs[numbers.input_spatial_dimensions[0]],
        "kernel_size": window.size,
        "output_channel": one.shape.dims[numbers.output_feature_dimension],
        "padding": max(window.padding_low, 0),
        "stride": max(window.stride, 1),
    }


def _normalisation(kernel: Kernel, graph: KernelGraph, dtype: str) -> OperatorForm | None:
    """A softmax or layer norm that is one kernel: it reduces the innermost dimension and gives all elements back."""
    rows, columns = _rows_and_columns(graph)
    reduced = graph.feature("reduce_input_elements") - rows * columns  # its initial values are inputs, too
    if graph.kind != "reduce" or not graph.feature("reduces_minor") or not 0 <= reduced <= _INITIAL_VALUES:
        return None
    opcodes = {node.opcode for node in kernel.nodes}
    if "exponential" in opcodes and "divide" in opcodes:
        return OperatorForm("softmax", {"B": rows, "H": columns}, dtype)
    if opcodes & _STANDARD_DEVIATION:
        return OperatorForm("ln", {"B": rows, "H": columns}, dtype)
    return None


def _element_wise(graph: KernelGraph, dtype: str) -> OperatorForm | None:
    """The operation of one or two inputs that moves as many bytes."""
    moved = graph.feature("bytes_read") + graph.feature("bytes_written")
    width = max(graph.feature("output_element_bytes"), 1.0)
    if moved <= 0:
        return None
    arrays = _BYTES_OF_BINARY if graph.feature("inputs") > 1 else _BYTES_OF_UNARY
    elements = max(round(moved / (arrays * width)), 1)
    columns = min(max(int(graph.feature("output_minor_size")), 1), elements)
    if columns < isqrt(elements) // 64:  # measured operations have rows of hundreds to thousands of elements
        columns = max(isqrt(elements), 1)
    slow = graph.feature("transcendentals") * 2 > elements
    op = "add" if arrays == _BYTES_OF_BINARY else "tanh" if slow else "mulu"
    return OperatorForm(op, {"B": max(round(elements / columns), 1), "H": columns}, dtype)


def _rows_and_columns(graph: KernelGraph) -> tuple[int, int]:
    columns = max(int(graph.feature("output_minor_size")), 1)
    return max(int(graph.feature("output_elements")) // columns, 1), columns


def _element_type(kernel: Kernel) -> str:
    leaves = [leaf for leaf in kernel.instruction.shape.leaves() if leaf.is_array]
    return leaves[0].text.partition("[")[0] if leaves else "f32"
