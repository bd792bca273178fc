"""Programs out of recorded runs: the windows' ops hold the kernels' times already, so nothing runs again.

A window is a round. On a CPU a recorded job runs kernels beside each other and its spans hold waits; the corpus says
so, and the noise of its labels shows it.

Which programs are collected: those of the package, and functions in a user's files.
"""

import re
import runpy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phasepoint.core.errors import ModelError, NoDataError, SourceError, UsageError
from phasepoint.hlo.fingerprint import fingerprint_module
from phasepoint.hlo.module import decode_module, link_module, unpack_hlo
from phasepoint.learn.corpus.folder import FAILED, KERNEL_ROWS, ProgramHead, write_program
from phasepoint.learn.corpus.measure import Measurement, Round, kernel_rows, times_of_ops
from phasepoint.learn.hlo_graph.kernels import kernels_of_module
from phasepoint.store import Run
from phasepoint.zoo.catalogue import corpus_programs, large_programs, zoo_programs
from phasepoint.zoo.specs import ProgramSpec

PACKAGE = "package"


@dataclass(frozen=True)
class ProgramReference:
    """A program that another process can find again.

    Attributes:
        name: of the program.
        source: `package`, or `FILE.py:function`.
        seed: of the generated programs.
    """

    name: str
    source: str = PACKAGE
    seed: int = 0


def package_programs(pattern: str, *, seed: int = 0) -> tuple[ProgramReference, ...]:
    """Programs that came with the package.

    Args:
        pattern: zoo, generated, all, large (sizes of an accelerator, not among all), or names such as `attention*`.
        seed: of the generated programs.

    Raises:
        UsageError: no program has such a name.
    """
    zoo, large = ({spec.name for spec in specs} for specs in (zoo_programs(), large_programs(seed=seed)))
    names = [spec.name for spec in corpus_programs(seed=seed)]
    if pattern in ("zoo", "generated", "all"):
        chosen = [name for name in names if pattern == "all" or (name in zoo) == (pattern == "zoo")]
    elif pattern == "large":
        chosen = sorted(large)
    else:
        chosen = [name for name in (*names, *sorted(large)) if fnmatchcase(name, pattern)]
    if not chosen:
        raise UsageError(
            f"no program is called {pattern!r}; give zoo, generated, all, large, or a pattern such as {names[0][:12]}*"
        )
    return tuple(ProgramReference(name, seed=seed) for name in chosen)


def is_file_source(word: str) -> bool:
    """Whether a word of the command line means functions in a file: FILE.py:function."""
    return ".py:" in word


def find_specs(references: Sequence[ProgramReference]) -> dict[str, ProgramSpec]:
    """The programs of references, by name.

    Raises:
        UsageError: there are none of a name, or a file cannot be used.
    """
    found: dict[str, ProgramSpec] = {}
    for source, seed in dict.fromkeys((one.source, one.seed) for one in references):
        package = source == PACKAGE
        specs = (*corpus_programs(seed=seed), *large_programs(seed=seed)) if package else file_programs(source)
        found |= {spec.name: spec for spec in specs}
    missing = [one.name for one in references if one.name not in found]
    if missing:
        raise UsageError(f"there is no program {missing[0]!r} any more")
    return {one.name: found[one.name] for one in references}


def file_programs(source: str) -> tuple[ProgramSpec, ...]:
    """Programs of `FILE.py:function`; the file runs.

    The function is called with nothing. It returns the function to jit and the tuple of its arguments' shapes, or a
    list of `ProgramSpec`.

    Raises:
        UsageError: there is no such file or function, or it returns something else.
    """
    text, _, name = source.rpartition(":")
    if not Path(text).is_file():
        raise UsageError(f"{text}: there is no such file; give FILE.py:function")
    function = runpy.run_path(text).get(name)
    if not callable(function):
        raise UsageError(f"{text} has no function {name!r}; give FILE.py:function")
    return _specs_of(function(), f"{Path(text).stem}.{name}", source)


def _specs_of(returned: Any, name: str, source: str) -> tuple[ProgramSpec, ...]:
    if isinstance(returned, ProgramSpec):
        return (returned,)
    if isinstance(returned, tuple) and len(returned) == 2 and callable(returned[0]):
        return (ProgramSpec(name, name, "", "forward", lambda: returned),)
    specs = tuple(returned) if isinstance(returned, list | tuple) else ()
    if not specs or not all(isinstance(spec, ProgramSpec) for spec in specs):
        raise UsageError(f"{source} returns neither (function, shapes of its arguments) nor a list of ProgramSpec")
    return specs


RECORDED = "recorded"
CPU_NOTE = (
    "times of a recorded run on a CPU: kernels run beside each other there and spans hold waits for others; "
    "collect with one core bound for times of kernels alone"
)
_NO_FILE_NAME = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True)
class Harvest:
    """What came out of a run.

    Attributes:
        written: names of the programs in the corpus.
        failed: names and reasons of those that cannot be read.
        not_captured: how many no captured step ran.
    """

    written: tuple[str, ...]
    failed: Mapping[str, str]
    not_captured: int


