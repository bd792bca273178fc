"""Compiling for TPUs without one: a child process with limits, and a folder of what it compiled before.

The compiler is Google's `libtpu` from PyPI, under its own terms; it is never part of this package.
"""

import hashlib
import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version as installed_version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from phasepoint.core import errors
from phasepoint.core.errors import MissingExtraError, ModelError, PhasepointError
from phasepoint.hlo.loops import COUNTS_VERSION, write_trip_counts
from phasepoint.learn.predict.tpu.topology import Topology

NO_COMPILER = (
    "compiled for the CPU, whose fusions are others: the TPU's own compiler is not installed "
    "(pip install 'phasepoint[tpu]'), so times are of the analytic model"
)

MOST_S = 600.0
"""Of a compilation: the largest that were tried took a minute. A choice."""

MOST_BYTES = 12 << 30
"""Of a compilation's own memory: the largest that were tried took 2 GiB. A choice."""

LEFT_OUT = "PHASEPOINT_WITHOUT"
"""Environment variable: the techniques of `phasepoint.scale` that are left out, with commas between them."""

_LOOK_S = 0.1
"""Between two looks at the process, a choice: short beside a compilation, which takes seconds."""


@dataclass(frozen=True)
class Function:
    """A function in a Python file, and where its arguments come from.

    Attributes:
        path: the file.
        name: of the function.
        args: shapes of its arguments.
        args_from: name in the file of its arguments, or of what makes them.
    """

    path: Path
    name: str
    args: str | None = None
    args_from: str | None = None


@dataclass(frozen=True)
class SpreadStep:
    """A step over all devices of a slice.

    Attributes:
        batch: samples of a step, all devices together; None: as the arguments have them.
        data: places of the arguments that are batches, from 0; none: those that the function does not return.
        batch_axis: dimension of the batches along which their samples lie: 1 where time comes first.
        without: techniques of `phasepoint.scale` that the step does without, by name.
    """

    batch: int | None = None
    data: tuple[int, ...] = ()
    batch_axis: int = 0
    without: tuple[str, ...] = ()


@dataclass(frozen=True)
class Compiled:
    """What the compiler made.

    Attributes:
        program: a serialised `HloModuleProto`, optimised.
        memory: bytes of a device: argument, output, alias, temp.
        compile_s: seconds that it took; 0 where it was compiled before.
        notes: versions.
        batch: samples of a step that is spread over a slice; None of others.
    """

    program: bytes
    memory: Mapping[str, int]
    compile_s: float
    notes: tuple[str, ...]
    batch: int | None = None


def has_compiler() -> bool:
    """Whether the TPU's compiler is installed."""
    return _library() is not None


def _library() -> Path | None:
    given = os.environ.get("TPU_LIBRARY_PATH")
    if given:
        return Path(given)
    found = find_spec("libtpu")
    places = list(found.submodule_search_locations or []) if found is not None else []
    library = Path(places[0]) / "libtpu.so" if places else None
    return library if library is not None and library.is_file() else None


@contextmanager
def left_out(names: Sequence[str]) -> Iterator[None]:
    """While it lasts, these techniques of `phasepoint.scale` are left out of what is traced."""
    before = os.environ.get(LEFT_OUT)
    os.environ[LEFT_OUT] = ",".join(names)
    try:
        yield
    finally:
        if before is None:
            del os.environ[LEFT_OUT]
        else:
            os.environ[LEFT_OUT] = before


