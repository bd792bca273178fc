"""What the names of TensorFlow's operations mean: `model/dense_1/MatMul:MatMul` is scope, operation and type.

Source: openxla/xla, `xla/tsl/profiler/utils/tf_op_utils.cc` (the form of the names); tensorflow 2.21 on CPU (November
2026).
"""

import re
from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

_NAME = re.compile(r"([A-Za-z0-9.][A-Za-z0-9_.\\/>-]*):([A-Z_][A-Za-z0-9_]*)")
_GRADIENT = re.compile(r"(?:^|.*/)(?:gradient_tape|gradients)/(.*)")
_COUNTED = re.compile(r"_\d+$")
_COMMUNICATION = re.compile(r"_?(?:Host)?(?:Send|Recv)(?:V2)?|Collective\w+|Nccl\w+|CrossReplicaSum|AllToAll")
_MOVES = frozenset(
    [
        "BroadcastTo",
        "Concat",
        "ConcatV2",
        "Copy",
        "DeepCopy",
        "DynamicStitch",
        "ExpandDims",
        "Fill",
        "Gather",
        "GatherNd",
        "GatherV2",
        "MirrorPad",
        "OnesLike",
        "Pack",
        "Pad",
        "PadV2",
        "Reshape",
        "ResourceGather",
        "ReverseV2",
        "Slice",
        "Snapshot",
        "Split",
        "SplitV",
        "Squeeze",
        "StridedSlice",
        "StridedSliceGrad",
        "Tile",
        "Transpose",
        "Unpack",
        "ZerosLike",
        "_MklToTf",
        "_MklTranspose",
    ]
)
_HOST = frozenset(
    [
        "Assert",
        "Const",
        "Enter",
        "Exit",
        "Identity",
        "IdentityN",
        "LoopCond",
        "Merge",
        "NextIteration",
        "NoOp",
        "Placeholder",
        "ReadVariableOp",
        "Shape",
        "Switch",
        "VarHandleOp",
        "VarIsInitializedOp",
        "_Arg",
        "_Retval",
    ]
)
"""Operations that pass references on and work out nothing."""


class TfOp(NamedTuple):
    """An operation of TensorFlow.

    Attributes:
        name: its name with its scopes.
        type: its type: `MatMul`.
    """

    name: str
    type: str


@cache
def read_op(text: str) -> TfOp | None:
    """The operation that an event is named after; None for any other event."""
    match = _NAME.fullmatch(text)
    return TfOp(match[1].removeprefix("StatefulPartitionedCall/"), match[2]) if match else None


@cache
def category_of_type(type: str) -> str:
    """Category of an operation by its type."""
    if _COMMUNICATION.fullmatch(type):
        return "communication"
    if type in _MOVES:
        return "data_movement"
    return "host" if type in _HOST or type.startswith(("Iterator", "Placeholder")) else "compute"


def layers_and_directions(ops: Iterable[TfOp]) -> dict[TfOp, tuple[str | None, str]]:
    """Layer (the scopes) and direction of operations; a gradient's layer is that of the operation it is of.

    What stands inside another operation belongs to its layer: `gradient_tape/dense/matmul/MatMul_1` is in the layer
    `dense` where `dense/matmul` is an operation, else in the layer `dense/matmul`.

    Args:
        ops: all operations of a capture.
    """
    listed = list(ops)
    forward = {op.name for op in listed if _GRADIENT.fullmatch(op.name) is None}
    found: dict[TfOp, tuple[str | None, str]] = {}
    for op in listed:
        match = _GRADIENT.fullmatch(op.name)
        scope = (match[1] if match else op.name).rpartition("/")[0]
        if scope in forward or _COUNTED.sub("", scope) in forward:
            scope = scope.rpartition("/")[0]
        updates = op.type.startswith(("ResourceApply", "ResourceSparseApply"))
        direction = "optimizer" if updates else "backward" if match else "forward"
        found[op] = (scope or None, direction)
    return found
