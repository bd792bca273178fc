"""Runs a command once for each level and repeat, in turns, and makes a measurement of what its processes wrote."""

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from phasepoint.core.errors import NoDataError, RecordError, UsageError
from phasepoint.measure.levels import collapse, level_samples
from phasepoint.measure.regions import FOUND, VARIABLE, MeasureOptions
from phasepoint.measure.result import Level, LeveledMeasurement, NotMeasured, Sample, sample_from_plain
from phasepoint.recorder.process.launch import INJECT_FOLDER

DEFAULT_COMMAND_REPEATS = 3  # a choice: every repeat starts the whole command again, once a level

STARTER_VARIABLE = "PHASEPOINT_STARTER"
"""Tells the recorder's `sitecustomize` which module begins to look for work."""

RunCommand = Callable[[Sequence[str], Mapping[str, str]], int]
"""Runs a command with an environment and gives its exit code."""


@dataclass(frozen=True)
class MeasuredRegion:
    """One region of a script.

    Attributes:
        region: its name in the script; `measure` for calls of `phasepoint.stack.measure`.
        measurement: what was found.
    """

    region: str
    measurement: LeveledMeasurement


@dataclass
class _Process:
    """What one process wrote."""

    level: Level
    regions: dict[str, list[Sample]] = field(default_factory=dict)
    heads: list[dict[str, Any]] = field(default_factory=list)
    unavailable: list[NotMeasured] = field(default_factory=list)


def measure_command(
    command: Sequence[str],
    *,
    levels: Sequence[Level],
    repeats: int = DEFAULT_COMMAND_REPEATS,
    warmups: int = 1,
    framework: str | None = None,
    run: RunCommand | None = None,
) -> tuple[MeasuredRegion, ...]:
    """Run a script unchanged, a process for each level and repeat, and measure the regions it marks.

    A process's runs of a region become one by their trimmed mean; repeats are processes. Levels take turns, forwards in
    one round and backwards in the next.

    Args:
        command: the program and its arguments.
        levels: from `choose_levels`.
        repeats: processes at each level, ≥ 1.
        warmups: runs of a region at the start of each process that do not count, where it has more than these.
        framework: torch or jax, where the script imports both.
        run: runs one process; the system's way where it is not given.

    Returns:
        One measurement a region, in the order of the script.

    Raises:
        UsageError: the command is empty, or fewer repeats than one.
        RecordError: the command cannot be started, or ends with an exit code that is not 0.
        NoDataError: the script marks no work.
    """
    if not command:
        raise UsageError("there is no command to measure; write it after two dashes: … measure -- python infer.py")
    if repeats < 1 or warmups < 0:
        raise UsageError(f"repeats {repeats}, warmups {warmups}: expected at least 1 and 0")
    processes = []
    with tempfile.TemporaryDirectory(prefix="phasepoint-") as folder:
        for number in range(repeats):
            for level in levels if number % 2 == 0 else reversed(levels):
                out = Path(folder) / f"{number}-{level}.jsonl"
                _run_once(command, MeasureOptions(level, str(out), framework), run or _run)
                processes.append(_read(out, level))
    return _regions(command, processes, warmups)


def _run_once(command: Sequence[str], options: MeasureOptions, run: RunCommand) -> None:
    folders = [str(INJECT_FOLDER), *([os.environ["PYTHONPATH"]] if os.environ.get("PYTHONPATH") else [])]
    environ = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(folders),
        STARTER_VARIABLE: "phasepoint.measure.automatic_regions",
        VARIABLE: options.to_environ(),
    }
    code = run(command, environ)
    if code:
        raise RecordError(f"{' '.join(command)}: ended with exit code {code} at level {options.level}; nothing is kept")


def _run(command: Sequence[str], environ: Mapping[str, str]) -> int:
    """The command's standard output becomes standard error: the result has standard output to itself."""
    try:
        return subprocess.run(list(command), env=dict(environ), stdout=2, check=False).returncode
    except FileNotFoundError as error:
        raise RecordError(f"{command[0]}: command not found; is it installed, and on the PATH?") from error
    except OSError as error:
        raise RecordError(f"{command[0]}: cannot be started: {error.strerror or error}") from error


def _read(path: Path, level: Level) -> _Process:
    process = _Process(level)
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    for line in map(json.loads, lines):
        if "sample" in line:
            process.regions.setdefault(line["region"], []).append(sample_from_plain(line["sample"]))
        elif "unavailable" in line:
            process.unavailable.append(NotMeasured(**line["unavailable"]))
        else:
            process.heads.append(line)
    return process


def _regions(command: Sequence[str], processes: Sequence[_Process], warmups: int) -> tuple[MeasuredRegion, ...]:
    names = list(dict.fromkeys(name for one in processes if one.level == "M" for name in one.regions))
    marked = [name for name in names if name not in FOUND]
    names = marked or [name for name in FOUND if name in names]
    heads = [head for one in processes for head in one.heads]
    if not names:
        raise NoDataError(
            f"{' '.join(command)}: the script marked no work and none was found; put `with phasepoint.stack.region():` "
            "around what is to be measured, after `import phasepoint.stack`, or call phasepoint.stack.measure"
        )
    unavailable = tuple(dict.fromkeys(reason for one in processes for reason in one.unavailable))
    return tuple(
        MeasuredRegion(
            name,
            level_samples(
                _collapsed(name, processes, warmups),
                framework=heads[0]["framework"],
                framework_version=heads[0]["version"],
                devices=tuple(heads[0]["devices"]),
                unavailable=unavailable,
            ),
        )
        for name in names
    )


def _collapsed(name: str, processes: Sequence[_Process], warmups: int) -> Iterable[Sample]:
    """One sample a process; where a process made fewer runs than the warm-ups, its last one counts."""
    for process in processes:
        samples = process.regions.get(name, [])
        if samples:
            yield collapse(samples[min(warmups, len(samples) - 1) :])
