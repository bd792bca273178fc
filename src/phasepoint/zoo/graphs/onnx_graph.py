"""An ONNX graph as bytes that can be measured: constant weights drawn anew; what it holds and what it takes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from phasepoint.zoo.architectures.architecture import SEED
from phasepoint.zoo.graphs.inputs import GraphInput

PICTURE_SIDE, LENGTH = 224, 128
"""What an open dimension is taken for: of a picture's side, of anything else. Choices; the result says so."""

LEAST_WEIGHT = 64
"""Numbers of a constant that is taken for weights: smaller ones are scales and shapes."""

FULLEST_BYTES = 2 << 30
"""A serialised graph is smaller (protobuf's limit); larger ones keep their weights beside them, and are left as they
are."""


@dataclass(frozen=True)
class LoadedGraph:
    """A graph.

    Attributes:
        source: its bytes, or its path where they are too many.
        inputs: that it takes.
        params: numbers in its weights.
        weight_bytes: of them.
        macs: multiply-accumulates of one sample; None where a part cannot be counted.
        note: what was filled in, in words.
    """

    source: bytes | str
    inputs: tuple[GraphInput, ...]
    params: int
    weight_bytes: int
    macs: int | None
    note: str


def load_graph(path: Path, shapes: Mapping[str, tuple[int, ...]]) -> LoadedGraph:
    """Read a graph, draw weights anew that are constants, and count.

    Args:
        path: of the file.
        shapes: of inputs whose dimensions it leaves open.

    Raises:
        ValueError: it is no graph, or an input's type is not known.
        OSError: it cannot be read.
    """
    import onnx

    try:
        model = onnx.load(str(path), load_external_data=False)
        onnx.checker.check_model(str(path))
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise ValueError(f"{path.name} is no valid ONNX graph: {error}") from error
    except Exception as error:
        if type(error).__name__ != "DecodeError":  # of protobuf, whichever of its implementations is there
            raise
        raise ValueError(f"{path.name} is no ONNX file: {error}") from error
    drawn = _draw_constants(model)
    model.ir_version = max(model.ir_version, 4)  # before it, weights had to be inputs too
    inputs, note = _inputs(model, shapes)
    is_external = any(weight.data_location == 1 for weight in model.graph.initializer)
    is_small = path.stat().st_size < FULLEST_BYTES and not is_external
    sizes = [(prod(weight.dims), weight.data_type) for weight in (*model.graph.initializer, *_constants(model.graph))]
    weights = [(count, kind) for count, kind in sizes if kind in _FLOATS]
    params = sum(count for count, _ in weights)
    width = {kind: np.dtype(onnx.helper.tensor_dtype_to_np_dtype(kind)).itemsize for kind in {k for _, k in sizes}}
    notes = [note] if note else []
    if drawn:
        notes.append(f"{drawn} constant weights were drawn anew")
    return LoadedGraph(
        source=model.SerializeToString() if is_small else str(path),
        inputs=inputs,
        params=params,
        weight_bytes=sum(count * width[kind] for count, kind in sizes),
        macs=count_graph_macs(model, {one.name: one.shape for one in inputs}),
        note="; ".join(notes),
    )


_FLOATS = (1, 10, 11, 16)  # FLOAT, FLOAT16, DOUBLE, BFLOAT16 of onnx.TensorProto


def _draw_constants(model: Any) -> int:
    """Weights that a graph makes by filling a shape with one number become random ones of the same size."""
    from onnx import numpy_helper

    graph, chance, drawn = model.graph, np.random.default_rng(SEED), 0
    known = {weight.name: weight for weight in graph.initializer}
    known |= {
        node.output[0]: attribute.t
        for node in graph.node
        if node.op_type == "Constant"
        for attribute in node.attribute
        if attribute.name == "value"
    }
    for node in [node for node in graph.node if node.op_type == "ConstantOfShape" and node.input[0] in known]:
        shape = tuple(int(side) for side in numpy_helper.to_array(known[node.input[0]]).reshape(-1))
        if prod(shape) < LEAST_WEIGHT or len(shape) < 2:
            continue
        scale = (prod(shape) / shape[0]) ** -0.5
        values = (scale * chance.standard_normal(shape)).astype(np.float32)
        graph.initializer.append(numpy_helper.from_array(values, node.output[0]))
        graph.node.remove(node)
        drawn += 1
    return drawn


