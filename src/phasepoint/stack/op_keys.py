"""By what an op is known in two runs: not by its name, in which the compiler's numbers change from build to build.

A key is the device's kind, the layer, the direction, the name without numbers, and the shape. Ops of one run that share
a key are added up, so that no order among them has to be guessed.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phasepoint.core.arrays import Int64s
from phasepoint.core.encoding import encode_rows, first_rows
from phasepoint.store import Run

_NUMBERED = re.compile(r"(\.\d+|\.clone|\.remat\d*)+$")
"""What XLA puts behind a name to make it unique: `fusion.12`, `dot.3.clone`, `add.remat2`."""

_GENERATED = re.compile(r"(?<=_)\d+(?=de\d*$)|_\d+$")
"""The serial number of a generated kernel: `triton_poi_fused_add_12`, `…_0d1d2de`."""

_HASH = re.compile(r"_[0-9a-f]{16,}(?=_|$)")
_LAYOUT = re.compile(r"\{[^{}]*\}")
_DEVICE_NUMBER = re.compile(r":\d+$")
_MOST_SHAPE = 120

_OP_COLUMNS = ("host", "attempt", "device", "program", "op", "layer")


@dataclass(frozen=True, order=True)
class OpKey:
    """What two ops of two runs must share to be the same.

    Attributes:
        device: kind of device: gpu, tpu, cpu, host.
        layer: module path; empty where none was recorded.
        direction: forward, backward; empty where unknown.
        name: HLO instruction, kernel or framework's op, without numbers.
        shape: type and shape of the result, without layout; empty where unknown.
    """

    device: str
    layer: str
    direction: str
    name: str
    shape: str


@lru_cache(maxsize=100_000)
def base_name(name: str) -> str:
    """A name without numbers of the build: `fusion.12` → `fusion`, `triton_poi_add_3` → `triton_poi_add`.

    Args:
        name: of an HLO instruction, a kernel or a framework's op.
    """
    base = _NUMBERED.sub("", name)
    if base.startswith("triton_"):
        base = _GENERATED.sub("", base)
    return _HASH.sub("", base) or name


@lru_cache(maxsize=100_000)
def plain_shape(shape: str) -> str:
    """A shape without layouts: `f32[8,128]{1,0:T(8,128)}` → `f32[8,128]`."""
    plain = _LAYOUT.sub("", shape)
    return plain if len(plain) <= _MOST_SHAPE else f"{plain[:_MOST_SHAPE]}…"


@lru_cache(maxsize=100_000)
def direction_of(op_name: str) -> str:
    """Forward or backward from JAX's transformations in an `op_name`; empty where it holds none of them."""
    if "transpose(" in op_name:
        return "backward"
    return "forward" if "jvp(" in op_name else ""


def encode_keys(run: Run, ops: pa.Table) -> tuple[tuple[OpKey, ...], Int64s]:
    """The keys of a run's ops, sorted, and which of them each row has, `[n_rows]`.

    Args:
        run: the run, whose instructions give direction and shape.
        ops: rows of the run's `ops`.
    """
    code = encode_rows(ops, _OP_COLUMNS)
    chosen = ops.take(pa.array(first_rows(code)))
    known = _read_instructions(run, chosen)
    keys = [_key(row, known) for row in chosen.select(_OP_COLUMNS).to_pylist()]
    ordered = sorted(set(keys))
    place = {key: i for i, key in enumerate(ordered)}
    return tuple(ordered), np.array([place[key] for key in keys], np.int64)[code]


def _key(row: Mapping[str, object], known: Mapping[tuple[object, ...], tuple[str, str]]) -> OpKey:
    direction, shape = known.get((row["host"], row["attempt"], row["program"], row["op"]), ("", ""))
    device = _DEVICE_NUMBER.sub("", str(row["device"]))
    return OpKey(device, str(row["layer"] or ""), direction, base_name(str(row["op"])), shape)


def _read_instructions(run: Run, ops: pa.Table) -> dict[tuple[object, ...], tuple[str, str]]:
    """Direction and shape by host, attempt, program and instruction, of those among the ops."""
    keys = ("host", "attempt", "program", "op")
    wanted = pa.array(sorted(set(ops["op"].to_pylist())), pa.string())
    table = run.table("instructions", columns=["program", "op", "shape", "op_name"])
    table = table.filter(pc.is_in(table["op"].cast(pa.string()), value_set=wanted))
    return {
        tuple(row[key] for key in keys): (direction_of(row["op_name"] or ""), plain_shape(row["shape"]))
        for row in table.to_pylist()
    }
