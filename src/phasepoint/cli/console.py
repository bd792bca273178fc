"""Where commands write: results to stdout, progress and notes to stderr, colour only on a terminal.

Writing results to files: never half a file, and it says what it wrote.

One rule for what is there already: a result that Phasepoint itself has written into the run's folder is made again;
any other file, and any run, is left alone unless --force is given.
"""

import os
import secrets
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from phasepoint.core.errors import OutputExistsError, StoreError
from phasepoint.core.units import format_bytes

if TYPE_CHECKING:
    import pyarrow as pa
    from rich.console import Console


def write_text(path: Path, chunks: Iterable[str], *, force: bool) -> int:
    """Write text to a file that appears only when it is complete, and return its size in bytes.

    Raises:
        OutputExistsError: the file is there and `force` is not given.
        StoreError: it cannot be written; nothing of it is left.
    """
    check_output(path, force=force)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            _write_chunks(temporary, chunks)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
        return path.stat().st_size
    except OSError as error:
        reason = error.strerror or str(error)
        raise StoreError(f"{path}: cannot be written: {reason}; choose another place with --output") from error


def _write_chunks(path: Path, chunks: Iterable[str]) -> None:
    """The one place that fills a file: what a disk can refuse, it refuses here."""
    with path.open("w", encoding="utf-8", newline="") as file:
        file.writelines(chunks)


def is_ours(path: Path, run: str) -> bool:
    """Whether a file is a result that Phasepoint has written into this run's folder: one that it may make again.

    Args:
        path: the file.
        run: the run, as the user gave it; nothing lies in a run elsewhere (`s3://…`).
    """
    from phasepoint.store.removal import EXPORTS_NAME, REPORT_NAME, is_page

    folder = run.removeprefix("file://")
    if "://" in folder or not path.is_file() or path.is_symlink():
        return False
    try:
        inside = path.resolve().relative_to(Path(folder).resolve())
        return inside.parts[0] == EXPORTS_NAME or (str(inside) == REPORT_NAME and is_page(path))
    except (OSError, ValueError):
        return False


def check_output(path: Path, *, force: bool) -> None:
    """Refuse an output that exists, before any work is done for it.

    Raises:
        OutputExistsError: it is there and `force` is not given.
        StoreError: a folder stands where a file shall be written.
    """
    if not os.path.lexists(path):
        return
    if path.is_dir():
        raise StoreError(f"{path}: is a folder; expected the name of a file to write (--output)")
    if not force:
        raise OutputExistsError(f"{path}: exists already; give --force to replace it, or --output for another place")


def write_document(kind: str, content: Any, *, indent: int | None = 2) -> None:
    """Print a result as one JSON document."""
    from phasepoint.report.documents import to_json

    typer.echo(to_json(kind, content, indent=indent))


def announce(kind: str, written: Sequence[tuple[Path, int]], *, as_json: bool, more: dict[str, Any]) -> None:
    """Say what was written, as text or as a JSON document."""
    if as_json:
        files = [{"path": str(path), "bytes": size_bytes} for path, size_bytes in written]
        write_document(kind, {**more, "written": files})
        return
    for path, size_bytes in written:
        typer.echo(f"wrote {path} ({format_bytes(size_bytes)})")


PIPED_WIDTH = 120
"""Columns of text that goes into a file or a pipe, where there is no terminal to ask."""


def result_console() -> "Console":
    """A console on stdout; plain text of a fixed width where stdout is not a terminal."""
    from rich.console import Console

    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else PIPED_WIDTH
    return Console(width=width, highlight=False, markup=False, emoji=False)


def progress_console() -> "Console":
    """A console on stderr, silent where stderr is not a terminal."""
    from rich.console import Console

    return Console(stderr=True, quiet=not sys.stderr.isatty(), highlight=False, markup=False, emoji=False)


@contextmanager
def busy(what: str) -> Iterator[None]:
    """Show on stderr that work is under way whose length is not known; silent where stderr is not a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    with progress_console().status(what):
        yield


def write_data(text: str) -> None:
    """Write data to stdout as it is; on a terminal, what could steer it is shown as an escape."""
    if sys.stdout.isatty():
        from phasepoint.report.words.names import printable

        text = "".join(f"{printable(line)}\n" for line in text.splitlines())
    sys.stdout.write(text)


def write_csv(rows: "pa.Table") -> None:
    """Write rows to stdout as CSV."""
    from phasepoint.report.tables import arrow_table
    from phasepoint.report.tables.text import csv_text

    write_data(csv_text(arrow_table(rows)))


def write_notes(notes: Iterable[str]) -> None:
    """What the reader of a result must know beside it, one line each, on stderr."""
    from phasepoint.report.words.names import printable

    for note in notes:
        sys.stderr.write(f"note: {printable(note)}\n")
