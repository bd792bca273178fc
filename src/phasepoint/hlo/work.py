"""Arithmetic of each HLO opcode: floating-point and transcendental operations of one execution.

The counts follow XLA's `HloCostAnalysis` (openxla/xla, `xla/service/hlo_cost_analysis.cc`), so that they can be held
against `compiled.cost_analysis()`: every element-wise operation is one operation per element, on integers too, and
transcendental operations are counted apart. Where that file counts nothing because nothing can be known (custom calls,
trip counts) the count here is None and a note says so.

Work of windowed operations: how many multiply-adds a convolution really does.

Source: semantics of convolution at openxla.org/xla/operation_semantics; positions that fall into padding or between
dilated elements multiply by nothing and are not counted, as XLA's own `HloCostAnalysis` does it.
"""

import json
from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

from phasepoint.hlo.module import Computation, Instruction
from phasepoint.hlo.shapes import Shape

FLOP_PER_FMA = 2
"""A multiply-add is a product and a sum, as XLA and makers of devices count it (`kFmaFlops`)."""

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


class Operations(NamedTuple):
    """Operations of one execution; None where they cannot be known."""

    flop: int | None
    transcendentals: int | None


NONE = Operations(0, 0)
UNKNOWN = Operations(None, None)

WorkOf = Callable[[Computation], Operations]
"""Work of one execution of a computation, the unknown parts left out."""

TRANSCENDENTAL = frozenset(
    {"atan2", "cbrt", "cosine", "erf", "exponential", "exponential-minus-one", "log", "log-plus-one", "logistic"}
    | {"power", "rsqrt", "sine", "sqrt", "tan", "tanh"}
)
ELEMENTWISE = frozenset(
    {"abs", "acos", "acosh", "add", "and", "asin", "asinh", "atanh", "bitcast-convert", "ceil", "clamp", "compare"}
    | {"complex", "convert", "cosh", "count-leading-zeros", "divide", "floor", "imag", "is-finite", "maximum"}
    | {"minimum", "multiply", "negate", "not", "or", "popcnt", "real", "reduce-precision", "remainder"}
    | {"round-nearest-afz", "round-nearest-even", "select", "shift-left", "shift-right-arithmetic"}
    | {"shift-right-logical", "sign", "sinh", "stochastic-convert", "subtract", "xor"}
)
ANNOTATIONS = frozenset(
    {"AllocateBuffer", "AssumeGatherIndicesInBound", "MoveToDevice", "MoveToHost", "Sharding"}
    | {"SPMDFullToShardShape", "SPMDShardToFullShape", "annotate_device_placement", "Pin", "Unpin", "CreateBuffer"}
)
"""Custom-call targets that mark something for the compiler and compute nothing."""

_NO_CYCLES = 2**63 - 1  # seen for TPU7x
_MATMUL_TARGETS = ("__onednn$matmul", "__cublas$gemm", "__cublas$lt$matmul")
_CONVOLUTION_ROLES = {
    "__onednn$convolution": (0, 1, -1),
    "__cudnn$convForward": (0, 1, -1),
    "__cudnn$convBiasActivationForward": (0, 1, -1),
    "__cudnn$convBackwardInput": (-1, 1, 0),
    "__cudnn$convBackwardFilter": (0, -1, 1),
}
"""Target → which of its operands (−1: the result) are input, kernel and output of the forward convolution."""


def work_of_instruction(instruction: Instruction, work_of: WorkOf) -> Operations:
    """Operations of one execution of an instruction, of all that it calls included.

    Args:
        instruction: the instruction.
        work_of: work of the computations it calls.
    """
    opcode = instruction.opcode
    if opcode in ELEMENTWISE:
        return Operations(instruction.shape.elements, 0)
    if opcode in TRANSCENDENTAL:
        return Operations(0, instruction.shape.elements)
    rule = _RULES.get(opcode)
    return rule(instruction, work_of) if rule else NONE


def trip_count(instruction: Instruction) -> int | None:
    """How often a `while` runs, where the compiler found out; None where it did not."""
    count = _mapping(backend_config(instruction).get("known_trip_count")).get("n")
    try:
        return int(count) if count is not None else None
    except (TypeError, ValueError):
        return None


