"""Runs a suite: one process for each round of each pair, in an order drawn by chance; what is there stays."""

import fcntl
import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from phasepoint.bench.runtimes.runtimes import RUNTIMES
from phasepoint.bench.suite.result import (
    PAIRS,
    SUITE,
    Pair,
    PairResult,
    SuiteRequest,
    read_suite,
    result_path,
    write_file,
)
from phasepoint.bench.suite.summary import what_is_unsteady
from phasepoint.core.errors import OutputExistsError, ShardBusyError, StoreError
from phasepoint.learn.corpus.child import child_process

CHILD = "phasepoint.bench.suite.child"

Progress = Callable[[int, int], None]
"""(rounds of pairs done, in all)."""


def run_suite(folder: Path, request: SuiteRequest, progress: Progress = lambda _done, _all: None) -> list[PairResult]:
    """Measure what a folder does not hold yet.

    Args:
        folder: of the results; made where it is not there.
        request: what is measured.
        progress: called after each process.

    Returns:
        All results of the folder.

    Raises:
        OutputExistsError: the folder holds a suite that was asked for otherwise, or other files.
        ShardBusyError: another process measures into it.
        StoreError: a result cannot be written.
    """
    prepare_folder(folder, request)
    with locked(folder):
        tasks = tasks_of(request)
        left = [task for task in tasks if not result_path(folder, task.pair, task.number).is_file()]
        done = len(tasks) - len(left)
        progress(done, len(tasks))
        for task in left:
            write_file(result_path(folder, task.pair, task.number), measure_task(task))
            done += 1
            progress(done, len(tasks))
    return read_suite(folder)[1]


class PairTask(NamedTuple):
    """A round of a pair: what one process measures."""

    pair: Pair
    number: int
    request: SuiteRequest


def tasks_of(request: SuiteRequest) -> list[PairTask]:
    """All rounds of all pairs, in an order drawn by chance: all pairs once, then all again.

    So a slow hour of the machine falls on one round of each. What is predicted has one round.
    """
    tasks = [
        PairTask(pair, number, request)
        for pair in request.pairs
        for number in range(1 if RUNTIMES[pair.runtime].predicts else request.rounds)
    ]
    random.Random(request.seed).shuffle(tasks)
    return sorted(tasks, key=lambda task: task.number)


def measure_task(task: PairTask) -> PairResult:
    """A round; where it was not steady, once more, and the steady one of the two counts."""
    result = _measure(task)
    if not what_is_unsteady(result):
        return result
    again = _measure(task)
    return result if again.status != "measured" or what_is_unsteady(again) else again


def _measure(task: PairTask) -> PairResult:
    """In a process of its own; whatever becomes of it is a result."""
    pair, number, request = task
    asked = {
        "pair": msgspec.to_builtins(pair),
        "round": number,
        "seconds": request.seconds,
        "batches": list(request.batches),
        "sustained_s": request.sustained_s,
        "counts": number == 0,
        "explains": number == 0 and request.explains,
    }
    at, said = "starting", None
    with child_process(asked, CHILD, limit_s=request.limit_s) as child:
        for answer in child.answers():
            at, said = answer.get("at", at), answer.get("result", said)
        ended = child.how_it_ended()
    if said is not None:
        return msgspec.convert(said, PairResult)
    return PairResult(pair=pair, round=number, status="failed", reason=f"{ended or 'it ended without an answer'}, {at}")


def prepare_folder(folder: Path, request: SuiteRequest) -> None:
    """A folder for this request: new, or one that was begun with the same."""
    head = folder / SUITE
    if head.is_file():
        if read_suite(folder)[0] != request:
            raise OutputExistsError(
                f"{folder}: holds a suite that was asked for otherwise; give the same options to go on with it, or "
                "another --out"
            )
        return
    if folder.is_dir() and any(folder.iterdir()):
        raise OutputExistsError(f"{folder}: is not empty, and holds no suite; give another --out")
    try:
        (folder / PAIRS).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"{folder}: cannot be made: {error.strerror}") from error
    write_file(head, request)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One process at a time measures into a folder; the lock goes with the process, however that ends."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise ShardBusyError(
            f"{folder}: another process measures into it; wait for it, or give another --out"
        ) from error
    try:
        yield
    finally:
        os.close(descriptor)
