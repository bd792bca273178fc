"""The tail of a shard's table: its rows since the last part, in plain form, for whoever opens the run before the next.

Code of Arrow and Parquet is cold in a job that uses the caches: 600 steps took 5.7 ms of CPU time to become a table
there and 8.9 to become a part, 0.4 and 1.2 the second time at once, and 0.7 as plain integers (2 cores, 2026-11-29).
So parts are written when there are rows enough, and until then rows are appended to the tail: records, each with its
length and a checksum. It has the name of the part that it is going to be: once that is there, the tail is void.
"""

import struct
from collections.abc import Mapping, Sequence
from typing import Any
from zlib import crc32

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from phasepoint.core.errors import TableError
from phasepoint.core.tables import TableSpec, table_from_columns, table_from_rows
from phasepoint.store.parts import check_values

TAIL_SUFFIX = ".tail"
MOST_TAIL_ROWS = 4096
"""A choice: 0.4 MB of steps. A job that makes more than this in a few seconds gets parts."""

MOST_TAIL_BYTES = 1 << 20
"""Steps are 12 integers at most, and the names of their kinds; other rows have texts."""

NOT_KNOWN = -1
"""Stands for null, as in the recorder's ring: no column of `steps` is ever negative."""

_INT64 = np.dtype("<i8")

_HEAD = struct.Struct("<II")
"""Before each record: its bytes, and their CRC-32."""


class _StepRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    columns: dict[str, bytes]
    kinds: tuple[str, ...]


class _RowRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    rows: list[dict[str, Any]]


def encode_rows(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """A record of rows of any table but `steps`, mappings of a column's name to its value.

    Raises:
        TypeError, ValueError, OverflowError: a value is of no kind that a column has.
    """
    return _framed(msgspec.msgpack.encode({"rows": rows}, enc_hook=_number))


def _framed(record: bytes) -> bytes:
    return _HEAD.pack(len(record), crc32(record)) + record


def _number(value: Any) -> Any:
    """Python's own number of NumPy's."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} is no value of a column")


def encode_steps(columns: Mapping[str, NDArray[np.int64]], kinds: Sequence[str]) -> bytes:
    """A record of rows of `steps`.

    Args:
        columns: a column's name to its values `[n]`, in the declared unit, -1 for null; `kind` as an index.
        kinds: names of the kinds, by index.
    """
    packed = {name: values.astype(_INT64).tobytes() for name, values in columns.items()}
    return _framed(msgspec.msgpack.encode(_StepRecord(packed, tuple(kinds))))


def decode_tail(spec: TableSpec, data: pa.Buffer) -> tuple[pa.Table, str | None]:
    """The rows of a tail with the declared schema of its table, up to the first record that is cut or damaged.

    Returns:
        The rows, and what is wrong with the rest; None where there is no rest.
    """
    decode = _decode_steps if spec.name == "steps" else _decode_rows
    tables, problem = [spec.empty], None if data.size else "not a readable tail: it is empty"
    if data.size > MOST_TAIL_BYTES:
        return spec.empty, f"{data.size} bytes are more than a tail takes"
    at = 0
    while at < data.size and problem is None:
        try:
            length, checksum = _HEAD.unpack_from(data, at)
            record = memoryview(data)[at + _HEAD.size : at + _HEAD.size + length]
            if len(record) < length or crc32(record) != checksum:
                raise TableError(f"not a readable tail: the record at byte {at} is cut or damaged")
            table = decode(spec, record)
            check_values(spec, table)
            tables.append(table)
            at += _HEAD.size + length
        except struct.error:
            problem = f"not a readable tail: the record at byte {at} is cut"
        except TableError as error:
            problem = str(error)
    return pa.concat_tables(tables).unify_dictionaries(), problem


def _decode_rows(spec: TableSpec, record: memoryview) -> pa.Table:
    try:
        return table_from_rows(spec.name, msgspec.msgpack.decode(record, type=_RowRecord).rows)
    except (msgspec.DecodeError, pa.ArrowException, ValueError, TypeError, OverflowError, RecursionError) as error:
        raise TableError(f"not a readable tail: {error}") from error


def _decode_steps(spec: TableSpec, record: memoryview) -> pa.Table:
    try:
        steps = msgspec.msgpack.decode(record, type=_StepRecord)
        columns = {name: np.frombuffer(values, _INT64) for name, values in steps.columns.items()}
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise TableError(f"not a readable tail: {error}") from error
    if len({len(values) for values in columns.values()}) != 1:
        raise TableError("its columns are not of one length")
    of_kinds = columns.pop("kind", None)
    arrays = {name: pa.array(values, mask=values == NOT_KNOWN) for name, values in columns.items()}
    if of_kinds is not None:
        if of_kinds.max(initial=NOT_KNOWN) >= len(steps.kinds) or of_kinds.min(initial=NOT_KNOWN) < NOT_KNOWN:
            raise TableError("column 'kind' holds an index of no kind")
        codes = pa.array(of_kinds.astype(np.int32), mask=of_kinds == NOT_KNOWN)
        arrays["kind"] = pa.DictionaryArray.from_arrays(codes, pa.array(steps.kinds, pa.string()))
    return table_from_columns(spec.name, arrays)
