"""What the time of a step served: forward, backward, optimizer, input, copies; each category's time by stage, exactly.

Work has the stage of its event, work of no known stage none. Of two events of one category that a device runs at the
same time the first stage in the order of `STAGES` has the instant; of two categories, the category as in `breakdowns`.

Time in which the device does nothing, the host's or idle, has the stage of the host's event that runs: a call of a
module or of a compiled function, an optimizer's step. In no such event it belongs to the stage between whose events it
lies: where the last one of a known stage before it and the first one after it are of the same stage and of the same
step. Between two stages, and at both ends of a step, it has none. So a stage's work, host and idle time together are
its length as a clock around it would tell, without its edges.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from phasepoint.core.arrays import Int64s
from phasepoint.core.compiled import compiled
from phasepoint.core.intervals import EMPTY, IntervalSet, intersect, partition, union, unite
from phasepoint.core.tables import CATEGORIES, STAGES, table_from_columns

N_STAGES = len(STAGES) + 1
"""The last one stands for none that is known."""

N_BUSY = 3
"""The first categories, in which a device works."""

HOST_CODE, MARK_CODE, N_CODES = (n * N_STAGES for n in (N_BUSY, N_BUSY + 1, N_BUSY + 2))
"""Codes of what an event is, of each kind one a stage: of a device's work category × `N_STAGES` + stage, then of the
host's work, then of events that are no work but have a stage: marks and waits."""

_PASSES = 4
"""The first stages, up to input: a pause may lie within one of them."""

_TO_DEVICE = re.compile(r"(?:memcpy|copy).*?(?:h2d|htod|host_?to_?device)|infeed", re.IGNORECASE)

FORWARD = STAGES.index("forward")

_HOST = N_BUSY  # the categories of a pause: host, then idle
_NONE = N_STAGES - 1  # no stage
_LAST_PS = int(np.iinfo(np.int64).max)
_FIRST_PS = -_LAST_PS
"""Before and after all times."""


