"""run.json: what a run is, written once by whoever starts it."""

import platform
import socket
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from os import PathLike
from pathlib import Path

import msgspec

from phasepoint.core.errors import FormatVersionError, NotARunError, StoreError
from phasepoint.store.filesystem import Location, create_file, file_exists, list_directory, open_location, read_file

FORMAT_VERSION = "1.2"
"""Major: a reader of another major cannot read it. Minor: columns and fields were added."""

_MOST_DIGITS = 20
"""A choice: what is longer is no version, and far longer no number that Python reads."""

MANIFEST_NAME = "run.json"


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The manifest of a run.

    Attributes:
        format_version: MAJOR.MINOR of the layout.
        tool, tool_version: what wrote it.
        created_unix_ns: when the run was created, Unix nanoseconds.
        command: command line of the job, empty where unknown.
        python: version of the job's Python.
        frameworks: framework to version: `{"jax": "0.10.2"}`.
        devices: devices of the process that created the run.
        created_on: name of the machine that created the run; `Run.hostnames` lists all that took part.
        git_commit: commit of the job's own code, None where unknown.
    """

    format_version: str
    tool: str
    tool_version: str
    created_unix_ns: int
    command: tuple[str, ...] = ()
    python: str | None = None
    frameworks: dict[str, str] = {}
    devices: tuple[str, ...] = ()
    created_on: str | None = None
    git_commit: str | None = None


class _Version(msgspec.Struct):
    format_version: str
    tool_version: str = ""


def create_run(
    path: str | PathLike[str],
    *,
    command: Sequence[str] = (),
    frameworks: Mapping[str, str] | None = None,
    devices: Sequence[str] = (),
    git_commit: str | None = None,
    created_unix_ns: int | None = None,
) -> str:
    """Make a run at this path or URL unless there is one, and return the path by which it opens.

    Safe to be called by every process of a job at once: the first one's manifest stays.

    Raises:
        FormatVersionError: a run of another major version is there.
        StoreError: the manifest cannot be written, or the one that is there cannot be read.
    """
    location = open_location(path)
    manifest = Manifest(
        format_version=FORMAT_VERSION,
        tool="phasepoint",
        tool_version=_tool_version(),
        created_unix_ns=time.time_ns() if created_unix_ns is None else created_unix_ns,
        command=tuple(command),
        python=platform.python_version(),
        frameworks=dict(frameworks or {}),
        devices=tuple(devices),
        created_on=socket.gethostname(),
        git_commit=git_commit,
    )
    data = msgspec.json.format(msgspec.json.encode(manifest), indent=2)
    if not create_file(location, MANIFEST_NAME, data):
        read_manifest(location)
    return location.url


def read_manifest(location: Location) -> Manifest:
    """The manifest of the run at this place.

    Raises:
        NotARunError: there is no run; the message says what is there instead.
        FormatVersionError: the run was written by another major version.
        StoreError: the manifest cannot be read or is broken.
    """
    name = location.show(MANIFEST_NAME)
    try:
        data = read_file(location, MANIFEST_NAME)
    except FileNotFoundError:
        raise NotARunError(_describe_no_run(location)) from None
    except StoreError:
        if file_exists(location, MANIFEST_NAME):
            raise
        raise NotARunError(_describe_no_run(location)) from None
    try:
        head = msgspec.json.decode(data, type=_Version)
        _check_version(name, head.format_version, head.tool_version)
        return msgspec.json.decode(data, type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise StoreError(
            f"{name}: broken manifest: {error}; expected a JSON object as `phasepoint record` writes it. "
            "Restore it from a copy; the tables beside it are untouched"
        ) from error


def _check_version(name: str, found: str, wrote: str) -> None:
    supported_major = int(FORMAT_VERSION.partition(".")[0])
    major, _, minor = found.partition(".")
    if not (major.isdecimal() and minor.isdecimal() and len(found) <= _MOST_DIGITS):
        shown = found[:_MOST_DIGITS]
        raise StoreError(f"{name}: format_version is {shown!r}; expected MAJOR.MINOR, such as {FORMAT_VERSION!r}")
    if int(major) == supported_major:
        return
    reads = f"{name}: the run has format version {found}; this Phasepoint reads {supported_major}.x"
    reads += f" (it writes {FORMAT_VERSION})"
    if int(major) > supported_major:
        raise FormatVersionError(f"{reads}. The run is newer: upgrade Phasepoint (pip install --upgrade phasepoint)")
    raise FormatVersionError(
        f"{reads}. The run is older, and there is nothing that converts it: read it with the Phasepoint that wrote it"
        f"{f' ({wrote})' if wrote else ''}, or record the job again"
    )


def _describe_no_run(location: Location) -> str:
    """What stands where a run was expected, and what to do."""
    where = location.show()
    if not file_exists(location):
        return f"{where}: no such directory; record a run into it with `phasepoint record --out {where} -- COMMAND`"
    entries = list_directory(location) if not _is_file(location) else None
    if entries is None:
        return f"{where}: this is a file; expected the directory of a run (one that holds {MANIFEST_NAME})"
    if not entries:
        return f"{where}: the directory is empty; expected a run (a directory that holds {MANIFEST_NAME})"
    if any(e.name == "session.json" for e in entries):
        return f"{where}: this is one shard of a run; give the directory above it"
    for entry in entries[:100]:
        if entry.is_dir and file_exists(location, f"{entry.name}/{MANIFEST_NAME}"):
            return f"{where}: no run here, but there is one below it: {location.show(entry.name)}"
    names = ", ".join(e.name for e in entries[:5]) + (", …" if len(entries) > 5 else "")
    return f"{where}: no run here: {MANIFEST_NAME} is missing; found {names}"


def _is_file(location: Location) -> bool:
    above, _, name = location.root.rpartition("/")
    if location.filesystem is None:
        return Path(location.root).is_file()
    parent = Location(above, above, location.filesystem)
    return any(e.name == name and not e.is_dir for e in list_directory(parent))


def _tool_version() -> str:
    """Phasepoint's own version; unknown where it runs without being installed."""
    try:
        return version("phasepoint")
    except PackageNotFoundError:
        return "unknown"
