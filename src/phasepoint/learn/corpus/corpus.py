"""A corpus: programs of one device with the measured times of their kernels, each kernel once.

Kernels are one where they compute the same and their operands lie alike (`locality.place_of`): from a cache the same
work takes half of the time that it takes from memory. The label of a kernel is the least time over all rounds and all
programs that hold it. What two halves of the rounds differ by is the noise of the labels, printed with every error:
nothing can be predicted better than that.

Which programs train, which calibrate the interval, and which test.

A kernel may occur in several programs. What a model was trained on tests nothing: a kernel that any program of an
earlier part holds is left out of the later parts.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from phasepoint.core.arrays import Floats, Int32s, Int64s
from phasepoint.core.errors import ModelError
from phasepoint.core.statistics import median_ps
from phasepoint.learn.corpus.folder import (
    MEASURED,
    ProgramHead,
    program_folders,
    read_head,
    read_hlo,
    read_kernel_rows,
    read_program,
)
from phasepoint.learn.hlo_graph.graphs import FEATURISER_VERSION, KernelGraph, graph_of_kernel
from phasepoint.learn.hlo_graph.kernels import Kernel, kernels_of_module
from phasepoint.learn.hlo_graph.locality import place_of
from phasepoint.learn.hlo_graph.placement import is_tiled
from phasepoint.learn.models.model_file import Progress

_Key = tuple[str, Hashable]
"""Fingerprint and place: what makes two kernels one."""

LONG_PS = 5_000_000
"""5 µs: below, the profiler's own 0.2 µs a span is a share of what is measured."""


@dataclass(frozen=True)
class CorpusKernels:
    """Kernels of a corpus, one a fingerprint and place.

    Attributes:
        graphs: `[n]`.
        time_min_ps: `[n]` label: least time of one execution over rounds and programs.
        time_median_ps: `[n]` median of the rounds' medians.
        noise_ratio: `[n]` difference between the least times of two halves of the rounds, over the smaller; NaN where
            there was one round.
        programs: `[n]` rows of the programs that hold it.
    """

    graphs: tuple[KernelGraph, ...]
    time_min_ps: Int64s
    time_median_ps: Int64s
    noise_ratio: Floats
    programs: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class CorpusProgram:
    """One measured program.

    Attributes:
        name: its folder's name.
        family: network or pattern that it is of.
        variant: size or other settings.
        mode: forward or train; recorded, where it came out of a recorded run.
        wall_min_ps: least wall time of a run with no profiler on; None where that was not measured.
        wall_median_ps: its median.
        kernels: `[k]` rows of `CorpusKernels`.
        executions: `[k]` how often a run executes it.
        measured_ps: `[k]` least time of one execution in this program.
        call_ps: wall time of calling a program that does next to nothing, on the same device; None where not measured.
    """

    name: str
    family: str
    variant: str
    mode: str
    wall_min_ps: int | None
    wall_median_ps: int | None
    kernels: Int32s
    executions: Int64s
    measured_ps: Int64s
    call_ps: int | None = None


@dataclass(frozen=True)
class Corpus:
    """A corpus in memory.

    Attributes:
        path: its folder.
        device: name, kind and cores.
        programs: those that were measured, sorted by name.
        kernels: their kernels.
        noise_floor_ratio: mean of the kernels' noise; NaN where there was one round.
        noise_floor_long_ratio: the same of kernels of at least 5 µs alone.
        notes: what a reader must know: programs that failed, times that hold waits.
        versions: of what compiled and ran the programs.
    """

    path: Path
    device: Mapping[str, Any]
    programs: tuple[CorpusProgram, ...]
    kernels: CorpusKernels
    noise_floor_ratio: float
    notes: tuple[str, ...]
    noise_floor_long_ratio: float = float("nan")
    versions: Mapping[str, str] | None = None


@dataclass(frozen=True)
class _KernelRows:
    """`kernels.parquet` of all programs, as columns: one row a kernel of a program and round.

    Attributes:
        program: `[m]` row of the program.
        name: `[m]` the instruction's name.
        kernel: `[m]` row of the kernel.
        executions: `[m]`.
        round: `[m]`.
        time_min_ps: `[m]`.
        time_median_ps: `[m]`.
        graphs: of the kernels, in order of first appearance.
    """

    program: Int32s
    name: npt.NDArray[np.object_]
    kernel: Int32s
    executions: Int64s
    round: Int32s
    time_min_ps: Int64s
    time_median_ps: Int64s
    graphs: tuple[KernelGraph, ...]


