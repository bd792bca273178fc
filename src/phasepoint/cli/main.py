"""The command line's edge: runs a command and turns whatever goes wrong into a message and an exit code."""

import errno
import gc
import os
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

from phasepoint.core.errors import PhasepointError, StoreError

EXIT_UNEXPECTED = 70
"""A fault of ours; EX_SOFTWARE of sysexits.h."""

EXIT_INTERRUPTED = 130
"""Ctrl-C: 128 + SIGINT, as shells report it."""

EXIT_BROKEN_PIPE = 141
"""The reader of our output went away (`| head`): 128 + SIGPIPE, as shells report it."""

_REFUSED = frozenset(
    {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ENOENT, errno.EMFILE}
)
"""What the system refuses without a fault of ours: permission, a read-only or full disk, a quota, no folder for
temporary files, too many open files."""

DEBUG_VARIABLE = "PHASEPOINT_DEBUG"


_GC_THRESHOLDS = (500_000, 20, 100)
"""What a command makes lives until it ends, and looking through it again and again finds nothing: with Python's own
thresholds that took 5 % of the report of a million steps. A recorded job is a process of its own and keeps its own."""


def main() -> NoReturn:
    """Entry of the `phasepoint` command."""
    gc.set_threshold(*_GC_THRESHOLDS)
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; messages go to stderr.

    Args:
        arguments: the words after `phasepoint`.
    """
    try:
        if arguments[:1] == ["record"]:
            from phasepoint.cli.record.record_run import read_plain, record_command

            words = read_plain(arguments[1:])
            if words is not None:
                return record_command(words)
        from phasepoint.cli.commands import build_group

        code = build_group().main(list(arguments), prog_name="phasepoint", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        return _after_broken_pipe()
    except SystemExit as error:
        # Typer ends a broken pipe so, with a code that says nothing.
        return _after_broken_pipe() if isinstance(error.__context__, BrokenPipeError) else _code_of(error)
    except Exception as error:  # noqa: BLE001 - the one place where everything ends
        return _report(error)


def _code_of(error: SystemExit) -> int:
    """Its exit code as Python has it: 0 for none, 1 for a message."""
    return error.code if isinstance(error.code, int) else int(error.code is not None)


def _report(error: Exception) -> int:
    """Say what went wrong, in one line, and give the exit code."""
    if isinstance(error, PhasepointError):
        return _say(str(error), error.exit_code, error)
    # A wrong command line: Typer's own errors carry their message and code. Their classes have moved between
    # Typer's versions, so they are known by what they can do.
    if hasattr(error, "format_message") and hasattr(error, "exit_code"):
        show_help = type(error).__name__ == "NoArgsIsHelpError"
        if show_help:
            sys.stderr.write(f"{error.format_message()}\n")
            return int(error.exit_code)
        return _say(f"{error.format_message()} See phasepoint --help.", int(error.exit_code), error)
    if type(error).__name__ == "Abort":
        return EXIT_INTERRUPTED
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in _REFUSED):
        code = StoreError.exit_code if isinstance(error, OSError) else PhasepointError.exit_code
        return _say(_refusal(error), code, error)
    kind = type(error).__name__
    hint = f"This is a fault in Phasepoint; set {DEBUG_VARIABLE}=1 to see where, and please report it."
    return _say(f"unexpected {kind}: {error}. {hint}", EXIT_UNEXPECTED, error)


def _refusal(error: OSError | MemoryError) -> str:
    """What the system refused, and what to do; it names no file where the temporary one has no name."""
    if isinstance(error, MemoryError):
        told = f" ({error})" if str(error) else ""
        return (
            f"not enough memory for this input{told}; take a machine or a container with more, or a shorter trace or "
            "recording"
        )
    if isinstance(error, PermissionError):
        return f"no permission: {error.filename}; check its owner and mode"
    reason = (error.strerror or str(error)).rstrip(".")
    if error.filename is not None:
        return f"{error.filename}: {reason}; make room or choose another place"
    return f"{reason} (temporary file); set TMPDIR to a folder that can be written and has room"


def _say(message: str, code: int, error: Exception) -> int:
    from phasepoint.report.words.names import printable

    if os.environ.get(DEBUG_VARIABLE):
        traceback.print_exception(error, file=sys.stderr)
    lines = "\n".join(map(printable, message.splitlines()))
    sys.stderr.write(f"error: {lines}\n")
    return code


def _after_broken_pipe() -> int:
    """Let the interpreter's last flush find somewhere to write, so that nothing is printed at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return EXIT_BROKEN_PIPE
