"""What `run.json` says of the job: its command, its frameworks, the commit of its code.

Which of the job's processes this is, so that each writes a shard of its own into one run.

The rank comes from JAX if its distributed runtime has been started, else from the launcher's environment. Nothing is
started to find out. Where nobody says, the process takes the first number that no process of the same job has or had:
several processes without a rank still write one run, in the order in which they came.
"""

import os
import re
import sys
import time
from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from phasepoint.core.errors import ShardBusyError

if TYPE_CHECKING:
    from phasepoint.store import ShardWriter

RANK_VARIABLES = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK")
"""Set by torchrun; Slurm; Open MPI; PMIx; MPICH and Intel MPI. The first that holds a number counts."""

SIZE_VARIABLES = {"SLURM_PROCID": "SLURM_NTASKS"}
"""An interactive Slurm allocation sets SLURM_PROCID=0 for everything that is started in it; only its size tells."""

COUNT_VARIABLES = {
    "RANK": "WORLD_SIZE",
    "SLURM_PROCID": "SLURM_NTASKS",
    "OMPI_COMM_WORLD_RANK": "OMPI_COMM_WORLD_SIZE",
    "PMI_RANK": "PMI_SIZE",
}
"""How many ranks there are, by the variable that tells which this is; PMIx has none."""

LAUNCH_VARIABLE = "PHASEPOINT_LAUNCH"
"""Set by `phasepoint record` to something that no other launch has: tells a sibling's shard from an earlier attempt."""

_LAUNCH_NOTE = "launch"

MOST_FREE_RANKS = 4096
"""Numbers tried for a process that nobody gave a rank."""


def known_rank(environ: Mapping[str, str] = os.environ) -> int | None:
    """The rank that JAX or the launcher gives this process; None where neither does."""
    rank = _jax_rank()
    if rank is not None:
        return rank
    for name in RANK_VARIABLES:
        value = environ.get(name, "")
        if value.isascii() and value.isdigit() and environ.get(SIZE_VARIABLES.get(name, ""), "") != "1":
            return int(value)
    return None


def rank(environ: Mapping[str, str] = os.environ) -> int:
    """The rank of this process, 0 where nobody says."""
    return known_rank(environ) or 0


def ranks_of_job(environ: Mapping[str, str] = os.environ) -> tuple[int, int] | None:
    """Rank of this process and how many there are, where JAX or the launcher says both; None for one alone."""
    distributed = getattr(sys.modules.get("jax._src.distributed"), "global_state", None)
    if getattr(distributed, "client", None) is not None:
        found = distributed.process_id, distributed.num_processes  # type: ignore[union-attr]
        return found if found[1] > 1 else None
    for rank_name, count_name in COUNT_VARIABLES.items():
        rank_text, count_text = environ.get(rank_name, ""), environ.get(count_name, "")
        if all(text.isascii() and text.isdigit() for text in (rank_text, count_text)):
            return (int(rank_text), int(count_text)) if int(count_text) > 1 else None
    return None


def open_ranked_shard(
    path: str | PathLike[str], *, environ: Mapping[str, str] = os.environ, **session: Any
) -> "ShardWriter":
    """Become the writer of this process's shard.

    Args:
        path: path or URL of a run.
        environ: environment variables.
        session: what `store.open_shard` takes besides path and host.

    Raises:
        ShardBusyError: the rank is known and another live process writes it; or no number is free.
        StoreError: as `store.open_shard`.
    """
    from phasepoint.store import open_shard

    launch = environ.get(LAUNCH_VARIABLE)
    if launch is not None:
        session["notes"] = {**session.get("notes", {}), _LAUNCH_NOTE: launch}
    known = known_rank(environ)
    if known is not None:
        return open_shard(path, known, **session)
    siblings = _siblings(path, launch)
    for host in range(MOST_FREE_RANKS):
        if host in siblings:
            continue
        try:
            return open_shard(path, host, **session)
        except ShardBusyError as error:
            if error.may_pass:
                raise  # if that one is dead, this is the same process on another machine, and not one beside it
            continue
    raise ShardBusyError(
        f"{os.fspath(path)}: {MOST_FREE_RANKS} live processes write this run; set RANK in each, or record elsewhere"
    )