def estimated_cycles(instruction: Instruction) -> int | None:
    """Cycles of the core's clock that the TPU's compiler expects of a kernel; None where it does not say."""
    cycles = _mapping(backend_config(instruction).get("window_config")).get("estimated_cycles")
    try:
        return int(cycles) if cycles is not None and 0 < int(cycles) < _NO_CYCLES else None
    except (TypeError, ValueError):
        return None


def backend_config(instruction: Instruction) -> dict[str, Any]:
    """What the compiler says of an instruction: its backend's configuration, empty where it is none or is no JSON."""
    wire = instruction.proto.backend_config
    if not wire.startswith(b"{"):
        return {}
    try:
        return _mapping(json.loads(wire))
    except (ValueError, RecursionError):
        return {}


def _mapping(value: Any) -> dict[str, Any]:
    """A JSON object, empty for any other value: backends change their configurations without notice."""
    return value if isinstance(value, dict) else {}


def _times(work: Operations, count: int) -> Operations:
    flop, transcendentals = work
    return Operations(
        None if flop is None else flop * count, None if transcendentals is None else transcendentals * count
    )


def _plus(a: Operations, b: Operations) -> Operations:
    return Operations((a.flop or 0) + (b.flop or 0), (a.transcendentals or 0) + (b.transcendentals or 0))


def _first_array(shape: Shape) -> Shape:
    return shape.parts[0] if shape.is_tuple and shape.parts else shape


def _dot(instruction: Instruction, _: WorkOf) -> Operations:
    contracted = instruction.proto.dot_dimension_numbers.lhs_contracting_dimensions
    return Operations(_matmul_flop(instruction.operands[0].shape, instruction.shape, list(contracted)), 0)


def _matmul_flop(lhs: Shape, result: Shape, contracted: list[int]) -> int:
    width = 1
    for dim in contracted:
        width *= lhs.dims[dim]
    return FLOP_PER_FMA * result.elements * width


def _convolution(instruction: Instruction, _: WorkOf) -> Operations:
    lhs, rhs = (operand.shape for operand in instruction.operands[:2])
    return Operations(convolution_flop(instruction.proto, lhs, rhs, instruction.shape), 0)


def _reduce(instruction: Instruction, work_of: WorkOf) -> Operations:
    removed = instruction.operands[0].shape.elements - _first_array(instruction.shape).elements
    return _times(work_of(instruction.called[0]), removed)


def _reduce_window(instruction: Instruction, work_of: WorkOf) -> Operations:
    """(Window − 1) reductions per output; a sum over a whole padded dimension is counted once, as XLA does."""
    result = _first_array(instruction.shape)
    count = (window_elements(instruction.proto) - 1) * result.elements
    windows = list(instruction.proto.window.dimensions)
    reduced = [dim for dim in windows if dim.size != 1]
    padded = [dim for dim in windows if dim.padding_low or dim.padding_high]
    if len(reduced) == 1 and len(padded) == 1 and instruction.shape.is_array:
        for place, dim in enumerate(windows):
            low = dim.padding_low
            if dim.size == 2 * low + 1 and low == dim.padding_high != 0 and low == result.dims[place] - 1:
                span = result.dims[place]
                count = result.elements // span + span - 1
    return _times(work_of(instruction.called[0]), count)


def _select_and_scatter(instruction: Instruction, work_of: WorkOf) -> Operations:
    source = instruction.operands[1].shape.elements
    select, scatter = instruction.called
    comparisons = source * (window_elements(instruction.proto) - 1)
    return _plus(_times(work_of(select), comparisons), _times(work_of(scatter), source))


def _map(instruction: Instruction, work_of: WorkOf) -> Operations:
    return _times(work_of(instruction.called[0]), instruction.shape.elements)


