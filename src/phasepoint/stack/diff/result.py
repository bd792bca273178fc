"""What a comparison of two runs returns."""

from dataclasses import dataclass

import pyarrow as pa

from phasepoint.core.tables import Column
from phasepoint.stack.shard.shard import rows_of

_INT = pa.int64()
_RATIO = pa.float64()
_TEXT = pa.string()

CHANGED = "changed"
WITHIN_NOISE = "no change beyond noise"
ONLY_BASE = "only in base"
ONLY_RUN = "only in run"
NOT_JUDGED = "not judged"

EVERYTHING = "everything alike"
UNATTRIBUTED = "unattributed"
OUTSIDE = "time outside ops"
"""The parts that stand in no one place."""

LEVELS = ("step", "part", "category", "kind", "layer", "op")
"""Levels of rows: step times; the parts that add up to the step's change; categories; kinds of op; layers; ops."""

COLUMNS = (
    Column("level", _TEXT, "step, part, category, kind, layer or op"),
    Column("name", _TEXT, "what it is; a layer's path, an op's name without the compiler's numbers"),
    Column("layer", _TEXT, "of an op: its layer", nullable=True),
    Column("direction", _TEXT, "of an op or a kind: forward or backward", nullable=True),
    Column("shape", _TEXT, "of an op or a kind: its result's shape; before → after where it changed", nullable=True),
    Column("device", _TEXT, "of an op or a kind: where it runs", nullable=True),
    Column("base_ps", _INT, "time per step in the base, 0 where it is not there", "ps"),
    Column("run_ps", _INT, "time per step in the run, 0 where it is not there", "ps"),
    Column("change_ps", _INT, "run_ps less base_ps", "ps"),
    Column("change_ratio", _RATIO, "change_ps over base_ps", "ratio", nullable=True),
    Column("low_ratio", _RATIO, "lower end of change_ratio's 95 % interval", "ratio", nullable=True),
    Column("high_ratio", _RATIO, "upper end of change_ratio's 95 % interval", "ratio", nullable=True),
    Column("own_ps", _INT, "change beyond what ops of its kinds did elsewhere", "ps", nullable=True),
    Column("own_ratio", _RATIO, "own_ps over what it would take had it changed as they did", "ratio", nullable=True),
    Column("own_low_ratio", _RATIO, "lower end of own_ratio's 95 % interval", "ratio", nullable=True),
    Column("own_high_ratio", _RATIO, "upper end of own_ratio's 95 % interval", "ratio", nullable=True),
    Column("p_value", _RATIO, "chance of a change so large from noise alone", "ratio", nullable=True),
    Column("verdict", _TEXT, "changed, no change beyond noise, only in base, only in run, not judged"),
    Column("share_ratio", _RATIO, "change_ps over the step's change", "ratio", nullable=True),
    Column("base_executions", _RATIO, "of an op: executions per captured step of the base", nullable=True),
    Column("run_executions", _RATIO, "of an op: executions per captured step of the run", nullable=True),
)


@dataclass(frozen=True)
class DiffRow:
    """One row; its fields are `COLUMNS`."""

    level: str
    name: str
    base_ps: int
    run_ps: int
    verdict: str
    layer: str | None = None
    direction: str | None = None
    shape: str | None = None
    device: str | None = None
    change_ratio: float | None = None
    low_ratio: float | None = None
    high_ratio: float | None = None
    own_ps: int | None = None
    own_ratio: float | None = None
    own_low_ratio: float | None = None
    own_high_ratio: float | None = None
    p_value: float | None = None
    share_ratio: float | None = None
    base_executions: float | None = None
    run_executions: float | None = None

    @property
    def change_ps(self) -> int:
        """`run_ps` less `base_ps`."""
        return self.run_ps - self.base_ps


@dataclass(frozen=True)
class RunDiff:
    """What changed between two runs, per step.

    Attributes:
        base: recordings of the base.
        run: recordings that are compared with it.
        kind: hint of the steps that are compared; None for those without one.
        verdict: `changed`, `no change beyond noise` or `not judged`.
        grown_ratio: by how much the step grew beyond noise, as a share of the base's step; 0 where it did not; None
            where noise cannot be told. This is what `--fail-over` judges.
        unjudged: why noise cannot be told; None where it can.
        rows: by level and, within it, by the size of the change. The rows of level `part` add up to the step's change,
            those of level `op` too; so do those of level `category`, to the change of what was captured.
        notes: what limits the comparison.
        unrelated: why the two are probably different jobs, one sentence; None where they look like one.
    """

    base: tuple[str, ...]
    run: tuple[str, ...]
    kind: str | None
    verdict: str
    grown_ratio: float | None
    unjudged: str | None
    rows: tuple[DiffRow, ...]
    notes: tuple[str, ...]
    unrelated: str | None = None

    def level(self, name: str) -> tuple[DiffRow, ...]:
        """Rows of one level."""
        return tuple(row for row in self.rows if row.level == name)

    @property
    def step(self) -> DiffRow:
        """The row of the usual step."""
        return self.rows[0]

    @property
    def named(self) -> tuple[DiffRow, ...]:
        """Parts of the change that stand in one place: layers and kinds of op that changed beyond noise."""
        return tuple(row for row in self.level("part") if row.name not in (EVERYTHING, UNATTRIBUTED))

    def table(self) -> pa.Table:
        """The rows as a table of `COLUMNS`."""
        return rows_of(COLUMNS, {c.name: [getattr(row, c.name) for row in self.rows] for c in COLUMNS})
