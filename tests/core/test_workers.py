"""Tasks go to workers; workers die; every task is answered once."""

import os
import signal
import sys
from pathlib import Path

import pytest

from phasepoint.core.errors import MissingExtraError, SourceError, WorkerError
from phasepoint.core.workers import MAX_TRIES, WORTH_A_WORKER_BYTES, default_workers, map_tasks


def square(task):
    return task * task, os.getpid()


def refuse(task):
    if task == 2:
        raise SourceError(f"task {task} cannot be read")
    return task


def fault(task):
    raise KeyError(task)


def die(place):
    """Note the try, and be killed while fewer than the wanted number of tries were made."""
    folder, dies = place
    tries = len(list(Path(folder).glob("try-*")))
    Path(folder, f"try-{tries}").touch()
    if tries < dies:
        os.kill(os.getpid(), signal.SIGKILL)
    return tries


@pytest.mark.parametrize("workers", [1, 2, 9])
def test_results_stand_in_the_order_of_the_tasks(workers):
    said = []
    results = map_tasks(square, range(7), workers=workers, progress=lambda *now: said.append(now))
    assert [result for result, _ in results] == [n * n for n in range(7)]
    processes = {process for _, process in results}
    assert (processes == {os.getpid()}) == (workers == 1)
    assert len(processes) <= workers
    assert (said[0], said[-1]) == ((0, 7), (7, 7))
    assert said == sorted(said)


def test_nothing_to_do():
    assert map_tasks(square, [], workers=3) == []


def test_a_task_whose_worker_is_killed_is_done_again(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    tasks = [(str(tmp_path / "a"), 0), (str(tmp_path / "b"), MAX_TRIES - 1), (str(tmp_path / "a"), 0)]
    first, second, third = map_tasks(die, tasks, workers=2)
    assert second == MAX_TRIES - 1
    assert {first, third} == {0, 1}


def test_a_task_that_always_kills_its_worker_is_given_up(tmp_path):
    with pytest.raises(WorkerError, match=f"died {MAX_TRIES} times, last by SIGKILL.*--workers"):
        map_tasks(die, [(str(tmp_path), 99), (str(tmp_path), 99)], workers=2)


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_for_the_user_stays_one(workers):
    with pytest.raises(SourceError, match="task 2 cannot be read"):
        map_tasks(refuse, range(5), workers=workers)


def test_a_fault_is_not_tried_again(capfd):
    with pytest.raises(WorkerError, match="exit code 1; its own message is above"):
        map_tasks(fault, range(2), workers=2)
    assert "KeyError" in capfd.readouterr().err


def test_workers_pay_from_some_size_on():
    assert default_workers(8, 0) == 1
    assert default_workers(1, 10**12) == 1
    cores = default_workers(10**6, 10**12)
    assert 1 <= cores <= os.cpu_count()
    assert default_workers(8, 2 * WORTH_A_WORKER_BYTES) == min(2, cores)
    with pytest.raises(ValueError, match="workers is 0"):
        map_tasks(square, [1], workers=0)


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"phasepoint\[cluster\]"):
        map_tasks(square, [1], ray_address="auto")
