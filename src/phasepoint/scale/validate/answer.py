"""What one file of measurements says of the predictions."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from phasepoint.core.arrays import Floats


@dataclass(frozen=True)
class Band:
    """Errors of a part of a file's rows.

    Attributes:
        name: what the rows have in common.
        count: of them.
        mape: mean of |predicted / true - 1|.
        median_ape: its median.
        coverage90: share of true values within the 90 % interval; None where there are no intervals.
        beside: the same mean for what one would say without a model, by its name.
    """

    name: str
    count: int
    mape: float
    median_ape: float
    coverage90: float | None
    beside: Mapping[str, float]


@dataclass(frozen=True)
class FileAnswer:
    """Errors of a file's rows, all together and by what matters.

    Attributes:
        file: its name.
        counted: "pairs" or "points".
        count: of them.
        mape: mean of |predicted / true - 1|.
        median_ape: its median.
        worst_ape: its largest.
        coverage90: share of true values within the 90 % interval; None where there are no intervals.
        by: the same of parts.
        notes: what the reader must know: rows that were left out, and why.
    """

    file: str
    counted: str
    count: int
    mape: float
    median_ape: float
    worst_ape: float
    coverage90: float | None
    by: tuple[Band, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class FileRow:
    """A file that can be validated: its name, and what answers for it."""

    file: str
    answer: Callable[[Path], FileAnswer]


@dataclass(frozen=True)
class Held:
    """Predictions beside what was measured, [n] each; intervals and other guesses where there are any."""

    predicted: Floats
    true: Floats
    low: Floats | None = None
    high: Floats | None = None
    beside: Mapping[str, Floats] | None = None


def answer_file(
    file: str, counted: str, compared: Held, groups: Mapping[str, Sequence[str]], notes: Sequence[str] = ()
) -> FileAnswer:
    """Errors of all rows and of each group.

    Args:
        file: its name.
        counted: "pairs" or "points".
        compared: rows.
        groups: names of rows by what they are grouped for: `{"model": ["16B", "64B", …]}`.
        notes: for the reader.

    Example:
        >>> compared = Held(np.array([1.1, 2.0]), np.array([1.0, 2.0]))
        >>> answer = answer_file("steps.parquet", "points", compared, {"model": ["a", "b"]})
        >>> round(answer.mape, 3), [(band.name, round(band.mape, 3)) for band in answer.by]
        (0.05, [('model a', 0.1), ('model b', 0.0)])
    """
    error = np.abs(compared.predicted / compared.true - 1)
    bands = []
    for what, names in groups.items():
        array = np.array(names)
        for name in dict.fromkeys(names):
            bands.append(_band(f"{what} {name}", array == name, error, compared))
    whole = _band("all", np.ones(len(error), bool), error, compared)
    return FileAnswer(
        file, counted, len(error), whole.mape, whole.median_ape, float(error.max()), whole.coverage90, tuple(bands),
        tuple(notes),
    )  # fmt: skip


def _band(name: str, rows: Floats, error: Floats, compared: Held) -> Band:
    covered = None
    if compared.low is not None and compared.high is not None:
        inside = (compared.low <= compared.true) & (compared.true <= compared.high)
        covered = float(inside[rows].mean())
    beside = {
        what: float(np.abs(guess[rows] / compared.true[rows] - 1).mean())
        for what, guess in (compared.beside or {}).items()
    }
    return Band(name, int(rows.sum()), float(error[rows].mean()), float(np.median(error[rows])), covered, beside)
