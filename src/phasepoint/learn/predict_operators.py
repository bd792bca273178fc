"""HLO kernels as operators: which framework's operation, of which dimensions, does what a kernel does.

A product is a product whoever writes it. Of a fused loop its traffic and its operations count. What is neither
(sorting, gathering, collectives, library calls) is no operator.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from phasepoint.learn.analytic import FLOP_PER_TRANSCENDENTAL
from phasepoint.learn.graphs import KernelGraph
from phasepoint.learn.kernels import Kernel
from phasepoint.sources.hlo_module import Instruction

ELEMENT_TYPES = frozenset({"f64", "f32", "bf16", "f16", "s8"})
"""Element types of products that operators know. Of loops only the bytes count."""

_LOOPS = frozenset({"loop-fusion", "copy", "reduce"})
_INITIAL_VALUES = 4
_STANDARD_DEVIATION = frozenset({"rsqrt", "sqrt"})


@dataclass(frozen=True)
class OperatorForm:
    """An operator that stands for a kernel.

    Attributes:
        op: bmm, linear, conv, softmax, ln, fusion, reduce.
        dims: its dimensions by the names that `learn/operators.py` gives them.
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
    if dtype not in ELEMENT_TYPES and graph.kind not in _LOOPS:
        return None
    if graph.kind == "dot":
        return _product(graph, dtype)
    if graph.kind == "convolution":
        return _convolution(kernel, dtype)
    if graph.kind in _LOOPS:
        return _normalisation(kernel, graph, dtype) or _loop(graph, dtype)
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
        "padding": max(window.padding_low + window.padding_high + 1, 0) // 2,  # the larger side, where they differ
        "stride": max(window.stride, 1),
    }


def _normalisation(kernel: Kernel, graph: KernelGraph, dtype: str) -> OperatorForm | None:
    """A softmax or layer norm that is one kernel: it reduces the innermost dimension and gives all elements back."""
    rows, columns = _rows_and_columns(graph)
    reduced = graph.feature("reduce_input_elements") - rows * columns  # its initial values are inputs, too
    if (
        dtype not in ELEMENT_TYPES
        or graph.kind != "reduce"
        or not graph.feature("reduces_minor")
        or not 0 <= reduced <= _INITIAL_VALUES
    ):
        return None
    opcodes = {node.opcode for node in kernel.nodes}
    if "exponential" in opcodes and "divide" in opcodes:
        return OperatorForm("softmax", {"B": rows, "H": columns}, dtype)
    if opcodes & _STANDARD_DEVIATION:
        return OperatorForm("ln", {"B": rows, "H": columns}, dtype)
    return None


def _loop(graph: KernelGraph, dtype: str) -> OperatorForm | None:
    """A loop by its traffic and operations."""
    read, written = int(graph.feature("bytes_read")), int(graph.feature("bytes_written"))
    if written < 1:
        return None
    operations = graph.feature("flop") + FLOP_PER_TRANSCENDENTAL * graph.feature("transcendentals")
    dims = {"bytes_read": read, "bytes_written": written, "flop": int(operations)}
    return OperatorForm(
        "reduce" if graph.kind == "reduce" else "fusion", dims, dtype if dtype in ELEMENT_TYPES else "f32"
    )


def _rows_and_columns(graph: KernelGraph) -> tuple[int, int]:
    columns = max(int(graph.feature("output_minor_size")), 1)
    return max(int(graph.feature("output_elements")) // columns, 1), columns


def _element_type(kernel: Kernel) -> str:
    leaves = [leaf for leaf in kernel.instruction.shape.leaves() if leaf.is_array]
    return leaves[0].text.partition("[")[0] if leaves else "f32"
