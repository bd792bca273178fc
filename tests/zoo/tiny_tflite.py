"""A graph in TensorFlow Lite's format, made with LiteRT's own schema: a convolution, then a dense layer."""

import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

SIDE, CHANNELS, FEATURES, CLASSES = 8, 3, 4, 5


def write_tiny(path, *, first_code=schema.BuiltinOperator.CONV_2D):
    """Write it; `first_code` is the operator in the place of the convolution."""
    random = np.random.default_rng(0)
    kernel = random.standard_normal((FEATURES, 3, 3, CHANNELS)).astype(np.float32)
    dense = random.standard_normal((CLASSES, SIDE * SIDE * FEATURES)).astype(np.float32)
    biases = [np.zeros(FEATURES, np.float32), np.zeros(CLASSES, np.float32)]
    model = schema.ModelT()
    model.version = 3
    model.buffers = [schema.BufferT()]
    graph = schema.SubGraphT()
    graph.tensors = []

    def tensor(name, shape, array=None):
        made = schema.TensorT()
        made.name, made.shape, made.type, made.buffer = name, list(shape), schema.TensorType.FLOAT32, 0
        if array is not None:
            buffer = schema.BufferT()
            buffer.data = np.frombuffer(array.tobytes(), np.uint8)
            model.buffers.append(buffer)
            made.buffer = len(model.buffers) - 1
        graph.tensors.append(made)
        return len(graph.tensors) - 1

    x = tensor("x", (1, SIDE, SIDE, CHANNELS))
    weights = [tensor("kernel", kernel.shape, kernel), tensor("bias", biases[0].shape, biases[0])]
    features = tensor("features", (1, SIDE, SIDE, FEATURES))
    heads = [tensor("dense", dense.shape, dense), tensor("offset", biases[1].shape, biases[1])]
    y = tensor("y", (1, CLASSES))

    def operator(code, kind, options, inputs, output):
        row = schema.OperatorCodeT()
        row.builtinCode = row.deprecatedBuiltinCode = code
        row.version = 1
        model.operatorCodes.append(row)
        made = schema.OperatorT()
        made.opcodeIndex, made.inputs, made.outputs = len(model.operatorCodes) - 1, inputs, [output]
        made.builtinOptionsType, made.builtinOptions = kind, options
        return made

    convolution = schema.Conv2DOptionsT()
    convolution.strideW = convolution.strideH = convolution.dilationWFactor = convolution.dilationHFactor = 1
    model.operatorCodes = []
    kinds = schema.BuiltinOptions
    full = schema.FullyConnectedOptionsT()
    graph.operators = [
        operator(first_code, kinds.Conv2DOptions, convolution, [x, *weights], features),
        operator(schema.BuiltinOperator.FULLY_CONNECTED, kinds.FullyConnectedOptions, full, [features, *heads], y),
    ]
    graph.inputs, graph.outputs = [x], [y]
    model.subgraphs = [graph]
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    path.write_bytes(bytes(builder.Output()))
    return path
