"""Which collective a kernel of NCCL or RCCL runs, told by its name.

Source of the names: NVIDIA/nccl, `src/device/generate.py` (2.19 and later: `ncclDevKernel_AllReduce_Sum_f32_RING_LL`),
`src/collectives/device/common.h` (earlier: `ncclKernel_AllReduce_RING_LL_Sum_float`).

What the texts of NVTX ranges mean: steps, operators of PyTorch, libraries, else the user's own names for stretches.

Source: torch, `torch/csrc/profiler/util.cpp` (`emit_nvtx` writes `name, seq = 1, op_id = 2, sizes = …`), and
an export of Nsight Systems 2026.2 (November 2026).

Where the steps of a capture begin and end, from ranges whose names say that they mark steps.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from phasepoint.sources.events.rows import PlacedEvents
from phasepoint.sources.events.step_bounds import StepBounds, no_bounds, order_bounds
from phasepoint.sources.events.tables import Kind, text_column

_TORCH = re.compile(r"(.+?), (?:seq|op_id|sizes) = ")
_SIZES = re.compile(r"\bsizes = (\[.*?\])(?:, input_op_ids|$)")
_SEQUENCE = re.compile(r"\bseq = (\d{1,18})\b")
_STEP = re.compile(
    r"((?:.*[^A-Za-z])?(?:step|train_step|training_step|iteration|iter|ProfilerStep|batch|phasepoint\.step)s?)"
    r"[\s_#:=/\-\[(]*(\d{1,18})[\])]?",
    re.IGNORECASE,
)
_LIBRARY = re.compile(
    r"nccl|cublas|cudnn|cusparse|cufft|cusolver|curand|nvshmem|cccl|thrust|cub\b|libkineto", re.IGNORECASE
)
_BACKWARD = re.compile(r"autograd::engine::evaluate_function|Backward\d*$|AccumulateGrad")
_OPTIMIZER = re.compile(r"Optimizer\.(?:step|zero_grad)")


class Range(NamedTuple):
    """What a range's text says.

    Attributes:
        name: the text without what differs from call to call.
        is_op: whether it is an operator of PyTorch.
        sequence: number that a forward operator shares with its backward, None where not given.
        shape: sizes of its inputs as PyTorch wrote them, None where not recorded.
    """

    name: str
    is_op: bool
    sequence: int | None
    shape: str | None


@lru_cache(maxsize=1 << 16)
def read_range(text: str) -> Range:
    """Take a range's text apart."""
    match = _TORCH.match(text)
    if match is None:
        return Range(text, False, None, None)
    sequence, sizes = _SEQUENCE.search(text), _SIZES.search(text)
    return Range(match[1], True, int(sequence[1]) if sequence else None, sizes[1] if sizes else None)


def is_library(domain: str) -> bool:
    """Whether an NVTX domain belongs to a library below the framework."""
    return _LIBRARY.search(domain) is not None


def direction_of(name: str) -> str | None:
    """`backward` or `optimizer` where an operator's name says so."""
    if _OPTIMIZER.search(name):
        return "optimizer"
    return "backward" if _BACKWARD.search(name) else None


def step_number(name: str) -> tuple[str, int] | None:
    """The words and the number of a range that may mark a step: `("iteration", 12)`; None for any other."""
    match = _STEP.fullmatch(name)
    return (match[1].strip(), int(match[2])) if match else None


def step_names(names: Iterable[str]) -> frozenset[str]:
    """Names that mark steps: of one wording, at least two different numbers; of several such wordings the one with
    most numbers, the first by the alphabet of equals."""
    numbered = {name: found for name in set(names) if (found := step_number(name)) is not None}
    words = Counter(word for word, _ in set(numbered.values()))
    repeated = sorted(word for word, count in words.items() if count > 1)
    if not repeated:
        return frozenset()
    chosen = max(repeated, key=lambda word: words[word])
    return frozenset(name for name, (word, _) in numbered.items() if word == chosen)


def mark_steps(kinds: Iterable[Kind]) -> tuple[list[Kind], dict[int, int]]:
    """The kinds, those whose names mark steps as marks, which are no work; and the number of each mark's step.

    Args:
        kinds: the kinds; of level layer are the ranges that the user named.
    """
    listed = list(kinds)
    chosen = step_names(one.name for one in listed if one.level == "layer")
    numbers = {}
    for i, one in enumerate(listed):
        found = step_number(one.name) if one.level == "layer" and one.name in chosen else None
        if found is not None:
            numbers[i] = found[1]
            listed[i] = one._replace(level="model", works=False)
    return listed, numbers


