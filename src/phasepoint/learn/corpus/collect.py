"""Collecting a corpus: many programs measured on the device that is here, in processes of their own.

A program that fails is kept with its reason, also where it takes its process with it; a corpus that was broken off is
gone on with, and one that is whole gets more rounds where more are asked for.
"""

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from phasepoint.core.errors import ModelError
from phasepoint.core.workers import map_tasks
from phasepoint.learn.corpus.child import MODULE, REASON_CHARACTERS, usable_cores, write_failed
from phasepoint.learn.corpus.child import child_process as _child
from phasepoint.learn.corpus.folder import (
    HEAD,
    MEASURED,
    PROGRAMS,
    CorpusHead,
    ProgramHead,
    read_head,
    read_kernel_rows,
    read_program,
    write_head,
)
from phasepoint.learn.corpus.measure import REPEATS, ROUNDS
from phasepoint.learn.corpus.runs import ProgramReference, device_of_run, harvest_run, kept_programs
from phasepoint.learn.hlo_graph.graphs import FEATURISER_VERSION
from phasepoint.store import Run

BATCH = 8
"""Programs that one process keeps loaded and measures in turns."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Failure:
    """A program that could not be measured, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class CollectedCorpus:
    """What became of a collection.

    Attributes:
        path: the corpus.
        device: on which it was measured.
        programs: asked for.
        measured: programs that were measured now, at least one round.
        already: programs that had all rounds before.
        failed: programs that failed now.
        not_captured: programs of recorded runs that no captured step ran.
    """

    path: str
    device: str
    programs: int
    measured: int
    already: int
    failed: tuple[Failure, ...]
    not_captured: int = 0


@dataclass(frozen=True)
class Measurer:
    """A process that measures elsewhere than on the device that is here.

    Attributes:
        module: that it runs.
        device: name, kind, cores and versions, for `corpus.json`.
        settings: what it is told beside its batch; JSON.
    """

    module: str
    device: Mapping[str, Any]
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class Batch:
    """A task for one worker.

    Attributes:
        out: the corpus.
        programs: to be measured.
        left: rounds that each still needs, by name.
        rounds: that a program has in the end.
        repeats: runs in a round, at most.
        cores: of which the worker takes one; none: any.
        device: name, as in `corpus.json`.
        measurer: None: the device that is here.
    """

    out: str
    programs: tuple[ProgramReference, ...]
    left: tuple[tuple[str, int], ...]
    rounds: int
    repeats: int
    cores: tuple[int, ...]
    device: str
    measurer: Measurer | None = None


def collect(
    out: str | Path,
    programs: Sequence[ProgramReference],
    *,
    rounds: int = ROUNDS,
    repeats: int = REPEATS,
    cores: Sequence[int] | None = None,
    workers: int = 1,
    ray_address: str | None = None,
    batch: int = BATCH,
    measurer: Measurer | None = None,
    progress: Progress | None = None,
) -> CollectedCorpus:
    """Measure programs into a corpus; what it holds already is not measured again.

    Args:
        out: the corpus, or a folder to make.
        programs: to be measured.
        rounds: that each program has in the end.
        repeats: runs in a round, at most; fewer where a run is long.
        cores: of each machine, one a worker; None: those that this process may use; none: processes are not bound.
        workers: processes at a time on this machine.
        ray_address: a Ray cluster instead; all its machines must see `out` under the same path.
        batch: programs that one process measures in turns.
        measurer: None: the device that is here.
        progress: called with batches done and batches in all.

    Raises:
        ModelError: the corpus is of another device, version or featuriser.
        WorkerError: workers died again and again, or the cluster cannot be reached.
    """
    folder = Path(out).absolute()
    chosen = tuple(usable_cores() if cores is None else cores)
    found_device = _device(chosen) if measurer is None else measurer.device
    device = ensure_head(folder, found_device, {"rounds": rounds, "repeats": repeats})
    left = {one.name: rounds_left(folder, one.name, rounds) for one in programs}
    todo = [one for one in programs if left[one.name]]
    batches = [
        Batch(
            str(folder),
            tuple(part),
            tuple((one.name, left[one.name]) for one in part),
            rounds,
            repeats,
            chosen,
            device,
            measurer,
        )
        for part in (todo[i : i + batch] for i in range(0, len(todo), batch))
    ]
    found = map_tasks(measure_batch, batches, workers=workers, ray_address=ray_address, progress=progress)
    failed = tuple(failure for failures in found for failure in failures)
    return CollectedCorpus(
        str(folder), device, len(programs), len(todo) - len(failed), len(programs) - len(todo), failed
    )


def collect_run(out: str | Path, run: Run, path: str) -> CollectedCorpus:
    """Take the programs of a recorded run, with the times that its windows hold, into a corpus.

    Args:
        out: the corpus, or a folder to make.
        run: the run, its windows converted.
        path: of the run, for names and messages.

    Raises:
        ModelError: the corpus is of another device, version or featuriser; the run is of several devices.
        NoDataError: the run keeps no compiled module.
    """
    device = device_of_run(run, path)
    kind = str(device["kind"])
    kept_programs(run, path)  # before anything is written
    name = ensure_head(Path(out), device, {"recorded": True})
    found = harvest_run(out, run, path, device=name, kind=kind)
    failed = tuple(Failure(*one) for one in found.failed.items())
    programs = len(found.written) + len(failed) + found.not_captured
    return CollectedCorpus(str(out), name, programs, len(found.written), 0, failed, found.not_captured)


