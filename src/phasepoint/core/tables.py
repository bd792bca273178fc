"""Every table of a run, declared once: column, Arrow type, unit, nullability, one-line doc.

The validator, the empty tables, the SQL views and the reference page in `docs/` all come from `TABLES`.
Times are `int64` picoseconds from the session's epoch; durations are never floats; missing is null.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from phasepoint.core.errors import TableError

CATEGORIES = ("compute", "communication", "data_movement", "host", "idle")
"""What an instant of a step went into, in the order in which concurrent work is charged.

An instant in which several tracks work is charged to the first of these that is present, so that the
categories of a step partition its time: they add up to its duration to the picosecond.
"""

STAGES = ("optimizer", "backward", "forward", "input", "to_device")
"""What time serves in a step of training, in the order in which concurrent work of one category is charged.

The update of the parameters, the model's passes, making batches on the step's thread, copies from host to device. The
later pass goes first: the end of an asynchronous op may be told late, when the next pass runs already.
"""

MOST_STEPS = 1 << 42
"""53 days of steps of a microsecond; numbers of steps and windows together with those of sessions fit into int64."""

LEVELS = ("model", "layer", "op", "kernel", "runtime")

_STRING = pa.dictionary(pa.int32(), pa.string())
"""Strings that repeat are dictionary-encoded in memory and in Parquet."""


@dataclass(frozen=True)
class Column:
    """One column of a table.

    Attributes:
        name: column name; a quantity ends in its unit (`dur_ps`, `bytes`, `flop`).
        type: Arrow type.
        doc: one line of what it holds.
        unit: unit of the value, empty for names and ids.
        nullable: whether null (unknown) is allowed.
    """

    name: str
    type: pa.DataType
    doc: str
    unit: str = ""
    nullable: bool = False


@dataclass(frozen=True)
class TableSpec:
    """One table of a run: its rows, its columns, and the column that orders it."""

    name: str
    row: str
    columns: tuple[Column, ...]
    order_by: tuple[str, ...] = field(default=())

    @cached_property
    def schema(self) -> pa.Schema:
        """Arrow schema, one field per column, with the doc and the unit as field metadata."""
        return pa.schema(
            [pa.field(c.name, c.type, c.nullable, metadata={"doc": c.doc, "unit": c.unit}) for c in self.columns]
        )

    @cached_property
    def empty(self) -> pa.Table:
        """A table with this schema and no rows."""
        return self.schema.empty_table()


def _id(name: str, doc: str, *, nullable: bool = False) -> Column:
    return Column(name, pa.int64(), doc, nullable=nullable)


def _ps(name: str, doc: str, *, nullable: bool = False) -> Column:
    return Column(name, pa.int64(), doc, "ps", nullable)


def _count(name: str, doc: str, unit: str, *, nullable: bool = False) -> Column:
    return Column(name, pa.int64(), doc, unit, nullable)


def _number(name: str, doc: str, *, nullable: bool = False) -> Column:
    return Column(name, pa.float64(), doc, nullable=nullable)


def _name(name: str, doc: str, *, nullable: bool = False) -> Column:
    return Column(name, _STRING, doc, nullable=nullable)


def _text(name: str, doc: str, *, nullable: bool = False) -> Column:
    return Column(name, pa.string(), doc, nullable=nullable)


def _names(name: str, doc: str) -> Column:
    return Column(name, pa.list_(pa.string()), doc)


STEPS = TableSpec(
    "steps",
    "training step and host",
    (
        _id("step", "step number, counted from 0 on this host; grows by one a row"),
        _ps("start_ps", "when the step began, from the session's epoch"),
        _ps("dur_ps", "from the start to the next step's start (or to the end of the loop's body)"),
        _ps("input_ps", "waiting for the next batch, part of dur_ps", nullable=True),
        _ps("dispatch_ps", "the loop's body less the time known to wait for the device", nullable=True),
        _ps("compile_ps", "tracing and compiling programs during the step", nullable=True),
        _name("kind", "the user's hint (`run.phase`) in force, null where none was given", nullable=True),
        _count("batch_elements", "numbers in the arrays of the step's batch", "", nullable=True),
        _count("graph_nodes", "operations that the step noted for a backward pass (PyTorch)", "", nullable=True),
        _count("host_rss_bytes", "resident memory of the process, sampled", "bytes", nullable=True),
        _count("device_memory_bytes", "memory in use on the first device, sampled", "bytes", nullable=True),
    ),
    ("step",),
)

WINDOWS = TableSpec(
    "windows",
    "stretch of time captured: contiguous steps in full, or a part of a step",
    (
        _id("window", "window number, counted from 0 on this host"),
        _id("first_step", "first step captured in full"),
        _id("last_step", "last step captured in full; below first_step, the step that it lies in, where none was"),
        _ps("start_ps", "when capture began, from the session's epoch"),
        _ps("dur_ps", "how long capture was on"),
        _name("reason", "why it was opened: sample, new-program, changed, unseen, continuous, requested, imported"),
        Column(
            "probability",
            pa.float64(),
            "chance with which a random sample opens here; null where it was opened by choice",
            "ratio",
            True,
        ),
        _ps("start_cost_ps", "opening the profiler session, on the job's thread"),
        _ps(
            "slowdown_cost_ps",
            "captured steps' excess over their uncaptured neighbours; else by the capture's bytes",
            nullable=True,
        ),
        _ps("stop_cost_ps", "closing the session, on the job's thread"),
        _ps("write_cost_ps", "writing the raw capture, CPU time off the job's thread", nullable=True),
        _ps("capture_cost_ps", "sum of the known costs above"),
        _ps("predicted_cost_ps", "what it was predicted to cost before it opened, an upper estimate", nullable=True),
        _name(
            "ended_by", "what ended it: steps, seconds (inside a step), loop, profiler (the job's own)", nullable=True
        ),
        _id("cut_step", "step that it began or ended inside of, null where it holds whole steps only", nullable=True),
        _name("format", "format of the raw capture: xplane, kineto"),
        _text("raw", "path of the raw capture inside the shard, null once dropped", nullable=True),
        _count("bytes", "size of the raw capture as the profiler gave it", "bytes"),
    ),
    ("window",),
)

CONVERSIONS = TableSpec(
    "conversions",
    "window whose raw capture was turned into tables",
    (
        _id("window", "window number"),
        _count("events", "events found in the raw capture", "events"),
        _count("spans", "events that became spans", "events"),
        _count("ignored_events", "bookkeeping events of the profiler itself, counted, not kept", "events"),
        _count("dropped_events", "events that could not be placed or that the profiler says it lost", "events"),
        _count("misnested_events", "events that overlap their neighbour on one track without nesting", "events"),
        _count("orphan_events", "device events with no launch in the capture", "events"),
        _ps("convert_cost_ps", "CPU time of the conversion"),
        _text("problem", "what was wrong with the raw capture, null where nothing was", nullable=True),
    ),
    ("window",),
)

OPS = TableSpec(
    "ops",
    "window × step × device × program × op",
    (
        _id("window", "window number"),
        _id("step", "step number, null for work outside every captured step", nullable=True),
        _name("device", "device the op ran on: cpu:0, gpu:0, tpu:0, host"),
        _id("program", "program id within the host, null for ops of no program", nullable=True),
        _name("op", "op name: HLO instruction, ATen op, kernel or runtime call"),
        _name("level", "model, layer, op, kernel or runtime"),
        _name("category", "compute, communication, data_movement or host"),
        _name("layer", "module path, null where unknown", nullable=True),
        _count("count", "executions", "executions"),
        _ps("total_ps", "sum of the executions' durations"),
        _ps("self_ps", "total_ps less the time of spans nested inside on the same track"),
    ),
    ("window", "step"),
)

BREAKDOWNS = TableSpec(
    "breakdowns",
    "window × step × category: exclusive wall time that adds up to the step's duration",
    (
        _id("window", "window number"),
        _id("step", "step number"),
        _name("device", "device whose time it is; the host's own work fills the device's idle time"),
        _name("category", "one of compute, communication, data_movement, host, idle"),
        _ps("wall_ps", "wall time charged to the category"),
    ),
    ("window", "step"),
)

STAGES_TABLE = TableSpec(
    "stages",
    "window × step × device × category × stage: the rows of breakdowns by what the time served; none where it is nil",
    (
        _id("window", "window number"),
        _id("step", "step number"),
        _name("device", "device whose time it is"),
        _name("category", "one of compute, communication, data_movement, host, idle"),
        _name(
            "stage",
            "forward, backward, optimizer, input (making batches) or to_device (copies); null where it is not known",
            nullable=True,
        ),
        _ps("wall_ps", "wall time; over the stages it adds up to that of breakdowns"),
    ),
    ("window", "step"),
)

PROGRAMS = TableSpec(
    "programs",
    "compiled program",
    (
        _id("program", "program id within the host"),
        _name("name", "name of the compiled module: jit_train_step"),
        _text("fingerprint", "hash of its instructions, equal across runs for equal programs", nullable=True),
        _id("first_window", "window in which it was first seen"),
        _count("instructions", "instructions in all its computations", "instructions"),
        _count("flop", "floating-point operations of one execution, null where unknown", "flop", nullable=True),
        _count("bytes", "bytes accessed by one execution, null where unknown", "bytes", nullable=True),
        _count("transcendentals", "transcendental operations of one execution", "ops", nullable=True),
        _text("notes", "what the counts leave out (custom calls, unknown trip counts), null if nothing", nullable=True),
        Column(
            "hlo", pa.binary(), "the compiled module: a serialised HloProto as one frame of Zstandard", nullable=True
        ),
    ),
    ("program",),
)

INSTRUCTIONS = TableSpec(
    "instructions",
    "instruction of a compiled program",
    (
        _id("program", "program id within the host"),
        _name("computation", "computation the instruction stands in"),
        _text("op", "instruction name, unique in its program"),
        _name("opcode", "HLO opcode: fusion, dot, convolution, all-reduce, …"),
        _name("category", "compute, communication, data_movement or host"),
        _text("shape", "result shape with element type and layout, as HLO writes it"),
        _names("operands", "names of the operands"),
        _names("calls", "computations it calls; for a fusion, its fused graph"),
        Column("is_root", pa.bool_(), "whether it is its computation's result"),
        Column("is_entry", pa.bool_(), "whether its computation is the program's entry"),
        _count("flop", "floating-point operations, null where unknown", "flop", nullable=True),
        _count("bytes", "bytes accessed: operands read and result written", "bytes", nullable=True),
        _count("transcendentals", "transcendental operations", "ops", nullable=True),
        _name("layer", "module path from op_name, null where none was recorded", nullable=True),
        _text("op_name", "framework's name of the operation, with its scopes", nullable=True),
        _name("source_file", "file of the user's line", nullable=True),
        _count("source_line", "line in source_file", "", nullable=True),
        _name("direction", "forward, backward or optimizer, null where unknown", nullable=True),
    ),
    ("program",),
)

SPANS = TableSpec(
    "spans",
    "event in a captured window",
    (
        _id("window", "window number"),
        _id("span", "span number within the window"),
        _id("parent", "span that encloses it on its track, null at the top", nullable=True),
        _name("level", "model, layer, op, kernel or runtime"),
        _name("category", "compute, communication, data_movement or host"),
        _name("name", "name as the profiler gave it"),
        _ps("start_ps", "start, from the session's epoch"),
        _ps("dur_ps", "duration"),
        _ps("self_ps", "duration less the spans nested inside on the same track"),
        _name("device", "device: cpu:0, gpu:0, tpu:0, or host"),
        _name("track", "thread, stream or line the event stands on"),
        _id("step", "step number, null outside every captured step", nullable=True),
        _id("program", "program id, null for events of no program", nullable=True),
        _name("layer", "module path, null where unknown", nullable=True),
        _id("correlation", "id shared by a launch and its execution", nullable=True),
        _id(
            "launch",
            "host's span that launched it, null for what was not launched or whose launch is missing",
            nullable=True,
        ),
        _name("direction", "forward, backward, optimizer or input, null where unknown", nullable=True),
        _name(
            "shape",
            "types and shapes of what goes in, of a convolution behind -> of what comes out, null where not recorded: "
            "f32[8,128], i64[8]",
            nullable=True,
        ),
        _count(
            "bytes", "bytes moved by a copy, a fill or a collective, null where not recorded", "bytes", nullable=True
        ),
        _name("op", "op that it is part of where its name is another: a kernel's HLO instruction", nullable=True),
    ),
    ("window", "span"),
)

LAUNCHES = TableSpec(
    "launches",
    "kernel execution whose launch parameters are known",
    (
        _id("window", "window number"),
        _id("span", "the execution's span in that window"),
        _name("grid", "blocks: x,y,z", nullable=True),
        _name("block", "threads of a block: x,y,z", nullable=True),
        _count("registers", "registers of a thread", "registers", nullable=True),
        _count("shared_bytes", "shared memory of a block", "bytes", nullable=True),
        Column(
            "occupancy_ratio", pa.float64(), "achieved or estimated occupancy as the profiler gave it", "ratio", True
        ),
        _name("graph", "graph and node whose replay it is, null outside graphs", nullable=True),
    ),
    ("window", "span"),
)

METRICS = TableSpec(
    "metrics",
    "hardware counter or statistic that the profiler gave with one span",
    (
        _id("window", "window number"),
        _id("span", "the span in that window", nullable=True),
        _name("name", "name as the profiler gave it: dram__bytes_read.sum, flops, model_flops"),
        _name("unit", "unit of value, empty where the name says it"),
        Column("value", pa.float64(), "the value, in unit"),
        _name("of", "what it belongs to where there is no such span: a kernel's name", nullable=True),
    ),
    ("window", "span"),
)

COLLECTIVES = TableSpec(
    "collectives",
    "execution of a collective whose parameters are known",
    (
        _id("window", "window number"),
        _id("span", "the execution's span in that window"),
        _name("kind", "all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, send, recv, …"),
        _name("group", "process group, or replica groups", nullable=True),
        _name("ranks", "ranks that take part: 0,1,2,3", nullable=True),
        _count("size", "ranks in the group", "ranks", nullable=True),
        _id("sequence", "number of the collective in its group, equal on all ranks", nullable=True),
        _name("dtype", "element type", nullable=True),
        _count("in_elements", "elements that each rank gives", "elements", nullable=True),
        _count("out_elements", "elements that each rank receives", "elements", nullable=True),
    ),
    ("window", "span"),
)

ALLOCATIONS = TableSpec(
    "allocations",
    "allocation or release of memory",
    (
        _id("window", "window number"),
        _ps("time_ps", "when, from the session's epoch"),
        _name("device", "device, or host"),
        _count("bytes", "bytes taken; below 0 where released", "bytes"),
        _count("allocated_bytes", "in use on the device afterwards", "bytes", nullable=True),
        _count("reserved_bytes", "held by the allocator afterwards", "bytes", nullable=True),
        _id("address", "address, to match a release with its allocation", nullable=True),
        _id("span", "span in progress on its thread", nullable=True),
    ),
    ("window", "time_ps"),
)

ACCOUNTS = TableSpec(
    "accounts",
    "what became of a capture's events: each counted once",
    (
        _id("window", "window number"),
        _name("fate", "kept (became a span), merged (into a row of another table), skipped"),
        _name("what", "the events' kind as the format calls it: kernel, cpu_op, flow ac2g"),
        _text("reason", "where they went, or why they were left out; empty for spans"),
        _count("events", "how many; over a window they add up to the capture's events", "events"),
    ),
    ("window",),
)

COMPILATIONS = TableSpec(
    "compilations",
    "compilation that the framework told of, 1 ms and longer",
    (
        _id("step", "step in progress, null outside every step", nullable=True),
        _name("name", "what was compiled, as the framework calls it: jit(train_step), forward", nullable=True),
        _ps("start_ps", "when compiling began"),
        _ps("dur_ps", "how long the compiler took"),
        Column("again", pa.bool_(), "whether it had been compiled before; null where not told", nullable=True),
        _text("why", "why it was compiled again, in the framework's words", nullable=True),
    ),
    ("start_ps",),
)

HINTS = TableSpec(
    "hints",
    "stretch that the user named with run.phase(…)",
    (
        _name("name", "the user's name for it"),
        _ps("start_ps", "when it was entered"),
        _ps("dur_ps", "how long it lasted"),
        _id("first_step", "step in progress (or next) when it was entered", nullable=True),
        _id("last_step", "step in progress (or last) when it was left", nullable=True),
    ),
    ("start_ps",),
)

CHECKPOINTS = TableSpec(
    "checkpoints",
    "checkpoint written",
    (
        _id("step", "step in progress when it was written", nullable=True),
        _text("path", "where it was written"),
        _ps("start_ps", "when writing began"),
        _ps("dur_ps", "how long the job waited for it"),
        _name("framework", "orbax, torch, dcp, safetensors, transformers, accelerate, lightning, keras, flax, user"),
        _count("bytes", "size on disk when noticed, null where unknown", "bytes", nullable=True),
        Column("asynchronous", pa.bool_(), "whether writing went on in the background", nullable=True),
        Column("has_iterator", pa.bool_(), "whether the data iterator's state is in it", nullable=True),
        _text("iterator_state", "state of the loader after the step, as JSON; null where not kept", nullable=True),
        _text("loop_place", "batches that the loops had taken, as JSON; null without resume=True", nullable=True),
    ),
    ("start_ps",),
)

CHECKPOINT_WAITS = TableSpec(
    "checkpoint_waits",
    "wait for a checkpoint that was being written in the background",
    (
        _id("step", "step in progress when the wait began", nullable=True),
        _ps("start_ps", "when the wait began"),
        _ps("dur_ps", "how long the job waited"),
        _name("framework", "orbax"),
    ),
    ("start_ps",),
)

SCALARS = TableSpec(
    "scalars",
    "value that the job logged with run.log(…)",
    (
        _id("step", "step in progress, null outside every step", nullable=True),
        _name("name", "the user's name for it: loss"),
        Column("value", pa.float64(), "the value, null where it could not be read any more", "", True),
    ),
    ("step",),
)

COUNTERS = TableSpec(
    "counters",
    "sample of a counter",
    (
        _name("name", "what is counted: power, memory, utilisation, recorder cost"),
        _name("unit", "unit of value"),
        _name("device", "device or host"),
        _ps("time_ps", "when it was sampled"),
        Column("value", pa.float64(), "the sample, in unit"),
    ),
    ("time_ps",),
)

MACHINE = TableSpec(
    "machine",
    "stretch of time between two looks at the machine",
    (
        _ps("start_ps", "from when"),
        _ps("dur_ps", "for how long"),
        _ps("run_ps", "CPU time of the process' threads", nullable=True),
        _ps("wait_ps", "its threads together were ready to run and waited for a core", nullable=True),
        _ps("others_ps", "CPU time of all other programs on the machine", nullable=True),
        _ps("steal_ps", "CPU time that the hypervisor gave to other machines", nullable=True),
        _ps("throttled_ps", "time for which a limit on CPU time held the container's threads", nullable=True),
        _ps("cpu_pressure_ps", "time in which some program waited for a core", nullable=True),
        _ps("memory_pressure_ps", "time in which some program waited for memory", nullable=True),
        _ps("io_pressure_ps", "time in which some program waited for a disk", nullable=True),
        _count("faults", "pages that the process had to wait for, from a disk", "", nullable=True),
        _ps("sync_ps", "the job's thread stood in calls that wait for other ranks or the device", nullable=True),
        _ps("probe_ps", "CPU time that a fixed piece of work took at the end of the stretch", nullable=True),
    ),
    ("start_ps",),
)

TRIALS = TableSpec(
    "trials",
    "setting of a loader that was tried while the job ran",
    (
        _name("loader", "name of the loader"),
        _id("trial", "number of the trial, counted from 0 for each loader of a recording"),
        _ps("start_ps", "when it began"),
        _ps("dur_ps", "how long it lasted"),
        _id("first_step", "first step of the trial"),
        _id("last_step", "last step of the trial"),
        _text("knobs", "the setting, as JSON"),
        _number("predicted_gain", "what it should win, said before: ratio of steady steps a second, minus 1"),
        _number("gain", "what its pairs of blocks have shown, null where none ended", nullable=True),
        _number("gain_low", "lower end of the interval, which holds at every look", nullable=True),
        _number("gain_high", "its upper end, null where nothing bounds it", nullable=True),
        _count("pairs", "pairs of blocks, one of each setting", "pairs"),
        Column("accepted", pa.bool_(), "whether it was taken up"),
        _text("reason", "why it ended"),
        _ps("spent_ps", "by how much longer its steps took than before it, 0 where it won"),
    ),
    ("start_ps",),
)

TUNINGS = TableSpec(
    "tunings",
    "state of the tuning of a loader, whenever it has changed",
    (
        _name("loader", "name of the loader"),
        _ps("start_ps", "from when"),
        _id("step", "next step of the loop"),
        _name("kind", "kind of loader"),
        _name("verdict", "tuned, nothing to tune, undecided"),
        _text("reason", "why, in one sentence"),
        _text("as_written", "the setting without tuning, as JSON"),
        _text("chosen", "the setting in force, as JSON"),
        _number("gain", "what all accepted trials won: ratio of steady steps a second, minus 1", nullable=True),
        _number("gain_low", "lower end of the interval", nullable=True),
        _number("gain_high", "its upper end, null where nothing bounds it", nullable=True),
        _ps("spent_ps", "time that trials cost so far"),
        _ps("won_ps", "time that accepted settings have won so far"),
        Column("steps_per_s", pa.float64(), "steady steps of the setting in force", "steps/s", True),
        Column("ceiling_steps_per_s", pa.float64(), "steps if the loop never waited for a batch", "steps/s", True),
        Column("wait_ratio", pa.float64(), "share of the time in which the loop waited for a batch", "ratio", True),
        _name("limited_by", "input, loop or cpu", nullable=True),
        _text("machine", "processor, cores and memory"),
    ),
    ("start_ps",),
)

GAPS = TableSpec(
    "gaps",
    "stretch of time or steps not observed",
    (
        _name("why", "outside-steps, restart, lost-part, recorder-off, profiler-busy, clock-step, lost-window, …"),
        _ps("start_ps", "from when", nullable=True),
        _ps("dur_ps", "for how long", nullable=True),
        _id("first_step", "first step concerned", nullable=True),
        _id("last_step", "last step concerned", nullable=True),
        _text("unknown", "what is not known because of it, in one sentence"),
    ),
    ("start_ps",),
)

TABLES: Mapping[str, TableSpec] = {
    spec.name: spec
    for spec in (
        STEPS,
        WINDOWS,
        CONVERSIONS,
        OPS,
        BREAKDOWNS,
        STAGES_TABLE,
        PROGRAMS,
        INSTRUCTIONS,
        SPANS,
        LAUNCHES,
        METRICS,
        COLLECTIVES,
        ALLOCATIONS,
        ACCOUNTS,
        COMPILATIONS,
        HINTS,
        CHECKPOINTS,
        CHECKPOINT_WAITS,
        SCALARS,
        COUNTERS,
        MACHINE,
        TRIALS,
        TUNINGS,
        GAPS,
    )
}


def table_spec(name: str) -> TableSpec:
    """The declaration of one table.

    Raises:
        TableError: there is no such table; the message lists those there are.
    """
    try:
        return TABLES[name]
    except KeyError:
        raise TableError(f"no table named {name!r}; the tables are {', '.join(TABLES)}") from None


def table_from_rows(name: str, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Rows as mappings to a table of the declared schema; a column left out is null.

    Raises:
        TableError: an unknown column, a wrong type, or null where the column must be known.
    """
    spec = table_spec(name)
    rows = list(rows)
    known = {c.name for c in spec.columns}
    unknown = sorted({key for row in rows for key in row} - known)
    if unknown:
        raise TableError(f"table {name!r} has no column {', '.join(unknown)}; it has {', '.join(sorted(known))}")
    columns = {c.name: [row.get(c.name) for row in rows] for c in spec.columns}
    return table_from_columns(name, columns)


