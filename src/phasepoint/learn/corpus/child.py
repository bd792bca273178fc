"""The process that measures a batch, from inside and from outside: what it does, what it answers, how it ended.

It runs as `python -m phasepoint.learn.corpus.child`, or as another module that serves tasks, its batch as JSON on
stdin. It says on stdout, a line each, what
it is about to do and what it has done: whoever started it knows by that which program killed it. All programs of the
batch stay loaded and are measured in turns, so that a slow spell of the machine falls on one round of each, not on all
rounds of one.

One core for each measuring process of a machine, whoever started it.
"""

import errno
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Timer
from typing import IO, Any

import numpy as np
import pyarrow as pa

from phasepoint.core import errors
from phasepoint.core.errors import ModelError, PhasepointError
from phasepoint.core.statistics import median_ps
from phasepoint.learn.corpus.folder import (
    FAILED,
    KERNEL_ROWS,
    MEASURED,
    PROGRAMS,
    ProgramHead,
    read_kernel_rows,
    read_program,
    replace_rounds,
    write_program,
)
from phasepoint.learn.corpus.measure import (
    LoadedProgram,
    SpanCost,
    bind_core,
    load_program,
    measure_span_cost,
    prepare_jax,
)
from phasepoint.learn.corpus.runs import ProgramReference, file_programs, find_specs
from phasepoint.zoo.specs import ProgramSpec

_WAIT_S = 0.2
"""Between two looks for a free core, a choice: a batch takes far longer."""


@contextmanager
def claim_core(cores: Sequence[int]) -> Iterator[int | None]:
    """A core of those given that no other measuring process of this machine has; waits until there is one.

    A socket of an abstract name stands for the core: it is gone with the process, however that ends.

    Args:
        cores: to choose from; none: the processes need no core of their own.
    """
    if not cores or not sys.platform.startswith("linux"):
        yield None
        return
    while True:
        for core in cores:
            claim = _claim(core)
            if claim is not None:
                with claim:
                    yield core
                return
        time.sleep(_WAIT_S)


def usable_cores() -> tuple[int, ...]:
    """Cores that this process may use, the last one first: the first serves more interrupts."""
    if not hasattr(os, "sched_getaffinity"):
        return ()
    return tuple(sorted(os.sched_getaffinity(0), reverse=True))


def _claim(core: int) -> socket.socket | None:
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        claim.bind(f"\0phasepoint-core-{core}")
    except OSError as error:
        claim.close()
        if error.errno == errno.EADDRINUSE:
            return None
        raise
    return claim


LIMIT_S = 300.0
"""Silence after which a process is ended: one program took too long to compile or to run a round."""


STEADY_HEAP = {
    "MALLOC_TRIM_THRESHOLD_": str(1 << 30),
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TOP_PAD_": str(64 << 20),
}
"""Lets the C library keep memory between runs. Else large arrays are given back and touched anew by chance: a copy of
2 MB took 29 µs or 6 ms, program by program (measured 2026-11-21)."""


@dataclass
class Child:
    """A measuring process that runs.

    Attributes:
        process: the process.
        log: what it writes to stderr.
        limit_s: silence after which it is ended.
        late: whether it was ended for its silence.
    """

    process: subprocess.Popen[str]
    log: IO[bytes]
    limit_s: float = LIMIT_S
    late: bool = False

    def answers(self) -> Iterator[dict[str, Any]]:
        """What it says, a line each.

        Raises:
            PhasepointError: as the process reports one.
        """
        assert self.process.stdout is not None
        while True:
            timer = Timer(self.limit_s, self._end)
            timer.start()
            try:
                line = self.process.stdout.readline()
            finally:
                timer.cancel()
            if not line.endswith("\n"):
                return
            answer = json.loads(line)
            if "error" in answer:
                raise _error_of(answer["exit_code"], answer["error"])
            yield answer

    def how_it_ended(self) -> str | None:
        """In words; None where it ended well."""
        code = self.process.wait()
        if code == 0:
            return None
        if self.late:
            return f"no answer within {self.limit_s:.0f} s"
        if code < 0:
            return f"the process was killed by {signal.Signals(-code).name}"
        self.log.seek(0)
        lines = self.log.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"the process ended with exit code {code}"

    def _end(self) -> None:
        self.late = True
        self.process.kill()


MODULE = "phasepoint.learn.corpus.child"
"""What a process runs that measures on the device that is here."""


@contextmanager
def child_process(task: Mapping[str, Any], module: str = MODULE, *, limit_s: float = LIMIT_S) -> Iterator[Child]:
    """A measuring process for a task; it is ended where it is not done, or says nothing for so long."""
    command = [sys.executable, "-m", module]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            encoding="utf-8",
            env={**os.environ, **STEADY_HEAP},
        )
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(task))
            process.stdin.close()
            yield Child(process, log, limit_s)
        finally:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


def _error_of(exit_code: int, text: str) -> errors.PhasepointError:
    """The error that a process reported, of the class with its exit code."""
    kinds = [errors.PhasepointError]
    for kind in kinds:
        kinds += kind.__subclasses__()
    return next(kind for kind in kinds if kind.exit_code == exit_code)(text)


REASON_CHARACTERS = 500
"""Of an error's text that are kept, a choice: XLA's texts are long."""

Say = Callable[..., None]

_FAILURES = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    MemoryError,
    PhasepointError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What a program's own code and the compiler raise."""


