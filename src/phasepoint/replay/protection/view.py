"""Run a command in a copy-on-write view of all disks: `python view.py PLACE REAL… -- COMMAND…`.

Its own file: it is started by path, without the package, before the command takes over its process.

The process gets a mount namespace of its own (in a user namespace where it is not root's), and every folder below the
root is covered by an overlay (overlayfs of the Linux kernel): what the command and its children read is the disk as it
is, what they write, delete, rename or truncate, by whatever means, is kept below PLACE. Only folders given as REAL are
the disk's own. Devices, `/proc`, `/sys`, `/run` and shared memory are left alone.

PLACE cannot lie in what it covers. So the folders above it are not covered themselves, but all that is in them; files
that stand there by themselves are covered by copies, large ones made read-only. In a user namespace the same holds for
folders in which another disk is mounted: the kernel does not part them. `PLACE/view.json` says what was done.

Source: Documentation/filesystems/overlayfs.rst of the Linux kernel; mount(2), user_namespaces(7), mount_namespaces(7).
"""

import ctypes
import json
import os
import shutil
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

FAILED = 125
"""Exit code where the view could not be made: the command was not started. As that of env(1) and docker-run(1)."""

RECORD_NAME = "view.json"

USER_OPTIONS = "userxattr"
"""Of an overlay in a user namespace."""

_CLONE_NEWNS, _CLONE_NEWUSER = 0x00020000, 0x10000000
_MS_RDONLY, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = 1, 32, 4096, 16384, 1 << 18
"""Of linux/sched.h and linux/mount.h."""

_LEFT_ALONE = ("/proc", "/sys", "/dev", "/run")
_VIRTUAL = frozenset(
    [
        "proc",
        "sysfs",
        "devtmpfs",
        "devpts",
        "cgroup",
        "cgroup2",
        "mqueue",
        "debugfs",
        "tracefs",
        "securityfs",
        "bpf",
        "fusectl",
        "hugetlbfs",
        "configfs",
        "pstore",
        "autofs",
        "binfmt_misc",
        "nsfs",
        "efivarfs",
        "rpc_pipefs",
        "selinuxfs",
        "ramfs",
    ]
)
"""File systems that hold no files of anybody's."""

_MOST_COPIED = 64 << 20
"""Bytes of a file above PLACE that is copied; a larger one is made read-only. A choice: a tenth of a second."""


class Mount(NamedTuple):
    """A line of `/proc/self/mountinfo`."""

    path: str
    kind: str
    options: str


class Covered(NamedTuple):
    """A folder that is covered: what is written to it lies in `upper`."""

    path: str
    upper: str


def main(words: Sequence[str]) -> None:
    """Make the view and become the command."""
    place, *real = words[: words.index("--")]
    command = list(words[words.index("--") + 1 :])
    try:
        make_view(place, real)
    except OSError as error:
        sys.stderr.write(f"{error.filename or place}: {error.strerror or error}\n")
        sys.exit(FAILED)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror or error}\n")
        sys.exit(127 if isinstance(error, FileNotFoundError) else 126)


def make_view(place: str, real: Sequence[str]) -> None:
    """Cover all disks for this process and its children.

    Args:
        place: an empty folder of a local disk, absolute and without links.
        real: folders that stay as they are, likewise.

    Raises:
        OSError: the kernel does not allow it.
    """
    folder = os.getcwd()
    options = _new_namespace()
    _mount(None, "/", None, _MS_REC | _MS_PRIVATE)
    view = _CoveredDisks(place, options)
    mounts = {mount.path: mount for mount in read_mounts()}
    opened = {path: _open(path) for path in (*mounts, *real) if not _is_left_alone(path)}
    view.cover_children("/", mounts)
    for path in sorted(mounts, key=lambda path: path.count("/")):
        if path != "/" and path in opened:
            _cover_mount(view, mounts[path], opened[path], mounts)
    for path in real:
        _mount(f"/proc/self/fd/{opened[path]}", path, None, _MS_BIND | _MS_REC)
    for descriptor in opened.values():
        os.close(descriptor)
    with open(f"{place}/{RECORD_NAME}", "w", encoding="utf-8") as file:
        json.dump({"covered": view.covered, "read_only": view.read_only, "options": options}, file)
    os.chdir(folder)


def _cover_mount(view: "_CoveredDisks", mount: Mount, descriptor: int, mounts: dict[str, Mount]) -> None:
    """A disk that is mounted somewhere; where its folder lies in a covered one it is put back first."""
    is_disk = mount.kind not in _VIRTUAL and "ro" not in mount.options.split(",")
    if is_within(view.place, mount.path) or (is_disk and view.is_locked(mount.path, mounts)):
        view.cover_children(mount.path, mounts)
    elif is_disk:
        view.cover(mount.path, descriptor)
    elif view.covers(mount.path):
        _mount(f"/proc/self/fd/{descriptor}", mount.path, None, _MS_BIND)