def table_from_columns(name: str, columns: Mapping[str, Sequence[Any] | pa.Array]) -> pa.Table:
    """Columns (lists, NumPy arrays or Arrow arrays, each `[n_rows]`) to a table of the declared schema.

    A nullable column left out is null throughout.

    Raises:
        TableError: an unknown or missing column, a wrong type, or null where the column must be known.
    """
    spec = table_spec(name)
    unknown = sorted(set(columns) - {c.name for c in spec.columns})
    if unknown:
        raise TableError(f"table {name!r} has no column {', '.join(unknown)}")
    n_rows = max((len(values) for values in columns.values()), default=0)
    arrays = []
    for column in spec.columns:
        if column.name in columns:
            arrays.append(_to_array(name, column, columns[column.name]))
        elif column.nullable:
            arrays.append(_nulls(n_rows, column.type))
        else:
            raise TableError(f"table {name!r} lacks column {column.name!r}, which must be known")
    return validate_table(name, pa.Table.from_arrays(arrays, schema=spec.schema))


def array_of(name: str, values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Values as an Arrow array of a column.

    Raises:
        TableError: a number is too large for it: sums of times that no job has.
    """
    try:
        return pa.array(values, kind)
    except OverflowError as error:
        raise TableError(f"column {name!r} holds a number beyond 64 bits: the run's times are damaged") from error


_CHUNK_ROWS = 1 << 16  # a choice: half a MB of int64, which all chunks of a column of nulls share


def _nulls(n_rows: int, kind: pa.DataType) -> pa.ChunkedArray:
    """A column of nulls in chunks that share their memory."""
    chunk = pa.nulls(min(n_rows, _CHUNK_ROWS), kind)
    sizes = [_CHUNK_ROWS] * (n_rows // _CHUNK_ROWS) + [n_rows % _CHUNK_ROWS]
    return pa.chunked_array([chunk.slice(0, size) for size in sizes], kind)


def validate_table(name: str, table: pa.Table) -> pa.Table:
    """Check a table against its declaration and return it with the declared schema and column order.

    Raises:
        TableError: a column is missing, has another type, or holds null where it must be known.
    """
    spec = table_spec(name)
    arrays = []
    for column in spec.columns:
        index = table.schema.get_field_index(column.name)
        if index < 0:
            raise TableError(f"table {name!r} lacks column {column.name!r} ({column.type})")
        array = table.column(index)
        if array.type != column.type:
            array = _cast(name, column, array)
        if not column.nullable and array.null_count:
            raise TableError(f"table {name!r}, column {column.name!r}: {array.null_count} nulls where none may be")
        arrays.append(array)
    return pa.Table.from_arrays(arrays, schema=spec.schema)


def _to_array(name: str, column: Column, values: Sequence[Any] | pa.Array) -> pa.Array | pa.ChunkedArray:
    if not isinstance(values, pa.Array | pa.ChunkedArray):
        try:
            values = pa.array(values)
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
            raise TableError(f"table {name!r}, column {column.name!r}: expected {column.type}: {error}") from error
    return values if values.type == column.type else _cast(name, column, values)


def _sort_of(kind: pa.DataType) -> str:
    """Types of one sort convert into each other without changing what a value means."""
    if pa.types.is_dictionary(kind):
        return _sort_of(kind.value_type)
    if pa.types.is_integer(kind):
        return "integer"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return "string"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"list of {_sort_of(kind.value_type)}"
    return "float" if pa.types.is_floating(kind) else str(kind)


def _cast(name: str, column: Column, array: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    sorts = _sort_of(array.type), _sort_of(column.type)
    if sorts[0] not in (sorts[1], "null", "list of null") and sorts != ("integer", "float"):
        raise TableError(f"table {name!r}, column {column.name!r}: expected {column.type}, found {array.type}")
    try:
        if pa.types.is_dictionary(column.type) and not pa.types.is_dictionary(array.type):
            array = array.cast(pa.string()).dictionary_encode()
        return array.cast(column.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise TableError(
            f"table {name!r}, column {column.name!r}: expected {column.type}, found {array.type}: {error}"
        ) from error


def read_parquet(path: Path) -> pa.Table:
    """Read a Parquet file that anyone may have written.

    Raises:
        OSError: it cannot be read.
        ValueError: it is no Parquet file, or damaged.
    """
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
        table.schema.names  # noqa: B018 - names that are no UTF-8 are found when they are asked for
    except (pa.ArrowKeyError, pa.ArrowNotImplementedError) as error:
        raise ValueError(str(error)) from error
    return table
