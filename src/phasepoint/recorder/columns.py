"""Arrow columns from Python values and NumPy arrays, made from buffers.

`pyarrow.array` looks whether it was given something of pandas, and imports pandas for that wherever it is installed:
0.5 s of CPU time and a full garbage collection inside the job, for a few rows. `Array.from_buffers` asks nothing.
Casting and dictionary-encoding are avoided too, for they import pyarrow.compute (40 ms).
"""

from array import array
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from phasepoint.core.errors import TableError

_Make = Callable[[Sequence[Any], NDArray[np.bool_], pa.DataType], pa.Array]


def column_of_values(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Values of one column as an Arrow array of a declared type; None is null.

    Args:
        values: integers, floats, booleans, texts, bytes, or lists of texts, as the type asks, `[n]`.
        kind: any type that `core.tables` declares.

    Raises:
        TableError: the type is none of those.
        TypeError, OverflowError: a value does not fit the type.
    """
    known = np.fromiter((value is not None for value in values), np.bool_, len(values))
    if not known.any():
        return pa.nulls(len(values), kind)
    for is_kind, make in _MAKERS:
        if is_kind(kind):
            return make(values, known, kind)
    raise TableError(f"no column of type {kind} is made from values; add it here")


def int64_column(values: NDArray[np.int64], known: NDArray[np.bool_] | None = None) -> pa.Array:
    """Integers `[n]` as an Arrow array that shares their memory; null where `known` `[n]` is false."""
    return _numbers(np.ascontiguousarray(values, np.int64), known, pa.int64())


def name_column(indices: NDArray[np.int64], names: Sequence[str]) -> pa.Array:
    """Names by index `[n]` as a dictionary array; null where the index is below 0."""
    known = indices >= 0
    codes = np.where(known, indices, 0).astype(np.int32)
    encoded = _texts([_encoded(name) for name in names], None, pa.string())
    return pa.DictionaryArray.from_arrays(_numbers(codes, known, pa.int32()), encoded)


def _numbers(values: Any, known: NDArray[np.bool_] | None, kind: pa.DataType) -> pa.Array:
    """`values` has a buffer of the type's own width."""
    return pa.Array.from_buffers(kind, len(values), [_validity(known), pa.py_buffer(values)])


def _integers(values: Sequence[Any], known: NDArray[np.bool_], kind: pa.DataType) -> pa.Array:
    return _numbers(array("q", (0 if value is None else value for value in values)), known, kind)


def _floats(values: Sequence[Any], known: NDArray[np.bool_], kind: pa.DataType) -> pa.Array:
    return _numbers(array("d", (0.0 if value is None else value for value in values)), known, kind)


def _booleans(values: Sequence[Any], known: NDArray[np.bool_], kind: pa.DataType) -> pa.Array:
    bits = np.fromiter((bool(value) for value in values), np.bool_, len(values))
    return pa.Array.from_buffers(kind, len(values), [_validity(known), _bits(bits)])


def _strings(values: Sequence[Any], known: NDArray[np.bool_], kind: pa.DataType) -> pa.Array:
    return _texts([b"" if value is None else _encoded(value) for value in values], known, kind)


def _texts(encoded: Sequence[bytes], known: NDArray[np.bool_] | None, kind: pa.DataType) -> pa.Array:
    buffers = [_validity(known), _offsets([len(text) for text in encoded]), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(kind, len(encoded), buffers)


def _names(values: Sequence[Any], known: NDArray[np.bool_], kind: pa.DataType) -> pa.Array:
    places: dict[str, int] = {}
    codes = array("i", (0 if value is None else places.setdefault(value, len(places)) for value in values))
    encoded = _texts([_encoded(name) for name in places], None, kind.value_type)
    return pa.DictionaryArray.from_arrays(_numbers(codes, known, kind.index_type), encoded)


def _lists(values: Sequence[Any], known: NDArray[np.bool_], kind: pa.DataType) -> pa.Array:
    lists = [() if value is None else value for value in values]
    items = column_of_values([item for items in lists for item in items], kind.value_type)
    buffers = [_validity(known), _offsets([len(items) for items in lists])]
    return pa.Array.from_buffers(kind, len(lists), buffers, children=[items])


def _offsets(lengths: Sequence[int]) -> pa.Buffer:
    """Where each of variable-length values begins, and the end of the last."""
    return pa.py_buffer(np.cumsum([0, *lengths]).astype(np.int32))


def _validity(known: NDArray[np.bool_] | None) -> pa.Buffer | None:
    return None if known is None or known.all() else _bits(known)


def _bits(values: NDArray[np.bool_]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(values, bitorder="little"))


def _encoded(text: Any) -> bytes:
    """UTF-8. What a path holds that is no text (lone surrogates) becomes an escape: `\\udcff`."""
    return bytes(text) if isinstance(text, bytes) else text.encode("utf-8", "backslashreplace")


_MAKERS: tuple[tuple[Callable[[pa.DataType], bool], _Make], ...] = (
    (pa.types.is_int64, _integers),
    (pa.types.is_float64, _floats),
    (pa.types.is_boolean, _booleans),
    (pa.types.is_string, _strings),
    (pa.types.is_binary, _strings),
    (pa.types.is_dictionary, _names),
    (pa.types.is_list, _lists),
)
