"""What the user points `phasepoint predict` at: a function in a Python file, an HLO file, a recorded run.

A function comes with the shapes of what goes in: `train.py:step`. A run's programs come with their measured times, so
that prediction stands beside measurement.
"""

import importlib.util
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from phasepoint.core.errors import MissingExtraError, ModelError, NoDataError, SourceError, UsageError
from phasepoint.core.packing import unpack_zstd
from phasepoint.learn.hlo_graph.kernels import Kernels
from phasepoint.learn.predict.hlo import HloProgram, compile_function, read_hlo
from phasepoint.learn.predict.tpu.compile import NO_COMPILER, Function, compile_function_for, has_compiler
from phasepoint.learn.predict.tpu.topology import topology_of_device
from phasepoint.learn.predict.types import MeasuredProgram, TargetDevice
from phasepoint.store import Run, Shard, open_run

_PYTHON = re.compile(r"(?P<file>.+\.py):(?P<name>[^:/\\]+)")
_SPLIT = re.compile(r"[^\s,;\[\]]+\s*\[[^\]]*\]|[^\s,;]+")
_SHAPE = re.compile(r"([a-z0-9]+)\[([\d\s,]*)\]")
_TYPES = {
    **{f"f{bits}": f"float{bits}" for bits in (16, 32, 64)},
    **{f"{letter}{bits}": f"int{bits}" for letter in "si" for bits in (8, 16, 32, 64)},
    **{f"u{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
    **{"bf16": "bfloat16", "pred": "bool", "c64": "complex64", "c128": "complex128"},
    **{"f8e4m3fn": "float8_e4m3fn", "f8e5m2": "float8_e5m2"},
}
"""Element types as HLO names them → as NumPy does, which is understood too."""


def read_what(
    what: str,
    *,
    args: str | None = None,
    args_from: str | None = None,
    opened: Callable[[str], Run] | None = None,
    target: TargetDevice | None = None,
) -> tuple[HloProgram, ...]:
    """The programs that are meant.

    Args:
        what: `train.py:step`; a file of HLO; a run's folder or URL.
        args: shapes of the arguments, for a function.
        args_from: where in the same file its arguments are, for a function.
        opened: opens a run; the command line's converts its captures first. None reads what is converted.
        target: the device that is asked of; for a TPU its own compiler is taken, where it is installed.

    Raises:
        UsageError: it is nothing of these, or the options do not go with it.
        SourceError: a file is no HLO.
        NotARunError: a folder is no run.
        NoDataError: a run holds no programs, a program no instructions.
        MissingExtraError: JAX is needed and not there.
        ModelError: the user's function raises.
    """
    if _PYTHON.fullmatch(what) is not None:
        asked = function_of(what, args, args_from)
        if target is not None and target.kind == "tpu":
            return (tpu_program(asked, target),)
        return (python_program(asked.path, asked.name, args=args, args_from=args_from),)
    if what.endswith(".py"):
        raise UsageError(f"{what}: which function? Name it after a colon, as in {what}:step")
    if args is not None or args_from is not None:
        raise UsageError(f"--args and --args-from are for functions, as in train.py:step; {what!r} is none")
    if "://" in what or Path(what).is_dir():
        return run_programs((opened or open_run)(what))
    return (read_file(Path(what)),)


def function_of(what: str, args: str | None = None, args_from: str | None = None) -> Function:
    """The function that `train.py:step` names.

    Raises:
        UsageError: it names none.
    """
    python = _PYTHON.fullmatch(what)
    if python is None:
        raise UsageError(
            f"{what!r} names no function; expected a Python file and a function in it, as in train.py:step"
        )
    return Function(Path(python["file"]), python["name"], args, args_from)


def tpu_program(asked: Function, target: TargetDevice) -> HloProgram:
    """A function's program for one device of a TPU; the CPU's with a note where the TPU's compiler is not installed."""
    if not has_compiler():
        program = python_program(asked.path, asked.name, args=asked.args, args_from=asked.args_from)
        return replace(program, notes=(*program.notes, NO_COMPILER))
    topology = topology_of_device(target.name)
    compiled = compile_function_for(asked, topology)
    program = read_hlo(compiled.program, f"{asked.path.name}:{asked.name}")
    return replace(program, backend="tpu", notes=(*program.notes, *compiled.notes), compile_s=compiled.compile_s)


def read_file(path: Path) -> HloProgram:
    """The program in a file of HLO.

    Raises:
        UsageError: there is no such file.
        SourceError: it is no HLO, or no file: a pipe, on which a reader may wait for ever, or a device.
        NoDataError: the program is empty.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise SourceError(f"{path}: a pipe or a device, no file; write what it gives to a file, and predict that")
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise UsageError(
            f"{path}: no such file; expected HLO (.txt, .hlo, .pb, .pb.gz), a run's folder, or FILE.py:FUNCTION"
        ) from error
    except IsADirectoryError as error:
        raise SourceError(f"{path}: is a folder; expected a file of HLO") from error
    if not data:
        raise NoDataError(f"{path}: the file is empty, so there is no program in it")
    return read_hlo(data, path.name)


def python_program(path: Path, name: str, *, args: str | None = None, args_from: str | None = None) -> HloProgram:
    """The program of a function in a Python file, compiled for the CPU.

    Raises:
        UsageError, MissingExtraError, ModelError: as `python_function`; ModelError also where the function raises.
    """
    with python_function(path, name, args=args, args_from=args_from) as (function, values):
        return compile_function(function, values, f"{path.name}:{name}")


@contextmanager
def python_function(
    path: Path, name: str, *, args: str | None = None, args_from: str | None = None
) -> Iterator[tuple[Any, Sequence[Any]]]:
    """A function in a Python file and its arguments, while what it imports can be imported.

    Args:
        path: the file; it is run, as `import` would.
        name: the function, `jitted` or not, or what `lower()` or `compile()` gave; dots lead into objects.
        args: shapes of its arguments: `f32[32,784] f32[784,10]`.
        args_from: name in the same file of a tuple of arguments (arrays, `jax.ShapeDtypeStruct`s, trees of them), or of
            a function without arguments that returns one.

    Raises:
        UsageError: no such file or name, arguments that are missing or not understood.
        MissingExtraError: there is no JAX.
        ModelError: the file raises.
    """
    if args is not None and args_from is not None:
        raise UsageError("--args and --args-from say the same thing twice; give one of them")
    if not path.is_file():
        raise UsageError(f"{path}: no such file; expected a Python file, as in train.py:step")
    with _importable(path.parent):
        module = _load(path)
        yield _attribute(module, name, path), _values(module, path, args=args, args_from=args_from)


def parse_shapes(text: str) -> tuple[Any, ...]:
    """`f32[32,784] s32[]` as `jax.ShapeDtypeStruct`s.

    Raises:
        UsageError: a part is no shape, or of an unknown element type.
        MissingExtraError: there is no JAX.
    """
    return tuple(_struct(part, text) for part in _SPLIT.findall(text))


def _struct(part: str, text: str) -> Any:
    match = _SHAPE.fullmatch(part)
    if match is None:
        raise UsageError(
            f"--args {text!r}: {part!r} is no shape; expected an element type and sizes, as in f32[32,784]"
        )
    kind = _TYPES.get(match[1], match[1])
    if kind not in _TYPES.values():
        raise UsageError(f"--args {text!r}: {match[1]!r} is no element type; there are {', '.join(_TYPES)}")
    try:
        dims = tuple(int(size) for size in match[2].split(",")) if match[2].strip() else ()
    except ValueError as error:
        raise UsageError(f"--args {text!r}: the sizes of {part!r} are no numbers; expected f32[32,784]") from error
    jax = _jax()
    return jax.ShapeDtypeStruct(dims, jax.numpy.dtype(kind))


def _values(module: ModuleType, path: Path, *, args: str | None, args_from: str | None) -> Sequence[Any]:
    if args is not None:
        return parse_shapes(args)
    if args_from is None:
        return ()
    found = _attribute(module, args_from, path)
    if callable(found):
        try:
            found = found()
        except Exception as error:
            raise ModelError(
                f"{path.name}:{args_from} raised {type(error).__name__}: {error}; expected a tuple of arguments"
            ) from error
    return found if isinstance(found, tuple | list) else (found,)


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path}: Python cannot import this file; expected a .py file")
    module = importlib.util.module_from_spec(spec)
    before = sys.modules.get(path.stem)
    sys.modules[path.stem] = module  # dataclasses and pickles look their module up by name
    try:
        spec.loader.exec_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ("jax", "jaxlib"):
            raise MissingExtraError(f"{path} needs JAX: pip install 'phasepoint[jax]'") from error
        raise ModelError(f"{path} cannot be imported: {error}; install what it needs, in this environment") from error
    except (Exception, SystemExit) as error:
        raise ModelError(
            f"{path} raised {type(error).__name__} while it was imported: {error}; "
            f"what shall not run then belongs under `if __name__ == '__main__':`"
        ) from error
    finally:
        if before is not None:
            sys.modules[path.stem] = before
    return module


def _attribute(module: ModuleType, name: str, path: Path) -> Any:
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            names = sorted(key for key, value in vars(module).items() if callable(value) and not key.startswith("_"))
            raise UsageError(f"{path} has no {name!r}; its functions are {', '.join(names) or 'none'}")
        found = getattr(found, part)
    return found


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """The file's folder in front of where modules are looked for, as for a script."""
    place = str(folder.resolve())
    sys.path.insert(0, place)
    try:
        yield
    finally:
        sys.path.remove(place)


def _jax() -> Any:
    try:
        import jax
        import jax.numpy
    except ImportError as error:
        raise MissingExtraError("shapes of arguments need JAX: pip install 'phasepoint[jax]'") from error
    return jax


_WAITS_ON_CPU = (
    "measured on a CPU whose threads share the work: spans of kernels hold waits for one another, so that their sum is "
    "above what one core would take"
)

KernelTimes = Mapping[str, tuple[int, int, str]]
"""Name of a kernel → executions, self time of all of them in ps, device."""


def run_programs(run: Run) -> tuple[HloProgram, ...]:
    """The programs of a run's first process that has any, the one with most measured time first.

    Args:
        run: opened, its captures converted.

    Raises:
        NoDataError: it holds no programs, or none was kept whole.
        SourceError: a program in it is damaged.
    """
    for shard in run.shards:
        programs = _shard_programs(run, shard)
        if programs:
            return tuple(sorted(programs, key=_measured_ps, reverse=True))
    raise NoDataError(
        f"{run.path}: the run holds no compiled programs (HLO) to predict; JAX runs hold them if their windows were "
        f"converted by this release: record it anew, or give an HLO file"
    )


def _shard_programs(run: Run, shard: Shard) -> list[HloProgram]:
    rows = run.table("programs", shard=shard.name)
    if "hlo" not in rows.column_names:
        return []
    times = _times_by_program(run, shard)
    found = []
    for row in rows.select(["program", "name", "hlo"]).to_pylist():
        if row["hlo"] is None:
            continue
        where = f"program {row['name']} of {shard.name}"
        try:
            program = read_hlo(unpack_zstd(row["hlo"], where), where)
        except OSError as error:
            raise SourceError(f"{where}: its HLO is damaged: {error}; convert the run's windows again") from error
        measured = _measured(program.kernels, times.get(row["program"], {}))
        notes = program.notes
        if measured is not None and measured.device.startswith("cpu"):
            notes = (*notes, _WAITS_ON_CPU)
        found.append(replace(program, measured=measured, notes=notes))
    return found


def _times_by_program(run: Run, shard: Shard) -> Mapping[int, KernelTimes]:
    columns = ["program", "op", "device", "level", "count", "self_ps"]
    ops = run.table("ops", columns=columns, shard=shard.name)
    on_device = pc.and_(pc.is_valid(ops["program"]), pc.is_in(ops["level"], pa.array(["op", "kernel"])))
    totals = (
        ops.filter(on_device).group_by(["program", "op", "device"]).aggregate([("count", "sum"), ("self_ps", "sum")])
    )
    found: dict[int, dict[str, tuple[int, int, str]]] = {}
    for row in totals.to_pylist():
        of = found.setdefault(row["program"], {})
        count, self_ps, _ = of.get(row["op"], (0, 0, ""))
        of[row["op"]] = count + row["count_sum"], self_ps + row["self_ps_sum"], str(row["device"])
    return found


def _measured(kernels: Kernels, times: KernelTimes) -> MeasuredProgram | None:
    """Self time of a program's kernels in one execution; None where none of them was seen."""
    seen = [kernel for kernel in kernels.kernels if kernel.name in times]
    runs = [times[kernel.name][0] / kernel.executions for kernel in seen if kernel.executions]
    if not runs:
        return None
    executions = max(round(median(runs)), 1)
    total = sum(times[kernel.name][1] for kernel in seen)
    each = {kernel.name: times[kernel.name][1] // max(times[kernel.name][0], 1) for kernel in seen}
    return MeasuredProgram(total // executions, executions, times[seen[0].name][2], each)


def _measured_ps(program: HloProgram) -> int:
    """Of all captured executions together."""
    return 0 if program.measured is None else program.measured.time_ps * program.measured.executions
