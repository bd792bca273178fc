"""How often a program's computations run where the compiler does not say: loops and branches."""

from collections.abc import Mapping
from dataclasses import dataclass

from phasepoint.sources.hlo_module import Computation, Instruction, Module
from phasepoint.sources.hlo_work import trip_count


@dataclass(frozen=True)
class Weights:
    """Executions of each computation in one execution of the program.

    Attributes:
        once: outside loops of unknown trip count; branches of one conditional share its executions.
        looped: inside such loops, for one iteration of each (or the given number).
        loops: names of those loops.
        branches: each conditional that runs, with how often and the computations that it chooses from.
    """

    once: Mapping[Computation, float]
    looped: Mapping[Computation, float]
    loops: tuple[str, ...]
    branches: tuple[tuple[float, tuple[Computation, ...]], ...]

    def of(self, computation: Computation) -> float:
        """All executions of a computation."""
        return self.once.get(computation, 0.0) + self.looped.get(computation, 0.0)


def weigh_computations(module: Module, *, trip_counts: int = 1) -> Weights:
    """Count executions, callers before callees.

    Args:
        module: the program.
        trip_counts: iterations of loops whose number the compiler does not know.
    """
    once: dict[Computation, float] = {module.entry: 1.0}
    looped: dict[Computation, float] = {}
    loops, branches = [], []
    for computation in reversed(module.computations):
        here = once.get(computation, 0.0), looped.get(computation, 0.0)
        if not any(here):
            continue
        for one in computation.instructions:
            unknown = one.opcode == "while" and trip_count(one) is None
            if unknown:
                loops.append(one.name)
            if one.opcode == "conditional" and one.called:
                branches.append((sum(here), one.called))
            for callee, times in zip(one.called, _times(one, trip_counts), strict=True):
                looped[callee] = looped.get(callee, 0.0) + times * (sum(here) if unknown else here[1])
                once[callee] = once.get(callee, 0.0) + (0.0 if unknown else times * here[0])
    return Weights(once, looped, tuple(loops), tuple(branches))


def _times(one: Instruction, trip_counts: int) -> tuple[float, ...]:
    if one.opcode == "while":
        found = trip_count(one)
        trips = float(trip_counts if found is None else found)
        return (trips, *[trips + 1] * (len(one.called) - 1))  # the proto lists the body first, then the condition
    if one.opcode == "conditional":
        return (1.0 / len(one.called),) * len(one.called)
    return (1.0,) * len(one.called)


def branch_spread_ps(module: Module, weights: Weights, own_ps: Mapping[Computation, float]) -> tuple[float, float]:
    """How far below and above the mean over branches a program's time can be.

    Args:
        module: the program.
        weights: its executions.
        own_ps: time of one execution of a computation's own kernels, ps; what it calls is left out.
    """
    if not weights.branches:
        return 0.0, 0.0
    whole: dict[Computation, float] = {}
    for computation in module.computations:
        whole[computation] = own_ps.get(computation, 0.0) + sum(
            times * whole.get(callee, 0.0)
            for one in computation.instructions
            if one.opcode in ("while", "conditional", "call", "async-start")
            for callee, times in zip(one.called, _times(one, 1), strict=True)
        )
    below = above = 0.0
    for count, callees in weights.branches:
        times = [whole[callee] for callee in callees]
        mean = sum(times) / len(times)
        below += count * (mean - min(times))
        above += count * (max(times) - mean)
    return below, above
