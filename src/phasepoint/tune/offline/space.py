"""The space of a search as a file: which knobs, how the job's program is told, and what turning one may change.

trials = 20

[knobs.batch]
argument = "--batch-size"                # or: environment = "BATCH"
values = [16, 32, 64]
as_written = 32
samples = true                           # a step's samples grow with it: speeds are compared per sample

[knobs.dtype]
argument = "--dtype"
values = ["float32", "bfloat16"]
effect = "changes numerics"              # reported with the measured difference of what the job logs
"""

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from phasepoint.core.errors import UsageError
from phasepoint.tune.knobs import Effect, Setting

MOST_TRIALS = 20
"""Where the file names no number: a choice."""

_KEYS = {"argument", "environment", "values", "as_written", "samples", "effect"}


@dataclass(frozen=True)
class ProgramKnob:
    """One knob of the job's program.

    Attributes:
        name: its name.
        values: what it may be set to.
        as_written: its value in the job as it is; the first where the file does not say.
        argument: option of the command line that sets it; None where it is a variable.
        environment: variable that sets it; None where it is an option.
        samples: whether a step's samples grow with it.
        effect: what it may change in the job's results.
    """

    name: str
    values: tuple[Any, ...]
    as_written: Any
    argument: str | None
    environment: str | None
    samples: bool
    effect: Effect


@dataclass(frozen=True)
class SearchSpace:
    """What is searched.

    Attributes:
        knobs: of the program.
        trials: settings that are tried at most.
    """

    knobs: tuple[ProgramKnob, ...]
    trials: int

    @property
    def as_written(self) -> Setting:
        """The job as it is."""
        return {knob.name: knob.as_written for knob in self.knobs}

    @property
    def size(self) -> int:
        """Settings in it."""
        return math.prod(len(knob.values) for knob in self.knobs)

    def samples(self, setting: Setting) -> float:
        """How many samples a step has against the job as it is, as far as the knobs say."""
        grown = [setting[knob.name] / knob.as_written for knob in self.knobs if knob.samples]
        return float(math.prod(grown))

    def words(self, command: Sequence[str], setting: Setting) -> list[str]:
        """The command line with a setting: an option that is there gets the value, another one is appended."""
        words = list(command)
        for knob in self.knobs:
            if knob.argument is not None:
                words = _with_option(words, knob.argument, str(setting[knob.name]))
        return words

    def environ(self, setting: Setting) -> dict[str, str]:
        """The variables of a setting."""
        return {knob.environment: str(setting[knob.name]) for knob in self.knobs if knob.environment is not None}

    def changes_numerics(self, setting: Setting) -> bool:
        """Whether a setting may change more than speed."""
        return any(knob.effect is not Effect.NOTHING and setting[knob.name] != knob.as_written for knob in self.knobs)


def read_space(path: str | Path) -> SearchSpace:
    """Read a space.

    Raises:
        UsageError: it is not there, no TOML, or says what is none; the message names the place.
    """
    try:
        content = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: no TOML: {error}") from error
    unknown = sorted(set(content) - {"trials", "knobs"})
    if unknown:
        raise UsageError(f"{path}: {unknown[0]!r} is not known; a space has 'trials' and tables [knobs.NAME]")
    trials = content.get("trials", MOST_TRIALS)
    if not isinstance(trials, int) or isinstance(trials, bool) or trials < 1:
        raise UsageError(f"{path}: trials is {trials!r}; expected a number of 1 or more")
    tables = content.get("knobs")
    if not isinstance(tables, dict) or not tables:
        raise UsageError(f"{path}: it has no knobs; write a table [knobs.NAME] with 'values' and 'argument' for each")
    return SearchSpace(tuple(_knob(path, name, table) for name, table in tables.items()), trials)


def _knob(path: str | Path, name: str, table: Any) -> ProgramKnob:
    where = f"{path}: [knobs.{name}]"
    if not isinstance(table, Mapping):
        raise UsageError(f"{where}: expected a table")
    unknown = sorted(set(table) - _KEYS)
    if unknown:
        raise UsageError(f"{where}: {unknown[0]!r} is not known; there are {', '.join(sorted(_KEYS))}")
    values = table.get("values")
    if not isinstance(values, list) or len(values) < 2:
        raise UsageError(f"{where}: values is {values!r}; expected a list of two or more")
    argument, environment = table.get("argument"), table.get("environment")
    if (argument is None) == (environment is None):
        raise UsageError(f'{where}: say either argument = "--option" or environment = "VARIABLE"')
    as_written = table.get("as_written", values[0])
    samples = bool(table.get("samples", False))
    if samples and not all(isinstance(value, int | float) and value > 0 for value in (*values, as_written)):
        raise UsageError(f"{where}: samples = true needs values above 0")
    effect = table.get("effect", Effect.NOTHING.value)
    if effect not in {known.value for known in Effect}:
        raise UsageError(f"{where}: effect is {effect!r}; there are {', '.join(map(repr, map(str, Effect)))}")
    return ProgramKnob(name, tuple(values), as_written, argument, environment, samples, Effect(effect))


def _with_option(words: list[str], option: str, value: str) -> list[str]:
    for place, word in enumerate(words):
        if word == option and place + 1 < len(words):
            return [*words[: place + 1], value, *words[place + 2 :]]
        if word.startswith(f"{option}="):
            return [*words[:place], f"{option}={value}", *words[place + 1 :]]
    return [*words, option, value]
