"""A graph in TensorFlow Lite's format: what it takes and what it holds, read with the schema that LiteRT ships."""

from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from phasepoint.zoo.graphs.inputs import GraphInput
from phasepoint.zoo.graphs.onnx_graph import LoadedGraph

MAGIC = b"TFL3"
"""Bytes 4 to 8 of a file (its flatbuffer's identifier, tensorflow/compiler/mlir/lite/schema/schema.fbs)."""

_NUMBERS = {"FLOAT32": "float32", "FLOAT16": "float16", "INT32": "int32", "INT64": "int64", "UINT8": "uint8",
            "INT8": "int8", "BOOL": "bool", "FLOAT64": "float64", "INT16": "int16"}  # fmt: skip


def load_tflite(path: Path) -> LoadedGraph:
    """Read a graph and count.

    Args:
        path: of the file.

    Raises:
        ValueError: it is no such graph, or an input is no array of numbers.
        OSError: it cannot be read.
    """
    from ai_edge_litert.schema_py_generated import ModelT, TensorType

    data = path.read_bytes()
    if data[4:8] != MAGIC:
        raise ValueError(f"{path.name} is no TensorFlow Lite file: it does not have {MAGIC.decode()} at byte 4")
    try:
        model = ModelT.InitFromPackedBuf(data, 0)
        graph = model.subgraphs[0]
    except Exception as error:
        raise ValueError(f"{path.name} is no TensorFlow Lite file: {error}") from error
    types = {value: name for name, value in vars(TensorType).items() if not name.startswith("_")}
    inputs = []
    for tensor in (graph.tensors[place] for place in graph.inputs):
        name = tensor.name.decode()
        if types[tensor.type] not in _NUMBERS:
            raise ValueError(f"input {name!r} is no array of numbers")
        inputs.append(GraphInput(name, tuple(map(int, tensor.shape)), _NUMBERS[types[tensor.type]], has_batch=False))
    weights = [tensor for tensor in graph.tensors if _bytes_of(model, tensor)]
    counts = list(_macs_of_operators(model, graph))
    return LoadedGraph(
        source=data,
        inputs=tuple(inputs),
        params=sum(prod(map(int, one.shape)) for one in weights if types[one.type] in _WEIGHTS),
        weight_bytes=sum(_bytes_of(model, one) for one in weights),
        macs=None if any(count is None for count in counts) else sum(count or 0 for count in counts),
        note="",
    )


_WEIGHTS = ("FLOAT32", "FLOAT16", "INT8", "UINT8")


def _bytes_of(model: Any, tensor: Any) -> int:
    """Of a tensor's constant data; 0 where it is computed."""
    data = model.buffers[tensor.buffer].data
    return 0 if data is None else int(np.size(data))


def _macs_of_operators(model: Any, graph: Any) -> Iterator[int | None]:
    """Multiply-accumulates of each product and convolution; None where an operator loops inside."""
    from ai_edge_litert.schema_py_generated import BuiltinOperator as Kind

    loops = (Kind.LSTM, Kind.UNIDIRECTIONAL_SEQUENCE_LSTM, Kind.BIDIRECTIONAL_SEQUENCE_LSTM, Kind.RNN, Kind.WHILE)
    for operator in graph.operators:
        code = model.operatorCodes[operator.opcodeIndex]
        kind = max(code.builtinCode, code.deprecatedBuiltinCode)  # the second is of files from before 2020
        shapes = [tuple(map(int, graph.tensors[place].shape)) for place in operator.inputs if place >= 0]
        result = prod(map(int, graph.tensors[operator.outputs[0]].shape))
        if kind in loops:
            yield None
        elif kind == Kind.CONV_2D:  # weights: features out, height, width, features in
            yield result * prod(shapes[1][1:])
        elif kind == Kind.DEPTHWISE_CONV_2D:  # 1, height, width, features
            yield result * prod(shapes[1][1:3])
        elif kind == Kind.TRANSPOSE_CONV:  # its inputs: shape of the result, weights, activations
            yield prod(shapes[2]) * prod(shapes[1][:3])
        elif kind == Kind.FULLY_CONNECTED:
            yield result * shapes[1][-1]
        elif kind == Kind.BATCH_MATMUL:
            yield result * shapes[0][-1]