def bounds_of_kinds(placed: PlacedEvents, number_of_kind: Mapping[int, int], steps: pa.Table | None) -> StepBounds:
    """The steps that some kinds of events mark; where none does, the given ones; an empty table asks for the whole.

    Args:
        placed: the events.
        number_of_kind: number of the step that a kind's events mark.
        steps: rows of `steps` (step, start_ps, dur_ps), used where the capture holds no marks.
    """
    wanted = np.isin(placed.kind, np.array(sorted(number_of_kind), np.int64))
    if wanted.any():
        rows = np.flatnonzero(wanted)
        number = np.array([number_of_kind[kind] for kind in placed.kind[rows].tolist()], np.int64)
        return order_bounds(number, placed.start_ps[rows], placed.end_ps[rows])
    if steps is None:
        return no_bounds()
    if not steps.num_rows and len(placed.kind):
        low_ps, high_ps = placed.start_ps.min(keepdims=True), placed.end_ps.max(keepdims=True)
        return StepBounds(np.zeros(1, np.int64), low_ps, high_ps, is_whole=True)
    step, start_ps, dur_ps = (steps[name].to_numpy().astype(np.int64) for name in ("step", "start_ps", "dur_ps"))
    return order_bounds(step, start_ps, start_ps + dur_ps)


_KERNEL = re.compile(r"(?:nccl|rccl)(?:Symk)?(?:Dev)?Kernel_([A-Za-z]+)(\w*)")
_KINDS = {
    "AllGather": "all_gather",
    "AllReduce": "all_reduce",
    "AllToAll": "all_to_all",
    "AlltoAll": "all_to_all",
    "AllToAllPivot": "all_to_all",
    "Broadcast": "broadcast",
    "Gather": "gather",
    "Reduce": "reduce",
    "ReduceScatter": "reduce_scatter",
    "Scatter": "scatter",
    "SendRecv": "send_recv",
}
_TYPES = {
    "bf": "bfloat16", "bf16": "bfloat16", "double": "float64", "f16": "float16", "f32": "float32", "f64": "float64",
    "f8e4m3": "float8_e4m3", "f8e5m2": "float8_e5m2", "float": "float32", "half": "float16", "i32": "int32",
    "i64": "int64", "i8": "int8", "int32": "int32", "int64": "int64", "int8": "int8", "u32": "uint32",
    "u64": "uint64", "u8": "uint8", "uint32": "uint32", "uint64": "uint64", "uint8": "uint8",
}  # fmt: skip


@cache
def collective_of_kernel(name: str) -> tuple[str, str | None] | None:
    """Kind of the collective and its element type, None where the name does not say; None for any other kernel.

    `"ncclDevKernel_AllReduce_Sum_bf16_RING_LL(...)"` → `("all_reduce", "bfloat16")`. Copying collectives move bytes
    whatever their type is: there NCCL's name says `i8`, and the type is not known.
    """
    match = _KERNEL.search(name)
    kind = _KINDS.get(match[1]) if match else None
    if match is None or kind is None:
        return None
    reduces = kind in ("all_reduce", "reduce_scatter", "reduce")
    found = [_TYPES[word] for word in match[2].split("_") if word in _TYPES] if reduces else []
    return kind, found[-1] if found else None


def collectives_of_kernels(kinds: Sequence[Kind], kind: NDArray[np.integer[Any]]) -> Mapping[str, Any]:
    """Columns of `collectives` for the kernels whose names say what they run; `span` is the event's index.

    Args:
        kinds: the kinds.
        kind: `[n_events]` index of each event's kind.
    """
    known = [collective_of_kernel(one.name) if one.level == "kernel" else None for one in kinds]
    if not any(known):
        return {}
    rows = np.flatnonzero(np.array([found is not None for found in known], np.bool_)[kind])
    of_row = kind[rows].astype(np.int64)
    return {
        "span": rows,
        "kind": text_column(of_row, [found[0] if found else None for found in known]),
        "dtype": text_column(of_row, [found[1] if found else None for found in known]),
    }
