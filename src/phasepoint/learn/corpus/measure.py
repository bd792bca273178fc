"""Measuring one compiled program: how long each of its kernels takes on the device that is here.

A run executes the program once. On a CPU the process must be bound to one core and dispatch at once (`bind_core`,
`prepare_jax`, both before JAX starts its backends); else the spans of the trace hold waits for other kernels.

What the profiler adds to a span on a CPU, measured in the process that measures programs, and taken off its times.

A span's own cost lies inside it: of a kernel of 5 µs 4 %, of the small kernels of a loop nearly everything. It is what
the spans of a loop of next to nothing last, less what the loop takes with no profiler on.
"""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from phasepoint.core.arrays import Int64s
from phasepoint.core.errors import MissingExtraError, ModelError
from phasepoint.core.statistics import median_ps
from phasepoint.hlo.fingerprint import fingerprint_module
from phasepoint.hlo.module import parse_module_proto
from phasepoint.learn.corpus.folder import KERNEL_ROWS
from phasepoint.learn.hlo_graph.kernels import Kernels, kernels_of_module
from phasepoint.zoo import make_inputs

RESOLUTION_PS = 50_000
"""50 ns: no kernel is said to be shorter. Spans of one kernel that does next to nothing differ by ± 20 ns
(jax 0.10.2, one core of an AMD EPYC, 2026-11-21)."""

_TRIPS = (50, 450)
_SHAPE = (512,)
"""2 KiB an array: XLA makes one kernel of a whole loop over less than 1 KiB (jax 0.10); newer ones of more."""

_CHAIN = (20, 120)
"""Kernels one after the other, where a loop is one: as many as compile in a second or two."""

_ROUNDS, _REPEATS = 3, 5


@dataclass(frozen=True)
class SpanCost:
    """Costs of measuring on this device, ps.

    Attributes:
        span_ps: that a span of a kernel holds of the profiler's own work.
        call_ps: wall time of calling a program that does next to nothing.
    """

    span_ps: int = 0
    call_ps: int | None = None

    def taken_off(self, times_ps: Int64s) -> Int64s:
        """Times of kernels without the span's cost, `RESOLUTION_PS` or more; as they are where it costs nothing."""
        return np.maximum(times_ps - self.span_ps, RESOLUTION_PS) if self.span_ps else times_ps


