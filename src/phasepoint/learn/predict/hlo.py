"""Programs from HLO: text, serialised protos, packed or not; whether they are optimised and for which backend.

Only text needs JAX (its library has XLA's parser), and what is not optimised needs it to be compiled.

Programs that are not optimised yet, and functions: compiled here, on the CPU, by JAX.
"""

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from phasepoint.core.errors import MissingExtraError, ModelError, NoDataError, PhasepointError, SourceError, UsageError
from phasepoint.core.packing import is_packed, unpack_gzip
from phasepoint.hlo.module import Module, OverfullModule, decode_module, link_module
from phasepoint.learn.hlo_graph.kernels import Kernels, kernels_of_module
from phasepoint.learn.predict.types import MeasuredProgram

_HLO_TEXT = re.compile(rb"\s*(?://[^\n]*\n\s*)*HloModule\b")
_MLIR_TEXT = re.compile(rb"\s*(?:#[^\n]*\n\s*)*(?:module\b|\"builtin\.module\")")
_GPU_MARKS = ("__cublas$", "__cudnn$", "__triton", "triton_", "__gpu$", "cu_threefry", "__hip")
_CPU_MARKS = ("__ynn", "__onednn$", "__xla_cpu", "__cpu$", "eigen")
_TILED = re.compile(r"\{[\d,]*:[^}]*T\(\d+")


@dataclass(frozen=True)
class HloProgram:
    """A program to be predicted.

    Attributes:
        name: of its module, or of where it came from.
        module: its instructions.
        kernels: what of them a device starts.
        backend: for which kind of device it was compiled (cpu, gpu, tpu); None where it does not show.
        notes: how it was come by, where the reader must know.
        measured: what a recorded run says of it.
        compile_s: seconds that tracing and compiling took here, None where nothing was compiled.
    """

    name: str
    module: Module
    kernels: Kernels
    backend: str | None
    notes: tuple[str, ...] = ()
    measured: MeasuredProgram | None = None
    compile_s: float | None = None


def read_hlo(data: bytes, where: str = "HLO") -> HloProgram:
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
        return compile_stablehlo(data, where)
    return _ready(_module_proto(data, where), where)


def unpack(data: bytes, where: str) -> bytes:
    """Data without its gzip packing.

    Raises:
        SourceError: it is damaged, or holds more than a program does.
    """
    if not is_packed(data):
        return data
    plain, problem = unpack_gzip(data, where)
    if problem is not None:
        raise SourceError(f"{where}: packed with gzip, and damaged: {problem}; copy the file again")
    return plain


def program_of_module(module: Module, *, where: str = "") -> HloProgram:
    """A program from a module that is decoded already.

    Args:
        module: the program, optimised.
        where: what messages call it; its name, if the module has none.

    Raises:
        NoDataError: nothing runs in it.
    """
    if all(one.opcode in ("parameter", "constant", "tuple") for one in module.entry.instructions):
        raise NoDataError(
            f"{where or module.name}: the program is empty: it only hands its inputs on, so no kernel runs and no time "
            "is predicted"
        )
    return HloProgram(module.name or where, module, kernels_of_module(module), backend_of(module))


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


def _ready(proto: Any, where: str) -> HloProgram:
    if not any(computation.instructions for computation in proto.computations):
        raise NoDataError(f"{where}: the program is empty: it has no instructions, so there is no time to predict")
    if is_optimised(proto):
        return program_of_proto(proto, where)
    return compile_hlo(proto.SerializeToString(), where)


def program_of_proto(proto: Any, where: str) -> HloProgram:
    """A program from an `HloModuleProto` that is known to be optimised.

    Raises:
        SourceError: it does not hang together.
        NoDataError: nothing runs in it.
    """
    try:
        module = link_module(proto)
    except SourceError as error:
        raise SourceError(f"{where}: {error}") from error
    return program_of_module(module, where=where)


def _module_proto(data: bytes, where: str) -> Any:
    """The `HloModuleProto` in the bytes, whether it stands alone or inside an `HloProto`."""
    for message in ("HloProto", "HloModuleProto"):
        try:
            return decode_module(data, message)
        except OverfullModule as error:
            raise SourceError(f"{where}: {error}") from error
        except SourceError:
            continue
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


def compile_hlo(data: bytes, where: str) -> HloProgram:
    """Compile a serialised `HloModuleProto` that no compiler has seen.

    Raises:
        MissingExtraError: there is no JAX.
        SourceError: XLA refuses it.
    """
    xla = _xla(f"{where} is not optimised (no fusions, no schedule) and must be compiled first, which")
    try:
        text = xla.mlir.xla_computation_to_mlir_module(_xla_computation()(data))
    except RuntimeError as error:
        raise SourceError(f"{where}: XLA cannot read this module: {_reason(error)}") from error
    return _compile(text, where)


def compile_stablehlo(data: bytes, where: str) -> HloProgram:
    """Compile StableHLO text, as `Lowered.as_text()` gives it.

    Raises:
        MissingExtraError: there is no JAX.
        SourceError: XLA refuses it.
    """
    _xla(f"{where} is StableHLO and must be compiled first, which")
    return _compile(data.decode("utf-8", "replace"), where)


