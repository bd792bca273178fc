"""How near ops come to what the device can do: flop per second over flop per byte, below the device's peaks.

Source: Williams, Waterman & Patterson, "Roofline: An Insightful Visual Performance Model" (2009): at an intensity of
I flop/byte a device reaches at most min(peak flop/s, I × memory bytes/s).

It rests on what the captured ops of every phase cost: self time, and flop and bytes where the compiled program states
them. `measure_phases` lists the same steps op by op, as measured: nothing is estimated here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phasepoint.core.arrays import Int64s
from phasepoint.core.units import PS_PER_S
from phasepoint.devices.specs import device_spec, unknown_device_note
from phasepoint.estimates.op_columns import OpColumns, OpKey, read_op_columns
from phasepoint.phases.clock.steps import read_series
from phasepoint.phases.detection.detect import detect_phases
from phasepoint.phases.detection.table import DEFAULT_METHOD
from phasepoint.store import Run
from phasepoint.summary.analysis import Analysis, ops_of_steps

PHASE_OPS = pa.schema(
    [
        pa.field("phase", pa.int64()),
        pa.field("phase_name", pa.string()),
        pa.field("device", pa.string()),
        pa.field("op", pa.string()),
        pa.field("level", pa.string()),
        pa.field("category", pa.string()),
        pa.field("calls", pa.int64()),
        pa.field("total_ps", pa.int64()),
        pa.field("self_ps", pa.int64()),
        pa.field("self_share", pa.float64()),
    ]
)
"""One row per phase × device × op; `self_share` is a ratio of all self time of the phase on that device."""

SEGMENTS = pa.schema(
    [
        pa.field("segment", pa.int64()),
        pa.field("phase", pa.int64()),
        pa.field("phase_name", pa.string()),
        pa.field("first_step", pa.int64()),
        pa.field("last_step", pa.int64()),
        pa.field("steps", pa.int64()),
    ]
)
"""One row per segment: a maximal stretch of steps of one phase, in the run's order."""

_OP_KEYS = ["phase", "device", "op", "level", "category"]


def measure_phases(run: Run, *, method: str = DEFAULT_METHOD) -> tuple[pa.Table, pa.Table]:
    """Segments, and ops by phase, of a run.

    Args:
        run: an opened run, its windows converted.
        method: of `detect_phases`.

    Returns:
        A table of `SEGMENTS` and one of `PHASE_OPS`, the ops with the most self time first within phase and device.
        Both are empty for a run without steps.
    """
    steps = run.table("steps")
    if not steps.num_rows:
        return SEGMENTS.empty_table(), PHASE_OPS.empty_table()
    ops = ops_of_steps(read_series(steps), run.table("ops"))
    result = detect_phases(steps, ops, method=method)
    names = {phase.id: phase.name for phase in result.phases}
    segments = result.segments
    numbers = segments.phase.tolist()
    listed = pa.table(
        [
            np.arange(len(segments), dtype=np.int64),
            segments.phase,
            [names[number] for number in numbers],
            segments.first_step,
            segments.last_step,
            segments.last_index - segments.first_index + 1,
        ],
        schema=SEGMENTS,
    )
    return listed, _ops_by_phase(steps, result.labels, ops, names)


def _ops_by_phase(steps: pa.Table, labels: np.ndarray, ops: pa.Table, names: dict[int, str]) -> pa.Table:
    keys = ["host", "attempt", "step"]
    labelled = steps.select(keys).append_column("phase", pa.array(labels, pa.int64()))
    columns = [*keys, "device", "op", "level", "category", "count", "total_ps", "self_ps"]
    plain = [f.cast(pa.string()) if pa.types.is_dictionary(f.type) else f for f in ops.select(columns).columns]
    inside = pa.table(plain, names=columns).filter(pc.is_valid(ops.column("step")))
    joined = inside.join(labelled, keys, join_type="inner", use_threads=False)
    sums = joined.group_by(_OP_KEYS, use_threads=False).aggregate(
        [("count", "sum"), ("total_ps", "sum"), ("self_ps", "sum")]
    )
    of_device = sums.group_by(["phase", "device"], use_threads=False).aggregate([("self_ps_sum", "sum")])
    whole = sums.join(of_device, ["phase", "device"], use_threads=False)
    whole = whole.sort_by(
        [("phase", "ascending"), ("device", "ascending"), ("self_ps_sum", "descending"), ("op", "ascending")]
    )
    share = np.asarray(whole.column("self_ps_sum")) / np.maximum(np.asarray(whole.column("self_ps_sum_sum")), 1)
    phase = whole.column("phase")
    named = [names[number] for number in phase.to_pylist()]
    sums_of = (whole.column(f"{name}_sum") for name in ("count", "total_ps", "self_ps"))
    described = (whole.column(name) for name in ("device", "op", "level", "category"))
    return pa.table([phase, named, *described, *sums_of, share], schema=PHASE_OPS)


_PROGRAM_KEYS = ("host", "attempt", "program")


@dataclass(frozen=True)
class OpCost:
    """One op of one phase, added over its captured steps, devices and threads.

    Attributes:
        op: name as the profiler gives it.
        category: compute, communication, data_movement or host.
        layer: module path; of the op, else of its instruction; None where neither is known.
        count: executions.
        self_ps: self time.
        flop: floating-point operations of all executions, None where unknown.
        bytes: bytes accessed by all executions, None where unknown.
    """

    op: str
    category: str
    layer: str | None
    count: int
    self_ps: int
    flop: int | None
    bytes: int | None


@dataclass(frozen=True)
class _Instruction:
    layer: str | None
    flop: int | None
    bytes: int | None


_UNKNOWN = _Instruction(None, None, None)


