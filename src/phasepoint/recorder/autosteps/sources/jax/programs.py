"""Which of a JAX job's compiled programs is its training step. Knows nothing of JAX.

A program that applies an optimizer's update goes before one that takes a gradient, that before any other; among equals
the one with the most executions times bytes taken and given. The choice is looked at again each time the number of
executions has doubled, and at once where a program that goes before the chosen one runs a second time.

Which program of the job a jitted function is: its code, however often it is wrapped or made anew.
"""

import functools
import re
from array import array
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from phasepoint.core.units import PS_PER_NS, PS_PER_S
from phasepoint.recorder.autosteps.evidence import Rank

_INTERNAL = ("jax.", "jaxlib.")
_PARALLEL = "jax._src.pmap"
"""Module of JAX whose functions stand for the job's own."""

_NOT_A_NAME = re.compile(r"[^0-9A-Za-z_]")


def program_name(fun: Any) -> str:
    """The function's name as XLA writes it in a module's name, without its signs."""
    while isinstance(fun, functools.partial):
        fun = fun.func
    return plain_name(str(getattr(fun, "__name__", type(fun).__name__)))


def plain_name(name: str) -> str:
    """A name without the signs that XLA leaves out."""
    return _NOT_A_NAME.sub("_", name)


def program_key(fun: Any) -> Hashable | None:
    """What two functions have in common that are the same program; None for JAX's own small programs.

    The code object of the job's function where there is one, so that a function that is jitted anew in every round
    stays one program, and two functions of one name are two.

    >>> program_key(functools.partial(program_key)) == program_key(program_key)
    True
    """
    user = _unwrapped(fun)
    if str(getattr(user, "__module__", "")) == _PARALLEL:
        user = _unwrapped(_inside_pmap(user))
    module = str(getattr(user, "__module__", ""))
    if module.startswith(_INTERNAL):
        return None
    code = getattr(user, "__code__", None)
    return (module, program_name(fun)) if code is None else code


def _unwrapped(fun: Any) -> Any:
    """The function behind partials, decorators and bound methods."""
    for _ in range(32):  # nobody wraps so often; a circle ends
        if isinstance(fun, functools.partial):
            fun = fun.func
        elif getattr(fun, "__wrapped__", None) is not None:
            fun = fun.__wrapped__
        elif getattr(fun, "__func__", None) is not None:
            fun = fun.__func__
        else:
            break
    return fun


def _inside_pmap(fun: Any) -> Any:
    """The job's function inside the one that `pmap` made of it; the latter, where it is not found."""
    for cell in getattr(fun, "__closure__", None) or ():
        with suppress(ValueError):  # an empty cell
            if hasattr(cell.cell_contents, "call_wrapped"):
                return cell.cell_contents.f
    return fun


_NS_PER_S = PS_PER_S // PS_PER_NS

LEAST_EXECUTIONS = 2
"""What runs once is no step, as long as the job goes on."""

PATIENCE_NS = {
    Rank.UPDATE_PROGRAM: 0,
    Rank.GRADIENT_PROGRAM: _NS_PER_S,
    Rank.REPEATED_PROGRAM: 5 * _NS_PER_S,
}
"""How long a job may still show better evidence, from a program's first execution on. Steps seen meanwhile are kept.

Programs that prepare data or parameters run before the first gradient."""

UPDATE_PATIENCE_NS = 5 * _NS_PER_S
"""The same for a program with a gradient in a job that has imported an optimizer library: it may be a micro-batch of a
step whose update comes later, operation by operation, each compiled at its first execution (1–3 s on 2 cores)."""

STALE_NS = 60 * _NS_PER_S
"""A program that did not run for so long holds no other one back: it was no training, or training is over."""

MOST_EARLY_EXECUTIONS = 8192
"""Executions kept of a program before it is chosen, and then the choice is made: a quarter of the step clock's ring."""

SWITCH_RATIO = 2.0
"""How much more than the chosen program an equal must have done since the last look to take its place."""


@dataclass
class SeenProgram:
    """What is known of one program of the job.

    Attributes:
        bytes: arrays taken and given by its first execution.
        rank: what is known of what it does.
        began_ns: when its first execution was called.
        executions: how often it ran.
        since_look: how often it ran since the last choice.
        ends_ns: when its first executions had been dispatched.
    """

    bytes: int
    rank: Rank
    began_ns: int
    executions: int = 0
    since_look: int = 0
    ends_ns: "array[int]" = field(default_factory=lambda: array("q"))


