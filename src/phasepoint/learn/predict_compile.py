"""Programs that are not optimised yet, and functions: compiled here, on the CPU, by JAX."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from phasepoint.core.errors import MissingExtraError, ModelError, SourceError, UsageError
from phasepoint.learn.predict_hlo import Program, program_of_proto


def compile_hlo(data: bytes, where: str) -> Program:
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


def compile_stablehlo(data: bytes, where: str) -> Program:
    """Compile StableHLO text, as `Lowered.as_text()` gives it.

    Raises:
        MissingExtraError: there is no JAX.
        SourceError: XLA refuses it.
    """
    _xla(f"{where} is StableHLO and must be compiled first, which")
    return _compile(data.decode("utf-8", "replace"), where)


def compile_function(function: Any, args: Sequence[Any], where: str) -> Program:
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
    # Only the user's own function runs in here: whatever it raises is told with the exception's name.
    program = program_of_executable(compiled, where)
    seconds = time.perf_counter() - started
    return replace(program, compile_s=seconds)


def program_of_executable(compiled: Any, where: str) -> Program:
    """The program in what `.compile()` gave."""
    modules = compiled.runtime_executable().hlo_modules()
    program = program_of_proto(modules[0].as_serialized_hlo_module_proto(), where)
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
    if not callable(function):
        raise UsageError(
            f"{where} is a {type(function).__name__}; expected a function, or what lower() or compile() gave"
        )
    jitted: Callable[..., Any] = function if hasattr(function, "lower") else jax.jit(function)
    return _traced(jitted, args, where).compile()


def _traced(jitted: Any, args: Sequence[Any], where: str) -> Any:
    try:
        return jitted.lower(*args)
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


def _compile(stablehlo: str, where: str) -> Program:
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
    program = program_of_proto(executable.hlo_modules()[0].as_serialized_hlo_module_proto(), where)
    note = f"{where} was not optimised; it was compiled here, for the CPU"
    return replace(program, backend="cpu", notes=(note,), compile_s=time.perf_counter() - started)


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
