"""Which of many checkpoints their folders still list: a few listings in the place of a look at each."""

import os
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress

MOST_FOLDERS = 8
_MOST_LEVELS = 3


def find_gone(paths: Iterable[str]) -> frozenset[str]:
    """Of many paths those that are gone: their folder lists others of them, and not these.

    A folder that cannot be listed, or that holds none of them, tells nothing: it may be one on another machine.
    """
    gone: set[str] = set()
    for folder, below in _by_folder([path for path in paths if "://" not in path]).items():
        listed: set[str] = set()
        with suppress(OSError), os.scandir(folder) as entries:
            listed = {entry.name for entry in entries}
        if listed.intersection(below):
            gone.update(path for name, held in below.items() if name not in listed for path in held)
    return frozenset(gone)


def _by_folder(paths: list[str]) -> dict[str, dict[str, list[str]]]:
    """Paths by folder and by name in it: the folder in which they stand, or, where those are many, one above them."""
    for level in range(1, _MOST_LEVELS + 1):
        found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
        for path in paths:
            parts = path.rstrip("/").split("/")
            if len(parts) > level:
                found["/".join(parts[:-level]) or "/"][parts[-level]].append(path)
        if len(found) <= MOST_FOLDERS:
            return found
    return {}
