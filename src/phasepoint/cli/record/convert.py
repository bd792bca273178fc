"""`phasepoint import`, `convert` and `compact`: what turns traces and captures into the tables of a run."""

import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from phasepoint.cli.console import busy, write_document, write_notes
from phasepoint.cli.opening import convert_with_progress, progress_bar
from phasepoint.cli.options import AsJson, Force, RayAddress, RunPath, Workers
from phasepoint.core.errors import OutputExistsError, SourceError, StoreError
from phasepoint.core.units import format_bytes, format_count, format_counted
from phasepoint.sources.ingest.formats import describe_formats

if TYPE_CHECKING:
    from phasepoint.sources.ingest.import_run import ImportedTraces


@contextmanager
def replaced_run(out: str, *, force: bool) -> Iterator[None]:
    """Make room for a new run, and put what was there back where the new one fails.

    Args:
        out: path or URL of the run to be made.
        force: whether a run that is there may go; anything else is never touched.

    Raises:
        OutputExistsError: a run is there and `force` is not given, or something that is no run, alone or beside one.
        StoreError: it cannot be moved, or lies where folders cannot be moved (`s3://…`).
    """
    from phasepoint.store.removal import check_removable, remove_run
    from phasepoint.store.writer import is_vacant

    if is_vacant(out):
        yield
        return
    place = Path(out.removeprefix("file://"))
    if "://" in str(out) and not out.startswith("file://"):
        raise OutputExistsError(f"{out} is there already; choose another place with --out, or remove it")
    if not (place / "run.json").is_file():
        raise OutputExistsError(f"{out}: exists and is no run; choose another place with --out")
    if not force:
        raise OutputExistsError(
            f"{out}: a run is there already; give --force to replace it, or --out for another place"
        )
    check_removable(place, out)
    aside = place.absolute().with_name(f".{place.absolute().name}.{secrets.token_hex(4)}.replaced")
    try:
        place.rename(aside)
    except OSError as error:
        raise StoreError(f"{out}: cannot be replaced: {error.strerror}; choose another place with --out") from error
    try:
        yield
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        aside.rename(place)
        raise
    remove_run(aside, out)
    aside.rmdir()


def import_(
    files: Annotated[list[str], typer.Argument(metavar="FILE…", help="Traces, packed with gzip or not, or folders.")],
    out: Annotated[str, typer.Option("--out", metavar="RUN", help="The run to create.")],
    workers: Workers = None,
    ray: RayAddress = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Turn traces of other profilers into a run.

    FORMATS; told by their content.

    Of a folder all traces are taken, a shard each, by as many workers as there are cores and work for them.
    """
    from phasepoint.sources.ingest.import_run import import_traces

    with replaced_run(out, force=force), progress_bar("reading traces") as advance:
        imported = import_traces(files, out, workers=workers, ray_address=ray, progress=advance)
    if as_json:
        write_document("import", {"run": out, **vars(imported)})
        _refuse_unread(imported)
        return
    for one in imported.files:
        write_notes([f"{one.path}: {one.problem}"] if one.problem else [])
        steps = format_counted(one.steps, "step") if one.steps else "no marked step: the whole file is one"
        typer.echo(
            f"{one.path}: {one.format}, host {one.host}, {steps}; {format_count(one.events)} events = "
            f"{format_count(one.spans)} spans + {format_count(one.ignored)} ignored + "
            f"{format_count(one.dropped)} dropped; {format_count(one.orphans)} without a launch"
        )
    write_notes(f"left out: {one.reason}" for one in imported.others)
    typer.echo(f"phasepoint summary {out}")
    _refuse_unread(imported)


import_.__doc__ = str(import_.__doc__).replace("FORMATS", describe_formats())


def _refuse_unread(imported: "ImportedTraces") -> None:
    """End with an error where a trace could not be read at all: its rank is missing in the run."""
    if imported.unread:
        reasons = "\n".join(one.reason for one in imported.unread)
        count = f"{len(imported.unread)} of {format_counted(len(imported.files) + len(imported.unread), 'trace')}"
        raise SourceError(f"{count} could not be read, and the run is without them:\n{reasons}")


def compact(path: RunPath, as_json: AsJson = False) -> None:
    """Merge a run's small files into few large ones; nothing that was recorded changes."""
    from phasepoint.store import compact_run

    with busy("merging"):
        result = compact_run(path)
    if as_json:
        from phasepoint.report.documents import plain

        write_document("compact", {"run": path, **plain(result)})
        return
    before = f"{format_counted(result.parts_before, 'file')}, {format_bytes(result.bytes_before)}"
    after = f"{format_counted(result.parts_after, 'file')}, {format_bytes(result.bytes_after)}"
    typer.echo(f"compacted {path}: {before} → {after}")
    write_notes(f"{part}: cannot be read and was left as it is" for part in result.skipped)


def convert(path: RunPath, *, as_json: AsJson = False) -> None:
    """Turn a run's raw captures into tables now; the commands that read a run do the same when they need it."""
    from phasepoint.store import open_run

    open_run(path)  # first, so that a wrong path fails before numba is imported
    result = convert_with_progress(path)
    if as_json:
        fields = ("converted", "failed", "problems", "written")
        write_document("convert", {"run": path, **{name: getattr(result, name) for name in fields}})
        return
    write_notes(result.problems)
    failed = f", {format_count(result.failed)} could not be read" if result.failed else ""
    windows = format_counted(result.converted, "window")
    typer.echo(f"converted {windows} of {path}{failed}")
    if not result.written:
        typer.echo("nothing was written: the run cannot be written; readers convert it in memory each time")