def _scatter(instruction: Instruction, work_of: WorkOf) -> Operations:
    """Operands are n inputs, the indices, n updates; the combiner runs once for each element of an update."""
    updates = instruction.operands[len(instruction.operands) // 2 + 1]
    return _times(work_of(instruction.called[0]), updates.shape.elements)


def _sort(instruction: Instruction, _: WorkOf) -> Operations:
    elements = instruction.operands[0].shape.elements
    return Operations(elements * max(elements - 1, 0).bit_length(), 0)


def _fft(instruction: Instruction, _: WorkOf) -> Operations:
    factors = 1
    for length in instruction.proto.fft_length:
        factors *= max(length.bit_length() - 1, 0)
    flop_per_complex_product = 4 * FLOP_PER_FMA
    return Operations(flop_per_complex_product * factors * _first_array(instruction.operands[0].shape).elements, 0)


def _triangular_solve(instruction: Instruction, _: WorkOf) -> Operations:
    a, b = (operand.shape for operand in instruction.operands[:2])
    return Operations(FLOP_PER_FMA * a.dims[-1] * b.elements, 0)


def _cholesky(instruction: Instruction, _: WorkOf) -> Operations:
    shape = instruction.operands[0].shape
    return Operations(shape.dims[-1] * shape.elements // 3, 0)


def _all_reduce(instruction: Instruction, _: WorkOf) -> Operations:
    """As if of two replicas: each output element is one operation. The group's size is not in it."""
    return Operations(sum(leaf.elements for leaf in instruction.shape.leaves()), 0)


def _random(instruction: Instruction, _: WorkOf) -> Operations:
    return Operations(0, sum(leaf.elements for leaf in instruction.shape.leaves()))


def _called_once(instruction: Instruction, work_of: WorkOf) -> Operations:
    return work_of(instruction.called[0]) if instruction.called else NONE


def _while(instruction: Instruction, work_of: WorkOf) -> Operations:
    """Condition and body `trips` times, the condition once more; a trip count that is not known counts as one."""
    body, condition = instruction.called[:2]  # as the proto lists them
    trips = trip_count(instruction)
    if trips is None:
        return _plus(work_of(body), work_of(condition))
    return _plus(_times(work_of(body), trips), _times(work_of(condition), trips + 1))


def _conditional(instruction: Instruction, work_of: WorkOf) -> Operations:
    """The heaviest branch, count by count."""
    branches = [work_of(branch) for branch in instruction.called]
    return Operations(
        max((branch.flop or 0 for branch in branches), default=0),
        max((branch.transcendentals or 0 for branch in branches), default=0),
    )


def _custom_call(instruction: Instruction, work_of: WorkOf) -> Operations:
    """Known where the target is a matrix product, a convolution or a mere mark; else unknown."""
    target = instruction.proto.custom_call_target
    if target in ANNOTATIONS:
        return NONE
    if target.startswith(_MATMUL_TARGETS):
        return _custom_matmul(instruction)
    if target in _CONVOLUTION_ROLES and len(instruction.operands) >= 2:
        values = [*(operand.shape for operand in instruction.operands[:2]), _first_array(instruction.shape)]
        lhs, rhs, result = (values[role] for role in _CONVOLUTION_ROLES[target])
        return Operations(convolution_flop(instruction.proto, lhs, rhs, result), 0)
    return UNKNOWN


def _custom_matmul(instruction: Instruction) -> Operations:
    """The contracted dimensions stand in the backend's configuration, for oneDNN in the plain case not at all."""
    config = backend_config(instruction)
    gemm = _mapping(config.get("gemm_backend_config", config))
    contracted = _mapping(gemm.get("dot_dimension_numbers")).get("lhs_contracting_dimensions")
    result, lhs = _first_array(instruction.shape), instruction.operands[0].shape
    if isinstance(contracted, list):
        return Operations(_matmul_flop(lhs, result, [int(str(dim)) for dim in contracted]), 0)
    if instruction.proto.custom_call_target == "__onednn$matmul" and "onednn_matmul_config" in config:
        transposed = _mapping(config["onednn_matmul_config"]).get("transpose_a")
        return Operations(_matmul_flop(lhs, result, [len(lhs.dims) - (2 if transposed else 1)]), 0)
    return UNKNOWN


_RULES: dict[str, Callable[[Instruction, WorkOf], Operations]] = {
    "all-reduce": _all_reduce,
    "all-reduce-start": _all_reduce,
    "async-start": _called_once,
    "call": _called_once,
    "cholesky": _cholesky,
    "conditional": _conditional,
    "convolution": _convolution,
    "custom-call": _custom_call,
    "dot": _dot,
    "fft": _fft,
    "fusion": _called_once,
    "map": _map,
    "reduce": _reduce,
    "reduce-window": _reduce_window,
    "rng": _random,
    "rng-bit-generator": _random,
    "scatter": _scatter,
    "select-and-scatter": _select_and_scatter,
    "sort": _sort,
    "triangular-solve": _triangular_solve,
    "while": _while,
}
