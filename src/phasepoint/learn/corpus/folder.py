"""A corpus on disk: `corpus.json`, and a folder for each program. Nothing is seen before it is whole.

Several workers may fill one corpus: a program's folder is written beside its place and renamed, and a file that
changes later (more rounds) is replaced by a rename.
"""

import dataclasses
import gzip
import json
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from phasepoint.core.errors import ModelError, SourceError
from phasepoint.core.packing import unpack_gzip
from phasepoint.hlo.module import Module, parse_module_proto

CORPUS_VERSION = 1
"""Of the folder's format."""
HEAD, PROGRAMS = "corpus.json", "programs"
PROGRAM, HLO, KERNELS = "program.json", "program.hlo.pb.gz", "kernels.parquet"
MEASURED, FAILED = "measured", "failed"

KERNEL_ROWS = pa.schema(
    [
        pa.field("kernel", pa.string(), nullable=False),
        pa.field("opcode", pa.string(), nullable=False),
        pa.field("fingerprint", pa.string(), nullable=False),
        pa.field("executions", pa.int64(), nullable=False),
        pa.field("round", pa.int32(), nullable=False),
        pa.field("repeats", pa.int32(), nullable=False),
        pa.field("time_min_ps", pa.int64(), nullable=False),
        pa.field("time_median_ps", pa.int64(), nullable=False),
    ]
)
"""`kernels.parquet`, a row for each kernel and round. A time is that of one execution, averaged within a run of the
program; least and median are over the round's runs (`repeats`). `executions` is what a run had of it."""


Head = TypeVar("Head", "CorpusHead", "ProgramHead")


@dataclass(frozen=True)
class CorpusHead:
    """`corpus.json`.

    Attributes:
        device: name, kind and cores of the one device on which everything was measured.
        featuriser: version of the kernel graphs whose fingerprints the corpus holds.
        versions: of what compiled and ran the programs.
        settings: with which it was collected first.
        created: date and time, ISO 8601.
    """

    device: Mapping[str, Any]
    featuriser: int
    versions: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    created: str = ""


@dataclass(frozen=True)
class ProgramHead:
    """`program.json`.

    Attributes:
        name: the folder's name.
        family: network or pattern that it is of.
        variant: size or other settings.
        mode: forward or train; recorded, where it came out of a recorded run.
        device: name of the device, as in `corpus.json`.
        status: measured or failed.
        reason: why it failed, None where it did not.
        wall_min_ps: least wall time of a run with no profiler on; None where that was not measured.
        wall_median_ps: its median: of the rounds' medians.
        walls_ps: least and median wall time of each round.
        runs: profiled runs in all rounds.
        fingerprint: of the compiled module.
        not_traced: kernels of the program that the trace does not hold.
        unlisted_ps: what the trace holds beside the kernels (loops' own time), least per run, by instruction; with the
            profiler's cost in it.
        span_cost_ps: what was taken off each time, as the profiler's own.
        call_ps: wall time of calling a program that does next to nothing; None where that was not measured.
        notes: what a reader of the times must know.
    """

    name: str
    family: str
    variant: str
    mode: str
    device: str
    status: str = MEASURED
    reason: str | None = None
    wall_min_ps: int | None = None
    wall_median_ps: int | None = None
    walls_ps: tuple[tuple[int, int], ...] = ()
    runs: int = 0
    fingerprint: str = ""
    not_traced: tuple[str, ...] = ()
    unlisted_ps: Mapping[str, int] = field(default_factory=dict)
    span_cost_ps: int = 0
    call_ps: int | None = None
    notes: tuple[str, ...] = ()


def read_head(path: str | Path) -> CorpusHead:
    """Read `corpus.json`.

    Raises:
        ModelError: there is no corpus, it is of another version, or damaged.
    """
    file = Path(path) / HEAD
    if not file.is_file():
        raise ModelError(f"{path} holds no corpus: {HEAD} is missing; a corpus is made by `phasepoint learn collect`")
    fields = _read_json(file)
    version = fields.pop("version", None)
    if version != CORPUS_VERSION:
        raise ModelError(
            f"{file}: version {version!r} of the format, this release reads {CORPUS_VERSION}; collect the corpus anew"
        )
    head = _made(CorpusHead, fields, file)
    if not isinstance(head.device, dict) or not isinstance(head.featuriser, int):
        raise ModelError(f"{file} is damaged: no device or no featuriser version in it; collect the corpus anew")
    return head


