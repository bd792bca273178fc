"""Programs from HLO: text, serialised protos, packed or not; whether they are optimised and for which backend.

Only text needs JAX (its library has XLA's parser), and what is not optimised needs it to be compiled.
"""

import gzip
import re
import zlib
from dataclasses import dataclass
from typing import Any

from phasepoint.core.errors import MissingExtraError, NoDataError, SourceError
from phasepoint.learn.predict_types import Measured
from phasepoint.sources.hlo_module import Module, parse_module
from phasepoint.sources.proto.schema import load_schema

MOST_BYTES = 2**31 - 1
"""What protobuf can hold; a packed file that grows beyond is refused before it is read."""

_GZIP = b"\x1f\x8b"
_HLO_TEXT = re.compile(rb"\s*(?://[^\n]*\n\s*)*HloModule\b")
_MLIR_TEXT = re.compile(rb"\s*(?:#[^\n]*\n\s*)*(?:module\b|\"builtin\.module\")")
_GPU_MARKS = ("__cublas$", "__cudnn$", "__triton", "triton_", "__gpu$", "cu_threefry", "__hip")
_CPU_MARKS = ("__ynn", "__onednn$", "__xla_cpu", "__cpu$", "eigen")
_TILED = re.compile(r"\{[\d,]*:[^}]*T\(\d+")


@dataclass(frozen=True)
class Program:
    """A program to be predicted.

    Attributes:
        name: of its module, or of where it came from.
        module: its instructions.
        backend: for which kind of device it was compiled (cpu, gpu, tpu); None where it does not show.
        notes: how it was come by, where the reader must know.
        measured: what a recorded run says of it.
        compile_s: seconds that tracing and compiling took here, None where nothing was compiled.
    """

    name: str
    module: Module
    backend: str | None
    notes: tuple[str, ...] = ()
    measured: Measured | None = None
    compile_s: float | None = None


def read_hlo(data: bytes, where: str = "HLO") -> Program:
    """A program from the bytes of a file.

    Args:
        data: HLO text, StableHLO text, a serialised `HloProto` or `HloModuleProto`; each packed with gzip or not.
        where: what messages call it.

    Raises:
        SourceError: it is none of these, or damaged.
        NoDataError: the program has no instructions.
        MissingExtraError: it is text, or not optimised, and there is no JAX.
    """
    data = unpack(data, where)
    if _HLO_TEXT.match(data):
        return _ready(_proto_of_text(data, where), where)
    if _MLIR_TEXT.match(data):
        from phasepoint.learn.predict_compile import compile_stablehlo

        return compile_stablehlo(data, where)
    return _ready(_module_proto(data, where), where)


def unpack(data: bytes, where: str) -> bytes:
    """Data without its gzip packing.

    Raises:
        SourceError: it is damaged, or holds more than a proto can.
    """
    if not data.startswith(_GZIP):
        return data
    try:
        with gzip.GzipFile(fileobj=_reader(data)) as file:
            plain = file.read(MOST_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise SourceError(f"{where}: packed with gzip, and damaged: {error}; copy the file again") from error
    if len(plain) > MOST_BYTES:
        raise SourceError(f"{where}: more than 2 GiB when unpacked, which no HLO proto can hold")
    return plain


def program_of_module(module: Module, *, where: str | None = None) -> Program:
    """A program from a module that is decoded already."""
    _refuse_empty(module, where or module.name)
    return Program(where or module.name, module, backend_of(module))


def backend_of(module: Module) -> str | None:
    """The kind of device that a module was compiled for, told by what only that backend writes; None where nothing is.

    Source: openxla/xla: custom call targets and fusion kinds of `xla/service/{cpu,gpu}`; tiled layouts
    (`{1,0:T(8,128)}`) are TPU's.
    """
    for computation in module.computations:
        for one in computation.instructions:
            if one.opcode in ("fusion", "custom-call", "call"):
                mark = one.proto.custom_call_target + one.proto.backend_config.decode("utf-8", "replace")
                if any(sign in mark for sign in _GPU_MARKS):
                    return "gpu"
                if any(sign in mark for sign in _CPU_MARKS):
                    return "cpu"
            if _TILED.search(one.shape.text):
                return "tpu"
    return None


def is_optimised(proto: Any) -> bool:
    """Whether a module has been through a compiler: it is scheduled, or something in it is fused."""
    return bool(proto.schedule) or any(
        one.opcode == "fusion" for computation in proto.computations for one in computation.instructions
    )


def _ready(proto: Any, where: str) -> Program:
    if not proto.computations or not any(computation.instructions for computation in proto.computations):
        raise NoDataError(f"{where}: the program is empty: it has no instructions, so there is no time to predict")
    if is_optimised(proto):
        return _program(proto, where)
    from phasepoint.learn.predict_compile import compile_hlo

    return compile_hlo(proto.SerializeToString(), where)


def _program(proto: Any, where: str) -> Program:
    module = _linked(proto, where)
    _refuse_empty(module, where)
    return Program(module.name or where, module, backend_of(module))


def program_of_proto(data: bytes, where: str) -> Program:
    """A program from a serialised `HloModuleProto` that is known to be optimised."""
    return _program(_module_proto(data, where), where)


def _linked(proto: Any, where: str) -> Module:
    whole = load_schema("hlo")["HloProto"]()
    whole.hlo_module.CopyFrom(proto)
    try:
        return parse_module(whole.SerializeToString())
    except SourceError as error:
        raise SourceError(f"{where}: {error}") from error


def _refuse_empty(module: Module, where: str) -> None:
    if all(one.opcode in ("parameter", "constant", "tuple") for one in module.entry.instructions):
        raise NoDataError(
            f"{where}: the program is empty: it only hands its inputs on, so no kernel runs and no time is predicted"
        )


def _module_proto(data: bytes, where: str) -> Any:
    """The `HloModuleProto` in the bytes, whether it stands alone or inside an `HloProto`."""
    from google.protobuf.message import DecodeError

    schema = load_schema("hlo")
    for name in ("HloProto", "HloModuleProto"):
        proto = schema[name]()
        try:
            proto.ParseFromString(data)
        except DecodeError:
            continue
        module = proto.hlo_module if name == "HloProto" else proto
        if module.computations:
            return module
    raise SourceError(
        f"{where}: no HLO: expected HLO text (`HloModule …`), StableHLO text, or a serialised HloProto or "
        f"HloModuleProto (.pb, .pb.gz); XLA writes them with XLA_FLAGS=--xla_dump_to=FOLDER"
    )


def _proto_of_text(data: bytes, where: str) -> Any:
    parse = _text_parser(where)
    try:
        wire = parse(data.decode("utf-8", "replace")).as_serialized_hlo_module_proto()
    except RuntimeError as error:
        reason = str(error).splitlines()
        raise SourceError(f"{where}: XLA cannot parse this HLO text: {' '.join(reason[:2])}") from error
    return _module_proto(wire, where)


def _text_parser(where: str) -> Any:
    """XLA's parser of HLO text. It stands in another module since jaxlib 0.8."""
    try:
        try:
            from jaxlib._hlo import hlo_module_from_text
        except ImportError:
            from jaxlib import xla_client

            hlo_module_from_text = xla_client._xla.hlo_module_from_text
    except ImportError as error:
        raise MissingExtraError(
            f"{where}: reading HLO text needs XLA's parser, which comes with JAX: pip install 'phasepoint[jax]'; "
            f"or give the serialised proto (.pb), which needs none"
        ) from error
    return hlo_module_from_text


def _reader(data: bytes) -> Any:
    from io import BytesIO

    return BytesIO(data)
