"""The one error tree. Each class carries the exit code with which the command line ends.

A message says what failed, in which file, row or host, what was expected, and what to do next.
A caller's mistake inside Python is a `ValueError` or `TypeError`; `assert` is for our own invariants.
"""


class PhasepointError(Exception):
    """Anything Phasepoint reports to its user. Exit code 1."""

    exit_code = 1


class UsageError(PhasepointError):
    """The command was asked for something it does not do. Exit code 2."""

    exit_code = 2


class StoreError(PhasepointError):
    """A run cannot be read or written. Exit code 3."""

    exit_code = 3


class NotARunError(StoreError):
    """The directory holds no run. Exit code 4."""

    exit_code = 4


class FormatVersionError(StoreError):
    """The run was written by another major version. Exit code 5."""

    exit_code = 5


class ShardBusyError(StoreError):
    """Another live writer owns the shard. Exit code 6.

    Attributes:
        may_pass: whether it is on another machine, and may be dead.
    """

    exit_code = 6

    def __init__(self, message: str, *, may_pass: bool = False) -> None:
        super().__init__(message)
        self.may_pass = may_pass


class SourceError(PhasepointError):
    """A trace cannot be decoded. Exit code 7."""

    exit_code = 7


class TableError(StoreError):
    """A table does not fit its declaration. Exit code 8."""

    exit_code = 8


class NoDataError(PhasepointError):
    """The run is readable but holds too little for what was asked. Exit code 9."""

    exit_code = 9


class RecordError(PhasepointError):
    """The recorded command could not be started or recorded. Exit code 10."""

    exit_code = 10


class QueryError(PhasepointError):
    """An SQL query failed or is not allowed. Exit code 11."""

    exit_code = 11


class OutputExistsError(PhasepointError):
    """The output exists already; give --force to replace it. Exit code 12."""

    exit_code = 12


class MissingExtraError(PhasepointError):
    """An optional dependency is needed; the message names the extra. Exit code 13."""

    exit_code = 13


class FindingError(PhasepointError):
    """The run holds a finding that --fail-on refuses. Exit code 14."""

    exit_code = 14


class ChangeError(PhasepointError):
    """The run is slower than its base by more than --fail-over allows. Exit code 15."""

    exit_code = 15


class NotEnoughError(PhasepointError):
    """A gate cannot judge: the run is empty, killed, too short or not whole. Exit code 19."""

    exit_code = 19


class WorkerError(PhasepointError):
    """Workers died again and again, or the cluster cannot be reached. Exit code 16."""

    exit_code = 16


class ReplayError(PhasepointError):
    """A replay could not be made: the checkpoint is not whole, or the program did not follow. Exit code 17."""

    exit_code = 17


class ModelError(PhasepointError):
    """A model or corpus cannot be used: unknown device, other version, damaged, too few data. Exit code 18."""

    exit_code = 18