class _CoveredDisks:
    """What is covered so far."""

    def __init__(self, place: str, options: str) -> None:
        self.place = place
        self.covered: list[Covered] = []
        self.read_only: list[str] = []
        self._options = options
        self._count = 0

    def covers(self, path: str) -> bool:
        return any(is_within(path, covered.path) for covered in self.covered)

    def is_locked(self, path: str, mounts: dict[str, Mount]) -> bool:
        """Whether a folder cannot be covered as one: in a user namespace, where something is mounted inside of it."""
        inside = (other for other in mounts if other != path and is_within(other, path))
        return self._options == USER_OPTIONS and any(inside)

    def cover_children(self, folder: str, mounts: dict[str, Mount]) -> None:
        """Cover all that is in a folder above `place`."""
        for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
            path = entry.path
            if path == self.place or entry.is_symlink() or path in mounts or _is_left_alone(path):
                continue
            if is_within(self.place, path) or (entry.is_dir() and self.is_locked(path, mounts)):
                self.cover_children(path, mounts)
            elif entry.is_dir():
                descriptor = _open(path)
                self.cover(path, descriptor)
                os.close(descriptor)
            elif entry.is_file():
                self._cover_file(path)

    def cover(self, path: str, descriptor: int) -> None:
        """Cover a folder; where the kernel cannot (a file system without what overlays need), make it read-only."""
        upper, work = self._new_folder("upper"), self._new_folder("work")
        _copy_attributes(os.fstat(descriptor), upper)
        layers = f"lowerdir=/proc/self/fd/{descriptor},upperdir={upper},workdir={work}"
        try:
            _mount("overlay", path, "overlay", 0, f"{layers},{self._options}")
        except OSError:
            if not self.covered:
                raise
            self._make_read_only(path, descriptor)
        else:
            self.covered.append(Covered(path, upper))

    def _cover_file(self, path: str) -> None:
        found = os.stat(path)
        if not os.access(path, os.R_OK) or found.st_size > _MOST_COPIED:
            self._make_read_only(path, None)
            return
        copy = f"{self._new_folder('file')}/copy"
        shutil.copy2(path, copy)
        _mount(copy, path, None, _MS_BIND)

    def _make_read_only(self, path: str, descriptor: int | None) -> None:
        _mount(path if descriptor is None else f"/proc/self/fd/{descriptor}", path, None, _MS_BIND)
        # What the mount forbids already must be forbidden again, or the kernel refuses.
        locked = os.statvfs(path).f_flag & (os.ST_NOSUID | os.ST_NODEV | os.ST_NOEXEC | os.ST_NOATIME | os.ST_RELATIME)
        _mount(None, path, None, _MS_REMOUNT | _MS_BIND | _MS_RDONLY | locked)
        self.read_only.append(path)

    def _new_folder(self, kind: str) -> str:
        self._count += 1
        path = f"{self.place}/{self._count}-{kind}"
        os.mkdir(path, 0o700)
        return path


def read_mounts() -> list[Mount]:
    """What is mounted, of several at one path the last."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        return list(_parse_mounts(file))


def _parse_mounts(lines: Iterator[str]) -> Iterator[Mount]:
    for line in lines:
        fields, _, rest = line.rstrip("\n").partition(" - ")
        words = fields.split(" ")
        path = words[4].encode("utf-8", "surrogateescape").decode("unicode_escape").encode("latin-1")
        yield Mount(os.fsdecode(path), rest.split(" ")[0], words[5])


def is_within(path: str, folder: str) -> bool:
    """Whether a path is a folder, or lies in it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _is_left_alone(path: str) -> bool:
    return any(is_within(path, folder) for folder in _LEFT_ALONE)


def _new_namespace() -> str:
    """Give this process a mount namespace of its own; returns the options of its overlays."""
    uid, gid = os.geteuid(), os.getegid()
    if uid == 0:
        try:
            _call("unshare", _CLONE_NEWNS)
            return "redirect_dir=on"
        except OSError:
            pass  # root of a container, without the right to mount
    _call("unshare", _CLONE_NEWUSER | _CLONE_NEWNS)
    for name, text in (("uid_map", f"{uid} {uid} 1"), ("setgroups", "deny"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)
    return USER_OPTIONS


def _copy_attributes(found: os.stat_result, path: str) -> None:
    """The covered folder looks as it did."""
    if os.geteuid() == 0:
        with suppress(OSError):  # an owner whom the namespace does not know
            os.chown(path, found.st_uid, found.st_gid)
    os.chmod(path, stat.S_IMODE(found.st_mode))
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))


def _open(path: str) -> int:
    return os.open(path, os.O_PATH | os.O_CLOEXEC)


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    words = [None if word is None else os.fsencode(word) for word in (source, target, kind)]
    _call("mount", *words, flags, None if data is None else os.fsencode(data), path=target)


def _call(name: str, *arguments: object, path: str | None = None) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    function = getattr(libc, name)
    function.argtypes = [ctypes.c_ulong if isinstance(one, int) else ctypes.c_char_p for one in arguments]
    if function(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)


if __name__ == "__main__":
    main(sys.argv[1:])
