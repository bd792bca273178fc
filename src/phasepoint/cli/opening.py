"""Opening a run for reading: raw captures are converted first, with a progress bar, whichever command asks.

What gates share: none passes on a run that is empty, killed, not whole or too short to judge.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from phasepoint.cli.console import busy, progress_console, write_notes
from phasepoint.core.errors import NotEnoughError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.progress import Progress

    from phasepoint.sources.ingest.convert import ConvertResult
    from phasepoint.store import Run
    from phasepoint.summary.analysis import Analysis
    from phasepoint.summary.types import Shortfall


def refuse_shortfalls(gate: str, found: "Iterable[tuple[str, Shortfall | None]]") -> None:
    """End a gate that would pass where a run is no ground for a verdict.

    Args:
        gate: the option, as the user wrote it.
        found: path of each run, and what it lacks.

    Raises:
        NotEnoughError: one of them lacks something.
    """
    for path, short in found:
        if short is not None:
            raise NotEnoughError(f"{gate}: cannot be judged: {path}: {short.text}. {short.remedy}")


def open_converted(path: str, *, say_empty: bool = True) -> "Run":
    """Open a run, all its capture windows converted to tables; says on stderr what could not be converted.

    What else cannot be read shows when it is read: say `run.problems` at the end.

    Args:
        path: the run.
        say_empty: whether to say on stderr that no step was recorded, and what to do; not where the result says so.

    Raises:
        NotARunError: there is no run at the path.
        FormatVersionError: the run was written by a newer major version.
        StoreError: the run's files cannot be read.
    """
    from phasepoint.store import open_run

    open_run(path)  # first, so that a wrong path fails before numba is imported
    converted = convert_with_progress(path)
    run = converted.over(open_run(path))
    write_notes((*converted.problems, *run.notes))
    if say_empty and not run.has_part("steps"):
        from phasepoint.summary.enough import shortfall_of

        short = shortfall_of(run)
        write_notes([f"{path}: {short.text}. {short.remedy}"] if short is not None else [])
    return run


def check_method(method: str) -> None:
    """Refuse a phase method that does not exist, before any work is done for it.

    Raises:
        UsageError: there is no such method; the message lists those there are.
    """
    from phasepoint.phases.detection.table import METHODS

    if method not in METHODS:
        raise UsageError(f"no phase method named {method!r}; the methods are {', '.join(METHODS)}")


def open_analysis(path: str, method: str, *, say_empty: bool = True) -> "Analysis":
    """Open a run and analyse it with one of the phase methods; `say_empty` as in `open_converted`.

    Raises:
        UsageError: there is no such method.
        StoreError: as `open_converted`.
    """
    check_method(method)
    run = open_converted(path, say_empty=say_empty)
    with busy("finding phases"):
        from phasepoint.summary.analysis import analyse_run

        return analyse_run(run, method=method)


def local_folder(path: str) -> Path:
    """The folder into which files of a run go: the run's own, or where the user stands for a run elsewhere."""
    local = path.removeprefix("file://")
    return Path() if "://" in local else Path(local)


def convert_with_progress(path: str | os.PathLike[str]) -> "ConvertResult":
    """Convert what is not converted yet, with a progress bar where stderr is a terminal."""
    from phasepoint.sources.ingest.convert import convert_windows

    with progress_bar("converting captures") as advance:
        return convert_windows(path, progress=advance)


@contextmanager
def progress_bar(what: str) -> "Iterator[Callable[[int, int], None]]":
    """A progress bar on stderr that appears with the first report of progress; `advance(done, total)`."""
    bar: Progress | None = None

    def advance(done: int, total: int) -> None:
        nonlocal bar
        if bar is None:
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            bar = Progress(*columns, console=progress_console(), transient=True)
            bar.add_task(what, total=None)
            bar.start()
        bar.update(bar.task_ids[0], completed=done, total=total)

    try:
        yield advance
    finally:
        if bar is not None:
            bar.stop()
