"""Types and shapes of an operator's inputs as one text: `f32[8,128], i64[8]`."""

import json
from typing import Any

_TYPES = {
    "float": "f32",
    "double": "f64",
    "c10::half": "f16",
    "c10::bfloat16": "bf16",
    "c10::float8_e4m3fn": "f8e4m3fn",
    "c10::float8_e5m2": "f8e5m2",
    "long int": "i64",
    "long": "i64",
    "int": "i32",
    "short int": "i16",
    "short": "i16",
    "signed char": "i8",
    "unsigned char": "u8",
    "bool": "pred",
    "c10::complex<float>": "c64",
    "c10::complex<double>": "c128",
}
"""C++ types as torch writes them → the element types of HLO."""

_NO_TENSOR = frozenset({"", "scalar", "scalarlist"})


def shape_text(dims: bytes, types: bytes) -> str:
    """Inputs that are tensors, in their order; empty where nothing is known of any.

    Args:
        dims: JSON of `Input Dims`: a list of shapes, or of lists of shapes.
        types: JSON of `Input type`: a list of types; may be empty.
    """
    shapes, names = _list(dims), _list(types)
    texts = []
    for i, shape in enumerate(shapes):
        name = str(names[i]) if i < len(names) else ""
        if names and name.lower() in _NO_TENSOR:
            continue
        if isinstance(shape, list) and shape and all(isinstance(one, list) for one in shape):
            texts.append(f"({', '.join(_one('?' if 'list' in name.lower() else name, one) for one in shape)})")
        elif isinstance(shape, list) and (shape or names):
            texts.append(_one(name, shape))
    return ", ".join(texts).encode("utf-8", "replace").decode("utf-8")  # an escape may be half a character


def _one(name: str, shape: list[Any]) -> str:
    return f"{_TYPES.get(name.lower(), name or '?')}[{','.join(map(str, shape))}]"


def _list(text: bytes) -> list[Any]:
    if not text:
        return []
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return []
    return value if isinstance(value, list) else []
