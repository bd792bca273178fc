"""How the original is kept from a replayed program: by the first of `WAYS` that this machine has.

The program may write by any means: Python, C++, a subprocess. So the kernel keeps it from the original's files, or
they are copied before and put back after; what the program does to them by hooks in Python is not relied on.
"""

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from phasepoint.core.errors import ReplayError
from phasepoint.core.units import format_bytes, format_counted
from phasepoint.replay.protection import confine, view
from phasepoint.replay.protection.snapshot import Snapshot, restore, take_snapshot

_MOST_COPIED = 2 << 30
"""Bytes of the program's own folder that are copied where the kernel has no view to offer. A choice: some seconds."""

_TRIAL_S = 60
"""How long making a view may take; measured 0.2 s for forty folders. A choice: a machine may be busy."""


@dataclass(frozen=True)
class Job:
    """What is to be protected from what.

    Attributes:
        command: the program and its arguments.
        folders: the original's folders and files that the program might write to; on this machine, absolute.
        out: the replay's folder, which it writes.
        saves: folder in it for what the program writes into `folders`.
    """

    command: tuple[str, ...]
    folders: tuple[str, ...]
    out: Path
    saves: Path


@dataclass(frozen=True)
class Protection:
    """How a program is kept from the original.

    Attributes:
        command: what to start instead of the program.
        words: what protects the original, for the output.
        finish: called when the program has ended; puts things where they belong, and says what it did.
        protects: whether anything does.
    """

    command: tuple[str, ...]
    words: str
    finish: Callable[[], tuple[str, ...]]
    protects: bool = True


@contextmanager
def protected(job: Job, *, unsafe: bool = False, ways: Sequence[str] | None = None) -> Iterator[Protection]:
    """Protect the original while a program runs.

    Args:
        job: the program, and what is the original's.
        unsafe: run the program as it is where nothing protects the original.
        ways: names of `WAYS` to try; all by default.

    Raises:
        ReplayError: there is no way, and `unsafe` is not given.
    """
    reasons = []
    for name, way in WAYS.items():
        if ways is not None and name not in ways:
            continue
        with way(job) as found:
            if isinstance(found, Protection):
                yield found
                return
            reasons.append(f"{name}: {found}")
    if not unsafe:
        raise ReplayError(
            "the program cannot be kept from the original's files on this machine "
            f"({'; '.join(reasons)}); give --unsafe to run it all the same, with the original's files in its reach"
        )
    yield Protection(job.command, "nothing protects the original's files (--unsafe)", tuple, protects=False)


@contextmanager
def _by_view(job: Job) -> Iterator[Protection | str]:
    reason = "no local disk has room for what the program writes"
    for place in _places(job):
        with _temporary_folder(place) as folder:
            trial = subprocess.run(
                _in_view(folder / "trial", job.out, ("true",)),
                capture_output=True,
                text=True,
                check=False,
                timeout=_TRIAL_S,
            )
            if trial.returncode == 0:
                yield _in_force(job, folder / "view")
                return
            reason = trial.stderr.strip() or f"exit code {trial.returncode}"
    yield reason


def _in_view(place: Path, out: Path, command: Sequence[str]) -> tuple[str, ...]:
    place.mkdir()
    return (sys.executable, "-I", "-S", view.__file__, str(place), str(out), "--", *command)


def _in_force(job: Job, place: Path) -> Protection:
    def finish() -> tuple[str, ...]:
        with suppress(OSError, ValueError):
            made = json.loads((place / view.RECORD_NAME).read_text(encoding="utf-8"))
            return _collect(job, [view.Covered(*row) for row in made["covered"]])
        return ()

    words = "the program saw a copy-on-write view of all disks (overlayfs); the original's files were out of its reach"
    return Protection(_in_view(place, job.out, job.command), words, finish)


def _collect(job: Job, covered: Sequence[view.Covered]) -> tuple[str, ...]:
    """Move what the program has written into the original's folders to `saves`, and say what else it wrote."""
    saved = 0
    for folder in job.folders:
        for one in covered:
            if view.is_within(folder, one.path):
                saved += _move_written(Path(one.upper + folder[len(one.path) :]), job.saves / folder.lstrip("/"))
    left = [path for one in covered for path in _written(Path(one.upper))]
    notes = []
    if saved:
        notes.append(f"{format_counted(saved, 'file')} that it wrote where the original's are went to {job.saves}")
    if left:
        size = format_bytes(sum(path.lstat().st_size for path in left))
        notes.append(f"{format_counted(len(left), 'other file')} that it wrote ({size}) were discarded")
    return tuple(notes)


def _move_written(source: Path, target: Path) -> int:
    """Move the files of a covered folder, or a file, that were written; returns how many."""
    count = 0
    for path in list(_written(source)):
        place = target / path.relative_to(source) if path != source else target
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(path, place)
        count += 1
    return count


