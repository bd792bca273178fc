"""What the planes, lines and event names of an XSpace mean.

Source of the names: openxla/xla, `xla/tsl/profiler/utils/xplane_schema.cc` and `tpu_xplane_utils.cc`, and traces
recorded with jax 0.10 on CPU and jax 0.6 on AMD GPUs (November 2026).
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from phasepoint.sources.xplane_events import END, IGNORE, KEEP, RECORD, REGION, STOP
from phasepoint.sources.xplane_planes import ENVIRONMENT_PLANE, METADATA_PLANE, Plane

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
    if name.startswith("end: "):
        return END
    return _CLASS_OF_NAME.get(name, IGNORE if name.startswith("ThreadpoolListener::") else KEEP)
