"""What the planes, lines and event names of an XSpace mean.

Source of the names: openxla/xla, `xla/tsl/profiler/utils/xplane_schema.cc` and `tpu_xplane_utils.cc`, and traces
recorded with jax 0.10 on CPU and jax 0.6 on AMD GPUs (November 2026).

What the names of TensorFlow's operations mean: `model/dense_1/MatMul:MatMul` is scope, operation and type.

Source: openxla/xla, `xla/tsl/profiler/utils/tf_op_utils.cc` (the form of the names); tensorflow 2.21 on CPU (November
2026).
"""

import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from phasepoint.sources.xplane.events import END, IGNORE, KEEP, RECORD, REGION, STOP
from phasepoint.sources.xplane.planes import ENVIRONMENT_PLANE, METADATA_PLANE, Plane

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


STEP_MARK = "phasepoint.step"
STEPS_LINE, MODULES_LINE = "Steps", "XLA Modules"

_TPU_LINE_LEVEL = {
    STEPS_LINE: "model",
    MODULES_LINE: "model",
    "XLA Ops": "op",
    "Async XLA Ops": "op",
    "XLA TraceMe": "runtime",
    "Sparse Core Steps": "model",
    "Sparse Core Modules": "model",
    "Sparse Core Ops": "op",
}
_DERIVED_LINES = frozenset(
    {
        "Framework Name Scope",
        "Framework Ops",
        "HLO Ops",
        "Launch Stats",
        "Source",
        "Source code",
        "Source Code",
        "TensorFlow Name Scope",
        "TensorFlow Ops",
        "XLA Async Ops",
        *_TPU_LINE_LEVEL,
    }
)
"""Lines that post-processing derives from others of the same plane: their events repeat time that is there already."""

_CLASS_OF_NAME = {
    "ThreadpoolListener::StartRegion": REGION,
    "ThreadpoolListener::Region": REGION,
    "ThreadpoolListener::StopRegion": STOP,
    "ThreadpoolListener::Record": RECORD,
}
_WAIT_WORDS = ("wait for", "wait:", "::await", "blockuntilready", "block_until_ready", "blockhostuntildone")
_CONTROL_FLOW = ("while", "conditional", "call")


def is_host(plane: Plane) -> bool:
    """Whether the plane shows threads of the host."""
    return plane.name.startswith("/host:") and plane.name != METADATA_PLANE


def holds_events(plane: Plane) -> bool:
    """Whether its events are work of the job; the events of other planes are counted as ignored."""
    return plane.name not in (METADATA_PLANE, ENVIRONMENT_PLANE) and (is_host(plane) or plane.device() is not None)


def line_levels(plane: Plane) -> list[str | None]:
    """The level of each line's events; None for lines that repeat what other lines hold.

    A plane with streams (GPU) holds kernels there, and everything named is derived from them, or unknown and might be:
    counted, not kept. A plane without (TPU) holds its programs, ops and asynchronous ops in named lines.
    """
    names = [line.name for line in plane.lines]
    if is_host(plane):
        return ["runtime"] * len(names)
    if not holds_events(plane):
        return [None] * len(names)
    if any(name.startswith("Stream #") for name in names):
        return ["kernel" if name.startswith("Stream") else None for name in names]
    return [_TPU_LINE_LEVEL.get(name, None if name in _DERIVED_LINES else "runtime") for name in names]


def why_left_out(plane: Plane, line: str) -> str:
    """Why the events of a line whose level is None are no spans."""
    if not holds_events(plane):
        return "a plane that shows no work of the job"
    return "repeats events of other lines" if line in _DERIVED_LINES else "a line that is not known"


def classify_names(names: Sequence[str], *, host: bool) -> NDArray[np.int8]:
    """`[n_names]` what events of each name are: spans, or bookkeeping of the profiler."""
    if not host:
        return np.full(len(names), KEEP, np.int8)
    return np.array([_class_of_name(name) for name in names], np.int8)


def is_wait(name: str) -> bool:
    """Whether a host event waits for something else instead of working: it keeps no thread busy."""
    lower = name.lower()
    return any(word in lower for word in _WAIT_WORDS)


def is_launch(name: str) -> bool:
    """Whether a host event launches one execution on one CPU device."""
    return "ExecuteHelper" in name


def is_control_flow(opcode: str) -> bool:
    """Whether an op only runs other ops, which are events themselves."""
    return opcode in _CONTROL_FLOW


def _class_of_name(name: str) -> int:
    """What is to be done with events of a name: `END`, `IGNORE`, `KEEP`, …"""
    if name.startswith("end: "):
        return END
    return _CLASS_OF_NAME.get(name, IGNORE if name.startswith("ThreadpoolListener::") else KEEP)
