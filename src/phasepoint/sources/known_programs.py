"""Programs already in a shard: decoded once, written once, however many windows carry their protos."""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phasepoint.core.tables import TABLES
from phasepoint.sources.capture import Capture
from phasepoint.sources.hlo import HloTables, read_programs
from phasepoint.store import Run


class KnownPrograms:
    """The programs of one shard, growing as windows bring new ones."""

    def __init__(self, programs: pa.Table, instructions: pa.Table) -> None:
        self._tables = HloTables(programs, instructions)
        self._written = set(programs.column("program").to_pylist())
        self._known = set(self._written)

    @classmethod
    def of_shard(cls, run: Run, shard: str) -> "KnownPrograms":
        """The programs that the shard's tables hold already."""
        tables = [
            run.table(name, shard=shard).select([c.name for c in TABLES[name].columns])
            for name in ("programs", "instructions")
        ]
        return cls(*tables)

    def read(self, protos: Mapping[int, bytes], *, window: int) -> HloTables:
        """All programs known with this capture; only those never seen are decoded.

        Most captures carry no program, since the recorder asks for each one once; their ops are those of programs
        that an earlier window brought.

        Raises:
            SourceError: a proto cannot be decoded.
        """
        missing = {program: proto for program, proto in protos.items() if program not in self._known}
        if missing:
            read = read_programs(missing, window=window)
            self._tables = HloTables(
                _append(self._tables.programs, read.programs), _append(self._tables.instructions, read.instructions)
            )
            self._known |= missing.keys()
        return self._tables

    def take_new(self, capture: Capture) -> HloTables:
        """The capture's programs that no part of the shard holds yet; from now on they count as written."""
        programs = set(capture.programs.column("program").to_pylist()) - self._written
        self._written |= programs
        return HloTables(_of(capture.programs, programs), _of(capture.instructions, programs))


def _append(table: pa.Table, rows: pa.Table) -> pa.Table:
    return pa.concat_tables([table, rows]).unify_dictionaries().combine_chunks()


def _of(table: pa.Table, programs: set[int]) -> pa.Table:
    wanted = pa.array(np.array(sorted(programs), np.int64))
    return table.filter(pc.is_in(table.column("program"), value_set=wanted))