def device_of_run(run: Run, path: str) -> dict[str, object]:
    """Name, kind and cores of the device on which a run was recorded, and versions of what ran it.

    Raises:
        ModelError: the run does not say on which device, or on several.
    """
    kinds = {_device_words(text) for text in run.manifest.devices}
    if len(kinds) != 1:
        found = ", ".join(sorted(" ".join(one) for one in kinds)) or "none"
        raise ModelError(f"{path}: recorded on devices of {len(kinds)} kinds ({found}); a corpus holds one device")
    platform, kind = kinds.pop()
    versions = {name: text for name, text in run.manifest.frameworks.items() if name in ("jax", "jaxlib")}
    name = f"{run.manifest.created_on or 'unknown machine'}, recorded" if platform == "cpu" else kind
    return {"name": name, "kind": platform, "cores": None, "versions": versions}


def kept_programs(run: Run, path: str) -> pa.Table:
    """Programs of a run whose compiled modules it keeps.

    Raises:
        NoDataError: there are none.
    """
    programs = run.table("programs", columns=["program", "name", "hlo"])
    programs = programs.filter(pc.is_valid(programs["hlo"]))
    if not programs.num_rows:
        raise NoDataError(
            f"{path}: no compiled module is kept in this run; it was recorded by an older release, of no JAX job, "
            "or its windows were converted before; record the job again"
        )
    return programs


def harvest_run(out: str | Path, run: Run, path: str, *, device: str, kind: str) -> Harvest:
    """Write the programs of a run into a corpus; one that is there is replaced.

    Args:
        out: the corpus.
        run: the run, its windows converted.
        path: of the run, for names and messages.
        device: name, as in `corpus.json`.
        kind: of the device: cpu, gpu, tpu.

    Returns:
        Names of what was written and what not.

    Raises:
        NoDataError: the run holds no program's HLO.
    """
    programs = kept_programs(run, path)
    ops = run.table("ops", columns=["window", "step", "program", "op", "level", "count", "self_ps"])
    ops = kernel_rows(ops)
    written: list[str] = []
    failed: dict[str, str] = {}
    for row in programs.to_pylist():
        number = int(row["program"]) & 0xFFFFFFFF
        name = _plain(f"{Path(path).name}.{row['name']}.h{row['host']}a{row['attempt']}p{number:x}")
        head = ProgramHead(name, _plain(Path(path).name), _plain(row["name"]), RECORDED, device)
        own = pc.and_(pc.equal(ops["program"], row["program"]), pc.equal(ops["host"], row["host"]))
        own = pc.and_(own, pc.equal(ops["attempt"], row["attempt"]))
        try:
            measured = _measurement(row["hlo"], ops.filter(pc.fill_null(own, False)))
        except SourceError as error:
            failed[name] = str(error)
            write_program(
                out, replace(head, status=FAILED, reason=str(error)), hlo=None, rows=KERNEL_ROWS.empty_table()
            )
            continue
        if measured.rounds:
            _write(out, head, measured, kind)
            written.append(name)
    return Harvest(tuple(written), failed, programs.num_rows - len(written) - len(failed))


def _measurement(packed: bytes, ops: pa.Table) -> Measurement:
    """A program with its times, of its rows of `ops`; a round each window."""
    proto = decode_module(unpack_hlo(packed), "HloProto")
    module = link_module(proto)
    rounds = []
    for window in sorted(set(ops["window"].to_pylist())):
        of_window = ops.filter(pc.equal(ops["window"], window))
        times_ps, executions = times_of_ops(of_window)
        repeats = pc.count_distinct(of_window["step"]).as_py()
        rounds.append(Round(repeats, np.empty(0, np.int64), executions, times_ps))
    kernels = kernels_of_module(module)
    known = {kernel.name: kernel.executions for kernel in kernels.kernels if kernel.executions is not None}
    # A step may run the program several times: what the program says counts before what a step had.
    rounds = [replace(one, executions={**one.executions, **known}) for one in rounds]
    hlo: bytes = proto.SerializeToString(deterministic=True)
    return Measurement(hlo, fingerprint_module(module), kernels, tuple(rounds))


def _write(out: str | Path, head: ProgramHead, measured: Measurement, kind: str) -> None:
    head = replace(
        head,
        runs=sum(one.repeats for one in measured.rounds),
        fingerprint=measured.fingerprint,
        not_traced=measured.not_traced(),
        unlisted_ps=measured.unlisted_ps(),
        notes=(*measured.kernels.notes, *((CPU_NOTE,) if kind == "cpu" else ())),
    )
    write_program(out, head, hlo=measured.hlo, rows=measured.rows())


def _device_words(text: str) -> tuple[str, str]:
    """Platform and kind of `gpu:0 NVIDIA H100`."""
    place, _, kind = text.partition(" ")
    return place.partition(":")[0], kind or place


def _plain(text: str) -> str:
    """Of letters, digits, dot, dash and underscore, not beginning with a dot: the name of a folder."""
    return _NO_FILE_NAME.sub("-", text).lstrip(".-")[:120] or "program"
