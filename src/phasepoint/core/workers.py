"""One function over many tasks: in this process, on the local cores, or on a Ray cluster.

A task whose worker dies (killed, out of memory, its machine gone) is done again by another, and no other task is
disturbed. So a task must be harmless to repeat, also while its first try still runs somewhere: it writes under a name
of its own and publishes by a rename.
"""

import os
import signal
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Generic, TypeVar

from phasepoint.core.errors import MissingExtraError, PhasepointError, WorkerError

MAX_TRIES = 3
"""How often a task is begun before it is held to be what kills its workers."""

WORTH_A_WORKER_BYTES = 256 << 20
"""Input for which a process of its own pays: starting one takes a second of a core, in which 140 MB of Kineto's JSON
are read (benchmarks/ranks.py, 2 cores, 2026-11-21)."""

Task = TypeVar("Task")
Result = TypeVar("Result")
Progress = Callable[[int, int], None]


def usable_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def default_workers(n_tasks: int, total_bytes: int) -> int:
    """Workers for local work: one a core, and no more than there is work for."""
    return max(1, min(usable_cores(), n_tasks, total_bytes // WORTH_A_WORKER_BYTES))


def map_tasks(
    function: Callable[[Task], Result],
    tasks: Sequence[Task],
    *,
    workers: int = 1,
    ray_address: str | None = None,
    whole_machines: bool = False,
    progress: Progress | None = None,
) -> list[Result]:
    """Call a function once for every task.

    Args:
        function: of a module, as are its arguments and results: they travel between processes.
        tasks: `[n]` arguments, begun in this order.
        workers: processes on this machine; 1 calls the function here. A script that asks for more must guard its own
            start with `if __name__ == "__main__"`.
        ray_address: a Ray cluster, `host:port` or `auto`, instead of processes here; a task takes one of its CPUs.
        whole_machines: a task there takes all CPUs of a machine instead, so that no other one runs beside it.
        progress: called with tasks done and tasks in all.

    Returns:
        `[n]` results, in the order of the tasks.

    Raises:
        PhasepointError: as the function raises; what other tasks did by then stays done.
        WorkerError: a task's workers died `MAX_TRIES` times, or the cluster cannot be reached.
        MissingExtraError: Ray is asked for and not installed.
        ValueError: workers is not positive.
    """
    if workers < 1:
        raise ValueError(f"workers is {workers}; expected 1 or more")
    report = progress or _say_nothing
    report(0, len(tasks))
    if ray_address is not None:
        return _map_on_ray(function, tasks, ray_address, report, whole_machines=whole_machines)
    if workers == 1 or len(tasks) <= 1:
        return _map_here(function, tasks, report)
    pool = _Pool(function, deque(range(len(tasks))), len(tasks))
    return pool.run(tasks, min(workers, len(tasks)), report)


def _say_nothing(done: int, total: int) -> None:
    """Stands in where nobody wants to know."""


def _map_here(function: Callable[[Task], Result], tasks: Sequence[Task], report: Progress) -> list[Result]:
    results = []
    for task in tasks:
        results.append(function(task))
        report(len(results), len(tasks))
    return results


def _attempt(function: Callable[[Task], Result], task: Task) -> Result | PhasepointError:
    """What came of it; an error that is meant for the user is a result, and no reason to try again."""
    try:
        return function(task)
    except PhasepointError as error:
        return error


@dataclass(eq=False)
class _Worker:
    """A process, the pipe to it, and the number of the task that it has."""

    process: BaseProcess
    pipe: "Connection[Any, Any]"
    task: int


@dataclass(eq=False)
class _Pool(Generic[Task, Result]):
    """Processes of this machine, each with one task at a time."""

    function: Callable[[Task], Result]
    pending: deque[int]
    n_tasks: int
    tries: dict[int, int] = field(default_factory=dict)
    results: dict[int, Result] = field(default_factory=dict)
    running: list[_Worker] = field(default_factory=list)

    def run(self, tasks: Sequence[Task], n_workers: int, report: Progress) -> list[Result]:
        try:
            for _ in range(n_workers):
                self._give(self._start(), tasks)
            while self.running:
                ready = wait([worker.pipe for worker in self.running])
                for worker in [one for one in self.running if one.pipe in ready]:
                    self.running.remove(worker)
                    self._collect(worker, tasks)
                report(len(self.results), self.n_tasks)
        finally:
            self._end()
        return [self.results[i] for i in range(self.n_tasks)]

    def _start(self) -> _Worker:
        context = get_context("spawn")
        here, there = context.Pipe()
        process = context.Process(target=_serve, args=(there, self.function), daemon=True)
        process.start()
        there.close()
        return _Worker(process, here, -1)

    def _give(self, worker: _Worker, tasks: Sequence[Task]) -> None:
        """Hand the next task to an idle worker, or send it home."""
        if not self.pending:
            worker.pipe.close()
            worker.process.join()
            return
        worker.task = self.pending.popleft()
        self.tries[worker.task] = self.tries.get(worker.task, 0) + 1
        self.running.append(worker)
        try:
            worker.pipe.send(tasks[worker.task])
        except (BrokenPipeError, ConnectionResetError):
            return  # it is dead already, which waiting for its answer will show

    def _collect(self, worker: _Worker, tasks: Sequence[Task]) -> None:
        """Take a worker's answer, or what its death means, and keep as many workers busy as before."""
        try:
            answer = worker.pipe.recv()
        except (EOFError, ConnectionResetError):
            self._bury(worker)
            worker = self._start()
        else:
            if isinstance(answer, PhasepointError):
                self.running.append(worker)  # to be ended with the others
                raise answer
            self.results[worker.task] = answer
        self._give(worker, tasks)

    def _bury(self, worker: _Worker) -> None:
        worker.pipe.close()
        worker.process.join()
        code = worker.process.exitcode or 0
        if code >= 0:  # it was not killed: the function raised, and said so on stderr
            raise WorkerError(f"a worker process failed with exit code {code}; its own message is above")
        if self.tries[worker.task] == MAX_TRIES:
            raise WorkerError(_died(f"{signal.Signals(-code).name} on this machine"))
        self.pending.appendleft(worker.task)

    def _end(self) -> None:
        for worker in self.running:
            worker.process.kill()
            worker.process.join()
            worker.pipe.close()


def _died(how: str) -> str:
    return (
        f"the workers of one task died {MAX_TRIES} times, last by {how}; is there enough memory for as many workers? "
        "Give fewer (--workers), or larger machines"
    )


def _serve(pipe: "Connection[Any, Any]", function: Callable[[Any], Any]) -> None:
    """A worker process: answer tasks until the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent ends its workers
    while True:
        try:
            task = pipe.recv()
        except EOFError:
            return
        answer = _attempt(function, task)
        try:
            pipe.send(answer)
        except BrokenPipeError:
            return  # nobody is left to take it


@contextmanager
def machines(ray_address: str | None) -> Iterator[int]:
    """Machines that tasks can run on: those of a Ray cluster, to which the connection is kept, or this one.

    Raises:
        WorkerError: the cluster cannot be reached.
        MissingExtraError: Ray is not installed.
    """
    if ray_address is None:
        yield 1
        return
    with cluster(ray_address) as found:
        yield len(found)


@dataclass(frozen=True)
class ClusterMachine:
    """A machine of a Ray cluster that takes tasks.

    Attributes:
        node_id: Ray's name for it.
        host: its own.
        cpus: that tasks may use.
    """

    node_id: str
    host: str
    cpus: float


@contextmanager
def cluster(ray_address: str) -> Iterator[Sequence[ClusterMachine]]:
    """The machines of a Ray cluster by their names; the connection to it is kept.

    Raises:
        WorkerError: the cluster cannot be reached.
        MissingExtraError: Ray is not installed.
    """
    with _connected(ray_address) as ray:
        yield _machines_of(ray)


def _machines_of(ray: Any) -> list[ClusterMachine]:
    nodes = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0.0)]
    found = [ClusterMachine(node["NodeID"], node["NodeManagerHostname"], node["Resources"]["CPU"]) for node in nodes]
    return sorted(found, key=lambda machine: (machine.host, machine.node_id))


def each_on_machines(
    function: Callable[[Task], Result], tasks: Sequence[tuple[ClusterMachine, Task]], ray_address: str
) -> Iterator[tuple[int, Result | PhasepointError]]:
    """Call a function for tasks on machines that are given, on each machine one at a time, in their order.

    Args:
        function: of a module, as are its arguments and results.
        tasks: `[n]` machines and what they shall do.
        ray_address: the cluster.

    Yields:
        The number of a task that is done, and its result, or the error: the function's own, or a `WorkerError` where
        the machine is gone or what works there died `MAX_TRIES` times.
    """
    with _connected(ray_address) as ray:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        def attempt(task: Task) -> Result | PhasepointError:
            return _attempt(function, task)

        remote = ray.remote(max_retries=MAX_TRIES - 1)(attempt)
        left = {machine.node_id: deque[int]() for machine, _ in tasks}
        for number, (machine, _) in enumerate(tasks):
            left[machine.node_id].append(number)
        running: dict[Any, int] = {}

        def begin(node_id: str) -> None:
            if left[node_id]:
                number = left[node_id].popleft()
                machine, task = tasks[number]
                only_there = NodeAffinitySchedulingStrategy(node_id, soft=False)
                options = {"num_cpus": machine.cpus, "scheduling_strategy": only_there}
                running[remote.options(**options).remote(task)] = number

        for node_id in left:
            begin(node_id)
        try:
            while running:
                ready, _ = ray.wait(list(running), num_returns=1, timeout=LOOK_S)
                alive = {machine.node_id for machine in _machines_of(ray)}
                for reference in [*ready, *(one for one, number in running.items() if _is_gone(tasks[number], alive))]:
                    if reference not in running:  # ready, and its machine gone
                        continue
                    number = running.pop(reference)
                    node_id = tasks[number][0].node_id
                    if node_id in alive:
                        yield number, _answer_or_error(ray, reference)
                        begin(node_id)
                        continue
                    for lost in (number, *left[node_id]):
                        yield lost, WorkerError(f"{tasks[lost][0].host} is gone from the Ray cluster")
                    left[node_id].clear()
        finally:
            for reference in running:
                ray.cancel(reference, force=True)


LOOK_S = 2.0
"""Between two looks at whether machines are still there: a choice. Ray waits for ever for one that is not."""


def _is_gone(task: tuple[ClusterMachine, Any], alive: set[str]) -> bool:
    """Whether a task's machine has left the cluster."""
    return task[0].node_id not in alive


def _answer_or_error(ray: Any, reference: Any) -> Any:
    """A finished task's result, or the error that its workers' deaths are."""
    try:
        return _answer_of(ray, reference)
    except WorkerError as error:
        return error


def _map_on_ray(
    function: Callable[[Task], Result],
    tasks: Sequence[Task],
    address: str,
    report: Progress,
    *,
    whole_machines: bool,
) -> list[Result]:
    with _connected(address) as ray:

        def attempt(task: Task) -> Result | PhasepointError:
            return _attempt(function, task)

        cpus = min((machine.cpus for machine in _machines_of(ray)), default=1.0) if whole_machines else 1.0
        remote = ray.remote(num_cpus=cpus, max_retries=MAX_TRIES - 1)(attempt)
        numbers = {remote.remote(task): i for i, task in enumerate(tasks)}
        results: dict[int, Result] = {}
        waiting = list(numbers)
        try:
            while waiting:
                (ready,), waiting = ray.wait(waiting, num_returns=1)
                answer = _answer_of(ray, ready)
                if isinstance(answer, PhasepointError):
                    raise answer
                results[numbers[ready]] = answer
                report(len(results), len(tasks))
        finally:
            for reference in waiting:
                ray.cancel(reference, force=True)
        return [results[i] for i in range(len(tasks))]


def _answer_of(ray: Any, reference: Any) -> Any:
    """The result of a finished task.

    Raises:
        WorkerError: its workers died, again and again.
    """
    names = ("WorkerCrashedError", "NodeDiedError", "OutOfMemoryError", "TaskUnschedulableError")
    lost = tuple(getattr(ray.exceptions, name) for name in names)
    try:
        return ray.get(reference)
    except lost as error:
        raise WorkerError(_died(f"{type(error).__name__} on the Ray cluster")) from error


@contextmanager
def _connected(address: str) -> Iterator[Any]:
    """Ray's module, connected to the cluster; a connection that was there before stays."""
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError("--ray needs Ray: pip install 'phasepoint[cluster]'") from error
    if ray.is_initialized():
        yield ray
        return
    try:
        ray.init(address=address, log_to_driver=False, logging_level="error")
    except (ConnectionError, ValueError, RuntimeError, TimeoutError) as error:
        reason = str(error).partition("\n")[0]
        raise WorkerError(
            f"no Ray cluster can be reached at {address!r}: {reason}. Expected HOST:PORT of its head node, or auto "
            "on one of its machines; with the same versions of Python, Ray and Phasepoint everywhere"
        ) from error
    try:
        yield ray
    finally:
        ray.shutdown()
