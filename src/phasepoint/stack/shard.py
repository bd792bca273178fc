"""One shard of a run, as analyses of the stack see it: its tables, each read once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pyarrow as pa

from phasepoint.store import Run, Shard

Made = TypeVar("Made")


@dataclass(frozen=True, eq=False)
class StackShard:
    """A shard and its tables.

    Attributes:
        run: the run.
        shard: which shard of it.
    """

    run: Run
    shard: Shard
    _tables: dict[str, pa.Table] = field(default_factory=dict, repr=False)
    _made: dict[Callable[..., Any], Any] = field(default_factory=dict, repr=False)

    @property
    def host(self) -> int:
        """Rank of the process that wrote the shard."""
        return self.shard.host

    def table(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """The shard's rows of a table, without `host` and `attempt`; read once, however often it is asked for.

        Args:
            name: a table of `core.tables`.
            columns: which columns; None for all.
        """
        if name not in self._tables:
            self._tables[name] = self.run.table(name, shard=self.shard.name).drop_columns(["host", "attempt"])
        table = self._tables[name]
        return table if columns is None else table.select(list(columns))

    def once(self, make: "Callable[[StackShard], Made]") -> Made:
        """What a function makes of the shard, made at the first call and kept: analyses share their groundwork."""
        if make not in self._made:
            self._made[make] = make(self)
        made: Made = self._made[make]
        return made


def shards_of(run: Run) -> tuple[StackShard, ...]:
    """The shards of a run's history, by host and attempt."""
    return tuple(StackShard(run, shard) for shard in run.shards)