def join_collected(parts: Sequence[CollectedCorpus]) -> CollectedCorpus:
    """Several collections into one corpus as one."""
    failed = tuple(failure for part in parts for failure in part.failed)
    return CollectedCorpus(
        parts[0].path,
        parts[0].device,
        sum(part.programs for part in parts),
        sum(part.measured for part in parts),
        sum(part.already for part in parts),
        failed,
        sum(part.not_captured for part in parts),
    )


def names_in_file(source: str) -> tuple[ProgramReference, ...]:
    """Programs of `FILE.py:function`, found by a process of its own: the file may start JAX.

    Raises:
        UsageError: there is no such file or function, or it returns something else.
    """
    (answer,) = _ask({"file": source})
    return tuple(ProgramReference(name, source) for name in answer["names"])


def measure_batch(batch: Batch) -> tuple[Failure, ...]:
    """Measure one batch in a child process, in another where that dies; what failed, with reasons.

    A program in whose turn the process died is tried once more, alone: it may be the others that left no memory.
    """
    failed: dict[str, str] = {}
    left = dict(batch.left)
    alone: list[str] = []
    tried: set[str] = set()
    while any(left.values()):
        names = [alone.pop()] if alone else [one.name for one in batch.programs if left[one.name]]
        death = _run_child(batch, names, left, failed)
        if death is None:
            continue
        if death.head.name not in tried and len(names) > 1:
            alone.append(death.head.name)
        else:
            write_failed(batch.out, death.head, death.reason)
            failed[death.head.name] = death.reason
            left[death.head.name] = 0
        tried.add(death.head.name)
    return tuple(Failure(*one) for one in failed.items())


def rounds_left(folder: Path, name: str, rounds: int) -> int:
    """How many rounds a program still needs; one that failed is not tried again."""
    place = folder / PROGRAMS / name
    if not place.is_dir():
        return rounds
    if read_program(place).status != MEASURED:
        return 0
    done = int(max(read_kernel_rows(place)["round"].to_pylist(), default=-1)) + 1
    return max(rounds - done, 0)


def ensure_head(folder: Path, device: Mapping[str, Any], settings: dict[str, Any]) -> str:
    """`corpus.json`, written where there is none; the device's name.

    Raises:
        ModelError: the corpus is of another device, featuriser or release of JAX.
    """
    versions = device["versions"]
    if not (folder / HEAD).exists():
        created = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        plain = {name: value for name, value in device.items() if name != "versions"}
        write_head(folder, CorpusHead(plain, FEATURISER_VERSION, versions, settings, created))
        return str(device["name"])
    head = read_head(folder)
    was = {"device": head.device.get("name"), "featuriser": head.featuriser, **head.versions}
    now = {"device": device["name"], "featuriser": FEATURISER_VERSION, **versions}
    other = [f"{key} {was[key]!r}, here it is {now[key]!r}" for key in now if key in was and was[key] != now[key]]
    if other:
        raise ModelError(f"{folder} was collected with {'; '.join(other)}: give --out a folder of its own")
    return str(device["name"])


@dataclass(frozen=True)
class _Death:
    """Which program a process was at when it died, and of what."""

    head: ProgramHead
    reason: str


def _run_child(batch: Batch, names: Sequence[str], left: dict[str, int], failed: dict[str, str]) -> _Death | None:
    """Measure some programs of a batch; `left` and `failed` follow what the child says."""
    task = {
        "out": batch.out,
        "programs": [asdict(one) for one in batch.programs if one.name in names],
        "left": left,
        "rounds": batch.rounds,
        "repeats": batch.repeats,
        "cores": batch.cores,
        "device": batch.device,
        **({} if batch.measurer is None else batch.measurer.settings),
    }
    head, part = None, ""
    with _child(task, MODULE if batch.measurer is None else batch.measurer.module) as child:
        for answer in child.answers():
            if "begin" in answer:
                part = answer["part"]
                head = ProgramHead(answer["begin"], answer["family"], answer["variant"], answer["mode"], batch.device)
            elif "failed" in answer:
                failed[answer["failed"]] = answer["reason"]
                left[answer["failed"]] = 0
            elif "round" in answer:
                left[answer["round"]] -= 1
        how = child.how_it_ended()
    if how is None and not any(left[name] for name in names):
        return None
    if head is None or how is None:
        raise ModelError(f"the process that measures could not start: {how}")
    return _Death(head, f"{how} while {part}"[:REASON_CHARACTERS])


@cache
def _device(cores: tuple[int, ...]) -> Mapping[str, Any]:
    """Name, kind and cores of the device, and versions, as a measuring process finds them."""
    (answer,) = _ask({"probe": True, "cores": cores})
    return MappingProxyType(answer["device"])


def _ask(task: Mapping[str, Any]) -> list[dict[str, Any]]:
    with _child(task) as child:
        answers = list(child.answers())
        how = child.how_it_ended()
    if how is not None or not answers:
        raise ModelError(f"the process that measures could not start: {how}")
    return answers