class Worker(Protocol):
    """What is asked of a kind of events; see `events.tables.Kind`."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def device(self) -> str: ...  # noqa: D102
    @property
    def level(self) -> str: ...  # noqa: D102
    @property
    def category(self) -> str: ...  # noqa: D102
    @property
    def works(self) -> bool: ...  # noqa: D102


@dataclass(frozen=True, eq=False)
class _Pause:
    """A pause that goes on where a slice ends.

    Attributes:
        stage: of the work before it.
        since_ps: when that ended.
        wall_ps: `[n_steps, 2]` its time so far, the host's and idle.
    """

    stage: int
    since_ps: int
    wall_ps: Int64s


class StagedTime:
    """Adds up a device's time by step, category and stage, slice of time by slice.

    Args:
        start_ps: `[n_steps]` starts of the steps, rising.
        end_ps: `[n_steps]` their ends.

    Attributes:
        wall_ps: `[n_steps, n_categories, N_STAGES]`; over categories and stages it adds up to the time given so far.
    """

    def __init__(self, start_ps: Int64s, end_ps: Int64s) -> None:
        self.wall_ps = np.zeros((len(start_ps), len(CATEGORIES), N_STAGES), np.int64)
        self._start_ps, self._end_ps = start_ps, end_ps
        self._edges_ps = np.sort(np.concatenate((start_ps, end_ps)))
        self._pause: _Pause | None = None

    def add(
        self, stretches: tuple[NDArray[Any], Int64s, Int64s], low_ps: int = _FIRST_PS, high_ps: int = _LAST_PS
    ) -> None:
        """Add the next slice, from `low_ps` until `high_ps`: by default all there is.

        Args:
            stretches: `[n]` code, start and end of stretches of work in it; below 0 for what is none.
        """
        rows = np.flatnonzero((self._end_ps > low_ps) & (self._start_ps < high_ps))
        bounds = np.maximum(self._start_ps[rows], low_ps), np.minimum(self._end_ps[rows], high_ps)
        code, start_ps, end_ps = stretches
        sets = [EMPTY] * N_CODES
        for one in np.flatnonzero(np.bincount(code[code >= 0], minlength=1)).tolist():
            sets[one] = union(start_ps, end_ps, where=code == one)
        host = unite(sets[HOST_CODE:MARK_CODE])
        pauses, last = self._pauses(sets, high_ps)
        of_host = [intersect(host, pause) for pause in pauses]
        parts = partition([*sets[:HOST_CODE], *of_host, host, *pauses], *bounds)
        self.wall_ps[rows, :N_BUSY] += parts[:, :HOST_CODE].reshape(len(rows), N_BUSY, N_STAGES)
        paused = parts[:, HOST_CODE:].reshape(len(rows), 2, len(pauses) + 1)
        self.wall_ps[rows, _HOST:, :_PASSES] += paused[:, :, :_PASSES]
        self.wall_ps[rows, _HOST:, _NONE] += paused[:, :, _PASSES:].sum(axis=2)
        if last is not None:
            last.wall_ps[rows] += paused[:, :, _PASSES]
        self._pause = last

    def _pauses(self, sets: list[IntervalSet], high_ps: int) -> tuple[list[IntervalSet], _Pause | None]:
        """When each pass went on whatever the device did, and what follows the last one; and that pause."""
        before, stages = self._pause, np.arange(_PASSES)
        of_pass = [unite(sets[stage::N_STAGES]) for stage in stages]
        begun = [] if before is None else [(before.since_ps, before.since_ps, before.stage)]
        stage = np.array([one[2] for one in begun] + np.repeat(stages, [len(o.start_ps) for o in of_pass]).tolist())
        start_ps = np.concatenate([np.array([one[0] for one in begun], np.int64), *(one.start_ps for one in of_pass)])
        end_ps = np.concatenate([np.array([one[1] for one in begun], np.int64), *(one.end_ps for one in of_pass)])
        if not len(start_ps):
            return [EMPTY] * (_PASSES + 1), None
        order = np.argsort(start_ps, kind="stable")
        start_ps, end_ps, stage = start_ps[order], end_ps[order], stage[order]
        reach_ps = np.maximum.accumulate(end_ps)
        latest = np.maximum.accumulate(np.where(end_ps == reach_ps, np.arange(len(order)), 0))
        low_ps, until_ps = reach_ps[:-1], start_ps[1:]
        edges = np.searchsorted(self._edges_ps, until_ps, "right") - np.searchsorted(self._edges_ps, low_ps, "left")
        inside = (until_ps > low_ps) & (stage[latest[:-1]] == stage[1:]) & (edges == 0)
        if before is not None and inside[:1].any():
            self.wall_ps[:, _HOST:, before.stage] += before.wall_ps
            self.wall_ps[:, _HOST:, _NONE] -= before.wall_ps
        found = [inside & (stage[1:] == one) for one in stages]
        gaps = [IntervalSet(low_ps[one], until_ps[one]) for one in found]
        pauses = [
            unite((*(sets[code + stage] for code in (HOST_CODE, MARK_CODE)), gaps[stage])) for stage in stages.tolist()
        ]
        since_ps = int(reach_ps[-1])
        goes_on = before is not None and len(order) == 1
        wall_ps = before.wall_ps if before is not None and goes_on else np.zeros((len(self._start_ps), 2), np.int64)
        rest = IntervalSet(*np.array([[since_ps], [max(since_ps, high_ps)]]))
        return [*pauses, rest], _Pause(int(stage[latest[-1]]), since_ps, wall_ps)


def codes_of_kinds(kinds: Sequence[Worker], of: str) -> Int64s:
    """`[n_kinds]` code of each kind's own time for a device, of no stage but for copies to it; -1 for a step's mark and
    for other devices.

    Args:
        kinds: the kinds.
        of: the device.
    """
    codes = np.full(len(kinds), -1, np.int64)
    for i, kind in enumerate(kinds):
        if kind.device not in ("host", of) or kind.level == "model":
            continue
        if not kind.works:
            codes[i] = MARK_CODE + _NONE
        elif kind.device == "host" or kind.category == "host":
            codes[i] = HOST_CODE + _NONE
        else:
            codes[i] = CATEGORIES.index(kind.category) * N_STAGES + stage_of_copy(kind.name)
    return codes


def stage_of_copy(name: str) -> int:
    """`to_device` for a copy to the device by its name, else none."""
    return STAGES.index("to_device") if _TO_DEVICE.search(name) else _NONE


def staged(code: Int64s, stage: Int64s) -> Int64s:
    """`[n]` codes, those of no stage with the stage of the event `[n]`, below 0 where it is not known."""
    takes = (stage >= 0) & (code >= 0) & (code % N_STAGES == _NONE)
    return np.where(takes, code - _NONE + stage, code)


def stages_of_events(direction: Int64s, parent: Int64s, launch: Int64s) -> Int64s:
    """`[n_events]` stage of each event: its own, else that of the event around it, for executions around their launch.

    Args:
        direction: `[n_events]` its own stage, below 0 where it has none.
        parent: `[n_events]` the event that encloses it, below 0 at the top; before it in the arrays.
        launch: `[n_events]` the host's event that launched it, below 0 where there is none.
    """
    on_host = spread_down(0, parent, direction)
    stage: Int64s = np.where((direction < 0) & (launch >= 0), on_host[launch], on_host)
    return stage


def give_to_forward(wall_ps: Int64s) -> None:
    """Where a step updates nothing and has no backward pass, its work of no stage is forward.

    Args:
        wall_ps: `[n_devices, n_steps, n_categories, N_STAGES]` changed in place.
    """
    updates = [STAGES.index("backward"), STAGES.index("optimizer")]
    rows = ~wall_ps[:, :, :N_BUSY, updates].any(axis=(0, 2, 3))
    wall_ps[:, rows, :N_BUSY, FORWARD] += wall_ps[:, rows, :N_BUSY, _NONE]
    wall_ps[:, rows, :N_BUSY, _NONE] = 0


def stages_table(devices: Sequence[str], wall_ps: Int64s, step: Int64s, window: int) -> pa.Table:
    """Rows of `stages`, those whose time is not nil.

    Args:
        devices: the devices.
        wall_ps: `[n_devices, n_steps, n_categories, N_STAGES]`, see `StagedTime`.
        step: `[n_steps]` numbers of the steps.
        window: number of the window.
    """
    device, row, category, stage = (column.astype(np.int32) for column in np.nonzero(wall_ps))
    return table_from_columns(
        "stages",
        {
            "window": np.full(len(row), window, np.int64),
            "step": np.asarray(step, np.int64)[row],
            "device": pa.DictionaryArray.from_arrays(device, pa.array(devices, pa.string())),
            "category": pa.DictionaryArray.from_arrays(category, pa.array(CATEGORIES)),
            "stage": pa.DictionaryArray.from_arrays(pa.array(stage, mask=stage == _NONE), pa.array(STAGES)),
            "wall_ps": wall_ps[np.nonzero(wall_ps)],
        },
    )


@compiled()
def spread_down(first, parent, anchor):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    """`[n]` each row's own value, else that of the nearest row above that has one. A row stands behind its parent; one
    that does not is taken to be at the top. The rows before `first` keep what they have."""
    result = anchor.copy()
    for i in range(first, len(parent)):
        if result[i] < 0 and 0 <= parent[i] < i:
            result[i] = result[parent[i]]
    return result
