"""Logged values with and without a change, step by step: the difference is told, never judged."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phasepoint.core.arrays import Int64s
from phasepoint.replay.estimate_types import ScalarChange

_KEYS = ("host", "step", "name")


def compare_scalars(original: pa.Table, changed: pa.Table, steps: Int64s) -> tuple[ScalarChange, ...]:
    """Values that both runs logged at the same steps.

    Args:
        original: table `scalars` as `Run.table` gives it.
        changed: the same of the replay.
        steps: `[n]` step numbers looked at.

    Returns:
        By name. Of a step that logs a name twice, or was done twice, the last value counts.
    """
    before, after = (_last_values(table, steps) for table in (original, changed))
    common = sorted(before.keys() & after.keys())
    rows = []
    for name in dict.fromkeys(key[2] for key in sorted(common, key=lambda key: key[2])):
        keys = [key for key in common if key[2] == name]
        pairs = np.array([(before[key], after[key]) for key in keys])
        apart = pairs[:, 1] - pairs[:, 0]
        largest = int(np.argmax(np.abs(apart)))
        numbers = [key[1] for key in keys]
        means = pairs.mean(axis=0).tolist()
        rows.append(
            ScalarChange(
                name=name,
                steps=len(set(numbers)),
                first_step=min(numbers),
                last_step=max(numbers),
                before=means[0],
                after=means[1],
                largest_difference=float(apart[largest]),
                largest_step=numbers[largest],
            )
        )
    return tuple(rows)


def _last_values(table: pa.Table, steps: Int64s) -> dict[tuple[int, int, str], float]:
    mine = pc.and_(pc.is_in(table["step"], value_set=pa.array(steps)), pc.is_finite(table["value"]))
    table = table.filter(pc.fill_null(mine, False))  # by host, attempt and step: the last one stays
    columns = (table[name].to_pylist() for name in (*_KEYS, "value"))
    return {(host, step, name): value for host, step, name, value in zip(*columns, strict=True)}
