"""Run a command that may change files in some folders only: `python confine.py FOLDER… -- COMMAND…`.

Its own file: it is started by path, without the package, before the command takes over its process.

Source: Documentation/userspace-api/landlock.rst of the Linux kernel; landlock(7).
"""

import ctypes
import os
import sys
from collections.abc import Sequence

FAILED = 125
"""Exit code where the command could not be confined, and was not started. As that of env(1) and docker-run(1)."""

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
"""System calls, the same on every machine (asm-generic/unistd.h)."""

_ABI_FLAG, _PATH_BENEATH, _NO_NEW_PRIVS = 1, 1, 38
"""Of linux/landlock.h and linux/prctl.h."""

_WRITE, _MAKE_AND_REMOVE, _REFER, _TRUNCATE = 1 << 1, 0b1_1111_1111 << 4, 1 << 13, 1 << 14
"""Rights of linux/landlock.h: to write to a file; to remove and to make what folders hold (bits 4 to 12); to link and
rename from folder to folder (version 2); to truncate (version 3)."""

_LEAST_VERSION = 3
"""The first with all of these."""


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def main(words: Sequence[str]) -> None:
    """Confine this process and become the command."""
    folders, command = words[: words.index("--")], list(words[words.index("--") + 1 :])
    try:
        confine(folders)
    except OSError as error:
        sys.stderr.write(f"cannot be confined: {error.strerror or error}\n")
        sys.exit(FAILED)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror or error}\n")
        sys.exit(127 if isinstance(error, FileNotFoundError) else 126)


def confine(folders: Sequence[str]) -> None:
    """From now on this process and its children change files in these folders only.

    Raises:
        OSError: the kernel has no Landlock, or not the rights to truncate and to rename (before Linux 6.2).
    """
    version = _call(_CREATE_RULESET, None, 0, _ABI_FLAG)
    if version < _LEAST_VERSION:
        raise OSError(f"Landlock's version is {version}; {_LEAST_VERSION} is needed, which is Linux 6.2")
    rights = _WRITE | _MAKE_AND_REMOVE | _REFER | _TRUNCATE
    attributes = ctypes.c_uint64(rights)
    ruleset = _call(_CREATE_RULESET, ctypes.byref(attributes), ctypes.sizeof(attributes), 0)
    for folder in folders:
        descriptor = os.open(folder, os.O_PATH | os.O_CLOEXEC)
        # A file (a device) takes the rights of files alone.
        allowed = rights if os.path.isdir(folder) else _WRITE | _TRUNCATE
        rule = _PathBeneath(allowed, descriptor)
        _call(_ADD_RULE, ruleset, _PATH_BENEATH, ctypes.byref(rule), 0)
        os.close(descriptor)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    _call(_RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def _call(number: int, *arguments: object) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    result = int(libc.syscall(ctypes.c_long(number), *arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


if __name__ == "__main__":
    main(sys.argv[1:])
