"""What the profiler adds to a span on a CPU, measured in the process that measures programs, and taken off its times.

A span's own cost lies inside it: of a kernel of 5 µs 4 %, of the small kernels of a loop nearly everything. It is what
the spans of a loop of next to nothing last, less what the loop takes with no profiler on.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from phasepoint.core.arrays import Int64s

RESOLUTION_PS = 50_000
"""50 ns: no kernel is said to be shorter. Spans of one kernel that does next to nothing differ by ± 20 ns
(jax 0.10.2, one core of an AMD EPYC, 2026-11-21)."""

_TRIPS = (50, 450)
_SHAPE = (512,)
"""2 KiB an array: XLA makes one kernel of a whole loop over less than 1 KiB."""

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

    from phasepoint.learn.collect_measure import load_program

    if jax.devices()[0].platform != "cpu":
        return SpanCost()

    def looped(trips: int) -> tuple[int, int, int]:
        """Spans of a run, their time, and the wall time of a run with no profiler on."""

        def swap(_: Any, pair: tuple[Any, Any]) -> tuple[Any, Any]:
            return jnp.flip(pair[1]), pair[0]

        def loop(first: Any, second: Any) -> Any:
            return jax.lax.fori_loop(0, trips, swap, (first, second))

        shape = jax.ShapeDtypeStruct(_SHAPE, jnp.float32)
        loaded = load_program(loop, (shape, shape), rounds=_ROUNDS, repeats=_REPEATS)
        rounds = [loaded.measure_round() for _ in range(_ROUNDS)]
        names = [name for name, count in rounds[0].executions.items() if count >= trips]
        spans_ps = min(sum(int(r.times_ps[name].min()) * r.executions[name] for name in names) for r in rounds)
        wall_ps = min(int(r.wall_ps.min()) for r in rounds)
        return sum(rounds[0].executions[name] for name in names), spans_ps, wall_ps

    few, many = (looped(trips) for trips in _TRIPS)
    spans, spans_ps, wall_ps = (b - a for a, b in zip(few, many, strict=True))
    trip_ps = wall_ps // (_TRIPS[1] - _TRIPS[0])
    return SpanCost(max((spans_ps - wall_ps) // spans, 0), max(few[2] - _TRIPS[0] * trip_ps, 0))
