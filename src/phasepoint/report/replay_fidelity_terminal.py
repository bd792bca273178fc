"""A replay held against its original, on a terminal: the verdict, what differs, and the figures of each comparison."""

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table
from rich.text import Text

from phasepoint.core.units import format_ps
from phasepoint.replay.fidelity import DIFFERS, FAITHFUL, UNCLEAR, Fidelity
from phasepoint.replay.fidelity_ops import OpMatch
from phasepoint.replay.fidelity_programs import ProgramMatch
from phasepoint.replay.fidelity_scalars import ScalarMatch
from phasepoint.replay.fidelity_times import StepTimeMatch
from phasepoint.report.names import printable, shorten

_MOST_SCALARS = 8
"""Scalars shown; `--json` gives all."""


def render_fidelity(found: Fidelity, console: Console) -> None:
    """Print the verdict and what it rests on."""
    for line in answer(found):
        console.print(Text(printable(line), style="bold"))
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column()
    for name, text in _rows(found):
        grid.add_row(Text(printable(name)), Text(printable(text)))
    console.print(grid)
    for one in found.unknown:
        console.print(Text(printable(f"not known: {one}")))


def answer(found: Fidelity) -> list[str]:
    """The verdict, and one line for everything that differs."""
    what = f"the replay of phase {found.phase}, steps {found.target_first}–{found.target_last}"
    if found.verdict == FAITHFUL:
        return [f"Faithful: {what}, did what the original did."]
    if found.verdict == DIFFERS:
        return [f"Not faithful: {what}, differs.", *(f"  {one.code}: {one.text}" for one in found.differences)]
    if found.verdict == UNCLEAR:
        return [f"Unclear: {what}, is outside the limits, but not beyond chance."]
    return [f"Not comparable: {what}, has nothing that can be held against the original."]


def _rows(found: Fidelity) -> Iterator[tuple[str, str]]:
    yield "ops", _ops(found.ops)
    yield "step time", _times(found.times)
    yield "programs", _programs(found.programs)
    for scalar in found.scalars[:_MOST_SCALARS]:
        yield shorten(scalar.name, 24), _scalar(scalar)
    if len(found.scalars) > _MOST_SCALARS:
        yield "…", f"{len(found.scalars) - _MOST_SCALARS} more; --json gives all"
    yield "checkpoint", found.setting.checkpoint or "none: replayed from the start of the job"


def _ops(ops: OpMatch) -> str:
    if ops.cosine is None:
        return "–"
    where = "the same steps" if ops.same_steps else "the phase's captured steps"
    renamed = f"; {ops.renamed} renamed ops matched by their place" if ops.renamed else ""
    means = "" if ops.cosine_of_means is None else f" ({ops.cosine_of_means:.4f} of the means)"
    return f"cosine {ops.cosine:.4f}{means} over {ops.replay_steps} steps, against {where} of the original{renamed}"


def _times(times: StepTimeMatch) -> str:
    if times.ratio is None:
        return "–"
    interval = "" if times.low is None or times.high is None else f" (95 %: {times.low:.3f}–{times.high:.3f})"
    kind = "steps captured on one side alone" if times.apart else "captured steps" if times.captured else "steps"
    against = "number by number" if times.paired else "against all the original's of the phase"
    medians = f"{format_ps(times.replay_ps)} against {format_ps(times.original_ps)}"
    noise = "" if times.noise_ratio is None else f"; the original's own stretches differ by {times.noise_ratio:.1%}"
    return f"{times.ratio:.3f} ×{interval}, {times.steps} {kind} {against}: {medians}{noise}"


def _programs(programs: ProgramMatch) -> str:
    if programs.reason is not None:
        return "–"
    other = len(programs.only_original) + len(programs.only_replay)
    return f"{programs.same} the same by fingerprint" + (f", {other} not" if other else "")


def _scalar(scalar: ScalarMatch) -> str:
    if not scalar.values:
        return "–"
    if scalar.equal == scalar.values:
        return f"equal bit for bit in all {scalar.values} values"
    largest = "" if scalar.largest_ratio is None else f", at most by {scalar.largest_ratio:.2g}"
    differing = scalar.values - scalar.equal
    return f"{differing} of {scalar.values} values differ{largest}, the first in step {scalar.first_differing}"
