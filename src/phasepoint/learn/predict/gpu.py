"""The model of operators as a method: for every GPU of `devices/specs.toml`, measured or not.

HLO kernels as operators: which framework's operation, of which dimensions, does what a kernel does.

A product is a product whoever writes it. Of a fused loop its traffic and its operations count. What is neither
(sorting, gathering, collectives, library calls) is no operator.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from phasepoint.core.errors import ModelError
from phasepoint.devices.specs import DeviceSpec
from phasepoint.hlo.module import Instruction
from phasepoint.learn.hlo_graph.graphs import KernelGraph
from phasepoint.learn.hlo_graph.kernels import Kernel
from phasepoint.learn.models.analytic import FLOP_PER_TRANSCENDENTAL
from phasepoint.learn.models.model_file import StoredModel, builtin_models, read_model
from phasepoint.learn.operators.task import KIND, Operator, OperatorModel
from phasepoint.learn.predict.types import Asked, Start, TargetDevice, Times

ELEMENT_TYPES = frozenset({"f64", "f32", "bf16", "f16", "s8"})
"""Element types of products that operators know. Of loops only the bytes count."""

_LOOPS = frozenset({"loop-fusion", "copy", "reduce"})
_INITIAL_VALUES = 4
"""Elements that a reduction may read beside its rows: its own start and those of a few others fused with it."""
_STANDARD_DEVIATION = frozenset({"rsqrt", "sqrt"})


@dataclass(frozen=True)
class OperatorForm:
    """An operator that stands for a kernel.

    Attributes:
        op: bmm, linear, conv, softmax, ln, fusion, reduce.
        dims: its dimensions by the names that `learn/operators/task.py` gives them.
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
    """One product, or a batch of them."""
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
    """Of the result: columns are its innermost dimension, rows all others."""
    columns = max(int(graph.feature("output_minor_size")), 1)
    return max(int(graph.feature("output_elements")) // columns, 1), columns


def _element_type(kernel: Kernel) -> str:
    """Of the result, the first array of several."""
    leaves = [leaf for leaf in kernel.instruction.shape.leaves() if leaf.is_array]
    return leaves[0].text.partition("[")[0] if leaves else "f32"


BUILTIN = "gpu-ops"

SHARED = 0.5
"""Correlation of the errors within a program: a device that was never measured is misjudged as a whole. Assumed."""

_PRODUCTS = ("bmm", "linear", "conv")
_ROUNDED = "tf32"
_ROUNDED_NOTE = "products of f32 are taken to run in tf32, which JAX lets this device do unless told otherwise"

_MISSING = "no trained model of GPU operators came with this package"
_BASIS = "operators measured on other GPUs in an eager framework, whose own time to start them is taken out"


def start_operators(target: TargetDevice, model: StoredModel | None) -> Start:
    """The model of operators answers for every GPU.

    Raises:
        ModelError: the user's model is damaged.
    """
    if target.kind != "gpu" or target.spec is None or (model is not None and model.kind != KIND):
        return Start(None)
    if model is None:
        if BUILTIN not in builtin_models():
            return Start(None, notes=(_MISSING,))
        model = read_model(f"builtin:{BUILTIN}", kind=KIND)
    return _started(OperatorModel.from_model(model), target.spec)


def _started(trained: OperatorModel, spec: DeviceSpec) -> Start:
    """A method that asks a model for kernels that are operators; others it leaves open."""

    def answer(asked: Asked) -> Times:
        forms = [operator_of_kernel(*pair) for pair in zip(asked.kernels, asked.graphs, strict=True)]
        found = np.full((4, len(forms)), np.nan)
        notes: dict[int, tuple[str, ...]] = {}
        for (op, dtype), rows in _groups(forms, spec).items():
            these = [Operator(op, dict(form.dims), dtype) for form in map(forms.__getitem__, rows) if form]
            try:
                said = trained.predict(these, spec, dispatch=False)
            except ModelError as error:  # no peak of this type, no such operator: the next method answers
                notes |= dict.fromkeys(rows, (f"not predicted as an operator: {error}",))
                continue
            if dtype == _ROUNDED:
                notes |= dict.fromkeys(rows, (_ROUNDED_NOTE,))
            found[:, rows] = said.time_ps, said.low_ps, said.high_ps, said.distance
        return Times(found[0], found[1], found[2], found[3], notes)

    return Start(answer, shared=SHARED, basis=_BASIS)


def _groups(forms: Sequence[OperatorForm | None], spec: DeviceSpec) -> Mapping[tuple[str, str], list[int]]:
    """Places of the forms by operator and element type: what a model knows or does not know as a whole."""
    groups: dict[tuple[str, str], list[int]] = {}
    for place, form in enumerate(forms):
        if form is not None:
            groups.setdefault((form.op, _type_on(form, spec)), []).append(place)
    return groups


def _type_on(form: OperatorForm, spec: DeviceSpec) -> str:
    """The element type in which a device computes: NVIDIA's libraries round factors of f32 where they may."""
    rounds = spec.vendor == "NVIDIA" and _ROUNDED in spec.flop_per_s and form.op in _PRODUCTS
    return _ROUNDED if rounds and form.dtype == "f32" else form.dtype
