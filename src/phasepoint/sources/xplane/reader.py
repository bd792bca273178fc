"""XPlane captures (JAX on TPU, GPU and CPU; TensorFlow): XSpace bytes → the tables of a run.

Times are exact: a line's time stamp in ns times 1000 plus the event's offset in ps, moved to the session's epoch by the
difference of two Unix times in ns. What cannot be read or placed is counted, and said in `conversion.problem`.
"""

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from phasepoint.core.errors import SourceError
from phasepoint.core.nesting import Nesting
from phasepoint.core.tables import TABLES, table_from_rows
from phasepoint.core.units import PS_PER_S
from phasepoint.hlo.categories import category_of_name, strip_clone_suffix
from phasepoint.hlo.layers import direction_of_op_name, layer_of_op_name
from phasepoint.sources.events.capture import Capture, CaptureRequest
from phasepoint.sources.events.programs import HloTables, read_programs
from phasepoint.sources.events.step_bounds import StepBounds, no_bounds
from phasepoint.sources.events.tables import accounts_table
from phasepoint.sources.xplane.decode import Scratch
from phasepoint.sources.xplane.details import read_details
from phasepoint.sources.xplane.events import LIMIT_PS
from phasepoint.sources.xplane.gather import Described, Events, Resolved, XPlaneKind, gather_events
from phasepoint.sources.xplane.lines import category_of_type, is_control_flow, layers_and_directions
from phasepoint.sources.xplane.planes import hlo_protos, profile_start_unix_ns, read_planes
from phasepoint.sources.xplane.steps import Attribution, attribute_events, find_bounds, skip_profiler_start
from phasepoint.sources.xplane.tables import (
    account_for,
    breakdowns_tables,
    describe_devices,
    nest_events,
    ops_table,
    spans_table,
    steps_table,
    tables_of_spans,
)
from phasepoint.sources.xplane.wire import as_bytes

_MOVING_WORDS = ("data formatting", "copy", "infeed", "outfeed", "host send", "host recv")
_TALKING_WORDS = ("all-reduce", "all-gather", "all-to-all", "reduce-scatter", "collective", "send", "recv", "megascale")
_PROBLEM_CHARACTERS = 1000  # a choice: a note for a reader; a damaged file may name thousands of lines
_SCRATCH_BYTES = 72
"""Of an event: what intermediate arrays and then the columns of `spans` and `ops` take at most."""
_LIMIT_OFFSET_PS = (1 << 63) - 3 * LIMIT_PS
"""66 days: an event's end, counted from the epoch, must fit 64 bits."""


def read_xplane(data: bytes | bytearray | memoryview, request: CaptureRequest) -> Capture:
    """Convert one XPlane capture.

    Args:
        data: a serialized XSpace.
        request: the window; with no epoch times count from the profile's start, once it had started.

    Raises:
        SourceError: the bytes are no XSpace; the message says how far reading came. Bytes damaged further in are read
            as far as they go, and `conversion.problem` says what was lost.
    """
    begin = time.process_time_ns()
    keep_spans = request.keep_spans
    buffer = as_bytes(data)
    planes, problems = read_planes(buffer)
    profile_start_ns = profile_start_unix_ns(planes)
    offset_ps, clock_problems = _offset_ps(profile_start_ns, request.epoch_unix_ns)
    n_events = sum(line.events for plane in planes for line in plane.lines)
    scratch, beside = Scratch(n_events * _SCRATCH_BYTES), Scratch(n_events * _SCRATCH_BYTES)
    with ThreadPoolExecutor(1) as other:  # compiled loops and Arrow run beside each other
        reading = other.submit(_read_hlo, hlo_protos(buffer, planes), request)
        events = gather_events(buffer, planes, profile_start_ns, scratch)
        if request.epoch_unix_ns is None:
            skipped_ns = skip_profiler_start(events)
            profile_start_ns = None if profile_start_ns is None else profile_start_ns + skipped_ns
        hlo, hlo_problems = reading.result()
        bounds = find_bounds(events, request.steps, offset_ps) if request.holds_steps else no_bounds()
        names = zip(hlo.programs.column("program").to_pylist(), hlo.programs.column("name").to_pylist(), strict=True)
        attributing = other.submit(attribute_events, events, bounds, dict(names), beside)
        described = _describe(events, hlo, window=request.window, offset_ps=offset_ps, bounds=bounds)
        details = read_details(buffer, planes, events)
        built = _build(described, attributing, other, scratch, beside, moved=details.bytes, keep_spans=keep_spans)
    problems = [*problems, *events.problems, *hlo_problems, *clock_problems, *details.problems]
    cost_ps = (time.process_time_ns() - begin) * 1000
    conversion = _conversion(described, built, problems=problems, cost_ps=cost_ps)
    return Capture(
        built.spans,
        built.ops,
        built.breakdowns,
        built.stages,
        hlo.programs,
        hlo.instructions,
        conversion,
        steps_table(described),
        **tables_of_spans(described, details.launches, planes) if keep_spans else {},
        accounts=accounts_table(account_for(events, planes), request.window),
        start_unix_ns=profile_start_ns,
        devices=describe_devices(buffer, planes),
    )


