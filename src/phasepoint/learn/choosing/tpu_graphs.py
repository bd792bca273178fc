"""TpuGraphs' tuning data: TPU kernels with measured tiles, programs with measured layouts.

Source: google-research-datasets/tpu_graphs, `proto/tuning.proto`.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from phasepoint.core.errors import SourceError
from phasepoint.hlo.module import Module, parse_module_proto
from phasepoint.hlo.schema import load_schema

_PS_PER_NS = 1000
Layout = tuple[tuple[tuple[int, ...], ...], ...]


@dataclass(frozen=True)
class TileSize:
    """A tile of a kernel, in elements; the innermost dimension in memory first. What the kernel has not is empty.

    Attributes:
        kernel_bounds: of the kernel of a convolution (or the summed side of a product).
        output_bounds: of the output.
        input_bounds: of the input.
        iteration_bounds: of the loop around them.
    """

    kernel_bounds: tuple[int, ...]
    output_bounds: tuple[int, ...]
    input_bounds: tuple[int, ...]
    iteration_bounds: tuple[int, ...]


@dataclass(frozen=True)
class TunedRun:
    """One measured configuration.

    Attributes:
        tile: the tile; None where the run is of a whole program.
        layout: of each configurable node its tensors' minor-to-major orders; None where the run is of a tile.
        time_ps: computing time; None where it failed or was not measured.
        is_error: whether it failed.
        is_default: whether the compiler would have taken it.
    """

    tile: TileSize | None
    layout: Layout | None
    time_ps: int | None
    is_error: bool
    is_default: bool


@dataclass(frozen=True)
class TunedModule:
    """A module with its measured configurations.

    Attributes:
        module: a kernel alone, or a whole program.
        runs: its configurations, in the file's order; at least one.
        config_nodes: for layouts, the node that each entry belongs to.
    """

    module: Module
    runs: tuple[TunedRun, ...]
    config_nodes: tuple[int, ...]


def read_tuned_kernels(path: str | Path) -> tuple[TunedModule, ...]:
    """Kernels and their tiles from a file that holds a `TuningData` message (`op_tuning_data.pb`).

    Raises:
        SourceError: the file is missing, cut off, or holds a module that cannot be read or has no runs.
    """
    data = _parse(path, "TuningData")
    if not data.modules:
        raise SourceError(f"{path} holds no tuned module; a TuningData message of TpuGraphs is expected")
    return tuple(_module(one, path, place) for place, one in enumerate(data.modules))


def read_tuned_program(path: str | Path) -> TunedModule:
    """A program and its layouts from a file that holds a `ModuleTuningData` message.

    Raises:
        SourceError: as `read_tuned_kernels`.
    """
    return _module(_parse(path, "ModuleTuningData"), path, 0)


def _parse(path: str | Path, message: str) -> Any:
    from google.protobuf.message import DecodeError

    proto = load_schema("tpu_graphs")[message]()
    try:
        proto.ParseFromString(Path(path).read_bytes())
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror}") from error
    except DecodeError as error:
        raise SourceError(f"{path} is cut off or no {message} message of TpuGraphs: {error}") from error
    return proto


def _module(proto: Any, path: str | Path, place: int) -> TunedModule:
    if not proto.module:
        raise SourceError(f"{path}, module {place}: there is no HLO in it")
    try:
        module = parse_module_proto(proto.module)
    except SourceError as error:
        raise SourceError(f"{path}, module {place}: {error}") from error
    if not proto.runs:
        raise SourceError(f"{path}, module {place} ({module.name}): it has no measured configurations")
    return TunedModule(module, tuple(_run(one) for one in proto.runs), tuple(proto.config_index_to_node))


def _run(proto: Any) -> TunedRun:
    time_ns = proto.profile.compute_time_ns
    measured = time_ns > 0 and not proto.error
    return TunedRun(
        _tile(proto.op_config.tile_size_config) if proto.HasField("op_config") else None,
        _layout(proto.module_config.layout_config) if proto.HasField("module_config") else None,
        time_ns * _PS_PER_NS if measured else None,
        proto.error,
        proto.is_default,
    )


def _tile(proto: Any) -> TileSize:
    return TileSize(
        tuple(proto.kernel_bounds),
        tuple(proto.output_bounds),
        tuple(proto.input_bounds),
        tuple(proto.iteration_bounds),
    )


def _layout(proto: Any) -> Layout:
    return tuple(tuple(tuple(tensor.dims) for tensor in node.tensors) for node in proto.nodes)
