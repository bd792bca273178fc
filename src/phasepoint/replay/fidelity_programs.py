"""The programs that the target ran, by fingerprint: the same as the original's, or which are not, and what shapes."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from phasepoint.core.arrays import Int64s
from phasepoint.replay.fidelity_steps import CommonSteps
from phasepoint.replay.fidelity_tables import Program, SideTables
from phasepoint.stack.op_keys import plain_shape

_COUNTS = 0.01
"""Share of a side's program time that counts: a neighbour's work runs over into a step's first instants."""

_MOST_OF = 0.5
"""Where other steps are compared than the target's own, a program must have this share of them to be missed."""


@dataclass(frozen=True)
class ProgramMatch:
    """The programs of both sides.

    Attributes:
        same: programs of the target that both sides ran, by fingerprint.
        only_original, only_replay: names of those that the other side never ran.
        other_shapes: names of programs that one side ran with other shapes of what goes in.
        reason: why nothing can be said, null where it can.
    """

    same: int = 0
    only_original: tuple[str, ...] = ()
    only_replay: tuple[str, ...] = ()
    other_shapes: tuple[str, ...] = ()
    reason: str | None = None

    @property
    def differs(self) -> bool:
        """Whether a program is on one side alone."""
        return bool(self.only_original or self.only_replay)


def match_programs(original: SideTables, replay: SideTables, common: CommonSteps, phase_rows: Int64s) -> ProgramMatch:
    """Compare the programs that the target's steps of the phase ran.

    Args:
        original: the run that is replayed.
        replay: the replay.
        common: their common steps.
        phase_rows: rows of all steps of the phase in the original.
    """
    mine = common.target & common.of_phase
    after = _large(replay.program_times(common.replay[mine]), _COUNTS)
    if not after:
        return ProgramMatch(reason="the replay's target ran no compiled program that the capture names")
    if any(program.fingerprint is None for program in after):
        return ProgramMatch(reason="the capture gives no fingerprints of programs")
    before = _large(original.program_times(common.original[mine]), _COUNTS)
    before = before or _large(original.program_times(phase_rows), _MOST_OF)
    there, here = _prints(original.programs.values()), _prints(replay.programs.values())
    gone = {program for program in before if program.fingerprint not in here}
    new = {program for program in after if program.fingerprint not in there}
    if not before and new:
        return ProgramMatch(
            reason="no window of the original captured a step of the phase, or any that ran its programs"
        )
    return ProgramMatch(
        same=len(after - new),
        only_original=_names(gone),
        only_replay=_names(new),
        other_shapes=tuple(_other_shapes(original, replay, new)),
    )


def _large(times: dict[Program, int], least: float) -> set[Program]:
    whole = sum(times.values())
    return {program for program, time_ps in times.items() if time_ps and time_ps >= least * whole}


def _prints(programs: Iterable[Program]) -> set[str | None]:
    return {program.fingerprint for program in programs}


def _names(programs: Iterable[Program]) -> tuple[str, ...]:
    return tuple(sorted(program.name for program in programs))


def _other_shapes(original: SideTables, replay: SideTables, new: set[Program]) -> list[str]:
    """Of the replay's own programs, those whose namesakes in the original all take other shapes."""
    found = []
    for program in sorted(new, key=lambda one: one.name):
        namesakes = [one for one in set(original.programs.values()) if one.name == program.name]
        mine = _inputs(replay, program)
        if mine and namesakes and all(_inputs(original, one) not in (None, mine) for one in namesakes):
            found.append(program.name)
    return found


def _inputs(side: SideTables, program: Program) -> Counter[str] | None:
    """Shapes of the entry's parameters; None where they are not known."""
    entry = [one for one in side.instructions.get(program, ()) if one.is_entry and one.opcode == "parameter"]
    return Counter(plain_shape(one.shape) for one in entry) if entry else None