def _constants(graph: Any) -> Iterator[Any]:
    """Weights that a graph holds as nodes, those of its branches and loops too."""
    for node in graph.node:
        for attribute in node.attribute:
            if node.op_type == "Constant" and attribute.name == "value" and prod(attribute.t.dims) >= LEAST_WEIGHT:
                yield attribute.t
            if attribute.HasField("g"):
                yield from attribute.g.initializer
                yield from _constants(attribute.g)


def _inputs(model: Any, shapes: Mapping[str, tuple[int, ...]]) -> tuple[tuple[GraphInput, ...], str]:
    """What a graph takes, and which open dimensions were filled in without being told."""
    from onnx.helper import tensor_dtype_to_np_dtype

    weights = {weight.name for weight in model.graph.initializer}
    made, guessed = [], []
    for one in model.graph.input:
        if one.name in weights:
            continue
        kind = one.type.tensor_type
        if not kind.elem_type or kind.elem_type == 8:  # a string
            raise ValueError(f"input {one.name!r} is no array of numbers")
        sides = [dim.dim_value or None for dim in kind.shape.dim]
        told = shapes.get(one.name)
        filled = tuple(told) if told is not None and len(told) == len(sides) else _filled(sides)
        if told is None and any(side is None for side in sides[1:]):
            guessed.append(f"{one.name} as {'×'.join(map(str, filled))}")
        has_batch = bool(sides) and sides[0] is None and filled[0] == 1
        made.append(GraphInput(one.name, filled, str(np.dtype(tensor_dtype_to_np_dtype(kind.elem_type))), has_batch))
    return tuple(made), f"open dimensions were taken so: {', '.join(guessed)}" if guessed else ""


def _filled(sides: Sequence[int | None]) -> tuple[int, ...]:
    """One sample; pictures have a side of 224, anything else a length of 128."""
    open_side = PICTURE_SIDE if len(sides) == 4 else LENGTH
    return tuple(side or (open_side if place else 1) for place, side in enumerate(sides))


def count_graph_macs(model: Any, shapes: Mapping[str, tuple[int, ...]]) -> int | None:
    """Multiply-accumulates of a graph's products and convolutions for inputs of these shapes; None where not known.

    Args:
        model: the graph.
        shapes: of its inputs.
    """
    import onnx

    fixed = onnx.ModelProto()
    fixed.CopyFrom(model)
    for one in fixed.graph.input:
        for dim, side in zip(one.type.tensor_type.shape.dim, shapes.get(one.name, ()), strict=False):
            dim.dim_value = side
    try:
        fixed = onnx.shape_inference.infer_shapes(fixed, data_prop=True)
    except (onnx.shape_inference.InferenceError, ValueError):
        return None
    known = {weight.name: tuple(weight.dims) for weight in fixed.graph.initializer}
    for value in (*fixed.graph.value_info, *fixed.graph.input, *fixed.graph.output):
        known[value.name] = tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
    counts = list(_macs_of_nodes(fixed.graph.node, known))
    return None if any(count is None for count in counts) else sum(count or 0 for count in counts)


def _macs_of_nodes(nodes: Any, known: Mapping[str, tuple[int, ...]]) -> Iterator[int | None]:
    for node in nodes:
        if node.op_type in ("LSTM", "GRU", "RNN", "Loop", "Scan", "If"):
            yield None
        elif node.op_type in ("Conv", "ConvTranspose", "MatMul", "Gemm"):
            first, second = (known.get(name, ()) for name in node.input[:2])
            result = known.get(node.output[0], ())
            if not first or not second or not result or 0 in (*first, *second, *result):
                yield None
            elif node.op_type == "Conv":
                yield prod(result) * prod(second[1:])
            elif node.op_type == "ConvTranspose":
                yield prod(first) * prod(second[1:])
            elif node.op_type == "Gemm":
                transposed = any(one.name == "transA" and one.i for one in node.attribute)
                yield prod(result) * first[0 if transposed else 1]
            else:
                yield prod(result) * first[-1]
