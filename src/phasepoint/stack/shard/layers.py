"""The layer and the direction of every span of a shard.

Where no module path was recorded at all, the framework's operations stand for layers, as they do in XSP: the outermost
op on the host, or the last part of an HLO instruction's `op_name`.

The class of a layer, from what its calls or its path are called.
"""

import re
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phasepoint.core.arrays import Int64s
from phasepoint.core.encoding import encode_column
from phasepoint.stack.shard.executions import distinct_instructions
from phasepoint.stack.shard.hierarchy import NONE, inherited, nearest_above
from phasepoint.stack.shard.shard import StackShard

CALL = r"^(?:nn\.Module: |phasepoint\.layer#)"
"""How names of spans begin that are calls of a module."""

_NUMBERED = re.compile(r"_\d+$")
_RECORDED = re.compile(r"phasepoint\.layer#[^|]*\|(.+)")
_MODULE = re.compile(r"nn\.Module: (.+)")


def class_of_call(span_name: str) -> str | None:
    """Class that the span of a module's call names, None where it names none.

    Example:
        >>> class_of_call("phasepoint.layer#Net/0|Linear"), class_of_call("nn.Module: Linear_3")
        ('Linear', 'Linear')
    """
    if found := _RECORDED.fullmatch(span_name):
        return found[1]
    found = _MODULE.fullmatch(span_name)
    return _NUMBERED.sub("", found[1]) if found else None


def class_of_path(path: str) -> str:
    """Class of a layer as far as the last part of its path tells: `M/Conv_0` is a `Conv`.

    Example:
        >>> class_of_path("M/Conv_0")
        'Conv'
    """
    last = path.rpartition("/")[2]
    return _NUMBERED.sub("", last) or last


DIRECTIONS = ("forward", "backward", "optimizer")

HOW_LAYERS = (
    "Phasepoint's recorder names the layers of PyTorch by itself, torch.profiler with with_stack=True; "
    "JAX where modules of a library (flax, haiku, equinox) or jax.named_scope enclose the work"
)
STAND_IN_NOTE = f"no module path was recorded, so operations of the framework stand for layers. {HOW_LAYERS}"
NO_LAYERS_NOTE = f"no layers were recorded. {HOW_LAYERS}"


@dataclass(frozen=True, eq=False)
class Layers:
    """Layers of a shard. Arrays are `[n_spans]`.

    Attributes:
        code: index into `names`, -1 where the layer is not known.
        direction: index into `DIRECTIONS`, -1 where it is not known.
        names: module paths, or operations where they stand for layers.
        types: class of each layer: Conv2d, Linear.
        source: "module", or "op" where operations stand for layers; None where there is neither.
        notes: what is missing, and what would bring it.
    """

    code: Int64s
    direction: Int64s
    names: tuple[str, ...]
    types: tuple[str, ...]
    source: str | None
    notes: tuple[str, ...]


def read_layers(shard: StackShard) -> Layers:
    """The layer of every span: its own, else that of what launched or encloses it.

    Raises:
        StoreError: the tables cannot be read.
    """
    spans = shard.table("spans")
    code, names = encode_column(pa.chunked_array([inherited(spans, "layer")]))
    source: str | None = "module"
    notes: tuple[str, ...] = ()
    if not (code >= 0).any():
        code, names = _operations(shard, spans)
        source, notes = ("op", (STAND_IN_NOTE,)) if (code >= 0).any() else (None, (NO_LAYERS_NOTE,))
    return Layers(code, _directions(spans), tuple(names), _types(spans, names), source, notes)


def _directions(spans: pa.Table) -> Int64s:
    """`[n_spans]` index into `DIRECTIONS`, -1 where the direction is not known."""
    code, values = encode_column(pa.chunked_array([inherited(spans, "direction")]))
    known = [DIRECTIONS.index(value) if value in DIRECTIONS else -1 for value in values]
    return np.array([*known, -1], np.int64)[code]


def _operations(shard: StackShard, spans: pa.Table) -> tuple[Int64s, list[str]]:
    """`[n_spans]` the operation that stands for a layer, and the operations' names."""
    names = _framework_names(shard, spans)
    is_op = pc.equal(spans["level"], "op").to_numpy()
    outermost = is_op & (nearest_above(spans, is_op) == NONE)
    own = pc.if_else(pa.array(outermost), spans["name"].cast(pa.string()), pa.scalar(None, pa.string()))
    found = inherited(spans.append_column("operation", pc.coalesce(names, own)), "operation")
    return encode_column(pa.chunked_array([found]))


def _framework_names(shard: StackShard, spans: pa.Table) -> pa.Array:
    """`[n_spans]` last part of the `op_name` of each span's HLO instruction, null where it has none."""
    rows = np.flatnonzero(spans["program"].is_valid().to_numpy())
    instructions, number = distinct_instructions(spans.select(["program", "op", "name"]).take(pa.array(rows)))
    result = np.full(spans.num_rows, None, object)
    if instructions:
        columns = shard.table("instructions", ["program", "op", "op_name"]).to_pydict().values()
        named = {(program, op): name for program, op, name in zip(*columns, strict=True)}
        texts = [_last_part(named.get(instruction)) for instruction in instructions]
        result[rows] = np.array([*texts, None], object)[number]
    return pa.array(result, pa.string())


def _last_part(op_name: str | None) -> str | None:
    """The primitive of an `op_name`; a name without scopes is that of an argument, not of an operation."""
    _, slash, primitive = (op_name or "").rpartition("/")
    return primitive.partition("[")[0] or None if slash else None


def _types(spans: pa.Table, names: list[str]) -> tuple[str, ...]:
    """Class of each layer: as its own spans tell it, else from the last part of its path."""
    own = spans.filter(pc.and_(pc.equal(spans["level"], "layer"), spans["layer"].is_valid()))
    is_call = pc.match_substring_regex(own["name"].cast(pa.string()), CALL)
    pairs = own.filter(is_call).select(["layer", "name"]).group_by(["layer", "name"]).aggregate([]).to_pydict()
    told = {layer: class_of_call(name) for layer, name in zip(pairs["layer"], pairs["name"], strict=True)}
    return tuple(told.get(name) or class_of_path(name) for name in names)