@dataclass(frozen=True)
class _Built:
    """The tables of a capture's events, and how many were odd."""

    spans: pa.Table
    ops: pa.Table
    breakdowns: pa.Table
    stages: pa.Table
    misnested: int
    orphans: int


def _build(
    described: Described,
    attributing: Future[Attribution],
    other: ThreadPoolExecutor,
    scratch: Scratch,
    beside: Scratch,
    *,
    moved: pa.Array | None,
    keep_spans: bool,
) -> _Built:
    """The tables; `other` attributes and then adds up, in `beside`, while this thread does what needs no steps."""
    scratch.reset()
    track, nesting, segments = nest_events(described, scratch)
    resolving = other.submit(_resolve, described, attributing, track, nesting, moved=moved)
    adding = other.submit(_add_up, resolving, beside)
    of_steps = breakdowns_tables(described, segments, attributing.result().calls)
    misnested, resolved = nesting.misnested, resolving.result()
    del nesting, segments  # their memory is that of the spans
    scratch.reset()
    spans = spans_table(resolved, scratch) if keep_spans else TABLES["spans"].empty
    return _Built(spans, adding.result(), *of_steps, misnested, attributing.result().orphan_events)


def _read_hlo(protos: Mapping[int, bytes], request: CaptureRequest) -> tuple[HloTables, list[str]]:
    """The programs; each by itself where reading them together fails: one damaged proto must not hide the others."""
    read = partial(request.read_hlo or read_programs, window=request.window)
    try:
        return read(protos), []
    except SourceError:
        whole, problems = {}, []
    for program, proto in protos.items():
        try:
            read({program: proto})
            whole[program] = proto
        except SourceError as error:
            problems.append(str(error))
    return read(whole), problems


def _offset_ps(profile_start_ns: int | None, epoch_unix_ns: int | None) -> tuple[int, list[str]]:
    """The profile's start from the session's epoch, ps, and what is wrong with it."""
    if epoch_unix_ns is None:
        return 0, []
    if profile_start_ns is None:
        return 0, ["the capture does not say when it began; its times count from its own start"]
    offset_ps = (profile_start_ns - epoch_unix_ns) * 1000
    if abs(offset_ps) < _LIMIT_OFFSET_PS:
        return offset_ps, []
    days = offset_ps / (86_400 * PS_PER_S)
    return 0, [f"the capture began {days:.0f} days from the session's epoch; its times count from its own start"]


def _describe(events: Events, hlo: HloTables, *, window: int, offset_ps: int, bounds: StepBounds) -> Described:
    """What the kinds say, together with the programs."""
    known = _known_instructions(events.kinds, hlo.instructions)
    found = [known.get((kind.program, kind.op)) for kind in events.kinds]
    opcodes = [row[0] if row else strip_clone_suffix(kind.op) for kind, row in zip(events.kinds, found, strict=True)]
    op_names = [(row[3] if row else None) or kind.op_name for kind, row in zip(events.kinds, found, strict=True)]
    layer = [_layer(kind, row[2] if row else None) for kind, row in zip(events.kinds, found, strict=True)]
    direction = [
        (row[4] if row else None) or direction_of_op_name(op_name) for row, op_name in zip(found, op_names, strict=True)
    ]
    tf = layers_and_directions(kind.tf_op for kind in events.kinds if kind.tf_op)
    for i, kind in enumerate(events.kinds):
        if kind.tf_op:
            layer[i], direction[i] = tf[kind.tf_op]
    runs_others = np.array([is_control_flow(opcode) for opcode in opcodes], np.bool_)
    tails = events.tails[~runs_others[events.kind[events.tails[:, 0]]]]
    return Described(
        events=events,
        category=[_category(kind, row[1] if row else None) for kind, row in zip(events.kinds, found, strict=True)],
        layer=layer,
        direction=direction,
        is_named=any(op_names),
        bounds=bounds,
        tails=tails,
        tail_start_ps=events.start_ps[tails[:, 0]] + events.dur_ps[tails[:, 0]],
        window=window,
        offset_ps=offset_ps,
    )


