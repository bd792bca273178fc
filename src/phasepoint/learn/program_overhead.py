"""Times of whole programs out of their kernels': what a run takes beside them, for each start of a kernel and once."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from phasepoint.core.arrays import Floats
from phasepoint.learn.corpus import CorpusProgram

_ROUNDS = 20


@dataclass(frozen=True)
class Overhead:
    """What lies between kernels on a device that runs them one after the other.

    Attributes:
        launch_ps: for each execution of a kernel; may be below 0, where the trace's own cost is in each label.
        program_ps: for each run of a program.
    """

    launch_ps: float
    program_ps: float

    def to_json(self) -> dict[str, float]:
        """Plain values."""
        return asdict(self)


def fit_overhead(programs: Sequence[CorpusProgram], time_ps: Floats) -> Overhead:
    """What brings the relative error of the programs' wall times down, given the times of their kernels.

    Args:
        programs: measured; those without a wall time are left out.
        time_ps: of one execution of each kernel of the corpus, [n].
    """
    walled = [program for program in programs if program.wall_min_ps is not None]
    if len(walled) < 2:
        return Overhead(0.0, 0.0)
    summed, walls, launches = _sums(walled, time_ps)
    columns = np.stack([launches, np.ones(len(walled))], axis=1) / walls[:, None]
    rest = 1.0 - summed / walls
    weight: npt.NDArray[Any] = np.ones(len(walled))
    answer: npt.NDArray[Any] = np.zeros(2)
    for _ in range(_ROUNDS):  # least squares, reweighted towards least absolute errors
        answer = np.linalg.lstsq(columns * weight[:, None], rest * weight, rcond=None)[0]
        weight = 1.0 / np.sqrt(np.maximum(np.abs(columns @ answer - rest), 0.01))
    return Overhead(float(answer[0]), float(answer[1]))


def program_times(programs: Sequence[CorpusProgram], time_ps: Floats, overhead: Overhead) -> tuple[Floats, Floats]:
    """Predicted and measured wall times of programs that have one, ps.

    Args:
        programs: with wall times.
        time_ps: of one execution of each kernel of the corpus, [n].
        overhead: of the device.
    """
    summed, walls, launches = _sums(programs, time_ps)
    told = summed + overhead.launch_ps * launches + overhead.program_ps
    return np.maximum(told, 0.1 * summed), walls


def _sums(programs: Sequence[CorpusProgram], time_ps: Floats) -> tuple[Floats, Floats, Floats]:
    summed = [float((time_ps[program.kernels] * program.executions).sum()) for program in programs]
    walls = [float(program.wall_min_ps or 0) for program in programs]
    return np.array(summed), np.array(walls), np.array([float(program.executions.sum()) for program in programs])
