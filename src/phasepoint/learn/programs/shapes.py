"""Shapes of arguments, short."""

from typing import Any


def f32(*shape: int) -> Any:
    """The shape of a float32 argument."""
    return _struct(shape, "float32")


def i32(*shape: int) -> Any:
    """The shape of an int32 argument: indices, classes, tokens."""
    return _struct(shape, "int32")


def i8(*shape: int) -> Any:
    """The shape of an int8 argument: quantised values."""
    return _struct(shape, "int8")


def _struct(shape: tuple[int, ...], dtype: str) -> Any:
    import jax

    return jax.ShapeDtypeStruct(shape, dtype)


def in_bfloat16(tree: Any) -> Any:
    """The same tree of shapes with bfloat16 for float32."""
    import jax

    return jax.tree.map(lambda leaf: _struct(leaf.shape, "bfloat16") if leaf.dtype == "float32" else leaf, tree)
