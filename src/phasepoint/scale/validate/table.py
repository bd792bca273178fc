"""The files that can be validated, one row each, and the answer for a folder of them.

Its own file: the table that everything else of this room is a row of.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from phasepoint.core.errors import NoDataError, UsageError
from phasepoint.scale.mlperf.records import RESULTS
from phasepoint.scale.validate.answer import FileAnswer, FileRow
from phasepoint.scale.validate.mlperf import answer_mlperf
from phasepoint.scale.validate.steps import STEP_FILES, answer_steps

FILES = (
    FileRow(RESULTS, answer_mlperf),
    *(FileRow(row.file, partial(answer_steps, row)) for row in STEP_FILES),
)


def validate_folder(folder: Path, progress: Callable[[int, int], None] | None = None) -> list[FileAnswer]:
    """Answers for whichever of the files a folder holds.

    Args:
        folder: that holds them.
        progress: called with (files done, files in all).

    Raises:
        UsageError: there is no such folder.
        NoDataError: it holds none of the files, or one of them no row that can be predicted.
        SourceError: a file cannot be read.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder; expected one with {', '.join(row.file for row in FILES)}")
    present = [row for row in FILES if (folder / row.file).is_file()]
    if not present:
        raise NoDataError(f"{folder}: holds none of {', '.join(row.file for row in FILES)}")
    answers = []
    for number, row in enumerate(present, start=1):
        answers.append(row.answer(folder / row.file))
        if progress is not None:
            progress(number, len(present))
    return answers
