"""The tail of a shard's steps: those since its last part, as plain integers, for whoever opens the run before the next.

A part of a few rows takes a job that uses the caches 8 to 16 ms of CPU time, most of it code of Parquet that is cold,
and the same rows as integers 2 (2 cores, 2026-11-28). So a part is written every ten seconds, and between two of them
the tail is, again and again, under the name of the part that it is going to be: once that is there, the tail is void.
"""

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from phasepoint.core.errors import TableError
from phasepoint.core.tables import table_from_columns, table_spec
from phasepoint.store.parts import check_values

TAIL_SUFFIX = ".tail"
MOST_TAIL_ROWS = 4096
"""A tail is written whole each time: 0.4 MB. A job that makes more steps than this in a few seconds gets parts."""

MOST_TAIL_BYTES = 1 << 20
"""Rows of 12 integers at most, and the names of their kinds."""

NOT_KNOWN = -1
"""Stands for null, as in the recorder's ring: no column of `steps` is ever negative."""

_INT64 = np.dtype("<i8")


class _Tail(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    columns: dict[str, bytes]
    kinds: tuple[str, ...]


def encode_tail(columns: Mapping[str, NDArray[np.int64]], kinds: Sequence[str]) -> bytes:
    """Rows of `steps` as integers.

    Args:
        columns: a column's name to its values `[n]`, in the declared unit, -1 for null; `kind` as an index.
        kinds: names of the kinds, by index.
    """
    return msgspec.msgpack.encode(
        _Tail({name: values.astype(_INT64).tobytes() for name, values in columns.items()}, tuple(kinds))
    )


def decode_tail(data: pa.Buffer) -> pa.Table:
    """The rows of a tail with the declared schema of `steps`.

    Raises:
        TableError: the file is none that a recorder wrote.
    """
    if data.size > MOST_TAIL_BYTES:
        raise TableError(f"{data.size} bytes are more than a tail of {MOST_TAIL_ROWS} steps takes")
    try:
        tail = msgspec.msgpack.decode(memoryview(data), type=_Tail)
        columns = {name: np.frombuffer(values, _INT64) for name, values in tail.columns.items()}
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise TableError(f"not a readable tail of steps: {error}") from error
    if len({len(values) for values in columns.values()}) != 1:
        raise TableError("its columns are not of one length")
    of_kinds = columns.pop("kind", None)
    arrays = {name: pa.array(values, mask=values == NOT_KNOWN) for name, values in columns.items()}
    if of_kinds is not None:
        if of_kinds.max(initial=NOT_KNOWN) >= len(tail.kinds) or of_kinds.min(initial=NOT_KNOWN) < NOT_KNOWN:
            raise TableError("column 'kind' holds an index of no kind")
        codes = pa.array(of_kinds.astype(np.int32), mask=of_kinds == NOT_KNOWN)
        arrays["kind"] = pa.DictionaryArray.from_arrays(codes, pa.array(tail.kinds, pa.string()))
    table = table_from_columns("steps", arrays)
    check_values(table_spec("steps"), table)
    return table