def _written(folder: Path) -> Iterator[Path]:
    """Files in the upper layer of an overlay; a device of number 0 stands for what was deleted."""
    if not os.path.lexists(folder):
        return
    if not stat.S_ISDIR(folder.lstat().st_mode):
        if not stat.S_ISCHR(folder.lstat().st_mode):
            yield folder
        return
    for path, _, files in os.walk(folder):
        for name in files:
            file = Path(path) / name
            if not stat.S_ISCHR(file.lstat().st_mode):
                yield file


def _places(job: Job) -> list[Path]:
    """Folders that can take what the program writes, the one first that has least in common with the job's folders."""
    mounts = {mount.path: mount.kind for mount in view.read_mounts()}
    homes = [Path(tempfile.gettempdir()), Path("/var/tmp"), Path("/tmp"), job.out.parent, Path.home()]
    folders = [Path.cwd(), *(Path(folder) for folder in job.folders)]

    def badness(place: Path) -> tuple[bool, int, int]:
        parents = (place, *place.parents)
        in_memory = next((mounts[str(p)] for p in parents if str(p) in mounts), "") == "tmpfs"
        common = max(len(set(parents) & {folder, *folder.parents}) for folder in folders)
        entries = 0
        for parent in parents:
            with suppress(OSError):
                entries += len(os.listdir(parent))
        return in_memory, common, entries

    usable = dict.fromkeys(place.resolve() for place in homes if os.access(place, os.W_OK | os.X_OK))
    return sorted(usable, key=badness)


@contextmanager
def _temporary_folder(place: Path) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="phasepoint-replay-", dir=place))
    try:
        yield folder
    finally:
        _remove(folder)


def _remove(folder: Path) -> None:
    """Remove what an overlay leaves, folders that nobody may look into among it."""
    for path, folders, _ in os.walk(folder):
        for name in folders:
            with suppress(OSError):
                os.chmod(f"{path}/{name}", 0o700, follow_symlinks=False)
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _by_landlock(job: Job) -> Iterator[Protection | str]:
    with _temporary_folder(job.out) as temporary:
        writable = [*(path for path in ("/dev", "/proc") if Path(path).exists()), str(job.out)]
        trial = subprocess.run(
            _confined(temporary, writable, ("true",)), capture_output=True, text=True, check=False, timeout=_TRIAL_S
        )
        if trial.returncode:
            yield trial.stderr.strip() or f"exit code {trial.returncode}"
            return
        with _copied(job) as snapshot:
            folders = [folder for folder in snapshot.folders if Path(folder).exists()]
            words = (
                f"a copy of {', '.join(snapshot.folders)} was kept and put back; the program could write nowhere else "
                "but to temporary files (Landlock)"
            )
            command = _confined(temporary, [*writable, *folders], job.command)
            yield Protection(command, words, lambda: _put_back(job, snapshot))


def _confined(temporary: Path, folders: Sequence[str], command: Sequence[str]) -> tuple[str, ...]:
    confined = (sys.executable, "-I", "-S", confine.__file__, *folders, "--", *command)
    return ("env", f"TMPDIR={temporary}", *confined)


@contextmanager
def _by_copy(job: Job) -> Iterator[Protection | str]:
    with _copied(job) as snapshot:
        words = f"a copy of {', '.join(snapshot.folders)} was kept and put back; nothing else was protected"
        yield Protection(job.command, words, lambda: _put_back(job, snapshot))


@contextmanager
def _copied(job: Job) -> Iterator[Snapshot]:
    """Copies of the original's folders, and of the program's own where that is not large."""
    folders = [os.path.realpath(folder) for folder in job.folders]
    own = os.path.realpath(Path.cwd())
    if _size_bytes(own) <= _MOST_COPIED:
        folders.append(own)
    with _temporary_folder(job.out) as place:
        yield take_snapshot(folders, place, without=str(job.out))


def _size_bytes(folder: str) -> int:
    total = 0
    for path, _, files in os.walk(folder):
        for name in files:
            with suppress(OSError):
                total += os.lstat(f"{path}/{name}").st_size
        if total > _MOST_COPIED:
            break
    return total


def _put_back(job: Job, snapshot: Snapshot) -> tuple[str, ...]:
    changed = restore(snapshot, job.saves)
    if not changed:
        return ()
    return (f"{format_counted(len(changed), 'file')} of the original that it had changed or deleted were put back",)


WAYS: dict[str, Callable[[Job], AbstractContextManager[Protection | str]]] = {
    "view": _by_view,
    "landlock": _by_landlock,
    "copy": _by_copy,
}
"""The ways, the best first: a function of the job to a context that gives the protection, or says why it is not."""