class SignsOfLife:
    """Tells dead writers on other machines from live ones by whether their heartbeats change, by one's own clock alone.

    Args:
        now_ns: a monotonic clock.

    Attributes:
        is_last_call: nothing can be waited for any more: who has shown no change is taken for dead.
    """

    def __init__(self, now_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self.is_last_call = False
        self._now_ns = now_ns
        self._first: dict[str, tuple[int, int]] = {}

    def is_live(self, shard: str, sign_unix_ns: int) -> bool | None:
        """Whether the writer whose last sign of life was then is alive; None where it cannot be told yet."""
        from phasepoint.store.session import HEARTBEAT_LIMIT_NS

        first_ns, since_ns = self._first.setdefault(shard, (sign_unix_ns, self._now_ns()))
        if first_ns != sign_unix_ns:
            return True
        is_silent = self.is_last_call or self._now_ns() - since_ns >= HEARTBEAT_LIMIT_NS
        return False if is_silent or time.time_ns() - sign_unix_ns > HEARTBEAT_LIMIT_NS else None


def _siblings(path: str | PathLike[str], launch: str | None) -> set[int]:
    """Numbers of the processes of the same job, whether they still run or not.

    They have the same launch; without one, they are those that run here and those that began after the first of these.
    One that runs on another machine may be dead, and this process the one that goes on for it.
    """
    from phasepoint.store.filesystem import list_directory, open_location
    from phasepoint.store.session import parse_shard_name

    if not any(parse_shard_name(entry.name) for entry in list_directory(open_location(path))):
        return set()  # the first process need not import what reads runs
    from phasepoint.store import open_run
    from phasepoint.store.session import is_alive

    shards = open_run(path).shards
    if launch is not None:
        return {shard.host for shard in shards if shard.session.notes.get(_LAUNCH_NOTE) == launch}
    running = [shard for shard in shards if shard.state == "live" and is_alive(shard.session.owner) is not None]
    began_ns = min((shard.started_unix_ns for shard in running), default=None)
    return set() if began_ns is None else {shard.host for shard in shards if shard.started_unix_ns >= began_ns}


def _jax_rank() -> int | None:
    """The process's index if JAX's distributed runtime is connected, or several processes share started backends."""
    distributed = sys.modules.get("jax._src.distributed")
    state = getattr(distributed, "global_state", None)
    if getattr(state, "client", None) is not None:
        return int(state.process_id)  # type: ignore[union-attr]
    if not jax_backends_started():
        return None
    import jax

    return int(jax.process_index()) if jax.process_count() > 1 else None


def jax_backends_started() -> bool:
    """Whether asking JAX for devices is harmless: it would start the backends, before `jax.distributed.initialize`."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    started = getattr(bridge, "backends_are_initialized", None)
    return bool(started()) if started is not None else False


_COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_FRAMEWORKS = ("jax", "jaxlib", "flax", "optax", "torch", "numpy")


def job_command() -> tuple[str, ...]:
    """The job's command line, as the interpreter was started."""
    return tuple(sys.orig_argv)


def framework_versions() -> dict[str, str]:
    """Versions of the frameworks that the job has imported, without importing any."""
    versions = {name: getattr(sys.modules.get(name), "__version__", None) for name in _FRAMEWORKS}
    return {name: str(version) for name, version in versions.items() if version is not None}


def git_commit(folder: Path) -> str | None:
    """Commit of the work tree that holds a folder, read from `.git` without starting git; None where there is none."""
    for parent in (folder, *folder.parents):
        git = parent / ".git"
        if git.is_dir():
            return _read_commit(git)
    return None


def job_folder() -> Path:
    """Where the job's script lies, or where it was started."""
    script = Path(sys.argv[0]) if sys.argv and sys.argv[0] else Path()
    return script.resolve().parent if script.is_file() else Path.cwd()


def _read_commit(git: Path) -> str | None:
    try:
        head = (git / "HEAD").read_text(encoding="ascii").strip()
        if not head.startswith("ref: "):
            return head if _COMMIT.fullmatch(head) else None
        name = head.removeprefix("ref: ")
        loose = git / name
        if loose.is_file():
            commit = loose.read_text(encoding="ascii").strip()
            return commit if _COMMIT.fullmatch(commit) else None
        packed = (git / "packed-refs").read_text(encoding="ascii").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    return next((line.split()[0] for line in packed if line.endswith(f" {name}")), None)
