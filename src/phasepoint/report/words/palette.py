"""Colours of phases and categories, the same in the terminal and on the page.

Source: the colour-blind safe set of Okabe & Ito, "Color Universal Design" (2008), yellow darkened to show on white.
"""

from collections.abc import Mapping, Sequence

from phasepoint.phases.clock.breakdown import AccountPart, PartTime
from phasepoint.summary.types import PhaseSummary

_PHASE_COLOURS = (
    "#0072b2",
    "#e69f00",
    "#009e73",
    "#cc79a7",
    "#d55e00",
    "#56b4e9",
    "#b59f00",
    "#7a5ea8",
    "#8c564b",
    "#4d9a8f",
)

OUTSIDE_COLOUR = "#8a8f98"
"""Time outside every step."""

PART_COLOURS = {
    "compute": "#0072b2",
    "communication": "#cc79a7",
    "data_movement": "#e69f00",
    "host": "#009e73",
    "input": "#d55e00",
    "idle": "#8a8f98",
    "unattributed": "#c3c7cd",
    "input wait": "#d55e00",
    "compiling": "#7a5ea8",
    "checkpoint": "#009e73",
    "slower machine": "#b0413e",
    "outside steps": OUTSIDE_COLOUR,
    "to_device": "#e69f00",
    "forward": "#0072b2",
    "backward": "#56b4e9",
    "optimizer": "#b59f00",
    "other work": "#4d9a8f",
}
"""Parts that are no phases: categories, what the clock's account names beside phases, parts of a step's anatomy."""

CATEGORY_COLOURS = {name: PART_COLOURS[name] for name in ("compute", "communication", "data_movement", "host", "idle")}
"""Colour per category of work, for drawings of single events."""

_KEYS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def phase_colours(phases: Sequence[PhaseSummary]) -> dict[int | None, str]:
    """Colour per phase id, the largest phase first; None is time outside steps."""
    colours: dict[int | None, str] = {
        phase.id: colour for phase, colour in zip(phases, cycle_colours(len(phases)), strict=True)
    }
    colours[None] = OUTSIDE_COLOUR
    return colours


def phase_keys(phases: Sequence[PhaseSummary]) -> dict[int | None, str]:
    """One letter per phase id, where colour cannot be shown; `·` is time outside steps."""
    keys: dict[int | None, str] = {
        phase.id: _KEYS[rank] if rank < len(_KEYS) else "#" for rank, phase in enumerate(phases)
    }
    keys[None] = "·"
    return keys


def part_colour(part: PartTime, of_phase: Mapping[int | None, str]) -> str:
    """Colour of a part of the clock's account or of the categories: a phase's is that of the phase, whatever its name.

    Args:
        part: of either.
        of_phase: as `phase_colours` gives them.
    """
    if isinstance(part, AccountPart) and part.phase is not None:
        return of_phase.get(part.phase, OUTSIDE_COLOUR)
    return PART_COLOURS.get(part.kind if isinstance(part, AccountPart) else part.name, OUTSIDE_COLOUR)


def cycle_colours(count: int) -> list[str]:
    """Colours for so many classes, the largest class first."""
    return [_PHASE_COLOURS[rank % len(_PHASE_COLOURS)] for rank in range(count)]
