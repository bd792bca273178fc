"""Measured solvers of convolutions as a table: problems × solvers. One parquet file per device, named after it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from phasepoint.core.errors import ModelError
from phasepoint.learn.choosing.convolutions import ConvProblem, parse_conv_problem

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = ("problem", "solver", "time_ms")


@dataclass(frozen=True)
class SolverTable:
    """What was measured on one device; problems with at least two solvers.

    Attributes:
        device: stem of the file.
        keys: [n] as written.
        problems: [n].
        solvers: [s] sorted by name.
        log_time: float32 [n, s], natural logarithm of ms; NaN where a solver was not measured.
        notes: what was left out.
    """

    device: str
    keys: tuple[str, ...]
    problems: tuple[ConvProblem, ...]
    solvers: tuple[str, ...]
    log_time: NDArray[np.float32]
    notes: tuple[str, ...] = ()


def solver_files(path: str | Path) -> tuple[Path, ...]:
    """The parquet files of a folder, sorted, or the one file that is named.

    Raises:
        ModelError: there is none.
    """
    place = Path(path)
    found = (place,) if place.is_file() else tuple(sorted(place.glob("*.parquet")))
    if not found:
        raise ModelError(f"{place} holds no parquet file; one per device is expected: {', '.join(COLUMNS)}")
    return found


def read_solvers(path: str | Path) -> SolverTable:
    """Read one device's file; of a pair that was measured more than once the least time counts.

    Raises:
        ModelError: the file cannot be read, columns are missing, or no problem is left to choose in.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    place = Path(path)
    try:
        table = pq.read_table(place)
    except (OSError, pa.ArrowInvalid) as error:
        raise ModelError(f"{place} cannot be read as parquet ({error})") from error
    missing = [name for name in COLUMNS if name not in table.column_names]
    if missing:
        raise ModelError(f"{place} has no column {', '.join(missing)}; expected {', '.join(COLUMNS)}")
    try:
        times = table["time_ms"].cast("float64").to_numpy()
    except pa.ArrowInvalid as error:
        raise ModelError(f"{place}: time_ms holds no numbers ({error})") from error
    problem, keys = _encode(table["problem"])
    solver, solvers = _encode(table["solver"])
    usable = np.isfinite(times) & (times > 0) & (problem >= 0) & (solver >= 0)
    notes = [f"{(~usable).sum()} rows without a time above 0 are left out"] if not usable.all() else []
    log_time = np.full((len(keys), len(solvers)), np.inf, np.float32)
    np.minimum.at(log_time, (problem[usable], solver[usable]), np.log(times[usable]).astype(np.float32))
    log_time[np.isinf(log_time)] = np.nan
    return _with_choice(place, keys, solvers, log_time, notes)


def shapes_seen(problems: Sequence[ConvProblem], among: Sequence[ConvProblem]) -> NDArray[np.bool_]:
    """Whether the like of each problem is among others: the same but for batch, element type or direction, `[n]`."""
    shapes = {_shape(problem) for problem in among}
    return np.array([_shape(problem) in shapes for problem in problems], bool)


def _with_choice(
    place: Path, keys: list[str], solvers: list[str], log_time: NDArray[np.float32], notes: list[str]
) -> SolverTable:
    """The problems that are understood and have two solvers or more."""
    parsed = [parse_conv_problem(key) for key in keys]
    unknown = sum(problem is None for problem in parsed)
    if unknown:
        first = next(key for key, problem in zip(keys, parsed, strict=True) if problem is None)
        notes.append(f"{unknown} problems whose key is not understood are left out, the first is {first!r}")
    enough = np.isfinite(log_time).sum(axis=1) >= 2
    if not enough.all():
        notes.append(f"{(~enough).sum()} problems with fewer than two measured solvers are left out")
    kept = [row for row, problem in enumerate(parsed) if problem is not None and enough[row]]
    if not kept:
        raise ModelError(f"{place} holds no problem with two measured solvers; {'; '.join(notes) or 'it is empty'}")
    return SolverTable(
        place.stem,
        tuple(keys[row] for row in kept),
        tuple(problem for row in kept if (problem := parsed[row]) is not None),
        tuple(solvers),
        log_time[kept],
        tuple(f"{place.stem}: {note}" for note in notes),
    )


def _encode(column: "pa.ChunkedArray") -> tuple[NDArray[np.int64], list[str]]:
    """Numbers of texts, −1 for null, and the texts, sorted."""
    texts = sorted(str(text) for text in column.unique().to_pylist() if text is not None)
    number = {text: place for place, text in enumerate(texts)}
    return np.array([-1 if text is None else number[str(text)] for text in column.to_pylist()], np.int64), texts


def _shape(problem: ConvProblem) -> tuple[object, ...]:
    first, second = (problem.channels, problem.size), (problem.other_channels, problem.other_size)
    ends = (first, second) if problem.direction == "F" else (second, first)
    windows = (problem.filter, problem.padding, problem.stride, problem.dilation)
    return (*ends, *windows, problem.groups, problem.layout)
