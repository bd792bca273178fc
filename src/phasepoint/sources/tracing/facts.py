"""What the name and the tags of a span of distributed tracing say: its level, its device, what launched it.

XSP writes its levels and what CUPTI saw into tags; other tracers' spans are stretches that the user named.
Source of the tags: rai-project/tracer, `level.go`; a trace that MLModelScope wrote in 2019.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from phasepoint.sources.events.operator_names import category_of_kernel, is_wait
from phasepoint.sources.events.rows import MISSING

LEVEL_TAG = "trace_level"
STEP_TAGS = ("step_num", "step", "global_step", "iteration")
"""Tags whose integer numbers a step, where several spans of one name have them."""

_LAYER_LEVEL, _MODEL_LEVEL = "FRAMEWORK_TRACE", "MODEL_TRACE"
_EXECUTIONS = ("gpu_kernel", "gpu_memcpy", "gpu_memset")
_THREE = re.compile(r"\[?\s*(\d{1,18})[\s,]+(\d{1,18})[\s,]+(\d{1,18})\s*\]?")
_IDS = re.compile(
    r"(?:_id|_uid|Id|_index|_dim|_human|_ptr|_count_human|sharedMemory|shared_mem|local_mem|_kind|_type)$|^bytes?$"
    r"|^(?:byte_count|stream|name|kernel|component|result|value|device|thread)$"
)
"""Tags of an execution that are no hardware counters."""


_NO_METRICS: Mapping[str, float] = MappingProxyType({})


class SpanFacts(Struct, frozen=True, gc=False):
    """What is known of one span. A file has a million; nothing in them refers back, so no collection need look.

    Attributes:
        name: the kernel's or the function's name where a tag has it, else the span's.
        level: model, layer, op, kernel or runtime.
        device: `gpu:0`, or `host`.
        category: compute, communication, data_movement or host.
        works: whether its time is work.
        place: thread or stream, "" where no tag says.
        label: what tells a layer from others of its name, "" for none.
        correlation: id shared by a launch and its execution, `MISSING` for none; as all integers here.
        bytes: bytes moved.
        grid, block: in three directions.
        shared_bytes: shared memory of a block.
        metrics: hardware counters by name.
        shape: shapes of what goes in, "" where not recorded.
    """

    name: str
    level: str
    device: str
    category: str
    works: bool
    place: str
    label: str
    correlation: int = MISSING
    bytes: int = MISSING
    grid: tuple[int, int, int] = (MISSING,) * 3
    block: tuple[int, int, int] = (MISSING,) * 3
    shared_bytes: int = MISSING
    metrics: Mapping[str, float] = _NO_METRICS
    shape: str = ""


def span_facts(name: str, tags: Mapping[str, Any], *, leveled: bool) -> SpanFacts:
    """Read a span's tags.

    Args:
        name: the span's name.
        tags: its tags.
        leveled: whether any span of its trace has a level; then those that have none stand outside the model.
    """
    level = str(tags.get(LEVEL_TAG, "")).upper()
    if name in _EXECUTIONS and (tags.get("cupti_type") == "activity" or "device_id" in tags):
        return _execution(name, tags)
    called = tags.get("function_name")
    known = called if isinstance(called, str) and called else name
    thread = tags.get("thread_id", tags.get("thread.id"))
    place = "" if thread is None else f"thread {thread}"
    correlation = read_integer(tags.get("correlation_id"))
    if level == _LAYER_LEVEL:
        shape = tags.get("shape")
        return SpanFacts(
            name, "layer", "host", "host", True, place, _layer_label(name, tags),
            shape=shape if isinstance(shape, str) else "",
        )  # fmt: skip
    if level == _MODEL_LEVEL:
        return SpanFacts(name, "model", "host", "host", False, place, "", correlation)
    if leveled or level:
        works = bool(level) and not is_wait(known) and name != "gpu_overhead"
        return SpanFacts(known, "runtime", "host", "host", works, place, "", correlation)
    return SpanFacts(name, "layer", "host", "host", not is_wait(name), place, "", correlation)


def _execution(name: str, tags: Mapping[str, Any]) -> SpanFacts:
    device = f"gpu:{max(read_integer(tags.get('device_id')), 0)}"
    stream = tags.get("stream_id")
    if name == "gpu_kernel":
        named = tags.get("kernel_name") or tags.get("name") or tags.get("kernel")
        text = named if isinstance(named, str) else name
        category = category_of_kernel(text)
    else:
        text = f"Memcpy {tags.get('copy_kind', '')}".rstrip() if name == "gpu_memcpy" else "Memset"
        category = "data_movement"
    static, dynamic = read_integer(tags.get("static_sharedMemory")), read_integer(tags.get("dynamic_sharedMemory"))
    numbers = {key: number for key, value in tags.items() if (number := _number(value)) is not None}
    return SpanFacts(
        text,
        "kernel",
        device,
        category,
        True,
        f"stream {'?' if stream is None else stream}",
        "",
        read_integer(tags.get("correlation_id")),
        read_integer(tags.get("bytes", tags.get("byte_count"))),
        _three(tags.get("grid_dim")),
        _three(tags.get("block_dim")),
        MISSING if MISSING in (static, dynamic) else read_integer(static + dynamic),
        {key: number for key, number in numbers.items() if not _IDS.search(key)},
    )


def _layer_label(name: str, tags: Mapping[str, Any]) -> str:
    """Layers of one name are told apart by their own names, or their numbers in the order of execution."""
    own = tags.get("layer_name") or tags.get("name")
    if isinstance(own, str) and own:
        return own
    index = read_integer(tags.get("layer_sequence_index"))
    return name if index == MISSING else f"{name}_{index}"


def step_tag(tags: Mapping[str, Any]) -> int | None:
    """Number of the step that a span's tags name."""
    found = (read_integer(tags.get(key)) for key in STEP_TAGS)
    return next((number for number in found if number != MISSING), None)


def read_integer(value: Any) -> int:
    """An integer given as a number or as text; `MISSING` for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        return MISSING
    try:
        number = int(value)
    except ValueError:
        return MISSING
    return number if abs(number) < 1 << 63 else MISSING


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def _three(value: Any) -> tuple[int, int, int]:
    match = _THREE.fullmatch(value) if isinstance(value, str) else None
    return (read_integer(match[1]), read_integer(match[2]), read_integer(match[3])) if match else (MISSING,) * 3
