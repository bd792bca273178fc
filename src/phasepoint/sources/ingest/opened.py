"""Opening a run with everything in it: captures that wait are converted first, as the command line does.

Its own file: opening a run that holds no such capture loads no reader.
"""

import os

from phasepoint.store import Run
from phasepoint.store import open_run as open_as_it_is


def open_run(path: str | os.PathLike[str], *, convert: bool = True, now_unix_ns: int | None = None) -> Run:
    """Open the run at a path or URL, its captures converted to tables.

    A recording leaves the profiler's captures as they are and converts what its budget allows. The others are converted
    here, once, into the run; where that cannot be written, into memory. What could not be converted is said by
    `summarize_run(run).not_seen.problems`.

    Args:
        path: local path, or a URL of `pyarrow.fs`.
        convert: False leaves the captures as they are: their windows take no part in any estimate.
        now_unix_ns: the time at which to judge heartbeats of writers on other machines; now if None.

    Raises:
        NotARunError: there is no run.
        FormatVersionError: the run is of another major version.
        StoreError: the manifest is broken, or the file system fails.

    Example:
        >>> open_run("runs/my-job").table("steps", columns=["step"]).num_rows
        200
    """
    run = open_as_it_is(path, now_unix_ns=now_unix_ns)
    if not convert or not any(_waiting(run)):
        return run
    from phasepoint.sources.ingest.convert import convert_windows

    converted = convert_windows(path)
    return converted.over(open_as_it_is(path, now_unix_ns=now_unix_ns))


def _waiting(run: Run) -> list[tuple[int, int, int]]:
    """Host, attempt and number of the windows whose capture is there and not converted."""
    keys = ["host", "attempt", "window"]
    done = {tuple(row.values()) for row in run.table("conversions", columns=["window"]).to_pylist()}
    rows = run.table("windows", columns=["window", "raw"]).to_pylist()
    waiting = ((row["raw"], tuple(row[key] for key in keys)) for row in rows)
    return [key for raw, key in waiting if raw is not None and key not in done]
