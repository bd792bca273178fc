"""Where the recording goes: the shard of this process, opened late, and what happens when the disk says no.

A full or unwritable disk never reaches the job. Rows that could not be written wait in the store's buffers and the
step clock's ring, both bounded; captures are dropped at once, because they are large. Everything is tried again at
the next flush, and what was lost is counted and becomes a gap.
"""

import errno
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from phasepoint.core.errors import StoreError
from phasepoint.recorder.rows import Row, table_of_rows

if TYPE_CHECKING:
    import pyarrow as pa

    from phasepoint.store import ShardWriter


class RunOutput:
    """One shard, written by the flusher's thread alone.

    Attributes:
        failures: writes that failed.
        problem: what the last failed write said; None where the last one succeeded.
        last_problem: the same, whether or not one succeeded since.
        backlog: whether rows wait in the store's buffers because they could not be written.
        notes: what is to be known about the session, written when the shard is closed.
    """

    def __init__(self, open_writer: Callable[[], "ShardWriter"]) -> None:
        self.failures = 0
        self.problem: str | None = None
        self.last_problem: str | None = None
        self.backlog = False
        self.notes: dict[str, str] = {}
        self._open_writer = open_writer
        self._writer: ShardWriter | None = None

    @property
    def is_open(self) -> bool:
        """Whether the shard was opened."""
        return self._writer is not None

    @property
    def host(self) -> int | None:
        """Rank of the shard; None before it was opened."""
        return None if self._writer is None else self._writer.session.host

    def open(self) -> None:
        """Create the run and become its writer, once.

        Raises:
            StoreError: the run or the shard cannot be created, or another process writes it.
        """
        if self._writer is None:
            self._writer = self._open_writer()

    def try_open(self) -> bool:
        """Open, unless the disk is full: that may pass, so the next round tries again. Returns whether it is open.

        Raises:
            StoreError: as `open`, for every other reason.
        """
        try:
            self.open()
        except StoreError as error:
            if not _may_pass(error):
                raise
            self._note(error)
            return False
        self.problem = None
        return True

    def waiting_rows(self, name: str) -> int:
        """Rows of a table that were taken and are not written."""
        return 0 if self._writer is None else self._writer.waiting_rows(name)

    def add_rows(self, name: str, rows: list[Row]) -> None:
        """Take rows of one table."""
        if rows:
            self.add_table(name, table_of_rows(name, rows))

    def add_table(self, name: str, table: "pa.Table") -> None:
        """Take a table of rows."""
        assert self._writer is not None
        self._writer.append(name, table)

    def write_raw(self, relative_path: str, data: bytes | Path) -> bool:
        """Write a raw capture; False where the disk would not take it."""
        assert self._writer is not None
        try:
            self._writer.write_raw(relative_path, data)
        except StoreError as error:
            self._note(error)
            return False
        return True

    def flush(self) -> bool:
        """Write all rows taken so far; False where the disk would not take them."""
        assert self._writer is not None
        try:
            self._writer.flush()
        except StoreError as error:
            self._note(error)
            self.backlog = True
            return False
        self.backlog = False
        self.problem = None
        return True

    def close(self, status: str, tally: Mapping[str, int]) -> None:
        """Write the rest and mark the shard closed; where that fails, the shard stays as a killed one would be."""
        if self._writer is None:
            return
        try:
            self._writer.close(status, notes=self.notes, tally=tally)
        except StoreError as error:
            self._note(error)
            self.backlog = True
        else:
            self.backlog = False
            self.problem = None

    def _note(self, error: StoreError) -> None:
        self.failures += 1
        self.problem = self.last_problem = str(error)


def _may_pass(error: StoreError) -> bool:
    """Whether somebody may free space while the job runs."""
    return isinstance(error.__cause__, OSError) and error.__cause__.errno in {errno.ENOSPC, errno.EDQUOT}
