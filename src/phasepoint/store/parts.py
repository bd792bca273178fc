"""One part: a Parquet file that holds some rows of one table of one shard.

Merged parts: one file that stands for several, and how a reader tells that it does.

A merged part names its sources in its metadata for good. A reader that sees both a merged part and its sources
(the merging process was killed, or has not come to deleting them) reads the merged part alone; and a source that is
written again later, as a conversion that is done twice does, stays covered.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from hashlib import sha256
from itertools import pairwise

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from phasepoint.core.errors import StoreError, TableError
from phasepoint.core.tables import CATEGORIES, MOST_STEPS, TableSpec, table_spec, validate_table
from phasepoint.store.filesystem import Location, write_file

MERGED_PREFIX = "merged-"
MERGED_KEY = b"phasepoint.merged"

_NUMBERED = re.compile(r"(.*?)(\d{1,18})")


class _Names(msgspec.Struct, frozen=True):
    """Part names, those that count upwards as ranges: a merged part of a week's run has 100,000 sources."""

    ranges: tuple[tuple[str, int, int, int], ...]  # prefix, digits, first, last
    others: tuple[str, ...]


def merged_name(sources: Iterable[str]) -> str:
    """Name of the part merged from these sources: equal for equal sources."""
    digest = sha256("\n".join(sorted(sources)).encode()).hexdigest()
    return f"{MERGED_PREFIX}{digest[:24]}"


def merged_metadata(sources: Collection[str]) -> dict[bytes, bytes]:
    """Key-value metadata that names a merged part's sources."""
    return {MERGED_KEY: msgspec.json.encode(_encode_names(sources))}


def merged_sources(data: pa.Buffer) -> frozenset[str]:
    """The sources of a merged part; none if the file cannot be read, which reading its rows will report."""
    try:
        metadata = pq.read_metadata(pa.BufferReader(data)).metadata or {}
        return _decode_names(msgspec.json.decode(metadata.get(MERGED_KEY, b""), type=_Names))
    except (pa.ArrowException, OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return frozenset()


def select_parts(plain: Collection[str], merged: Mapping[str, frozenset[str]]) -> list[str]:
    """The parts to read so that every row counts once, in the order of their first sources.

    A merged part whose sources are all in others (it was merged again) is passed over. Two merged parts can overlap
    otherwise only if two compactions ran at once on an object store; one can then be passed over if all of its
    sources are there or in the other.

    Args:
        plain: names of the parts that are no merged ones.
        merged: name of each merged part to its sources.
    """
    kept = dict(merged)
    for name in sorted(merged, key=lambda n: (len(merged[n]), n)):
        others: set[str] = set().union(*(sources for other, sources in kept.items() if other != name))
        if kept[name] & others and kept[name] <= others | set(plain):
            del kept[name]
    covered: set[str] = set().union(*kept.values())
    names = [*kept, *(name for name in plain if name not in covered)]
    return sorted(names, key=lambda n: (min(merged.get(n) or (n,)), n))


def _encode_names(names: Collection[str]) -> _Names:
    numbers: dict[tuple[str, int], list[int]] = {}
    others = []
    for name in sorted(names):
        match = _NUMBERED.fullmatch(name)
        if match is None:
            others.append(name)
        else:
            numbers.setdefault((match[1], len(match[2])), []).append(int(match[2]))
    ranges = [
        (prefix, digits, first, last)
        for (prefix, digits), values in numbers.items()
        for first, last in _runs_of(sorted(values))
    ]
    return _Names(tuple(ranges), tuple(others))


def _runs_of(values: list[int]) -> list[tuple[int, int]]:
    """Sorted integers as maximal runs without a hole, each with its first and its last."""
    breaks = [(a, b) for a, b in pairwise(values) if b != a + 1]
    return list(zip([values[0], *(b for _, b in breaks)], [*(a for a, _ in breaks), values[-1]], strict=True))


def _decode_names(names: _Names) -> frozenset[str]:
    total = sum(max(0, last - first + 1) for _, _, first, last in names.ranges)
    if total > 10_000_000:  # a run is untrusted: weeks of parts every second are 2 million
        return frozenset()
    numbered = (
        f"{prefix}{number:0{digits}d}"
        for prefix, digits, first, last in names.ranges
        for number in range(first, last + 1)
    )
    return frozenset(numbered) | frozenset(names.others)


PART_SUFFIX = ".parquet"
MAX_PART_ROWS = 200_000_000  # a choice: rows of a part of an untrusted run; a merged part of weeks has some millions
MAX_PART_BYTES = 16 << 30  # a choice: bytes of it once decoded
FREE_PART_BYTES = 64 << 20
"""A part that decodes to no more than this is read in any case."""
MOST_PART_RATIO = 256
"""Bytes once decoded, of a byte in the file, beyond that. A million steps of 88 bytes each take some 4 MB: 22 times."""

_THREADS_PAY_BYTES = 1 << 20
"""Handing a smaller part to the thread pool takes longer than reading it: 0.5 ms instead of 0.3."""

SMALL_TABLE_BYTES = 256 << 10
"""Three thousand steps. zstd makes a context for each column, which takes half of the time for such a part: 0.6 ms of
CPU time with it and 0.33 without for 80 steps, 0.45 and 0.26 for the account (in a job that uses the caches, 2 cores,
2026-11-25), and what is left after deltas and dictionaries is no smaller with it (5,836 and 5,757 bytes)."""

_NUMBERS = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean)
_PART_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_=-]{0,127}")


