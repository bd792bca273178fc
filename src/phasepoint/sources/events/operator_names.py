"""What the names and categories of Kineto's events mean.

Source: pytorch/kineto, `libkineto/src/output_json.cpp` and `ActivityType.cpp`; traces of torch 1.12 to 2.13 on NVIDIA,
AMD and CPU (November 2026).
"""

import re
from functools import cache
from typing import Literal

from phasepoint.hlo.categories import category_of_name

Place = Literal["cpu", "host", "device", "ignored"]
"""Where an event's time is spent: an operator (the device itself where there is no other), the host, a device."""

STEP_MARK = re.compile(r"phasepoint\.step#(\d+)")
PROFILER_STEP = re.compile(r"ProfilerStep#(\d+)")
OPTIMIZER_STEP = re.compile(r"Optimizer\.step#.*\.step")

_PLACE_AND_LEVEL: dict[str, tuple[Place, str]] = {
    "cpu_op": ("cpu", "op"),
    "operator": ("cpu", "op"),
    "user_annotation": ("host", "layer"),
    "python_function": ("host", "runtime"),
    "overhead": ("host", "runtime"),
    "kernel": ("device", "kernel"),
    "concurrent_kernel": ("device", "kernel"),
    "gpu_memcpy": ("device", "kernel"),
    "gpu_memset": ("device", "kernel"),
    "memcpy": ("device", "kernel"),
    "memset": ("device", "kernel"),
    "mtia_ccp_events": ("device", "kernel"),
}
_REPEATING = frozenset({"trace", "cuda_profiler_range", "cuda_sync", "gpu_user_annotation", "ac2g", "fwdbwd"})
"""Categories whose events repeat or comment the time of others."""

_COPY_OPS = frozenset(
    [
        "_copy_from",
        "_copy_from_and_resize",
        "_reshape_alias",
        "_reshape_copy",
        "_to_copy",
        "_unsafe_view",
        "alias",
        "as_strided",
        "as_strided_",
        "broadcast_to",
        "cat",
        "chunk",
        "clone",
        "contiguous",
        "copy_",
        "detach",
        "detach_",
        "diagonal",
        "expand",
        "expand_as",
        "fill_",
        "flatten",
        "flip",
        "gather",
        "index_select",
        "lift_fresh",
        "movedim",
        "narrow",
        "numpy_T",
        "pad",
        "constant_pad_nd",
        "permute",
        "pin_memory",
        "repeat",
        "reshape",
        "roll",
        "select",
        "slice",
        "split",
        "split_with_sizes",
        "squeeze",
        "squeeze_",
        "stack",
        "t",
        "tile",
        "to",
        "transpose",
        "transpose_",
        "unbind",
        "unflatten",
        "unfold",
        "unsqueeze",
        "unsqueeze_",
        "view",
        "view_as",
        "zero_",
    ]
)
"""ATen operators that give bytes another place, shape or layout and compute nothing."""

_ALLOCATIONS = ("empty", "new_empty", "resize_", "set_", "_local_scalar_dense", "item", "is_pinned")
_COMMUNICATION_PREFIXES = ("c10d::", "_c10d_functional::", "nccl:", "gloo:", "mpi:", "ucc:", "record_param_comms")
_COPY_KERNEL = re.compile(
    r"memcpy|memset|copy_kernel|catarraybatchedcopy|direct_copy|nchwtonhwc|nhwctonchw|transpose_readwrite"
    r"|fillfunctor|copybuffer|fillbuffer|batched_transpose",
    re.IGNORECASE,
)
_COMMUNICATION_KERNEL = re.compile(r"nccl|rccl|nvshmem|deep_ep|cross_device_reduce|one_shot_all_reduce", re.IGNORECASE)
_WAIT = re.compile(r"synchronize|streamwait|eventquery|streamquery|_wait", re.IGNORECASE)


@cache
def place_and_level(cat: str) -> tuple[Place, str]:
    """Where events of a Kineto category spend their time, and their level."""
    cat = cat.lower()
    if cat in _REPEATING:
        return "ignored", ""
    if cat.endswith(("_runtime", "_driver")):
        return "host", "runtime"
    return _PLACE_AND_LEVEL.get(cat, ("host", "runtime"))


@cache
def is_step_mark(name: str) -> bool:
    """Whether an annotation encloses a whole step, and so is no work of its own."""
    return STEP_MARK.fullmatch(name) is not None or PROFILER_STEP.fullmatch(name) is not None


@cache
def is_wait(name: str) -> bool:
    """Whether a runtime call waits for the device instead of working."""
    return _WAIT.search(name) is not None


@cache
def category_of_op(name: str) -> str:
    """Category of an operator: `aten::copy_` moves data, `aten::empty` is the host's housekeeping."""
    if name.startswith(_COMMUNICATION_PREFIXES):
        return "communication"
    space, _, op = name.rpartition("::")
    if space != "aten":
        return "compute"
    if op in _COPY_OPS:
        return "data_movement"
    return "host" if op.startswith(_ALLOCATIONS) else "compute"


@cache
def category_of_kernel(name: str) -> str:
    """Category of what ran on a device."""
    if _COMMUNICATION_KERNEL.search(name):
        return "communication"
    return "data_movement" if _COPY_KERNEL.search(name) else category_of_name(name)