class StepProgram:
    """Chooses the program whose executions are the steps.

    Attributes:
        chosen: key of the program; None until there is one.
        programs: by key.
        expects_updates: whether the job has imported a library whose updates are seen.

    Args:
        is_patient: whether to wait for better evidence; else the first program that runs again is chosen.
    """

    def __init__(self, *, is_patient: bool = True) -> None:
        self.expects_updates = False
        self._is_patient = is_patient
        self.chosen: Hashable | None = None
        self.programs: dict[Hashable, SeenProgram] = {}
        self._program: SeenProgram | None = None
        self._total = 0
        self._next_look = 0

    def executed(
        self,
        key: Hashable,
        size_bytes: Callable[[], int],
        now_ns: int,
        *,
        rank: Rank = Rank.REPEATED_PROGRAM,
        began_ns: int | None = None,
    ) -> bool:
        """Note an execution; True if the choice has changed.

        Args:
            key: the program.
            size_bytes: bytes of its arguments and results, asked once for each program.
            now_ns: when it had been dispatched.
            rank: what is known of what the program does.
            began_ns: when it was called; None where that is not known.
        """
        program = self.programs.get(key)
        if program is None:
            program = self.programs[key] = SeenProgram(size_bytes(), rank, now_ns if began_ns is None else began_ns)
        program.rank = rank
        program.executions += 1
        program.since_look += 1
        self._total += 1
        if len(program.ends_ns) < MOST_EARLY_EXECUTIONS:
            program.ends_ns.append(now_ns)
        if self.chosen is None:
            return self._is_time(program, now_ns) and self.choose()
        if program.executions == LEAST_EXECUTIONS and rank > self.programs[self.chosen].rank:
            return self.choose()
        return self._total >= self._next_look and self.choose()

    def repeated(self) -> bool:
        """Note one more execution of the chosen program; False, and nothing is noted, where `executed` has to."""
        program = self._program
        if program is None or self._total + 1 >= self._next_look:
            return False
        program.executions += 1
        program.since_look += 1
        self._total += 1
        return True

    def choose(self, *, least_executions: int = LEAST_EXECUTIONS) -> bool:
        """Look at the choice now; True if it has changed.

        Args:
            least_executions: how often a program must have run to be chosen.
        """
        self._next_look = 2 * self._total
        candidates = {key: p for key, p in self.programs.items() if p.executions >= least_executions and p.since_look}
        best = max(candidates, key=lambda key: _weight(candidates[key]), default=None)
        chosen = None if self.chosen is None else self.programs[self.chosen]
        changes = best is not None and best != self.chosen and _takes_over(candidates[best], chosen)
        for program in self.programs.values():
            program.since_look = 0
        if changes and best is not None:
            self.chosen, self._program = best, candidates[best]
        return changes

    def _is_time(self, program: SeenProgram, now_ns: int) -> bool:
        """Whether the choice may be made after an execution of this program."""
        if program.executions < LEAST_EXECUTIONS:
            return False
        awaits_update = self.expects_updates and program.rank is Rank.GRADIENT_PROGRAM
        patience_ns = UPDATE_PATIENCE_NS if awaits_update else PATIENCE_NS[program.rank]
        waited = not self._is_patient or now_ns - program.began_ns >= patience_ns
        if not waited and program.executions < MOST_EARLY_EXECUTIONS:
            return False
        return not any(
            other.rank > program.rank and now_ns - other.ends_ns[-1] < STALE_NS for other in self.programs.values()
        )


def _weight(program: SeenProgram) -> tuple[int, int]:
    return program.rank, program.since_look * max(1, program.bytes)


def _takes_over(best: SeenProgram, chosen: SeenProgram | None) -> bool:
    """Whether the best candidate is so much better than the chosen program that it takes its place."""
    if chosen is None or best.rank > chosen.rank or not chosen.since_look:
        return True
    return best.rank == chosen.rank and _weight(best)[1] > SWITCH_RATIO * _weight(chosen)[1]
