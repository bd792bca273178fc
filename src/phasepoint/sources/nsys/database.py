"""The SQLite file that Nsight Systems exports, as columns; what a version does not have is null, damage is said.

The file is untrusted: it is opened read-only, only plain tables are read (no views, no virtual tables), texts are cut,
and rows come in blocks, so that memory depends on the columns asked for and not on the file.

What an export of Nsight Systems calls its processes, threads, devices, streams and functions.
"""

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from phasepoint.core.arrays import Int64s
from phasepoint.core.dense import number_keys
from phasepoint.core.errors import SourceError
from phasepoint.sources.events.rows import MISSING

Block = Mapping[str, Int64s]
"""Columns of some rows by name; `MISSING` where the file has null, or no such column."""

_BLOCK_ROWS = 1 << 16  # a choice: some MB of Python's rows at a time
_LONGEST_TEXT = 4096  # a choice: characters; templates of C++ have long names
_MOST_TEXTS = 1 << 24  # a choice: bounds what a hostile file takes of memory


class NsysDatabase:
    """Tables of one export.

    Attributes:
        columns: names of the columns of each table, by the table's name.
        problems: what could not be read, in words.
    """

    def __init__(self, connection: sqlite3.Connection, *, problem: str | None = None) -> None:
        self._connection = connection
        self.problems = [problem] if problem else []
        try:
            found = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchall()
            plain = [name for name, sql in found if isinstance(name, str) and _is_plain(sql)]
            self.columns = {name: self._column_names(name) for name in plain}
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise SourceError(
                f"an SQLite file that cannot be read: {error}; expected an export of Nsight Systems, whole. "
                "Export it again: nsys export --type sqlite REPORT.nsys-rep"
            ) from error

    def has(self, table: str, *columns: str) -> bool:
        """Whether there is such a table with all these columns."""
        return table in self.columns and self.columns[table].issuperset(columns)

    def count(self, table: str) -> int:
        """Rows of a table; 0 where it cannot be read."""
        row = next(self._select(table, f"SELECT count(*) FROM {_quoted(table)}"), (0,))
        return int(row[0])

    def blocks(self, table: str, columns: Sequence[str]) -> Iterator[Block]:
        """Integer columns of a table, some rows at a time.

        Args:
            table: its name.
            columns: names; those that the table does not have are `MISSING` throughout, as is what is no integer.
        """
        for block, _ in self.blocks_with_text(table, columns, None):
            yield block

    def blocks_with_text(
        self, table: str, columns: Sequence[str], text: str | None
    ) -> Iterator[tuple[Block, Sequence[Any]]]:
        """As `blocks`, with a column of texts beside; null where it is not text or not asked for."""
        wanted = [self._integer(table, column) for column in columns]
        wanted.append("NULL" if text is None else self._text(table, text))
        rows = self._select(table, f"SELECT {', '.join(wanted)} FROM {_quoted(table)}")
        while block := list(islice(rows, _BLOCK_ROWS)):
            values = np.array([row[:-1] for row in block], np.int64).reshape(len(block), len(columns))
            yield dict(zip(columns, values.T, strict=True)), [row[-1] for row in block]

    def rows(
        self, table: str, columns: Sequence[str], *, where: tuple[str, int] | None = None
    ) -> Iterator[tuple[Any, ...]]:
        """Rows of a table as the file has them, texts cut; null where there is no such column.

        Args:
            table: its name.
            columns: names.
            where: a column and the integer that it must hold; None for all rows.
        """
        wanted = ", ".join(self._text(table, column) for column in columns)
        limit = "" if where is None else f" WHERE {_quoted(where[0])} = {where[1]}"
        return self._select(table, f"SELECT {wanted} FROM {_quoted(table)}{limit}")

    def value(self, table: str, column: str) -> int | None:
        """The first row's integer, None where there is none."""
        if not self.has(table, column):
            return None
        row = next(self._select(table, f"SELECT {self._integer(table, column)} FROM {_quoted(table)} LIMIT 1"), None)
        return None if row is None or row[0] == MISSING else int(row[0])

    def texts(self, table: str, key: str, text: str) -> dict[int, str]:
        """Texts of a table by their integer key."""
        if not self.has(table, key, text):
            return {}
        pairs = self.rows(table, (key, text))
        kept = ((number, str(value)) for number, value in pairs if isinstance(number, int) and value is not None)
        return dict(islice(kept, _MOST_TEXTS))

    def _column_names(self, table: str) -> frozenset[str]:
        return frozenset(row[1] for row in self._connection.execute(f"PRAGMA table_info({_quoted(table)})"))

    def _integer(self, table: str, column: str) -> str:
        if column not in self.columns.get(table, ()):
            return str(MISSING + 1) + " - 1"
        name = _quoted(column)
        return f"CASE typeof({name}) WHEN 'integer' THEN {name} ELSE {MISSING + 1} - 1 END"

    def _text(self, table: str, column: str) -> str:
        if column not in self.columns.get(table, ()):
            return "NULL"
        name = _quoted(column)
        return f"CASE typeof({name}) WHEN 'text' THEN substr({name}, 1, {_LONGEST_TEXT}) ELSE {name} END"

    def _select(self, table: str, query: str) -> Iterator[tuple[Any, ...]]:
        """Rows up to where the file is damaged."""
        read = 0
        try:
            with closing(self._connection.execute(query)) as cursor:
                for row in cursor:
                    read += 1
                    yield row
        except sqlite3.Error as error:
            self.problems.append(f"table {table} is damaged after {read} rows ({error}); its later rows are lost")


