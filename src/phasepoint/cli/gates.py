"""What gates share: none passes on a run that is empty, killed, not whole or too short to judge."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from phasepoint.core.errors import NotEnoughError

if TYPE_CHECKING:
    from phasepoint.phases.summary_types import Shortfall


def refuse_shortfalls(gate: str, found: "Iterable[tuple[str, Shortfall | None]]") -> None:
    """End a gate that would pass where a run is no ground for a verdict.

    Args:
        gate: the option, as the user wrote it.
        found: path of each run, and what it lacks.

    Raises:
        NotEnoughError: one of them lacks something.
    """
    for path, short in found:
        if short is not None:
            raise NotEnoughError(f"{gate}: cannot be judged: {path}: {short.text}. {short.remedy}")
