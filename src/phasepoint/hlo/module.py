"""An HLO module as the profiler carries it, decoded into plain values.

Everything below works from `Module`; only this file, the shapes and the fingerprint know the wire format.

A program's HLO proto as it stands in the table `programs`: compressed, and unpacked with a bound.

The order in which a computation's instructions run: the compiler's, or the one in which they stand.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from phasepoint.core.errors import SourceError
from phasepoint.core.packing import unpack_zstd
from phasepoint.hlo.schema import load_schema
from phasepoint.hlo.shapes import Shape, ShapeCache

_LEVEL = 6
"""Of Zstandard, a choice between size and time."""
_MAGIC = b"\x28\xb5\x2f\xfd"


def pack_hlo(proto: bytes) -> bytes:
    """A serialised `HloProto` as one frame of Zstandard."""
    packed: bytes = pa.Codec("zstd", compression_level=_LEVEL).compress(proto, asbytes=True)
    return packed


def unpack_hlo(packed: bytes) -> bytes:
    """The serialised `HloProto` of a frame.

    Raises:
        SourceError: it is no such frame, damaged, or unpacks to more than a program holds.
    """
    if not packed.startswith(_MAGIC):
        raise SourceError(f"no frame of Zstandard in the {len(packed)} bytes of a program's HLO")
    try:
        return unpack_zstd(packed, "a program's HLO")
    except OSError as error:
        raise SourceError(f"a program's HLO of {len(packed)} bytes is damaged: {error}") from error


MAX_NESTING = 100
"""Depth of computations calling computations beyond which a module is taken for damaged."""


@dataclass(frozen=True, slots=True, eq=False)
class Instruction:
    """One HLO instruction.

    Attributes:
        name: unique in its module.
        opcode: as HLO text writes it: `dot`, `all-reduce-start`.
        shape: shape of the result.
        operands: the instructions it reads, in order.
        called: the computations it calls, in order.
        op_name: the framework's name for it, empty where none was recorded.
        source: file and line of the user's code, None where none was recorded.
        proto: the decoded message, for attributes that few opcodes have.
    """

    name: str
    opcode: str
    shape: Shape
    operands: tuple["Instruction", ...]
    called: tuple["Computation", ...]
    op_name: str
    source: tuple[str, int] | None
    proto: Any


@dataclass(frozen=True, slots=True, eq=False)
class Computation:
    """A named sequence of instructions in dependency order, with the one that is its result."""

    name: str
    instructions: tuple[Instruction, ...]
    root: Instruction


@dataclass(frozen=True, slots=True)
class Module:
    """A compiled program: its computations, callees before callers, and the one that runs.

    `schedule` is the compiler's order of instructions, a serialised `HloScheduleProto`; empty where it made none.
    """

    name: str
    computations: tuple[Computation, ...]
    entry: Computation
    schedule: bytes = b""


def parse_module(data: bytes) -> Module:
    """Decode a serialised `HloProto`, as the `Hlo Proto` stat of the trace's metadata plane holds it.

    Raises:
        SourceError: the bytes are no `HloProto`, or the module in them does not hang together.
    """
    return link_module(decode_module(data, "HloProto"))


def parse_module_proto(data: bytes) -> Module:
    """Decode a serialised `HloModuleProto`, as a compiler gives it.

    Raises:
        SourceError: as `parse_module`.
    """
    return link_module(decode_module(data, "HloModuleProto"))


LEAST_MESSAGE_BYTES, FREE_MESSAGES = 64, 10_000
"""Computations and instructions take some 105 bytes each in what XLA writes; a decoded one takes 70 to 400, however
short it is. So many are read in any case."""


class OverfullModule(SourceError):
    """A module has more computations and instructions than its size makes likely. Exit code 7."""


def _check_messages(data: bytes, message: str) -> None:
    """Refuse a module of more computations and instructions than its size makes likely, before any is decoded."""
    most = FREE_MESSAGES + len(data) // LEAST_MESSAGE_BYTES
    view, count = memoryview(data), 0
    spans = [(0, len(data))]
    *path, last = _PATHS[message]
    for wanted in (*path, last):
        inner = []
        for start, end in spans:
            for number, span in _fields(view, start, end):
                count += 1
                if count > most:
                    raise OverfullModule(
                        f"{len(data)} bytes of HLO that hold more than {most} computations and instructions, more than "
                        "any compiler writes: a damaged file, or one made to fill the memory"
                    )
                if number == wanted != last and span is not None:
                    inner.append(span)
        spans = inner


_PATHS = {"HloProto": (1, 3, 2), "HloModuleProto": (3, 2)}
"""Fields that lead to the instructions: `hlo_module`, `computations`, `instructions`."""


def _fields(data: memoryview, pos: int, end: int) -> Iterator[tuple[int, tuple[int, int] | None]]:
    """Number of each field of a message, and where its bytes stand if it has a length; up to where it is damaged."""
    while pos < end:
        tag, pos = _varint(data, pos, end)
        span = None
        if tag & 7 == 0:
            pos = _varint(data, pos, end)[1]
        elif tag & 7 == 2:
            size, pos = _varint(data, pos, end)
            span = pos, min(pos + size, end)
            pos += size
        else:
            pos += {1: 8, 5: 4}.get(tag & 7, end)
        if not tag >> 3:
            return
        yield tag >> 3, span


def _varint(data: memoryview, pos: int, end: int) -> tuple[int, int]:
    """A number of up to ten bytes, and the position behind it."""
    value = shift = 0
    while pos < end and shift < 70:
        byte = data[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    return value, pos


def decode_module(data: bytes, message: str) -> Any:
    """The `HloModuleProto` in the bytes of an `HloProto` or an `HloModuleProto`, as a message.

    Raises:
        SourceError: the bytes are none, or it has no computations.
        OverfullModule: they hold more messages than their size makes likely.
    """
    from google.protobuf.message import DecodeError

    _check_messages(data, message)
    proto = load_schema("hlo")[message]()
    try:
        proto.ParseFromString(data)
    except DecodeError as error:
        raise SourceError(f"no HLO module in {len(data)} bytes: {error}") from error
    module = proto.hlo_module if message == "HloProto" else proto
    if not module.computations:
        raise SourceError(f"no HLO module in {len(data)} bytes: it has no computations")
    return module


def link_module(module: Any) -> Module:
    """The module of a decoded `HloModuleProto`.

    Raises:
        SourceError: it does not hang together.
    """
    shapes = ShapeCache()
    source_of = _source_reader(module.stack_frame_index)
    done: dict[int, Computation] = {}
    for proto in _callees_first(module):
        done[proto.id] = _link_computation(proto, done, shapes, source_of)
    if module.entry_computation_id not in done:
        raise SourceError(f"module {module.name!r} has no computation {module.entry_computation_id}, its entry")
    return Module(module.name, tuple(done.values()), done[module.entry_computation_id], module.schedule)


def _callees_first(module: Any) -> Iterator[Any]:
    """Computations so that callees come first, whatever their order in the proto; a cycle is an error."""
    by_id = {computation.id: computation for computation in module.computations}
    if len(by_id) != len(module.computations):
        raise SourceError(f"module {module.name!r} has two computations with one id")
    callees = {
        key: [callee for one in computation.instructions for callee in one.called_computation_ids]
        for key, computation in by_id.items()
    }
    depth: dict[int, int] = {}
    stack = [(key, False) for key in reversed(by_id)]
    while stack:
        key, entered = stack.pop()
        if entered:
            depth[key] = 1 + max((depth[callee] for callee in callees[key]), default=0)
            if not 0 < depth[key] <= MAX_NESTING:
                raise SourceError(f"module {module.name!r}: computations call each other too deep, or in a circle")
            yield by_id[key]
        elif key not in depth:
            depth[key] = MAX_NESTING  # in progress: whoever meets it now closes a circle
            stack.append((key, True))
            for callee in callees[key]:
                if callee not in by_id:
                    raise SourceError(f"module {module.name!r}: computation {callee} is called and missing")
                stack.append((callee, False))


def _link_computation(
    proto: Any,
    computations: dict[int, Computation],
    shapes: ShapeCache,
    source_of: Callable[[Any], tuple[str, int] | None],
) -> Computation:
    done: dict[int, Instruction] = {}
    try:
        for one in proto.instructions:
            done[one.id] = Instruction(
                one.name,
                one.opcode,
                shapes.shape(one.shape),
                tuple([done[operand] for operand in one.operand_ids]),
                tuple([computations[called] for called in one.called_computation_ids]),
                one.metadata.op_name,
                source_of(one.metadata),
                one,
            )
        root = done[proto.root_id]
    except KeyError as error:
        raise SourceError(f"computation {proto.name!r}: instruction {error} is used before it is there") from error
    return Computation(proto.name, tuple(done.values()), root)


def _source_reader(index: Any) -> Callable[[Any], tuple[str, int] | None]:
    """Reads file and line from the metadata itself, or (since 2025) from the module's table of stack frames."""
    files, locations, frames = list(index.file_names), list(index.file_locations), list(index.stack_frames)

    def source_of(metadata: Any) -> tuple[str, int] | None:
        if metadata.source_file:
            return metadata.source_file, metadata.source_line
        frame = metadata.stack_frame_id
        if not 0 < frame <= len(frames):
            return None
        location_id = frames[frame - 1].file_location_id
        if not 0 < location_id <= len(locations):
            return None
        location = locations[location_id - 1]
        if not 0 < location.file_name_id <= len(files):
            return None
        return files[location.file_name_id - 1], location.line

    return source_of


def scheduled_instructions(module: Module) -> Mapping[Computation, tuple[Instruction, ...]]:
    """Instructions of each computation in the order in which they run.

    Where the schedule is missing, damaged or not of this module, they run as they stand, operands before users.
    """
    from google.protobuf.message import DecodeError

    proto = load_schema("hlo")["HloScheduleProto"]()
    try:
        proto.ParseFromString(module.schedule)
    except DecodeError:
        return {computation: computation.instructions for computation in module.computations}
    orders = [tuple(entry.sequence.instruction_ids) for entry in proto.sequences]
    by_members = {frozenset(order): order for order in orders}
    return {computation: _ordered(computation, by_members) for computation in module.computations}


def _ordered(computation: Computation, orders: Mapping[frozenset[int], tuple[int, ...]]) -> tuple[Instruction, ...]:
    """By the sequence that holds exactly its instructions: an instruction's id is of one computation alone."""
    by_id = {one.proto.id: one for one in computation.instructions}
    order = orders.get(frozenset(by_id))
    return computation.instructions if order is None else tuple(by_id[key] for key in order)