@contextmanager
def open_database(source: bytes | Path) -> Iterator[NsysDatabase]:
    """Open an export: a file, which is not read into memory, or its bytes, which are.

    Raises:
        SourceError: it is no SQLite file, or is damaged where its tables are listed.
    """
    try:
        connection = _connect(source)
    except sqlite3.Error as error:
        raise SourceError(f"no SQLite file: {error}; expected an export of Nsight Systems") from error
    with closing(connection):
        yield NsysDatabase(connection, problem=_truncation(source))


def _connect(source: bytes | Path) -> sqlite3.Connection:
    if isinstance(source, Path):
        connection = sqlite3.connect(f"file:{quote(str(source.resolve()))}?mode=ro&immutable=1", uri=True)
    elif source:
        connection = sqlite3.connect(":memory:")
        connection.deserialize(source)
    else:
        raise sqlite3.DatabaseError("it is empty")  # SQLite would say that memory is short
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA writable_schema = ON")  # or a truncated file is not read at all; nothing is written
    connection.execute("PRAGMA cell_size_check = ON")
    return connection


def _truncation(source: bytes | Path) -> str | None:
    """What is missing of a file that is shorter than its header says. Source: sqlite.org/fileformat.html, 1.3."""
    if isinstance(source, Path):
        with source.open("rb") as opened:
            head, size = opened.read(32), source.stat().st_size
    else:
        head, size = source[:32], len(source)
    page_bytes, pages = int.from_bytes(head[16:18], "big"), int.from_bytes(head[28:32], "big")
    whole = pages * (65536 if page_bytes == 1 else page_bytes)
    return f"the file is truncated: {size} of {whole} bytes are there" if size < whole else None


def _is_plain(sql: object) -> bool:
    """Whether a table is one of rows in the file; virtual tables run code."""
    return isinstance(sql, str) and sql.lstrip()[:12].upper() == "CREATE TABLE"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


_THREAD_BITS = 24  # a global id ends with 24 bits of process and of thread. Source: Nsight Systems, exporter schema
_PID_MASK = (1 << _THREAD_BITS) - 1  # of as many bits
_UNIX_NS = 10**17
"""Times beyond are Unix times: of an export with normalised time."""


