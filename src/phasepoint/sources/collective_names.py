"""Which collective a kernel of NCCL or RCCL runs, told by its name.

Source of the names: NVIDIA/nccl, `src/device/generate.py` (2.19 and later: `ncclDevKernel_AllReduce_Sum_f32_RING_LL`),
`src/collectives/device/common.h` (earlier: `ncclKernel_AllReduce_RING_LL_Sum_float`).
"""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from phasepoint.sources.event_tables import Kind, text_column

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
