"""Which ops compute every element from the same element of their operands, and so could be one with others."""

import re

from phasepoint.core.shape_text import parse_array
from phasepoint.findings.program_graphs import Graph, Node

_NEUTRAL = frozenset({"parameter", "constant", "get-tuple-element", "tuple", "bitcast", "broadcast", "iota"})


def _words(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


_HLO = _words(
    "abs add and ceil clamp compare convert divide floor is-finite maximum minimum multiply negate not or "
    "reduce-precision remainder round-nearest-afz round-nearest-even select sign subtract xor"
)
_HLO_DEAR = _words(
    "atan2 cbrt cosine erf exponential exponential-minus-one log log-plus-one logistic power rsqrt sine sqrt tan tanh"
)
_ATEN = _words(
    "abs add addcdiv addcmul bitwise_and bitwise_not bitwise_or ceil clamp clamp_max clamp_min div eq floor ge gt "
    "hardtanh hardtanh_backward le leaky_relu leaky_relu_backward lerp logical_and logical_not logical_or lt "
    "masked_fill maximum minimum mul ne neg reciprocal relu rsub sign sub square sqrt rsqrt threshold "
    "threshold_backward where"
)
_ATEN_DEAR = _words(
    "cos elu elu_backward erf exp expm1 gelu gelu_backward log log1p mish pow sigmoid sigmoid_backward silu "
    "silu_backward sin softplus softplus_backward tanh tanh_backward"
)
_ATEN_VIEWS = _words(
    "alias as_strided detach expand lift_fresh narrow numpy_T permute reshape select slice squeeze t transpose "
    "unbind unsqueeze view view_as"
)
_KERNEL = re.compile(r"(vectorized_|unrolled_|^void at::native::)elementwise_kernel")
_MOVES = re.compile(r"copy_kernel|direct_copy|FillFunctor", re.IGNORECASE)

CHEAP, DEAR = 1, 2
"""What an elementwise op is: bound by the bytes that it moves; or perhaps by its arithmetic (tanh, exp)."""


def class_of_instruction(graph: Graph, node: Node) -> int:
    """`CHEAP` or `DEAR` for an elementwise instruction or fusion, 0 for any other."""
    shape = parse_array(node.shape)
    if shape is None:
        return 0
    inside = [one for one in graph.inside(node) if one.opcode not in _NEUTRAL]
    if not inside or any(one.opcode not in _HLO and one.opcode not in _HLO_DEAR for one in inside):
        return 0
    if any((own := parse_array(one.shape)) is None or own.elements not in (1, shape.elements) for one in inside):
        return 0
    return DEAR if any(one.opcode in _HLO_DEAR for one in inside) else CHEAP


def class_of_name(name: str) -> int:
    """The same of an ATen operator or a kernel of PyTorch's, by its name."""
    space, _, op = name.rpartition("::")
    if space == "aten":
        plain = op.removesuffix("_")
        return CHEAP if plain in _ATEN else DEAR if plain in _ATEN_DEAR else 0
    return CHEAP if _KERNEL.search(name) and not _MOVES.search(name) else 0


def is_view(name: str) -> bool:
    """Whether an ATen operator looks at its operand in another way and touches no element."""
    return name.startswith("aten::") and name.removeprefix("aten::").removesuffix("_") in _ATEN_VIEWS