def write_head(path: str | Path, head: CorpusHead) -> None:
    """Write `corpus.json`; the folder is made where there is none."""
    folder = Path(path)
    (folder / PROGRAMS).mkdir(parents=True, exist_ok=True)
    _replace_json(folder / HEAD, {"version": CORPUS_VERSION, **asdict(head)})


def program_folders(path: str | Path) -> tuple[Path, ...]:
    """Folders of the programs, sorted by name; what is still being written is left out."""
    root = Path(path) / PROGRAMS
    if not root.is_dir():
        return ()
    return tuple(sorted(one for one in root.iterdir() if one.is_dir() and not one.name.startswith(".")))


def read_program(folder: Path) -> ProgramHead:
    """Read one `program.json`.

    Raises:
        ModelError: it is missing or damaged.
    """
    file = folder / PROGRAM
    head = _made(ProgramHead, _read_json(file), file)
    walls_ps = tuple((int(least), int(middle)) for least, middle in head.walls_ps)
    return replace(head, walls_ps=walls_ps, not_traced=tuple(head.not_traced), notes=tuple(head.notes))


def read_kernel_rows(folder: Path) -> pa.Table:
    """Read one `kernels.parquet` (`KERNEL_ROWS`).

    Raises:
        ModelError: it is missing, damaged, or has other columns.
    """
    file = folder / KERNELS
    try:
        return pq.read_table(file, schema=KERNEL_ROWS, use_threads=False)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise ModelError(f"{file} cannot be read ({_line(error)}); {_again(folder)}") from error


def read_hlo(folder: Path) -> Module:
    """Read one program after optimisation.

    Raises:
        ModelError: it is missing or damaged.
    """
    file = folder / HLO
    try:
        proto, problem = unpack_gzip(file.read_bytes(), str(file))
        if problem is not None:
            raise SourceError(problem)
        return parse_module_proto(proto)
    except (OSError, SourceError, ValueError) as error:
        raise ModelError(f"{file} cannot be read ({_line(error)}); {_again(folder)}") from error


def write_program(path: str | Path, head: ProgramHead, *, hlo: bytes | None, rows: pa.Table) -> None:
    """Write a program's folder beside its place and rename it; one that was there is replaced.

    Args:
        path: the corpus.
        head: what goes into `program.json`.
        hlo: serialised HloModuleProto after optimisation; None where compiling failed.
        rows: of `KERNEL_ROWS`.
    """
    root = Path(path) / PROGRAMS
    aside, old = (root / f".{head.name}.{secrets.token_hex(4)}" for _ in range(2))
    aside.mkdir(parents=True)
    try:
        if hlo is not None:
            (aside / HLO).write_bytes(gzip.compress(hlo, 6, mtime=0))
        pq.write_table(rows.cast(KERNEL_ROWS), aside / KERNELS, compression="zstd")
        _replace_json(aside / PROGRAM, asdict(head))
        if (root / head.name).exists():
            (root / head.name).rename(old)
        aside.rename(root / head.name)
    finally:
        for left in (aside, old):
            shutil.rmtree(left, ignore_errors=True)


def replace_rounds(path: str | Path, head: ProgramHead, rows: pa.Table) -> None:
    """More rounds of a program that is there: its rows, then its `program.json`."""
    folder = Path(path) / PROGRAMS / head.name
    temporary = folder / f".{KERNELS}.{secrets.token_hex(4)}"
    pq.write_table(rows.cast(KERNEL_ROWS), temporary, compression="zstd")
    temporary.replace(folder / KERNELS)
    _replace_json(folder / PROGRAM, asdict(head))


def _read_json(file: Path) -> dict[str, Any]:
    try:
        fields = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{file} cannot be read ({_line(error)}); {_again(file.parent)}") from error
    if not isinstance(fields, dict):
        raise ModelError(f"{file} holds no JSON object; {_again(file.parent)}")
    return fields


def _made(kind: type[Head], fields: Mapping[str, Any], file: Path) -> Head:
    known = {one.name: fields[one.name] for one in dataclasses.fields(kind) if one.name in fields}
    try:
        return kind(**known)
    except TypeError as error:
        raise ModelError(f"{file} is damaged ({_line(error)}); {_again(file.parent)}") from error


def _again(folder: Path) -> str:
    if folder.parent.name == PROGRAMS:
        return f"delete {folder} and collect again, which measures what is missing"
    return "collect the corpus anew"


def _line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _replace_json(file: Path, fields: Mapping[str, Any]) -> None:
    temporary = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    temporary.write_text(json.dumps(fields, indent=2) + "\n", encoding="utf-8")
    temporary.replace(file)