def cache_folder() -> Path:
    """Where compiled programs are kept: `phasepoint/tpu` in the user's cache folder."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "phasepoint" / "tpu"


def compile_function_for(
    asked: Function,
    topology: Topology,
    *,
    spread: SpreadStep | None = None,
    most_s: float = MOST_S,
    most_bytes: int = MOST_BYTES,
) -> Compiled:
    """The program of a function for one device of a slice, or for all of them together.

    Args:
        asked: the function.
        topology: the slice.
        spread: how a step is divided among all devices; None: it runs on one.
        most_s: seconds after which the compilation is ended.
        most_bytes: of memory, likewise.

    Raises:
        MissingExtraError: the compiler is not installed.
        UsageError: no such file or function, arguments that are missing.
        ModelError: the function raises, or the compiler refuses it, takes too long or too much memory.
    """
    library = compiler_library()
    cache = cache_folder()
    cache.mkdir(parents=True, exist_ok=True)
    request = {
        "file": str(asked.path.resolve()),
        "name": asked.name,
        "args": asked.args,
        "args_from": asked.args_from,
        **slice_request(topology),
        "spread": None if spread is None else asdict(spread),
    }
    memo = cache / f"asked-{_hash_of(request, library)}.json"
    said = _remembered(memo)
    if said is None:
        with tempfile.TemporaryDirectory(prefix="phasepoint-tpu-") as folder:
            answer = Path(folder) / "answer.json"
            said = _run(
                request | {"answer": str(answer), "parent": os.getpid()}, cache, library, answer, (most_s, most_bytes)
            )
        if "sources" in said:  # what the compiler says of the same files stays; an error of the user's own need not
            keep_file(memo, json.dumps(said).encode())
    if "error" in said:
        kind: type[PhasepointError] = getattr(errors, said["error"], ModelError)
        raise kind(said["message"])
    facts = json.loads((cache / f"{said['key']}.json").read_text())
    notes = (*said.get("notes", ()), f"compiled for {topology.name} by {', '.join(facts['versions'])}")
    return Compiled(_counted(cache / f"{said['key']}.pb"), facts["memory"], said["compile_s"], notes, said["batch"])


def _counted(compiled: Path) -> bytes:
    """A compiled program with the counts of its loops, which are found once."""
    kept = compiled.with_suffix(f".counted-{COUNTS_VERSION}.pb")
    if not kept.is_file():
        keep_file(kept, write_trip_counts(compiled.read_bytes()))
    return kept.read_bytes()


def _hash_of(request: Mapping[str, Any], library: Path) -> str:
    """Of a request, the compiler and the packages: equal where nothing but the user's files can have changed."""
    packages = [f"{name} {installed_version(name)}" for name in ("jax", "jaxlib")]
    written_ns = library.stat().st_mtime_ns if library.exists() else 0
    text = json.dumps([request, packages, str(library), written_ns], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _remembered(memo: Path) -> dict[str, Any] | None:
    """What was answered before, where every file that the function came from is as it was then."""
    try:
        said: dict[str, Any] = json.loads(memo.read_text())
        stats = [(Path(name).stat(), time_ns, size) for name, time_ns, size in said["sources"]]
    except (OSError, ValueError):
        return None
    is_same = all((stat.st_mtime_ns, stat.st_size) == (time_ns, size) for stat, time_ns, size in stats)
    whole = "error" in said or all((memo.parent / f"{said['key']}.{kind}").is_file() for kind in ("json", "pb"))
    return {**said, "compile_s": 0.0} if is_same and whole else None


def keep_file(path: Path, data: bytes) -> None:
    """A file that is there when it is whole; another process may write the same."""
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    part.write_bytes(data)
    part.replace(path)


def compiler_library() -> Path:
    """The compiler.

    Raises:
        MissingExtraError: it is not installed.
    """
    library = _library()
    if library is None:
        raise MissingExtraError("compiling for a TPU needs its compiler: pip install 'phasepoint[tpu]'")
    return library


def compiler_environment(library: Path) -> dict[str, str]:
    """Environment variables of a process that compiles, to be set before it starts JAX."""
    return {
        "JAX_PLATFORMS": "cpu",
        "TPU_LIBRARY_PATH": str(library),
        "TPU_SKIP_MDS_QUERY": "1",  # no metadata server to ask: this is no TPU machine
        "TPU_WORKER_HOSTNAMES": "localhost",
        "TPU_WORKER_ID": "0",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # it locks the machine's TPU, of which there is none
    }


def slice_request(topology: Topology) -> dict[str, Any]:
    """A slice as the process that compiles is asked for it."""
    return {"topology": topology.name, "config": topology.generation.config, "host": _host_bounds(topology)}


def _host_bounds(topology: Topology) -> list[int]:
    """Chips of a host along three axes; 2×2 where the slice can be divided so."""
    shape = [*topology.shape, 1, 1][:3]
    return [2, 2, 1] if shape[0] % 2 == 0 and shape[1] % 2 == 0 else [1, 1, 1]


def _run(
    request: Mapping[str, Any], cache: Path, library: Path, answer: Path, limits: tuple[float, int]
) -> dict[str, Any]:
    environ = os.environ | compiler_environment(library)
    command = [sys.executable, "-m", "phasepoint.learn.predict.tpu.child", str(cache)]
    log = answer.with_suffix(".log")
    with (
        log.open("wb") as output,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=output, stderr=output, env=environ) as process,
    ):
        assert process.stdin is not None
        process.stdin.write(json.dumps(request).encode())
        process.stdin.close()
        problem = _watch(process, *limits)
    if problem is not None:
        raise ModelError(
            f"compiling {request['name']} for {request['topology']} {problem}; give a smaller program, "
            f"random numbers that compile sooner (jax.config.update('jax_default_prng_impl', 'rbg')), or uninstall "
            f"libtpu for times of the analytic model"
        )
    if not answer.is_file():
        last = " ".join(log.read_text(errors="replace").split()[-60:])
        raise ModelError(f"the TPU's compiler ended with exit code {process.returncode}: {last[-600:]}")
    said: dict[str, Any] = json.loads(answer.read_text())
    return said


def _watch(process: "subprocess.Popen[bytes]", most_s: float, most_bytes: int) -> str | None:
    """Wait for its end; what limit it broke, None for none."""
    began = time.monotonic()
    while process.poll() is None:
        time.sleep(_LOOK_S)
        if time.monotonic() - began > most_s:
            process.kill()
            return f"took more than {most_s:.0f} s"
        if _own_bytes(process.pid) > most_bytes:
            process.kill()
            return f"took more than {most_bytes / 2**30:.0f} GiB of memory"
    return None


def _own_bytes(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:")), 0)
