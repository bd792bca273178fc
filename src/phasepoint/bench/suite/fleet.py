"""A suite on every machine of a Ray cluster, each in a folder of its own: every machine measures itself."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from phasepoint.bench.suite.result import SuiteRequest, result_path, write_file
from phasepoint.bench.suite.run import Progress, locked, measure_task, prepare_folder, tasks_of
from phasepoint.core.errors import NoDataError, PhasepointError, WorkerError
from phasepoint.core.workers import ClusterMachine, cluster, each_on_machines


@dataclass(frozen=True)
class FleetMachine:
    """What became of a machine.

    Attributes:
        folder: of its suite.
        left: processes that did not run, because the machine was gone; the same command again goes on with them.
    """

    folder: Path
    left: int


def run_fleet(
    folder: Path, request: SuiteRequest, address: str, progress: Progress = lambda _done, _all: None
) -> list[FleetMachine]:
    """Measure, on every machine, what its folder does not hold yet.

    Args:
        folder: of the fleet; each machine has one in it, by its name.
        request: what is measured on each; a device `cpu` is all of a machine's cores.
        address: of the cluster: `host:port` of its head, or `auto`.
        progress: called with processes done and in all.

    Raises:
        NoDataError: no machine of the cluster takes tasks.
        WorkerError: the cluster cannot be reached.
        OutputExistsError: a folder holds a suite that was asked for otherwise, or other files.
        ShardBusyError: another process measures into the folder.
    """
    with cluster(address) as machines:
        if not machines:
            raise NoDataError(f"{address}: no machine of this Ray cluster takes tasks: none has a CPU to give")
        names = machine_names(machines)
        for name in names:
            prepare_folder(folder / name, request)
        with locked(folder):
            return _measure(folder, request, list(zip(machines, names, strict=True)), address, progress)


def _measure(
    folder: Path,
    request: SuiteRequest,
    machines: Sequence[tuple[ClusterMachine, str]],
    address: str,
    progress: Progress,
) -> list[FleetMachine]:
    every = [(machine, name, task) for machine, name in machines for task in tasks_of(request)]
    todo = [one for one in every if not result_path(folder / one[1], one[2].pair, one[2].number).is_file()]
    done, left = len(every) - len(todo), Counter[str]()
    progress(done, len(every))
    for number, answer in each_on_machines(measure_task, [(machine, task) for machine, _, task in todo], address):
        _, name, task = todo[number]
        if isinstance(answer, WorkerError):
            left[name] += 1
        elif isinstance(answer, PhasepointError):
            raise answer
        else:
            write_file(result_path(folder / name, task.pair, task.number), answer)
            done += 1
        progress(done, len(every))
    return [FleetMachine(folder / name, left[name]) for _, name in machines]


def machine_names(machines: Sequence[ClusterMachine]) -> list[str]:
    """A name for each machine; where one host has several, they are numbered.

    Example:
        >>> machine_names([ClusterMachine(node, host, 2.0) for node, host in (("a", "big"), ("b", "big"))])
        ['big', 'big-2']
    """
    seen, names = Counter[str](), []
    for machine in machines:
        seen[machine.host] += 1
        number = seen[machine.host]
        names.append(machine.host if number == 1 else f"{machine.host}-{number}")
    return names