def compile_function(function: Any, args: Sequence[Any], where: str) -> HloProgram:
    """The program that JAX makes of a function, optimised for the CPU.

    Args:
        function: jitted or plain, or what `jax.jit(f).lower(…)` or `.compile()` gave.
        args: arrays or `jax.ShapeDtypeStruct`s, or trees of them; nothing is computed with them.
        where: what messages call it.

    Raises:
        MissingExtraError: there is no JAX.
        UsageError: arguments are missing, or the function cannot be called.
        ModelError: the function raises while it is traced.
    """
    _xla(f"tracing {where}")
    started = time.perf_counter()
    compiled = _compiled(function, args, where)
    seconds = time.perf_counter() - started
    return replace(program_of_executable(compiled, where), compile_s=seconds)


def program_of_executable(compiled: Any, where: str) -> HloProgram:
    """The program in what `.compile()` gave."""
    modules = compiled.runtime_executable().hlo_modules()
    wire = modules[0].as_serialized_hlo_module_proto()
    program = program_of_proto(decode_module(wire, "HloModuleProto"), where)
    notes = program.notes
    if len(modules) > 1:
        notes = (*notes, f"{where} has {len(modules)} modules; the first is predicted")
    return replace(program, backend=_platform_of(compiled) or program.backend, notes=notes)


def _platform_of(compiled: Any) -> str | None:
    try:
        platform = compiled.runtime_executable().local_devices()[0].platform
    except (AttributeError, IndexError):
        return None
    return {"cuda": "gpu", "rocm": "gpu"}.get(platform, str(platform))


def _compiled(function: Any, args: Sequence[Any], where: str) -> Any:
    import jax

    if isinstance(function, jax.stages.Compiled):
        return function
    if isinstance(function, jax.stages.Lowered):
        return function.compile()
    return lower_function(function, args, where).compile()


def lower_function(function: Any, args: Sequence[Any], where: str) -> Any:
    """A function, jitted or plain, traced and lowered for the devices of its arguments.

    Raises:
        UsageError: arguments are missing, or it cannot be called.
        ModelError: it raises while it is traced.
    """
    import jax

    if not callable(function):
        raise UsageError(
            f"{where} is a {type(function).__name__}; expected a function, or what lower() or compile() gave"
        )
    jitted: Any = function if hasattr(function, "lower") else jax.jit(function)
    with errors_of_tracing(where, args):
        return jitted.lower(*args)


@contextmanager
def errors_of_tracing(where: str, args: Sequence[Any]) -> Iterator[None]:
    """What a user's function raises while it is traced, as an error that names it.

    Raises:
        UsageError: arguments are missing.
        ModelError: anything else.
    """
    try:
        yield
    except PhasepointError:
        raise
    except Exception as error:
        told = f"{type(error).__name__}: {_reason(error)}"
        if isinstance(error, TypeError) and not args and "missing" in str(error):
            raise UsageError(
                f"{where} takes arguments ({_reason(error)}); say their shapes: --args 'f32[32,784] f32[784,10]', "
                f"or --args-from NAME of something in the same file that holds them"
            ) from error
        raise ModelError(
            f"{where} raised while it was traced with {len(args)} arguments: {told}; "
            f"set PHASEPOINT_DEBUG=1 to see where"
        ) from error


def _compile(stablehlo: str, where: str) -> HloProgram:
    from jax.extend.backend import get_backend
    from jaxlib import xla_client

    xla = _xla(where)
    started = time.perf_counter()
    backend = get_backend("cpu")
    devices = xla.DeviceList(tuple(backend.local_devices()[:1]))
    try:
        executable = backend.compile_and_load(stablehlo, devices, xla_client.CompileOptions())
    except RuntimeError as error:
        raise SourceError(f"{where}: XLA cannot compile this: {_reason(error)}") from error
    seconds = time.perf_counter() - started
    wire = executable.hlo_modules()[0].as_serialized_hlo_module_proto()
    program = program_of_proto(decode_module(wire, "HloModuleProto"), where)
    note = f"{where} was not optimised; it was compiled here, for the CPU"
    return replace(program, backend="cpu", notes=(note,), compile_s=seconds)


def _reason(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(lines[:2])[:300] or "no message"


def _xla(purpose: str) -> Any:
    """The library's own module, which has moved between releases."""
    try:
        import jax  # noqa: F401 - first: it quietens the library's log

        try:
            from jaxlib import _jax as xla
        except ImportError:
            from jaxlib import xla_client

            xla = xla_client._xla
    except ImportError as error:
        raise MissingExtraError(f"{purpose} needs JAX: pip install 'phasepoint[jax]'") from error
    return xla


def _xla_computation() -> Any:
    try:
        from jaxlib._hlo import XlaComputation
    except ImportError:
        from jaxlib.xla_client import XlaComputation
    return XlaComputation
