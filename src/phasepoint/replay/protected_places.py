"""The folders of a run and of its checkpoints, which a replay may not write."""

from collections.abc import Iterable

_MOST_PLACES = 8
"""Folders named one by one; the list travels in an environment variable."""


def protected_places(run: str, checkpoints: Iterable[str]) -> tuple[str, ...]:
    """The run's folder and the folders in which its checkpoints stand, as few as name them all.

    A folder is protected, not a checkpoint alone, because managers of checkpoints delete old ones beside the new. Where
    every step has a folder of its own, the one above stands for them.

    Args:
        run: path of the run.
        checkpoints: their paths.
    """
    folders = {_folder(path) for path in checkpoints}
    while len(folders) > _MOST_PLACES:
        above = {_folder(folder) for folder in folders}
        if len(above) == len(folders) or above & {"", ".", "/"}:
            break
        folders = above
    return tuple(sorted({run, *folders}))


def _folder(path: str) -> str:
    return path.rstrip("/").rpartition("/")[0] or ("/" if path.startswith("/") else ".")
