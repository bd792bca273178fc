"""Where commands write: results to stdout, progress and notes to stderr, colour only on a terminal."""

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

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
        from phasepoint.report.names import printable

        text = "".join(f"{printable(line)}\n" for line in text.splitlines())
    sys.stdout.write(text)


def write_notes(notes: Iterable[str]) -> None:
    """What the reader of a result must know beside it, one line each, on stderr."""
    from phasepoint.report.names import printable

    for note in notes:
        sys.stderr.write(f"note: {printable(note)}\n")
