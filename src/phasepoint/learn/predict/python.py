"""Programs from a user's Python file: `train.py:step`, with the shapes of what goes in."""

import importlib.util
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from phasepoint.core.errors import MissingExtraError, ModelError, UsageError
from phasepoint.learn.predict.hlo import Program, compile_function

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


def python_program(path: Path, name: str, *, args: str | None = None, args_from: str | None = None) -> Program:
    """The program of a function in a Python file.

    Args:
        path: the file; it is run, as `import` would.
        name: the function, `jitted` or not, or what `lower()` or `compile()` gave; dots lead into objects.
        args: shapes of its arguments: `f32[32,784] f32[784,10]`.
        args_from: name in the same file of a tuple of arguments (arrays, `jax.ShapeDtypeStruct`s, trees of them), or of
            a function without arguments that returns one.

    Raises:
        UsageError: no such file or name, arguments that are missing or not understood.
        MissingExtraError: there is no JAX.
        ModelError: the file, or the function, raises.
    """
    if args is not None and args_from is not None:
        raise UsageError("--args and --args-from say the same thing twice; give one of them")
    if not path.is_file():
        raise UsageError(f"{path}: no such file; expected a Python file, as in train.py:step")
    where = f"{path.name}:{name}"
    with _importable(path.parent):
        module = _load(path)
        function = _attribute(module, name, path)
        values = _values(module, path, args=args, args_from=args_from)
        return compile_function(function, values, where)


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
        found = _called(found, f"{path.name}:{args_from}")
    return found if isinstance(found, tuple | list) else (found,)


def _called(function: Any, where: str) -> Any:
    try:
        return function()
    except Exception as error:
        raise ModelError(f"{where} raised {type(error).__name__}: {error}; expected a tuple of arguments") from error


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