def serve(run: Callable[[Mapping[str, Any], Say], None]) -> None:
    """Run the task that stdin holds; what it says, or an error of ours, goes to stdout."""
    task = json.loads(sys.stdin.read())
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a user's program prints must not be taken for an answer

    def say(**fields: Any) -> None:
        answers.write(json.dumps(fields) + "\n")
        answers.flush()

    try:
        run(task, say)
    except PhasepointError as error:
        say(error=str(error), exit_code=error.exit_code)


def _run(task: Mapping[str, Any], say: Say) -> None:
    if "file" in task:
        say(names=[spec.name for spec in file_programs(task["file"])])
    elif "probe" in task:
        with claim_core(task["cores"]) as core:
            bind_core(core)
            say(device=describe_device(prepare_jax(), cores=None if core is None else 1))
    else:
        _measure_batch(task, say)


def describe_device(jax: Any, *, cores: int | None) -> dict[str, Any]:
    """Name, kind and cores of the device that programs run on, and versions of what runs them."""
    import jaxlib

    from phasepoint.devices.cpu_peaks import cpu_identity

    device = jax.devices()[0]
    versions = {"jax": jax.__version__, "jaxlib": jaxlib.__version__}
    if device.platform != "cpu":
        return {"name": device.device_kind, "kind": device.platform, "cores": None, "versions": versions}
    count = cores or len(os.sched_getaffinity(0))
    name = f"{cpu_identity().model}, {count} core{'s' if count > 1 else ''}"
    return {"name": name, "kind": "cpu", "cores": count, "versions": versions}


def _measure_batch(task: Mapping[str, Any], say: Say) -> None:
    specs = find_specs([ProgramReference(**one) for one in task["programs"]])
    with claim_core(task["cores"]) as core:
        bind_core(core)
        jax = prepare_jax()
        device = describe_device(jax, cores=None if core is None else 1)["name"]
        if device != task["device"]:
            raise ModelError(f"this process runs on {device!r}, the corpus is of {task['device']!r}")
        loaded: dict[str, LoadedProgram] = {}
        cost = measure_span_cost()
        for name, spec in specs.items():
            with kept(spec, task, say, part="compiling"):
                loaded[name] = _load(spec, task, cost)
        gc.collect()
        gc.disable()  # a collection would fall into a measured run
        for number in range(task["rounds"]):
            for name in list(loaded):
                if number >= task["rounds"] - task["left"][name]:
                    with kept(specs[name], task, say, part="measuring"):
                        _measure(loaded[name], specs[name], task, say)


@contextmanager
def kept(spec: ProgramSpec, task: Mapping[str, Any], say: Say, *, part: str) -> Iterator[None]:
    """Say what begins; keep a failure in the corpus. What is not caught here ends the process, which tells as much."""
    say(begin=spec.name, part=part, family=spec.family, variant=spec.variant, mode=spec.mode)
    try:
        yield
    except _FAILURES as error:
        reason = f"{type(error).__name__} while {part}: {error}"[:REASON_CHARACTERS]
        write_failed(task["out"], head_of(spec, task["device"]), reason)
        say(failed=spec.name, reason=reason)


def _load(spec: ProgramSpec, task: Mapping[str, Any], cost: SpanCost) -> LoadedProgram:
    function, shapes = spec.build()
    return load_program(
        function,
        shapes,
        rounds=task["rounds"],
        repeats=task["repeats"],
        integer_bound=spec.integer_bound,
        cost=cost,
    )


def _measure(loaded: LoadedProgram, spec: ProgramSpec, task: Mapping[str, Any], say: Say) -> None:
    """One round, written when it is done: whatever ends the process, the rounds before it stay."""
    measured = replace(loaded.measurement, rounds=(loaded.measure_round(),))
    out, folder = task["out"], Path(task["out"]) / PROGRAMS / spec.name
    before = read_program(folder) if folder.is_dir() else None
    if before is not None and (before.status != MEASURED or before.fingerprint != measured.fingerprint):
        before = None
    old = KERNEL_ROWS.empty_table() if before is None else read_kernel_rows(folder)
    rounds = int(max(old["round"].to_pylist(), default=-1)) + 1
    rows = pa.concat_tables([old, measured.rows(first_round=rounds)])
    wall_ps = measured.rounds[0].wall_ps
    walls = [*(() if before is None else before.walls_ps), (int(wall_ps.min()), median_ps(wall_ps))]
    head = replace(
        head_of(spec, task["device"]),
        wall_min_ps=min(least for least, _ in walls),
        wall_median_ps=median_ps(np.array([middle for _, middle in walls], np.int64)),
        walls_ps=tuple(walls),
        runs=sum(one.repeats for one in measured.rounds) + (0 if before is None else before.runs),
        fingerprint=measured.fingerprint,
        not_traced=measured.not_traced(),
        unlisted_ps=measured.unlisted_ps(),
        span_cost_ps=measured.cost.span_ps,
        call_ps=measured.cost.call_ps,
        notes=measured.kernels.notes,
    )
    if before is None:
        write_program(out, head, hlo=measured.hlo, rows=rows)
    else:
        replace_rounds(out, head, rows)
    say(round=spec.name, rounds=rounds + 1)


def head_of(spec: ProgramSpec, device: str) -> ProgramHead:
    """What is known of a program before it was measured."""
    return ProgramHead(spec.name, spec.family, spec.variant, spec.mode, device)


def write_failed(out: str | Path, head: ProgramHead, reason: str) -> None:
    """Keep that a program failed, and why."""
    write_program(out, replace(head, status=FAILED, reason=reason), hlo=None, rows=KERNEL_ROWS.empty_table())


if __name__ == "__main__":
    serve(_run)