def measure_span_cost() -> SpanCost:
    """Measure the costs in this process; where kernels do not run on the host, their spans cost nothing."""
    import jax
    import jax.numpy as jnp

    if jax.devices()[0].platform != "cpu":
        return SpanCost()

    def swap(_: Any, pair: tuple[Any, Any]) -> tuple[Any, Any]:
        return jnp.flip(pair[1]), pair[0]

    def loop(trips: int, pair: tuple[Any, Any]) -> Any:
        return jax.lax.fori_loop(0, trips, swap, pair)

    def chain(trips: int, pair: tuple[Any, Any]) -> Any:
        for trip in range(trips):
            pair = jax.lax.optimization_barrier(swap(trip, pair))
        return pair

    def measured(program: Callable[[int, tuple[Any, Any]], Any], trips: int, least: int) -> tuple[int, int, int]:
        """Spans of a run that executes them so often, their time, and the wall time of one with no profiler on."""
        shape = jax.ShapeDtypeStruct(_SHAPE, jnp.float32)
        loaded = load_program(
            lambda first, second: program(trips, (first, second)), (shape, shape), rounds=_ROUNDS, repeats=_REPEATS
        )
        rounds = [loaded.measure_round() for _ in range(_ROUNDS)]
        names = [name for name, count in rounds[0].executions.items() if count >= least]
        spans_ps = min(sum(int(r.times_ps[name].min()) * r.executions[name] for name in names) for r in rounds)
        wall_ps = min(int(r.wall_ps.min()) for r in rounds)
        return sum(rounds[0].executions[name] for name in names), spans_ps, wall_ps

    trips = _TRIPS
    few, many = (measured(loop, count, count) for count in trips)
    if few[0] == many[0]:
        trips = _CHAIN
        few, many = (measured(chain, count, 1) for count in trips)
    spans, spans_ps, wall_ps = (b - a for a, b in zip(few, many, strict=True))
    trip_ps = wall_ps // (trips[1] - trips[0])
    return SpanCost(max((spans_ps - wall_ps) // max(spans, 1), 0), max(few[2] - trips[0] * trip_ps, 0))


ROUNDS, REPEATS = 3, 12
LEAST_REPEATS = 3
"""Runs of a round however long one takes, a choice: the least of fewer says little."""
BUDGET_S = 2.0
"""What the rounds of one program may take, profiled and not, in all."""

CPU_FLAGS = "--xla_cpu_multi_thread_eigen=false"


@dataclass(frozen=True)
class Round:
    """Times of one round.

    Attributes:
        repeats: profiled runs.
        wall_ps: `[repeats]` wall times of runs with no profiler on.
        executions: of each instruction in a run, by name; runs that differ are averaged and rounded.
        times_ps: `[runs]` time of one execution, averaged within each run, by the instruction's name.
    """

    repeats: int
    wall_ps: Int64s
    executions: Mapping[str, int]
    times_ps: Mapping[str, Int64s]


@dataclass(frozen=True)
class Measurement:
    """A program with the times of its kernels.

    Attributes:
        hlo: serialised HloModuleProto after optimisation.
        fingerprint: of the module.
        kernels: those of the module.
        rounds: in order.
        cost: of measuring, taken off the kernels' times.
    """

    hlo: bytes
    fingerprint: str
    kernels: Kernels
    rounds: tuple[Round, ...] = ()
    cost: SpanCost = field(default_factory=SpanCost)

    def rows(self, *, first_round: int = 0) -> pa.Table:
        """Rows of `KERNEL_ROWS` of the kernels that the trace holds, rounds numbered from `first_round`."""
        rows = [
            {
                "kernel": kernel.name,
                "opcode": kernel.opcode,
                "fingerprint": kernel.fingerprint,
                "executions": one.executions[kernel.name],
                "round": first_round + number,
                "repeats": one.repeats,
                "time_min_ps": int(times_ps.min()),
                "time_median_ps": median_ps(times_ps),
            }
            for number, one in enumerate(self.rounds)
            for kernel in self.kernels.kernels
            if kernel.name in one.times_ps
            for times_ps in (self.cost.taken_off(one.times_ps[kernel.name]),)
        ]
        return pa.Table.from_pylist(rows, KERNEL_ROWS)

    def not_traced(self) -> tuple[str, ...]:
        """Kernels that no round's trace holds."""
        seen = {name for one in self.rounds for name in one.times_ps}
        return tuple(kernel.name for kernel in self.kernels.kernels if kernel.name not in seen)

    def unlisted_ps(self) -> dict[str, int]:
        """What the traces hold that is no kernel: least time in a run, by instruction."""
        listed = {kernel.name for kernel in self.kernels.kernels}
        found: dict[str, int] = {}
        for one in self.rounds:
            for name, times_ps in one.times_ps.items():
                if name not in listed:
                    run_ps = int(times_ps.min()) * one.executions[name]
                    found[name] = min(run_ps, found.get(name, run_ps))
        return found


@dataclass
class LoadedProgram:
    """A compiled program with its inputs, ready to be measured round by round."""

    measurement: Measurement
    run: Callable[[], None]
    repeats: int = REPEATS
    session: Any = field(default=None, repr=False)

    def measure_round(self) -> Round:
        """One round: runs with no profiler, then as many with it."""
        self.run()  # its arguments and code into the caches
        wall_ps = np.array([_timed_ns(self.run) for _ in range(self.repeats)], np.int64) * 1000
        self.session.start(with_programs=False)
        try:
            for step in range(self.repeats):
                with self.session.step_annotation(step):
                    self.run()
        finally:
            data = self.session.stop()
        times_ps, executions = times_of_trace(data())
        return Round(self.repeats, wall_ps, executions, times_ps)


def bind_core(core: int | None) -> None:
    """Bind this process, and threads that it starts from now on, to one core; None leaves it where it may run.

    Raises:
        ModelError: there is no such core, or this system binds no process.
    """
    if core is None:
        return
    if not hasattr(os, "sched_setaffinity"):
        raise ModelError("this system cannot bind a process to a core; the times of kernels on a CPU need that")
    try:
        os.sched_setaffinity(0, {core})
    except OSError as error:
        usable = ", ".join(str(one) for one in sorted(os.sched_getaffinity(0)))
        raise ModelError(f"core {core} cannot be used ({error.strerror}); there are {usable}") from error


def prepare_jax() -> Any:
    """JAX, set so that a CPU runs one kernel after the other; call it before anything else imports JAX.

    Raises:
        MissingExtraError: JAX is not installed.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if CPU_FLAGS not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {CPU_FLAGS}".strip()
    try:
        import jax
    except ImportError as error:
        raise MissingExtraError("measuring programs needs JAX: pip install 'phasepoint[jax]'") from error
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    return jax


def load_program(
    function: Callable[..., Any],
    shapes: tuple[Any, ...],
    *,
    rounds: int,
    repeats: int,
    integer_bound: int = 2,
    cost: SpanCost = SpanCost(),
) -> LoadedProgram:
    """Compile a function and run it once; choose how many runs of it fit into `BUDGET_S`.

    Args:
        function: what is given to `jax.jit`.
        shapes: its arguments, trees of `ShapeDtypeStruct`s.
        rounds: how many rounds are planned.
        repeats: runs in a round, at most.
        integer_bound: integers among the arguments are drawn below it.
        cost: of measuring in this process.
    """
    jax = prepare_jax()
    from phasepoint.recorder.profilers.jax import JaxSession

    compiled = jax.jit(function).lower(*shapes).compile()
    inputs = jax.block_until_ready(jax.device_put(make_inputs(shapes, integer_bound=integer_bound)))

    def run() -> None:
        jax.block_until_ready(compiled(*inputs))

    run()
    once_s = _timed_ns(run) / 1e9
    fitting = int(BUDGET_S / (2 * rounds * max(once_s, 1e-9)))
    hlo = compiled.runtime_executable().hlo_modules()[0].as_serialized_hlo_module_proto()
    module = parse_module_proto(hlo)
    measurement = Measurement(hlo, fingerprint_module(module), kernels_of_module(module), cost=cost)
    session = JaxSession(host_level=2, python_level=0)
    return LoadedProgram(measurement, run, min(repeats, max(fitting, LEAST_REPEATS)), session)


def times_of_trace(data: bytes) -> tuple[dict[str, Int64s], dict[str, int]]:
    """Times and executions of the instructions in a trace whose runs are marked as steps.

    Args:
        data: a serialised XSpace.

    Returns:
        By instruction: `[runs]` ps of one execution, averaged within a run; and executions in a run.
    """
    from phasepoint.sources.events.capture import CaptureRequest
    from phasepoint.sources.xplane.reader import read_xplane

    return times_of_ops(kernel_rows(read_xplane(data, CaptureRequest()).ops))


def kernel_rows(ops: pa.Table) -> pa.Table:
    """Rows of the table `ops` that are kernels in a step: of an accelerator its kernels, of a CPU and a TPU the ops."""
    level = ops["level"].cast(pa.string())
    of_kernels = pc.equal(level, "kernel")
    works = of_kernels if pc.any(of_kernels).as_py() else pc.equal(level, "op")
    return ops.filter(pc.and_(works, pc.is_valid(ops["step"])))


def times_of_ops(ops: pa.Table) -> tuple[dict[str, Int64s], dict[str, int]]:
    """As `times_of_trace`, of rows of the table `ops`: one program's, with a step each."""
    runs = ops.group_by(["op", "step"], use_threads=False).aggregate([("count", "sum"), ("self_ps", "sum")])
    count, self_ps = (runs[f"{name}_sum"].to_numpy().astype(np.int64) for name in ("count", "self_ps"))
    of_op: dict[str, list[int]] = {}
    for row, name in enumerate(runs["op"].to_pylist()):
        of_op.setdefault(name, []).append(row)
    times_ps = {name: (self_ps[rows] + count[rows] // 2) // count[rows] for name, rows in of_op.items()}
    executions = {name: max(round(float(count[rows].mean())), 1) for name, rows in of_op.items()}
    return times_ps, executions


def _timed_ns(run: Callable[[], None]) -> int:
    begin = time.perf_counter_ns()
    run()
    return time.perf_counter_ns() - begin