class NsysNames:
    """Names of an export.

    Attributes:
        strings: texts of `StringIds`.
        devices: `gpu:0 NVIDIA H100`, … of the GPUs that the export describes.
    """

    def __init__(self, database: NsysDatabase) -> None:
        self.strings = database.texts("StringIds", "id", "value")
        self._threads = self._thread_names(database)
        self._gpus = _gpus_by_process(database)
        names = database.texts("TARGET_INFO_GPU", "id", "name")
        self.devices = tuple(f"gpu:{number} {name}" for number, name in sorted(names.items()))

    def text(self, number: int, otherwise: str) -> str:
        """A text of `StringIds`; `otherwise` where the export does not have it."""
        return self.strings.get(number) or otherwise

    def thread(self, global_tid: int) -> str:
        """Name of a thread's track."""
        if global_tid == MISSING:
            return "unknown thread"
        known = self._threads.get(global_tid)
        pid, tid = (global_tid >> _THREAD_BITS) & _PID_MASK, global_tid & _PID_MASK
        return known or f"process {pid} thread {tid}"

    def device(self, process: int, ordinal: int) -> str:
        """A device's name: by the number of the GPU where processes number their GPUs differently."""
        if ordinal == MISSING:
            return "gpu:unknown"
        pid = (process >> _THREAD_BITS) & _PID_MASK if process != MISSING else 0
        return f"gpu:{self._gpus.get((pid, ordinal), ordinal)}"

    def _thread_names(self, database: NsysDatabase) -> dict[int, str]:
        """Names made unique: threads of one name stay tracks of their own."""
        names: dict[int, str] = {}
        if database.has("ThreadNames", "nameId", "globalTid"):
            for block in database.blocks("ThreadNames", ("globalTid", "nameId")):
                for thread, name in zip(block["globalTid"].tolist(), block["nameId"].tolist(), strict=True):
                    if name in self.strings and thread != MISSING:
                        names.setdefault(thread, self.strings[name])
        taken: dict[str, int] = {}
        for name in names.values():
            taken[name] = taken.get(name, 0) + 1
        return {
            thread: name
            if taken[name] == 1
            else f"{name} of process {(thread >> _THREAD_BITS) & _PID_MASK}, {thread & _PID_MASK}"
            for thread, name in names.items()
        }


def name_rows(name: Callable[..., int], *keys: Int64s) -> Int64s:
    """`[n_rows]` numbers of rows from their keys; `name` is asked once for each distinct key.

    Args:
        name: gives the number of a key.
        keys: one to four columns, `[n_rows]` each.
    """
    numbers, first = number_keys(*keys)
    named = np.array([name(*row) for row in zip(*(key[first].tolist() for key in keys), strict=True)], np.int64)
    return named[numbers] if len(named) else np.empty(0, np.int64)


def start_unix_ns(database: NsysDatabase, first_ns: int) -> tuple[int, int] | None:
    """An instant on the file's clock and the same in Unix ns; None where the export does not say.

    Args:
        database: the export.
        first_ns: time of some event.
    """
    if first_ns > _UNIX_NS:
        return 0, 0
    unix_ns = database.value("TARGET_INFO_SESSION_START_TIME", "utcEpochNs")
    if unix_ns is None or unix_ns < _UNIX_NS:
        return None
    started_ns = database.value("ANALYSIS_DETAILS", "startTime")
    if started_ns is None:
        started_ns = database.value("TARGET_INFO_SESSION_START_TIME", "systemClockNs")
    return started_ns or 0, unix_ns


def _gpus_by_process(database: NsysDatabase) -> dict[tuple[int, int], int]:
    """GPU of each process's device number; empty where all processes number alike."""
    found: dict[tuple[int, int], int] = {}
    if database.has("TARGET_INFO_CUDA_DEVICE", "gpuId", "cudaId", "pid"):
        for block in database.blocks("TARGET_INFO_CUDA_DEVICE", ("pid", "cudaId", "gpuId")):
            rows = zip(*(block[name].tolist() for name in ("pid", "cudaId", "gpuId")), strict=True)
            found |= {(pid, ordinal): gpu for pid, ordinal, gpu in rows if MISSING not in (pid, ordinal, gpu)}
    of_ordinal: dict[int, set[int]] = {}
    for (_, ordinal), gpu in found.items():
        of_ordinal.setdefault(ordinal, set()).add(gpu)
    return found if any(len(gpus) > 1 for gpus in of_ordinal.values()) else {}
