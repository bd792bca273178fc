"""Which programs are collected: those of the package, and functions in a user's files."""

import runpy
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from phasepoint.core.errors import UsageError
from phasepoint.learn.programs.specs import ProgramSpec

PACKAGE = "package"


@dataclass(frozen=True)
class ProgramReference:
    """A program that another process can find again.

    Attributes:
        name: of the program.
        source: `package`, or `FILE.py:function`.
        seed: of the generated programs.
    """

    name: str
    source: str = PACKAGE
    seed: int = 0


def package_programs(pattern: str, *, seed: int = 0) -> tuple[ProgramReference, ...]:
    """Programs that came with the package.

    Args:
        pattern: zoo, generated, all, or a pattern of names such as `attention*`.
        seed: of the generated programs.

    Raises:
        UsageError: no program has such a name.
    """
    from phasepoint.learn.programs.catalogue import corpus_programs, zoo_programs

    zoo = {spec.name for spec in zoo_programs()}
    names = [spec.name for spec in corpus_programs(seed=seed)]
    if pattern in ("zoo", "generated", "all"):
        chosen = [name for name in names if pattern == "all" or (name in zoo) == (pattern == "zoo")]
    else:
        chosen = [name for name in names if fnmatchcase(name, pattern)]
    if not chosen:
        raise UsageError(
            f"no program is called {pattern!r}; give zoo, generated, all, or a pattern such as {names[0][:12]}*"
        )
    return tuple(ProgramReference(name, seed=seed) for name in chosen)


def is_file_source(word: str) -> bool:
    """Whether a word of the command line means functions in a file: FILE.py:function."""
    return ".py:" in word


def find_specs(references: Sequence[ProgramReference]) -> dict[str, ProgramSpec]:
    """The programs of references, by name.

    Raises:
        UsageError: there are none of a name, or a file cannot be used.
    """
    found: dict[str, ProgramSpec] = {}
    for source, seed in dict.fromkeys((one.source, one.seed) for one in references):
        specs = _of_package(seed) if source == PACKAGE else file_programs(source)
        found |= {spec.name: spec for spec in specs}
    missing = [one.name for one in references if one.name not in found]
    if missing:
        raise UsageError(f"there is no program {missing[0]!r} any more")
    return {one.name: found[one.name] for one in references}


def file_programs(source: str) -> tuple[ProgramSpec, ...]:
    """Programs of `FILE.py:function`; the file runs.

    The function is called with nothing. It returns the function to jit and the tuple of its arguments' shapes, or a
    list of `ProgramSpec`.

    Raises:
        UsageError: there is no such file or function, or it returns something else.
    """
    text, _, name = source.rpartition(":")
    if not Path(text).is_file():
        raise UsageError(f"{text}: there is no such file; give FILE.py:function")
    function = runpy.run_path(text).get(name)
    if not callable(function):
        raise UsageError(f"{text} has no function {name!r}; give FILE.py:function")
    return _specs_of(function(), f"{Path(text).stem}.{name}", source)


def _specs_of(returned: Any, name: str, source: str) -> tuple[ProgramSpec, ...]:
    if isinstance(returned, ProgramSpec):
        return (returned,)
    if isinstance(returned, tuple) and len(returned) == 2 and callable(returned[0]):
        return (ProgramSpec(name, name, "", "forward", lambda: returned),)
    specs = tuple(returned) if isinstance(returned, list | tuple) else ()
    if not specs or not all(isinstance(spec, ProgramSpec) for spec in specs):
        raise UsageError(f"{source} returns neither (function, shapes of its arguments) nor a list of ProgramSpec")
    return specs


def _of_package(seed: int) -> tuple[ProgramSpec, ...]:
    from phasepoint.learn.programs import corpus_programs

    return corpus_programs(seed=seed)