def read_corpus(path: str | Path, *, progress: Progress | None = None) -> Corpus:
    """Read a corpus, its kernels de-duplicated by fingerprint and place.

    Args:
        path: its folder.
        progress: told of programs read and of all.

    Raises:
        ModelError: there is no corpus, it is of another version or featuriser, damaged, empty, or of mixed devices.
    """
    head = read_head(path)
    if head.featuriser != FEATURISER_VERSION:
        raise ModelError(
            f"{path}: kernels of featuriser version {head.featuriser}, this release has {FEATURISER_VERSION}; "
            "collect the corpus anew"
        )
    folders, heads, failed = _measured(Path(path), str(head.device.get("name")))
    rows = _read_rows(folders, progress)
    if not len(rows.program):
        raise ModelError(f"{path} holds no measured kernel ({failed} programs failed); collect programs into it first")
    kernels = _kernels(rows)
    programs = tuple(_program(one, i, rows) for i, one in enumerate(heads))
    is_long = kernels.time_min_ps >= LONG_PS
    notes = dict.fromkeys(note for one in heads for note in one.notes)
    if failed:
        notes[f"{failed} programs failed and are left out; their program.json says why"] = None
    return Corpus(
        Path(path),
        head.device,
        programs,
        kernels,
        _mean(kernels.noise_ratio),
        tuple(notes),
        _mean(kernels.noise_ratio[is_long]),
        head.versions,
    )


def _measured(path: Path, device: str) -> tuple[list[Path], list[ProgramHead], int]:
    """Folders and heads of the programs that were measured, and how many failed."""
    folders, heads, failed = [], [], 0
    for folder in program_folders(path):
        head = read_program(folder)
        if head.device != device:
            raise ModelError(
                f"{folder}: measured on {head.device!r}, the corpus on {device!r}; "
                "a corpus holds one device: collect each device into a folder of its own"
            )
        if head.status != MEASURED:
            failed += 1
            continue
        folders.append(folder)
        heads.append(head)
    return folders, heads, failed


def _read_rows(folders: Sequence[Path], progress: Progress | None) -> _KernelRows:
    tables = [read_kernel_rows(folder) for folder in folders]
    numbers: dict[_Key, int] = {}
    graphs: list[KernelGraph] = []
    codes = []
    for done, (folder, table) in enumerate(zip(folders, tables, strict=True), start=1):
        codes.append(_number(folder, table, numbers, graphs))
        if progress is not None:
            progress(done, len(folders))

    def joined(column: str, dtype: type) -> npt.NDArray[Any]:
        parts = [table.column(column).to_numpy() for table in tables]
        return np.concatenate([np.empty(0, dtype), *parts]).astype(dtype)

    return _KernelRows(
        program=np.repeat(np.arange(len(tables), dtype=np.int32), [table.num_rows for table in tables]),
        name=joined("kernel", object),
        kernel=np.concatenate([np.empty(0, np.int32), *codes]),
        executions=joined("executions", np.int64),
        round=joined("round", np.int32),
        time_min_ps=joined("time_min_ps", np.int64),
        time_median_ps=joined("time_median_ps", np.int64),
        graphs=tuple(graphs),
    )


def _number(folder: Path, table: pa.Table, numbers: dict[_Key, int], graphs: list[KernelGraph]) -> Int32s:
    """The kernel of each row of a program; those not met before are added to `numbers` and `graphs`."""
    by_name = {kernel.name: kernel for kernel in kernels_of_module(read_hlo(folder)).kernels}
    codes = []
    pairs = zip(table.column("kernel").to_pylist(), table.column("fingerprint").to_pylist(), strict=True)
    for name, fingerprint in pairs:
        kernel = by_name.get(name)
        if kernel is None or kernel.fingerprint != fingerprint:
            raise ModelError(
                f"{folder}: its program has no kernel {name!r} of fingerprint {fingerprint}; "
                "the folder is damaged, or of another release: delete it and collect again"
            )
        key = (fingerprint, _place(kernel))
        if key not in numbers:
            numbers[key] = len(graphs)
            graphs.append(graph_of_kernel(kernel))
        codes.append(numbers[key])
    return np.array(codes, np.int32)


def _place(kernel: Kernel) -> Hashable:
    """Where its operands lie: on a TPU in which memory, elsewhere how far away in a cache."""
    if is_tiled(kernel.instruction):
        return tuple([operand.shape.text for operand in kernel.instruction.operands])
    return place_of(kernel.locality)


def _kernels(rows: _KernelRows) -> CorpusKernels:
    n = len(rows.graphs)
    groups = _groups(rows.kernel, n)
    return CorpusKernels(
        rows.graphs,
        _least(rows.kernel, rows.time_min_ps, n),
        np.array([median_ps(rows.time_median_ps[of]) for of in groups], np.int64),
        _noise(rows, n),
        tuple(tuple(np.unique(rows.program[of]).tolist()) for of in groups),
    )


def _groups(code: Int32s, n: int) -> list[Int64s]:
    """Rows of each of n codes."""
    order = np.argsort(code, kind="stable")
    return np.split(order, np.searchsorted(code[order], np.arange(1, n)))


