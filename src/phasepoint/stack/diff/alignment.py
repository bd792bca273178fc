"""Which op of one run is which op of another, and the tree of layers that they stand in.

An op is not known by its name, in which the compiler's numbers change from build to build. Its key is the device's
kind, the layer, the direction, the name without numbers, and the shape. Ops of one run that share a key are added up,
so that no order among them has to be guessed.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phasepoint.core.arrays import Bools, Int64s
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
"""Characters of a shape that are told, a choice: that of a tuple names all of its parts."""

_OP_COLUMNS = ("host", "attempt", "device", "program", "op", "layer")


@dataclass(frozen=True, order=True)
class AlignedOp:
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


def encode_keys(run: Run, ops: pa.Table) -> tuple[tuple[AlignedOp, ...], Int64s]:
    """The keys of a run's ops, sorted, and which of them each row has, `[n_rows]`.

    Args:
        run: the run, whose instructions give direction and shape.
        ops: rows of the run's `ops`.
    """
    code = encode_rows(ops, _OP_COLUMNS)
    chosen = ops.take(pa.array(first_rows(code)))
    known = _read_instructions(run, chosen)
    keys = []
    for row in chosen.select(_OP_COLUMNS).to_pylist():
        direction, shape = known.get((row["host"], row["attempt"], row["program"], row["op"]), ("", ""))
        device = _DEVICE_NUMBER.sub("", row["device"])
        keys.append(AlignedOp(device, row["layer"] or "", direction, base_name(row["op"]), shape))
    ordered = sorted(set(keys))
    place = {key: i for i, key in enumerate(ordered)}
    return tuple(ordered), np.array([place[key] for key in keys], np.int64)[code]


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


ARROW = " → "
"""Between the shapes of an op whose shape changed."""

LEAST_OF_KIND = 3
"""Layers in which ops of one kind must occur for their median to say what the kind did: one of three may change."""


@dataclass(frozen=True, eq=False)
class Alignment:
    """Ops of several runs on one list.

    Attributes:
        keys: `[n_ops]`, sorted; where only the shape changed, both shapes stand in the key.
        places: for each run `[n_ops_of_run]`, the position of its ops in `keys`.
    """

    keys: tuple[AlignedOp, ...]
    places: tuple[Int64s, ...]

    @cached_property
    def layers(self) -> tuple[str, ...]:
        """Every layer and all above it, sorted; those of ops without one are absent."""
        found = {key.layer for key in self.keys if key.layer}
        return tuple(
            sorted({"/".join(layer.split("/")[: i + 1]) for layer in found for i in range(layer.count("/") + 1)})
        )

    @cached_property
    def inside(self) -> Bools:
        """`[n_layers, n_ops]`: whether an op stands in a layer, at any depth."""
        inside = np.zeros((len(self.layers), len(self.keys)), bool)
        place = {layer: i for i, layer in enumerate(self.layers)}
        for column, key in enumerate(self.keys):
            parts = key.layer.split("/") if key.layer else []
            for depth in range(len(parts)):
                inside[place["/".join(parts[: depth + 1])], column] = True
        return inside

    @cached_property
    def kinds(self) -> tuple[AlignedOp, ...]:
        """The kind of each op, `[n_ops]`: what it shares with its like in other layers, by the base's shape.

        Where ops of three layers share direction, name and shape, that is their kind; else, where three layers'
        ops share device and name, that; else the op is its own kind, as is every op outside layers.
        """
        exact = [replace(key, layer="", shape=key.shape.partition(ARROW)[0]) for key in self.keys]
        coarse = [replace(key, direction="", shape="") for key in exact]
        inside = [i for i, key in enumerate(self.keys) if key.layer]
        often = Counter(exact[i] for i in inside)
        left = Counter(coarse[i] for i in inside if often[exact[i]] < LEAST_OF_KIND)
        chosen = list(self.keys)
        for i in inside:
            if often[exact[i]] >= LEAST_OF_KIND:
                chosen[i] = exact[i]
            elif left[coarse[i]] >= LEAST_OF_KIND:
                chosen[i] = coarse[i]
        return tuple(chosen)

    @cached_property
    def kind_codes(self) -> tuple[Int64s, tuple[AlignedOp, ...]]:
        """Number of each op's kind, `[n_ops]`, and the kinds."""
        kinds = tuple(dict.fromkeys(self.kinds))
        place = {kind: i for i, kind in enumerate(kinds)}
        return np.array([place[kind] for kind in self.kinds], np.int64), kinds


def align(base: Sequence[Sequence[AlignedOp]], run: Sequence[Sequence[AlignedOp]]) -> Alignment:
    """Put the ops of both sides' recordings on one list.

    Equal keys are one op. Of the others, those of both sides that are alike but for the shape are one: what became
    wider is the same op.

    Args:
        base: keys of each recording of the base.
        run: keys of each recording it is compared with.
    """
    sides = [set().union(*map(set, side)) for side in (base, run)]
    renamed = _changed_shapes(*sides)
    keys = tuple(sorted({renamed.get(key, key) for side in sides for key in side}))
    place = {key: i for i, key in enumerate(keys)}
    places = (np.array([place[renamed.get(key, key)] for key in of_run], np.int64) for of_run in (*base, *run))
    return Alignment(keys, tuple(places))


def _changed_shapes(left: set[AlignedOp], right: set[AlignedOp]) -> dict[AlignedOp, AlignedOp]:
    """Keys to the key that they share with others of another shape.

    In a layer these are the shapes that one side alone has. Outside layers nothing says which op became which (five
    updates of one shape and one of another, where there were six): there all shapes of a name are one op.
    """
    groups: dict[AlignedOp, tuple[list[AlignedOp], list[AlignedOp]]] = {}
    for side, keys in enumerate((left, right)):
        for key in sorted(keys):
            groups.setdefault(replace(key, shape=""), ([], []))[side].append(key)
    renamed: dict[AlignedOp, AlignedOp] = {}
    for bare, sides in groups.items():
        before, after = sides
        if bare.layer or set(before) == set(after):
            before, after = ([key for key in one if key not in other] for one, other in (sides, sides[::-1]))
        if before and after:
            shape = f"{_shapes(before)}{ARROW}{_shapes(after)}"
            renamed |= {key: replace(bare, shape=shape) for key in (*before, *after)}
    return renamed


def _shapes(keys: Sequence[AlignedOp]) -> str:
    return keys[0].shape if len(keys) == 1 else f"{len(keys)} shapes"