def read_op_costs(analysis: Analysis) -> Mapping[int, tuple[OpCost, ...]]:
    """By phase id, the ops of its captured steps, the most self time first; a phase without captured ops is absent.

    An op of two programs (two batch sizes compile into two) is two rows: they differ in flop and bytes.
    """
    captured = analysis.estimates.seen
    rows = captured.row
    if not len(rows):
        return {}
    programs = _by_id(analysis.tables["programs"])
    columns = read_op_columns(analysis.tables["ops"], programs, analysis.clock, captured)
    if not len(columns.index):
        return {}
    instructions = _read_instructions(analysis, columns)
    phases, group = np.unique(analysis.labels[rows], return_inverse=True)
    self_ps = columns.sums(group.ravel(), len(phases), columns.self_ps)
    count = columns.sums(group.ravel(), len(phases), columns.count)
    return {
        phase: _costs(columns.keys, instructions, self_ps[i], count[i])
        for i, phase in enumerate(phases.tolist())
        if count[i].any()
    }


def _costs(
    keys: tuple[OpKey, ...], instructions: Mapping[tuple[str, str], _Instruction], self_ps: Int64s, count: Int64s
) -> tuple[OpCost, ...]:
    costs = []
    for i in np.flatnonzero(count | self_ps).tolist():
        key, times = keys[i], int(count[i])
        known = instructions.get((key.program or "", key.op), _UNKNOWN)
        flop = None if known.flop is None else known.flop * times
        size = None if known.bytes is None else known.bytes * times
        layer = key.layer or known.layer
        costs.append(OpCost(key.op, key.category, layer, times, int(self_ps[i]), flop, size))
    return tuple(sorted(costs, key=lambda cost: (-cost.self_ps, cost.op)))


def _by_id(programs: pa.Table) -> pa.Table:
    """The programs table with names that are unique, so that ops of two programs of one name stay apart."""
    names = [_program_key(row) for row in programs.select(_PROGRAM_KEYS).to_pylist()]
    index = programs.schema.get_field_index("name")
    return programs.set_column(index, "name", pa.array(names, pa.string()))


def _program_key(row: Mapping[str, int]) -> str:
    return "/".join(str(row[name]) for name in _PROGRAM_KEYS)


def _read_instructions(analysis: Analysis, columns: OpColumns) -> dict[tuple[str, str], _Instruction]:
    """Instructions of the captured ops by program and name; null costs stay unknown."""
    wanted = pa.array(sorted({key.op for key in columns.keys}), pa.string())
    table = analysis.run.table("instructions", columns=["program", "op", "layer", "flop", "bytes"])
    table = table.filter(pc.is_in(table.column("op").cast(pa.string()), value_set=wanted))
    return {
        (_program_key(row), row["op"]): _Instruction(row["layer"], row["flop"], row["bytes"])
        for row in table.to_pylist()
    }


MAX_POINTS = 40
"""Ops drawn per phase, those with the most time."""


@dataclass(frozen=True)
class PeakRate:
    """A device's peak for one element type, flop/s, as its maker publishes it, with the document that says so."""

    kind: str
    flop_per_s: float
    published: str
    source: str


@dataclass(frozen=True)
class DevicePeaks:
    """The roof: what one device can do at most.

    Attributes:
        device: its name in the table of devices.
        memory_bytes_per_s: memory bandwidth, bytes/s.
        memory_published: the same as its maker writes it.
        memory_source: the document that says so.
        rates: peaks by element type, fastest first.
    """

    device: str
    memory_bytes_per_s: float
    memory_published: str
    memory_source: str
    rates: tuple[PeakRate, ...]


@dataclass(frozen=True)
class RooflinePoint:
    """An op below the roof.

    Attributes:
        op, category, layer: of the op.
        self_ps: its self time in the captured steps.
        flop, bytes: of all its captured executions.
        flop_per_byte: its intensity.
        flop_per_s: what it reached.
    """

    op: str
    category: str
    layer: str | None
    self_ps: int
    flop: int
    bytes: int
    flop_per_byte: float
    flop_per_s: float


def find_peaks(run: Run) -> tuple[DevicePeaks | None, str | None]:
    """The peaks of the run's device, or the reason why there are none: unknown, or devices of several kinds."""
    names = list(dict.fromkeys(name for shard in run.shards for name in shard.session.devices))
    if not names:
        return None, "the run does not name its devices, so their peak rates are not known"
    specs = {spec.name: spec for spec in map(device_spec, names) if spec is not None}
    if not specs:
        return None, unknown_device_note(names[0])
    if len(specs) > 1 or any(device_spec(name) is None for name in names):
        return None, f"the run has devices of several kinds ({', '.join(names[:4])}), so there is no one roof"
    spec = next(iter(specs.values()))
    rates = (PeakRate(k, rate.value, rate.published, rate.source.title) for k, rate in spec.flop_per_s.items())
    memory = spec.memory_bytes_per_s
    by_rate = tuple(sorted(rates, key=lambda rate: -rate.flop_per_s))
    return DevicePeaks(spec.name, memory.value, memory.published, memory.source.title, by_rate), None


def roofline_points(costs: Sequence[OpCost]) -> tuple[RooflinePoint, ...]:
    """The ops whose time, flop and bytes are all known and above 0, the most time first, at most `MAX_POINTS`."""
    points = []
    for cost in costs:
        if not (cost.flop and cost.bytes and cost.self_ps > 0):
            continue
        rate = cost.flop * PS_PER_S / cost.self_ps
        intensity = cost.flop / cost.bytes
        named = (cost.op, cost.category, cost.layer, cost.self_ps, cost.flop, cost.bytes)
        points.append(RooflinePoint(*named, intensity, rate))
    return tuple(sorted(points, key=lambda p: (-p.self_ps, p.op))[:MAX_POINTS])