def _least(code: Int32s, values: Int64s, n: int) -> Int64s:
    """`[n]` least value of each code; the largest number where it has none."""
    least = np.full(n, np.iinfo(np.int64).max)
    np.minimum.at(least, code, values)
    return least


def _noise(rows: _KernelRows, n: int) -> Floats:
    """`[n]` |a - b| / min(a, b) between the least times of even and of odd rounds, each program's rounds in order."""
    odd = rows.round % 2 == 1
    a = _least(rows.kernel[~odd], rows.time_min_ps[~odd], n).astype(np.float64)
    b = _least(rows.kernel[odd], rows.time_min_ps[odd], n).astype(np.float64)
    seen = np.zeros((2, n), np.bool_)
    seen[odd.astype(np.int64), rows.kernel] = True
    noise = np.full(n, np.nan)
    both = seen.all(axis=0)
    noise[both] = np.abs(a[both] - b[both]) / np.maximum(np.minimum(a[both], b[both]), 1)
    return noise


def _mean(noise: Floats) -> float:
    known = noise[~np.isnan(noise)]
    return float(known.mean()) if len(known) else float("nan")


def _program(head: ProgramHead, row: int, rows: _KernelRows) -> CorpusProgram:
    low, high = np.searchsorted(rows.program, [row, row + 1])
    names, first, code = np.unique(rows.name[low:high].astype(str), return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    measured_ps = _least(code.astype(np.int32), rows.time_min_ps[low:high], len(names))
    at = low + first[order]
    return CorpusProgram(
        head.name,
        head.family,
        head.variant,
        head.mode,
        head.wall_min_ps,
        head.wall_median_ps,
        rows.kernel[at],
        rows.executions[at],
        measured_ps[order],
        head.call_ps,
    )


TEST_SHARE, CALIBRATE_SHARE = 0.2, 0.1


@dataclass(frozen=True)
class Split:
    """Rows of a corpus's programs in three parts, each sorted.

    Attributes:
        train: programs whose kernels the model learns.
        calibrate: programs whose kernels set the interval.
        test: programs whose kernels test it.
    """

    train: tuple[int, ...]
    calibrate: tuple[int, ...]
    test: tuple[int, ...]


def random_split(corpus: Corpus, *, seed: int = 0) -> Split:
    """70, 10 and 20 % of the programs, at random.

    Raises:
        ModelError: there are too few programs for three parts.
    """
    n = len(corpus.programs)
    order = np.random.default_rng(seed).permutation(n)
    n_test, n_calibrate = max(round(TEST_SHARE * n), 1), max(round(CALIBRATE_SHARE * n), 1)
    test, calibrate, train = np.split(order, [n_test, n_test + n_calibrate])
    return _split(corpus, train, calibrate, test)


def manual_split(corpus: Corpus, *, seed: int = 0) -> Split:
    """Whole families that are unlike the others test; of the other programs 10 % of all calibrate.

    Raises:
        ModelError: the corpus has no program of those families, or too few others.
    """
    from phasepoint.zoo import MANUAL_TEST_FAMILIES

    held = np.array([program.family in MANUAL_TEST_FAMILIES for program in corpus.programs], np.bool_)
    rest = np.random.default_rng(seed).permutation(np.flatnonzero(~held))
    n_calibrate = max(round(CALIBRATE_SHARE * len(corpus.programs)), 1)
    return _split(corpus, rest[n_calibrate:], rest[:n_calibrate], np.flatnonzero(held))


def kernels_of_split(corpus: Corpus, split: Split) -> tuple[Int64s, Int64s, Int64s]:
    """Rows of the kernels of the three parts, sorted; a kernel belongs to the first part that holds its fingerprint."""
    part_of = np.full(len(corpus.programs), 3, np.int64)
    for part, programs in enumerate((split.train, split.calibrate, split.test)):
        part_of[list(programs)] = part
    first: dict[str, int] = {}
    for graph, of in zip(corpus.kernels.graphs, corpus.kernels.programs, strict=True):
        first[graph.fingerprint] = min(first.get(graph.fingerprint, 3), *part_of[list(of)].tolist())
    of_kernel = np.array([first[graph.fingerprint] for graph in corpus.kernels.graphs], np.int64)
    train, calibrate, test = (np.flatnonzero(of_kernel == part) for part in range(3))
    return train, calibrate, test


def _split(corpus: Corpus, train: Int64s, calibrate: Int64s, test: Int64s) -> Split:
    parts = {"train": train, "calibrate": calibrate, "test": test}
    empty = [name for name, rows in parts.items() if not len(rows)]
    if empty:
        raise ModelError(
            f"{corpus.path}: {len(corpus.programs)} programs leave none to {' and '.join(empty)}; collect more programs"
        )
    return Split(*(tuple(sorted(rows.tolist())) for rows in parts.values()))
