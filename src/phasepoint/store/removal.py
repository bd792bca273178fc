"""Removing a run to make room for another: what Phasepoint wrote goes; where anything else lies there, nothing does.

A job may well keep its checkpoints, logs and metrics where its run lies; who gives `--force` means the run.
"""

import shutil
from collections.abc import Collection, Iterator
from pathlib import Path

from phasepoint.core.errors import OutputExistsError
from phasepoint.core.tables import TABLES
from phasepoint.store.filesystem import TEMPORARY_PREFIX
from phasepoint.store.manifest import MANIFEST_NAME
from phasepoint.store.parts import PART_SUFFIX
from phasepoint.store.raw import RAW_FOLDER
from phasepoint.store.session import HEARTBEAT_NAME, SESSION_NAME, parse_shard_name
from phasepoint.store.tail import TAIL_SUFFIX
from phasepoint.store.writer import STAGING_FOLDER

REPORT_NAME, EXPORTS_NAME = "report.html", "export"
"""Where results stand in a run's folder: a page, and a folder that is Phasepoint's."""

_PAGE_MARK = b'<meta name="generator" content="Phasepoint">'
_HEAD_BYTES = 4096
"""The mark stands at the head of a page that Phasepoint has written."""

_MOST_NAMED = 5
"""A choice: names in a message that are read and not skipped."""


def remove_run(folder: Path, out: str, *, more: Collection[str] = ()) -> None:
    """Delete the files of a run; the folder itself stays, and is empty.

    Args:
        folder: the run's.
        out: the same as the user gave it, for the message.
        more: names in it that the caller's command writes there.

    Raises:
        OutputExistsError: it holds something else; nothing was deleted.
        OSError: something cannot be deleted.
    """
    check_removable(folder, out, more=more)
    for path in list(folder.iterdir()):
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def check_removable(folder: Path, out: str, *, more: Collection[str] = ()) -> None:
    """Refuse a folder that holds anything but a run; takes and raises what `remove_run` does."""
    foreign = [path.relative_to(folder).as_posix() for path in _foreign(folder, more)]
    if foreign:
        named = ", ".join(foreign[:_MOST_NAMED])
        others = f" and {len(foreign) - _MOST_NAMED} more" if len(foreign) > _MOST_NAMED else ""
        raise OutputExistsError(
            f"{out}: holds what is no part of a run ({named}{others}), and --force removes runs only; move it away, or "
            "choose another place with --out"
        )


def is_page(path: Path) -> bool:
    """Whether a file is a page that Phasepoint has written."""
    with path.open("rb") as file:
        return _PAGE_MARK in file.read(_HEAD_BYTES)


def _foreign(folder: Path, more: Collection[str]) -> Iterator[Path]:
    """What lies in a run's folder and is no part of the run, by name. A link is no part of it: it leads elsewhere."""
    for path in sorted(folder.iterdir()):
        name, is_link = path.name, path.is_symlink()
        if not is_link and path.is_dir():
            if parse_shard_name(name) is not None:
                yield from _foreign_of_shard(path)
            elif name not in {STAGING_FOLDER, EXPORTS_NAME, *more}:
                yield path
        elif is_link or not (_is_of_store(name, MANIFEST_NAME, *more) or (name == REPORT_NAME and is_page(path))):
            yield path


def _foreign_of_shard(shard: Path) -> Iterator[Path]:
    for path in sorted(shard.iterdir()):
        if path.is_symlink() or not path.is_dir():
            if path.is_symlink() or not _is_of_store(path.name, SESSION_NAME, HEARTBEAT_NAME):
                yield path
        elif path.name in TABLES:
            parts = sorted(path.iterdir())
            yield from (
                part for part in parts if part.suffix not in {PART_SUFFIX, TAIL_SUFFIX} and not _is_of_store(part.name)
            )
        elif path.name != RAW_FOLDER:
            yield path


def _is_of_store(name: str, *names: str) -> bool:
    """Whether a file has one of these names, or is one of the store's that is not written to its end."""
    return name in names or name.startswith(TEMPORARY_PREFIX)
