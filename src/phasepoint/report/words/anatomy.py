"""The anatomy of a step in words: one line of shares, and how long each pass is by a clock around it."""

from collections.abc import Iterator

from phasepoint.core.units import format_counted
from phasepoint.estimates.captured import LEAST_WINDOWS
from phasepoint.phases.clock.breakdown import PASSES, Anatomy
from phasepoint.summary.types import RunSummary

_NAMES = {"to_device": "copies to device", "other work": "other work", "unattributed": "not attributed"}
_ONLY_IF_ANY = frozenset({"other work", "compiling", "unattributed"})
"""Parts that are left out where they are next to nothing."""

_LEAST_SHARE = 0.005
"""Ratio: what is shorter rounds to 0 %."""

_LEAST_WITHIN = 0.01
"""Ratio of the steps' time from which on waits within passes are told: less changes no figure of the line above."""

_MOST_LINES = 3
"""Phases whose anatomy is told: a choice, as for the ops; the others have at most a few percent of the time."""

_UNTOLD = "which pass the device's work serves is not known: no ranges of autograd, marks of modules or names of HLO"


def anatomy_title(phase: str) -> str:
    """What the line and the band are called."""
    return f"Anatomy of {phase} steps"


def part_title(name: str) -> str:
    """A part as people write it."""
    return _NAMES.get(name, name)


def anatomy_line(anatomy: Anatomy) -> str:
    """`input 3 % · copies to device 1 % · forward 31 % · backward 52 % · …`; a part that is nil is `–`."""
    parts = (part for part in anatomy.parts if part.share >= _LEAST_SHARE or part.name not in _ONLY_IF_ANY)
    return " · ".join(f"{part_title(part.name)} {_percent(part.share)}" for part in parts)


def passes_line(anatomy: Anatomy) -> str:
    """How long each pass is with the waits in its midst; empty where these do not count."""
    parts = [part for part in anatomy.parts if part.name in PASSES and (part.total_ps or part.within_ps)]
    if sum(part.within_ps for part in parts) < _LEAST_WITHIN * anatomy.total_ps:
        return ""
    lengths = (f"{part.name} {_percent((part.total_ps + part.within_ps) / anatomy.total_ps)}" for part in parts)
    return f"by a clock around each pass, its waits included: {' · '.join(lengths)}"


def anatomy_basis(anatomy: Anatomy) -> str:
    """What the shares rest on."""
    windows, steps = anatomy.windows, format_counted(anatomy.captured_steps, "captured step")
    if windows < LEAST_WINDOWS:
        return f"shares of the {steps} in {format_counted(windows, 'window')}"
    return f"estimated from {format_counted(windows, 'window')}, {steps}"


def anatomy_lines(summary: RunSummary) -> Iterator[tuple[str, str]]:
    """What is said of the run's anatomy, and in smaller letters of what it rests on and how long the passes are."""
    if summary.anatomy is None:
        if summary.categories.windows:
            yield "Anatomy of the steps: not known", "the captures were converted before stages were told apart"
        return
    phases = [phase for phase in summary.phases if phase.anatomy is not None][:_MOST_LINES]
    for phase in phases:
        anatomy = phase.anatomy
        if anatomy is not None:
            told = f"{anatomy_title(phase.name)}: {anatomy_line(anatomy)}"
            asides = (anatomy_basis(anatomy), passes_line(anatomy) if anatomy.is_told else _UNTOLD)
            yield told, "; ".join(aside for aside in asides if aside)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= _LEAST_SHARE else "–" if not share else "< 1 %"