def encode_part(table: pa.Table, *, metadata: dict[bytes, bytes] | None = None) -> pa.Buffer:
    """A table of a declared schema as Parquet: packed, integers as deltas, repeating strings as dictionaries.

    zstd level 1: on a million step rows, level 9 is 0.5 % smaller. Small tables with LZ4, as small here and cheaper.

    Args:
        table: any table of `core.tables`.
        metadata: key-value metadata of the file.
    """
    if metadata:
        table = table.replace_schema_metadata(metadata)
    schema = table.schema
    strings = [f.name for f in schema if not any(is_kind(f.type) for is_kind in _NUMBERS)]
    sink = pa.BufferOutputStream()
    is_small = table.nbytes <= SMALL_TABLE_BYTES
    pq.write_table(
        table.unify_dictionaries(),
        sink,
        compression="lz4" if is_small else "zstd",
        compression_level=None if is_small else 1,
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
        texts = [c.name for c in spec.columns if pa.types.is_string(c.type)]
        file = _open_part(data, texts)
        rows = file.metadata.num_rows
        size = sum(file.metadata.row_group(i).total_byte_size for i in range(file.metadata.num_row_groups))
        if rows > MAX_PART_ROWS or size > MAX_PART_BYTES:
            raise TableError(f"{rows} rows and {size} bytes are more than a part may hold")
        names = file.schema_arrow.names
        present = set(names)
        if len(present) < len(names):
            raise TableError("a column stands there twice")
        _check_size(data, max(size, 8 * rows * len(present)))
        table = file.read(
            [c.name for c in spec.columns if c.name in present], use_threads=data.size > _THREADS_PAY_BYTES
        )
        table.validate(full=True)  # text that is no UTF-8, indices outside their dictionary
        _check_size(data, sum(_text_bytes(table.column(name)) for name in texts if name in present))
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise TableError(f"not a readable Parquet file: {error}") from error
    missing = [c.name for c in spec.columns if c.name not in present]
    unknown = sorted(present.difference(spec.schema.names))
    if missing and unknown:  # an older writer knows fewer columns, a newer one more, and none does both
        raise TableError(f"column {missing[0]!r} is missing and {unknown[0]!r} is unknown: the file is damaged")
    for column in spec.columns:
        if column.nullable and column.name in missing:
            table = table.append_column(column.name, pa.nulls(rows, column.type))
    table = validate_table(spec.name, table)
    check_values(spec, table)
    return table


def _open_part(data: pa.Buffer, texts: list[str]) -> pq.ParquetFile:
    """The file, of whose columns those of texts are read as dictionaries; pyarrow knows no other way than by name."""
    try:
        return pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True, read_dictionary=texts)
    except KeyError:  # one is missing: an older minor, or damage, which is told later
        there = pq.read_schema(pa.BufferReader(data)).names
        texts = [name for name in texts if name in there]
        return pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True, read_dictionary=texts)


def _check_size(data: pa.Buffer, decoded_bytes: int) -> None:
    if decoded_bytes > FREE_PART_BYTES + MOST_PART_RATIO * data.size:
        raise TableError(f"{data.size} bytes that decode to {decoded_bytes} are not the data of a job")


def _text_bytes(column: pa.ChunkedArray) -> int:
    """What texts take that the file holds once each, written out for every row."""
    import pyarrow.compute as pc

    if not pa.types.is_dictionary(column.type):
        return 0  # no texts, which is told when the columns are checked
    lengths = (pc.binary_length(chunk.dictionary).take(chunk.indices) for chunk in column.chunks)
    return sum(pc.sum(one).as_py() or 0 for one in lengths)


MOST_PS = (1 << 62) - 1
"""53 days: no step, window or program of a session lasts longer, and two of them can be added up in int64."""
MOST_RATIO = 100
"""Chances are at most 1, and so is occupancy, which some profiler may yet give in percent."""
_NUMBERED_FROM_0 = frozenset(
    ("step", "first_step", "last_step", "cut_step", "window", "first_window", "span", "parent", "launch")
)
_NOT_NEGATIVE = frozenset(
    ("dur_ps", "input_ps", "dispatch_ps", "compile_ps", "wall_ps", "self_ps", "total_ps", "count")
)


def check_values(spec: TableSpec, table: pa.Table) -> None:
    """Refuse categories that are none, and times that no job has, which later sums would turn into other times."""
    for column in spec.columns:
        values = table.column(column.name)
        if column.name == "category":
            named = {str(name) for chunk in values.chunks for name in chunk.dictionary.to_pylist()}
            if strange := named.difference(CATEGORIES):
                raise TableError(f"column 'category' holds {min(strange)!r}; expected {', '.join(CATEGORIES)}")
        if spec.name == "counters" and column.name == "value" and not np.isfinite(values.to_numpy()).all():
            raise TableError("column 'value' holds infinity, or no number")
        if column.unit == "ratio":
            ratios = values.to_numpy()  # NaN for null
            if np.count_nonzero((ratios >= 0) & (ratios <= MOST_RATIO)) + values.null_count < len(values):
                raise TableError(f"column {column.name!r} holds a ratio that is none, or is not in 0 to {MOST_RATIO}")
        if not pa.types.is_int64(column.type) or values.null_count == len(values):
            continue
        numbers = values.to_numpy()
        smallest, largest = (np.nanmin, np.nanmax) if values.null_count else (np.min, np.max)
        low, high = int(smallest(numbers)), int(largest(numbers))
        if low < 0 and (column.name in _NOT_NEGATIVE or spec.name == "steps"):
            raise TableError(f"column {column.name!r} holds {low}: it is never negative")
        if column.name in _NUMBERED_FROM_0 and not -1 <= low <= high < MOST_STEPS:  # a last step may come before step 0
            raise TableError(f"column {column.name!r} holds {low if low < -1 else high}: no job has such a number")
        if column.unit == "ps" and max(high, -low) > MOST_PS:
            raise TableError(f"column {column.name!r} holds {high} ps, more than 53 days")


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
