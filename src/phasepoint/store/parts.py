"""One part: a Parquet file that holds some rows of one table of one shard."""

import re

import pyarrow as pa
import pyarrow.parquet as pq

from phasepoint.core.errors import StoreError, TableError
from phasepoint.core.tables import TableSpec, table_spec, validate_table
from phasepoint.store.filesystem import Location, write_file

PART_SUFFIX = ".parquet"
MAX_PART_ROWS = 200_000_000
MAX_PART_BYTES = 16 << 30
"""Bounds for a part of an untrusted run: rows, and bytes once decoded."""

_THREADS_PAY_BYTES = 1 << 20

_PART_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_=-]{0,127}")


def encode_part(table: pa.Table, *, metadata: dict[bytes, bytes] | None = None) -> pa.Buffer:
    """A table of a declared schema as Parquet: zstd, integers as deltas, repeating strings as dictionaries.

    zstd level 1: on a million step rows, level 9 is 0.5 % smaller.

    Args:
        table: any table of `core.tables`.
        metadata: key-value metadata of the file.
    """
    if metadata:
        table = table.replace_schema_metadata(metadata)
    schema = table.schema
    strings = [f.name for f in schema if not _is_number(f.type)]
    sink = pa.BufferOutputStream()
    pq.write_table(
        table.unify_dictionaries(),
        sink,
        compression="zstd",
        compression_level=1,
        use_dictionary=strings or False,
        column_encoding={f.name: "DELTA_BINARY_PACKED" for f in schema if pa.types.is_int64(f.type)} or None,
        write_page_checksum=True,
    )
    return sink.getvalue()


def decode_part(spec: TableSpec, data: pa.Buffer) -> pa.Table:
    """The rows of a part with the declared schema; a nullable column that is missing (an older minor) is null.

    Raises:
        TableError: the part is truncated, corrupt, too large, or does not fit the table's declaration.
    """
    try:
        file = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
        rows = file.metadata.num_rows
        size = sum(file.metadata.row_group(i).total_byte_size for i in range(file.metadata.num_row_groups))
        if rows > MAX_PART_ROWS or size > MAX_PART_BYTES:
            raise TableError(f"{rows} rows and {size} bytes are more than a part may hold")
        present = set(file.schema_arrow.names)
        # Handing a small part to the thread pool takes longer than reading it: 0.5 ms instead of 0.3.
        table = file.read(
            [c.name for c in spec.columns if c.name in present], use_threads=data.size > _THREADS_PAY_BYTES
        )
        table.validate(full=True)  # text that is no UTF-8, indices outside their dictionary
    except (pa.ArrowException, OSError) as error:
        raise TableError(f"not a readable Parquet file: {error}") from error
    missing = [c.name for c in spec.columns if c.name not in present]
    unknown = sorted(present.difference(spec.schema.names))
    if missing and unknown:  # an older writer knows fewer columns, a newer one more, and none does both
        raise TableError(f"column {missing[0]!r} is missing and {unknown[0]!r} is unknown: the file is damaged")
    for column in spec.columns:
        if column.nullable and column.name in missing:
            table = table.append_column(column.name, pa.nulls(rows, column.type))
    return validate_table(spec.name, table)


def write_table_part(location: Location, shard: str, table_name: str, part_name: str, table: pa.Table) -> int:
    """Write one part and return its size in bytes; a part of the same name is replaced.

    Raises:
        StoreError: the name is no part's name, or the file cannot be written.
        TableError: the table does not fit its declaration.
    """
    if not _PART_NAME.fullmatch(part_name):
        raise StoreError(f"{part_name!r} is no name for a part; expected letters, digits, '-', '_' or '='")
    table = validate_table(table_spec(table_name).name, table)
    data = encode_part(table)
    write_file(location, f"{shard}/{table_name}/{part_name}{PART_SUFFIX}", data)
    return int(data.size)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))
