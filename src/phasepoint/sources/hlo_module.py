"""An HLO module as the profiler carries it, decoded into plain values.

Everything below works from `Module`; only this file, the shapes and the fingerprint know the wire format.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from phasepoint.core.errors import SourceError
from phasepoint.sources.hlo_shapes import Shape, ShapeCache
from phasepoint.sources.proto.schema import load_schema

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
    return _link_module(_parse(data, "HloProto").hlo_module, len(data))


def parse_module_proto(data: bytes) -> Module:
    """Decode a serialised `HloModuleProto`, as a compiler gives it.

    Raises:
        SourceError: as `parse_module`.
    """
    return _link_module(_parse(data, "HloModuleProto"), len(data))


def _parse(data: bytes, message: str) -> Any:
    from google.protobuf.message import DecodeError

    proto = load_schema("hlo")[message]()
    try:
        proto.ParseFromString(data)
    except DecodeError as error:
        raise SourceError(f"no HLO module in {len(data)} bytes: {error}") from error
    return proto


def _link_module(module: Any, size: int) -> Module:
    if not module.computations:
        raise SourceError(f"no HLO module in {size} bytes: it has no computations")
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