def _resolve(
    described: Described,
    attributing: Future[Attribution],
    track: NDArray[np.int32],
    nesting: Nesting,
    *,
    moved: pa.Array | None,
) -> Resolved:
    """Everything known of the events; tails are added where the durations stand, which no one else needs any more."""
    step = attributing.result().step
    events, (rows, tail_ps) = described.events, described.tails.T
    self_ps, total_ps = nesting.self_ps, events.dur_ps
    self_ps[rows] += tail_ps
    total_ps[rows] += tail_ps
    track[rows] += np.int32(len(events.tracks))
    added: dict[str, Any] = {
        "track": track,
        "step": step,
        "parent": nesting.parent,
        "self_ps": self_ps,
        "total_ps": total_ps,
        "launch": attributing.result().launch,
        "bytes": moved,
    }
    return Resolved(**vars(described), **added)


def _add_up(resolving: Future[Resolved], scratch: Scratch) -> pa.Table:
    resolved = resolving.result()
    scratch.reset()
    return ops_table(resolved, scratch)


def _known_instructions(
    kinds: Sequence[XPlaneKind], instructions: pa.Table
) -> dict[tuple[int | None, str], tuple[str, str, str | None, str | None, str | None]]:
    """Opcode, category, layer, `op_name` and direction of the instructions that ran, by program and name."""
    wanted = {(kind.program, kind.op) for kind in kinds if kind.program is not None}
    names = ("program", "op", "opcode", "category", "layer", "op_name", "direction")
    # A caller of many windows hands over all programs it knows; only the rows of those that ran become Python values.
    for name, values in (("program", {p for p, _ in wanted}), ("op", {op for _, op in wanted})):
        column = instructions.column(name)
        instructions = instructions.filter(pc.is_in(column, value_set=pa.array(sorted(values), column.type)))
    columns = [instructions.column(name).to_pylist() for name in names]
    return {
        (program, op): (opcode, category, layer, op_name, direction)
        for program, op, opcode, category, layer, op_name, direction in zip(*columns, strict=True)
        if (program, op) in wanted
    }


def _category(kind: XPlaneKind, of_instruction: str | None) -> str:
    if kind.device == "host" or kind.level == "runtime":
        return "host"
    if kind.level == "model":
        return "compute"
    if kind.tf_op or of_instruction is not None:
        return category_of_type(kind.tf_op.type) if kind.tf_op else of_instruction or ""
    words = kind.hlo_category.lower()
    if any(word in words for word in _MOVING_WORDS):
        return "data_movement"
    if any(word in words for word in _TALKING_WORDS):
        return "communication"
    return category_of_name(kind.op)


def _layer(kind: XPlaneKind, of_instruction: str | None) -> str | None:
    """Module path of a kind: its instruction's, else as its own op name has it."""
    if of_instruction is not None or not kind.op_name:
        return of_instruction
    return layer_of_op_name(kind.op_name)


def _conversion(described: Described, built: _Built, *, problems: Sequence[str], cost_ps: int) -> pa.Table:
    events = described.events
    row = {
        "window": described.window,
        "events": events.found,
        "spans": len(events.kind),
        "ignored_events": events.ignored,
        "dropped_events": events.dropped,
        "misnested_events": built.misnested,
        "orphan_events": built.orphans,
        "convert_cost_ps": cost_ps,
        "problem": "; ".join(problems)[:_PROBLEM_CHARACTERS] or None,
    }
    return table_from_rows("conversions", [row])
