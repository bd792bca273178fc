"""What the job logged in the same steps of replay and original, value by value, and where and with what both ran."""

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from phasepoint.core.arrays import Int64s
from phasepoint.phases.clock.steps import StepSeries
from phasepoint.replay.fidelity.sides import CommonSteps
from phasepoint.replay.folder import ReplayRecord
from phasepoint.store import Manifest, Run
from phasepoint.summary.analysis import Analysis


@dataclass(frozen=True)
class Setting:
    """Surroundings of both sides.

    Attributes:
        checkpoint: what the replay took up, null where it began at the start.
        differences: code and words of what is other.
        notes: what is other and need not matter.
    """

    checkpoint: str | None
    differences: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]


def compare_settings(original: Analysis, replay: Manifest, record: ReplayRecord) -> Setting:
    """Compare the manifests of both runs, and the checkpoint with those that the original wrote."""
    base = original.run.manifest
    return Setting(
        record.checkpoint, tuple(_differences(base, replay, original, record)), tuple(_notes(base, replay, record))
    )


def _differences(
    base: Manifest, replay: Manifest, original: Analysis, record: ReplayRecord
) -> Iterator[tuple[str, str]]:
    if base.devices and replay.devices and base.devices != replay.devices:
        yield "device", f"other devices: {_list(replay.devices)}, not {_list(base.devices)}"
    changed = [
        f"{name} {base.frameworks[name]} → {replay.frameworks[name]}"
        for name in sorted(base.frameworks.keys() & replay.frameworks.keys())
        if base.frameworks[name] != replay.frameworks[name]
    ]
    if base.python and replay.python and base.python != replay.python:
        changed.append(f"Python {base.python} → {replay.python}")
    if changed:
        yield "versions", f"other versions: {', '.join(changed)}"
    if record.checkpoint is not None:
        rows = original.tables["checkpoints"].select(["path", "step"]).to_pylist()
        steps = [row["step"] for row in rows if row["path"] == record.checkpoint]
        if not steps:
            yield "checkpoint", f"{record.checkpoint} is none of the original's checkpoints"
        elif all(step is not None and step + 1 != record.first_step for step in steps):
            told = f"{record.checkpoint} was written in step {steps[-1]}"
            yield "checkpoint", f"{told}, and the replay began with step {record.first_step}"


def _notes(base: Manifest, replay: Manifest, record: ReplayRecord) -> Iterator[str]:
    if base.created_on and replay.created_on and base.created_on != replay.created_on:
        yield f"the replay ran on {replay.created_on}, the original on {base.created_on}"
    if base.git_commit and replay.git_commit and base.git_commit != replay.git_commit:
        yield f"the job's code is of another commit: {replay.git_commit}, not {base.git_commit}"
    if not base.devices or not replay.devices:
        yield "the devices of one side are not known"
    if base.command and replay.command and base.command[1:] != replay.command[1:]:
        yield f"the command line is another one: {' '.join(replay.command)}"
    yield "environment variables (XLA_FLAGS and the like) are not recorded and were not compared"


def _list(names: tuple[str, ...]) -> str:
    return ", ".join(names[:8]) + (f", … ({len(names)} in all)" if len(names) > 8 else "")


_Key = tuple[str, int, int]
"""Name, position among the common steps, and which of the step's values of that name."""


@dataclass(frozen=True)
class ScalarMatch:
    """One logged quantity.

    Attributes:
        name: the user's name for it.
        values: values that both sides have.
        equal: those equal bit for bit.
        largest_ratio: largest difference over the larger of the two values; null where no two numbers differ, or where
            one of them is not finite.
        first_step: first step in which both have one; null where there is none.
        first_ratio: difference there, as `largest_ratio`; 0 where they are equal.
        first_differing: first step in which they differ; null where none does.
        unmatched: values of the replay in common steps that the original does not have, and the other way round.
    """

    name: str
    values: int
    equal: int
    largest_ratio: float | None
    first_step: int | None
    first_ratio: float | None
    first_differing: int | None
    unmatched: int


def match_scalars(
    original: tuple[Run, StepSeries], replay: tuple[Run, StepSeries], common: CommonSteps
) -> tuple[ScalarMatch, ...]:
    """Compare what was logged in the common steps, by name.

    Args:
        original: the run that is replayed, and its steps.
        replay: the replay, likewise.
        common: their common steps.

    Raises:
        StoreError: a table cannot be read.
    """
    before = _values(*original, common.original)
    after = _values(*replay, common.replay)
    names = sorted({name for name, _, _ in before.keys() | after.keys()})
    return tuple(_match(name, before, after, common.step) for name in names)


def _values(run: Run, steps: StepSeries, rows: Int64s) -> dict[_Key, float | None]:
    """Values by name, position in `rows`, and number in the step."""
    scalars = run.table("scalars")
    row = steps.rows_of(scalars)
    kept = np.isin(row, rows) & (row >= 0)
    order = np.argsort(rows, kind="stable")
    place = order[np.searchsorted(rows[order], row[kept])] if len(rows) else row[kept]
    found: dict[_Key, float | None] = {}
    count: dict[tuple[str, int], int] = {}
    scalars = scalars.filter(pa.array(kept))
    for name, at, value in zip(scalars["name"].to_pylist(), place.tolist(), scalars["value"].to_pylist(), strict=True):
        number = count.get((name, at), 0)
        count[name, at] = number + 1
        found[name, at, number] = value
    return found


def _match(name: str, before: dict[_Key, float | None], after: dict[_Key, float | None], step: Int64s) -> ScalarMatch:
    mine = {key for key in before.keys() | after.keys() if key[0] == name}
    pairs = [
        (int(step[at]), left, right)
        for _, at, number in sorted(mine, key=lambda key: (step[key[1]], key[1], key[2]))
        if (left := before.get((name, at, number))) is not None and (right := after.get((name, at, number))) is not None
    ]
    differing = [(number, _ratio(left, right)) for number, left, right in pairs if not _equal(left, right)]
    ratios = [ratio for _, ratio in differing if ratio is not None]
    first = pairs[0] if pairs else None
    return ScalarMatch(
        name=name,
        values=len(pairs),
        equal=len(pairs) - len(differing),
        largest_ratio=max(ratios) if ratios and len(ratios) == len(differing) else None,
        first_step=first[0] if first else None,
        first_ratio=(0.0 if _equal(*first[1:]) else _ratio(*first[1:])) if first else None,
        first_differing=differing[0][0] if differing else None,
        unmatched=len(mine) - len(pairs),
    )


def _equal(left: float, right: float) -> bool:
    """Bit for bit; all values that are not a number are one."""
    return struct.pack("d", left) == struct.pack("d", right) or (math.isnan(left) and math.isnan(right))


def _ratio(left: float, right: float) -> float | None:
    """Difference over the larger of the two; None where one is not finite."""
    larger = max(abs(left), abs(right))
    if not math.isfinite(larger) or math.isnan(left) or math.isnan(right):
        return None
    return abs(left - right) / larger if larger else 0.0
