"""What became of a replay, on a terminal.

A replay held against its original, on a terminal: the verdict, what differs, and the figures of each comparison.

A compact of a run on a terminal: the whole, its categories and phases, the windows that weigh most.

An estimate under a change on a terminal: the answer, what was exchanged, what it rests on, what it costs.
"""

from collections.abc import Iterable, Iterator, Sequence

from rich.console import Console
from rich.text import Text

from phasepoint.core.units import format_count, format_counted, format_ps, format_ratio
from phasepoint.replay.change.types import Estimate, Exchange, JobCost, ScalarChange, Value
from phasepoint.replay.compact.compact import Compact, CompactWindow, PartEstimate
from phasepoint.replay.fidelity.fidelity import DIFFERS, FAITHFUL, UNCLEAR, Fidelity
from phasepoint.replay.fidelity.ops import OpMatch
from phasepoint.replay.fidelity.scalars import ScalarMatch
from phasepoint.replay.fidelity.times import StepTimeMatch
from phasepoint.replay.runner import ReplayOutcome
from phasepoint.report.tables import Table, TableColumn
from phasepoint.report.tables.terminal import grid
from phasepoint.report.words.names import printable, shorten
from phasepoint.report.words.wording import category_name

_OP_CHARACTERS = 48
"""Of an op's name: a choice, what tells ops apart."""


def render_estimate(found: Estimate, console: Console) -> None:
    """Print an estimate; its notes are the caller's to print.

    Args:
        found: the estimate.
        console: where to.
    """
    console.print(Text(_headline(found), style="bold"))
    if found.exchanges:
        console.print(_saving(found))
    if found.from_windows is not None:
        few = found.from_windows
        console.print(
            f"Its representatives, {format_count(few.steps_used)} of {format_counted(few.steps_total, 'step')}, say "
            f"{format_ps(few.estimate.value_ps)} in steps{_between(few.estimate, found.confidence)}."
        )
    for line in _cost_lines(found.cost):
        console.print(line)
    for one in found.exchanges:
        console.print()
        _render_exchange(one, console, found.confidence)
    if found.kept:
        console.print()
        kept = ", ".join(f"{printable(one.name)} {format_ps(one.time_ps)}" for one in found.kept)
        console.print(Text(f"kept as it was: {kept}"))


def _headline(found: Estimate) -> str:
    if not found.exchanges:
        return f"The run takes {format_ps(found.before_ps)}, {format_ps(found.steps_before_ps)} of it in steps."
    return (
        f"The run would take {format_ps(found.after.value_ps)} instead of {format_ps(found.before_ps)}"
        f"{_between(found.after, found.confidence)}."
    )


def _saving(found: Estimate) -> str:
    saved, ratio = found.saved, abs(1 - found.ratio)
    verb = "saves" if saved.value_ps >= 0 else "costs"
    ends = sorted(abs(end) for end in (saved.low_ps, saved.high_ps) if end is not None)
    unsure = saved.low_ps is not None and saved.high_ps is not None and saved.low_ps < 0 < saved.high_ps
    interval = f", {format_ps(ends[0])} to {format_ps(ends[1])}" if ends and not unsure else ""
    doubt = "; the interval holds no change at all" if unsure else ""
    return f"It {verb} {format_ps(abs(saved.value_ps))} ({format_ratio(ratio)}){interval}{doubt}."


def _cost_lines(cost: JobCost | None) -> Iterable[str]:
    if cost is None:
        return
    each = "host" if cost.unit == "host-hours" else "device"
    yield f"{cost.unit}: {cost.before:.4g} → {cost.after:.4g} ({format_count(cost.devices)} × the run's time)"
    if cost.price_per_hour is not None and cost.money_before is not None and cost.money_after is not None:
        span = ""
        if cost.money_after_low is not None and cost.money_after_high is not None:
            span = f" ({cost.money_after_low:,.2f} to {cost.money_after_high:,.2f})"
        yield (
            f"money: {cost.money_before:,.2f} → {cost.money_after:,.2f}{span} at {cost.price_per_hour:,.2f} an hour "
            f"for each {each}; saved {cost.money_saved or 0:,.2f}"
        )


def _render_exchange(one: Exchange, console: Console, confidence: float) -> None:
    percent = f"{100 * confidence:.0f} %"
    interval = "" if one.low is None or one.high is None else f" ({one.low:.3f} to {one.high:.3f}, {percent})"
    console.print(Text(f"exchanged: {printable(', '.join(one.phases))}, {format_count(one.steps)} steps", style="bold"))
    console.print(
        Text(f"  step: {format_ps(one.step_before_ps)} → {format_ps(one.step_after_ps)}, × {one.ratio:.3f}{interval}")
    )
    if one.steps_ratio != 1:
        console.print(Text(f"  steps: × {one.steps_ratio:g}"))
    console.print(
        Text(f"  time: {format_ps(one.before_ps)} → {format_ps(one.after.value_ps)}{_between(one.after, confidence)}")
    )
    against = f"against {', '.join(one.baselines)}" if one.baselines else "against the original's same steps"
    steps = f"{format_count(one.compared_steps)} of steps {one.first_step}–{one.last_step}"
    console.print(Text(printable(f"  from {', '.join(one.changes)}: {steps}, {against}")))
    if one.machine_ratio is not None:
        console.print(Text(f"  machine: a step of the baseline took × {one.machine_ratio:.3f} of the original's"))
    if one.within is not None:
        place = "not seen" if one.place is None else format_ratio(one.place)
        console.print(
            Text(f"  unsure by: scatter of the steps {format_ratio(one.within)}, choice of the stretch {place}")
        )
    _render_parts(one, console)
    for scalar in one.scalars:
        console.print(Text(_scalar_line(scalar)))


def _render_parts(one: Exchange, console: Console) -> None:
    before = TableColumn("before", lambda row: row.before_ps, "ps")
    after = TableColumn("after", lambda row: row.after_ps, "ps")
    category = TableColumn("  category", lambda part: f"  {category_name(part.category)}")
    op = TableColumn("  op, self time", lambda op: f"  {shorten(op.op, _OP_CHARACTERS)}")
    for name, rows in ((category, one.categories), (op, one.ops)):
        if rows:
            console.print(grid(Table((name, before, after), rows)))


def _scalar_line(one: ScalarChange) -> str:
    return (
        f"  {printable(one.name)}, mean of {format_counted(one.steps, 'step')} {one.first_step}–{one.last_step}: "
        f"{one.before:.6g} → {one.after:.6g}; largest difference {one.largest_difference:+.3g} "
        f"in step {one.largest_step}"
    )


def _between(value: Value, confidence: float) -> str:
    if value.low_ps is None or value.high_ps is None:
        return " (no interval: a single step was compared)"
    return f" ({format_ps(value.low_ps)} to {format_ps(value.high_ps)}, {100 * confidence:.0f} %)"


def render_compact(found: Compact, console: Console, *, top: int) -> None:
    """Print a compact.

    Args:
        found: what to print.
        console: where to.
        top: windows to show, the ones that stand for most time first.
    """
    share = format_ratio(found.steps_used / found.steps_total)
    used = f"{format_count(found.steps_used)} of {format_counted(found.steps_total, 'step')} ({share})"
    console.print(Text(f"{used} in {format_counted(len(found.windows), 'window')} stand for the run", style="bold"))
    whole = PartEstimate("all", found.steps_total, found.estimate_ps, found.low_ps, found.high_ps, found.actual_ps)
    console.print(grid(_estimates("time inside steps", (whole,), found)))
    for title, parts in (("category", found.by_category), ("phase", found.by_phase)):
        if parts:
            console.print()
            console.print(grid(_estimates(title, parts, found)))
    console.print()
    console.print(f"outside steps: {format_ps(found.outside_ps)}, measured, in none of the above")
    console.print()
    _render_windows(found, console, top)


def _render_windows(found: Compact, console: Console, top: int) -> None:
    ranked = sorted(found.windows, key=lambda one: (-one.weight * one.dur_ps, one.attempt, one.first_step))
    console.print(grid(_windows(ranked[:top])))
    if len(ranked) > top:
        rest_ps = sum(one.weight * one.dur_ps for one in ranked[top:])
        left = f"… {len(ranked) - top:,} more that stand for {format_ps(rest_ps)}; --top shows them"
        console.print(Text(left, style="dim"))


def _estimates(title: str, parts: Sequence[PartEstimate], found: Compact) -> Table:
    def interval(one: PartEstimate) -> str:
        return f"{format_ps(one.low_ps)} – {'not known' if one.high_ps is None else format_ps(one.high_ps)}"

    def off(one: PartEstimate) -> str:
        if one.actual_ps is None or not found.actual_ps:
            return "–"
        return f"{100 * (one.estimate_ps - one.actual_ps) / found.actual_ps:+.2f} %"

    columns = (
        TableColumn(title, lambda one: one.name, width=40),
        TableColumn("steps", lambda one: "" if one.steps is None else one.steps, "count"),
        TableColumn("estimate", lambda one: one.estimate_ps, "ps"),
        TableColumn(format_ratio(found.confidence), interval, "ps"),
        TableColumn("recorded", lambda one: one.actual_ps, "ps"),
        TableColumn("off by", off, "ratio"),
    )
    return Table(columns, parts)


def _windows(windows: Sequence[CompactWindow]) -> Table:
    def steps(one: CompactWindow) -> str:
        steps = f"{one.first_step}" if one.n_steps == 1 else f"{one.first_step} – {one.last_step}"
        return f"{steps} (attempt {one.attempt})" if one.attempt else steps

    columns = (
        TableColumn("window", steps),
        TableColumn("phase", lambda one: one.phase, width=40),
        TableColumn("time", lambda one: one.dur_ps, "ps"),
        TableColumn("weight", lambda one: f"{one.weight:.4g}", "steps"),
        TableColumn("stands for", lambda one: one.weight * one.dur_ps, "ps"),
        TableColumn("captured", lambda one: one.captured),
    )
    return Table(columns, windows)


_MOST_SCALARS = 8
"""Scalars shown; `--json` gives all."""


def render_fidelity(found: Fidelity, console: Console) -> None:
    """Print the verdict and what it rests on."""
    for line in answer(found):
        console.print(Text(printable(line), style="bold"))
    columns = (
        TableColumn("", lambda comparison: Text(printable(comparison[0]), "dim")),
        TableColumn("", lambda comparison: comparison[1], wraps=True),
    )
    console.print(grid(Table(columns, _comparisons(found))))
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


def _comparisons(found: Fidelity) -> Iterator[tuple[str, str]]:
    yield "ops", _ops(found.ops)
    yield "step time", _times(found.times)
    other = len(found.programs.only_original) + len(found.programs.only_replay)
    same = f"{found.programs.same} the same by fingerprint" + (f", {other} not" if other else "")
    yield "programs", same if found.programs.reason is None else "–"
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


def _scalar(scalar: ScalarMatch) -> str:
    if not scalar.values:
        return "–"
    if scalar.equal == scalar.values:
        return f"equal bit for bit in all {scalar.values} values"
    largest = "" if scalar.largest_ratio is None else f", at most by {scalar.largest_ratio:.2g}"
    differing = scalar.values - scalar.equal
    return f"{differing} of {scalar.values} values differ{largest}, the first in step {scalar.first_differing}"


def render_outcome(outcome: ReplayOutcome, console: Console) -> None:
    """Print what a replay did that was done.

    Args:
        outcome: of the replay.
        console: where to.
    """
    record = outcome.record
    steps = record.last_step - record.first_step + 1
    start = "the start of the job" if record.checkpoint is None else printable(record.checkpoint)
    text = (
        f"{printable(record.phase)}: {format_count(steps)} {'step' if steps == 1 else 'steps'} from {start} in "
        f"{format_ps(outcome.dur_ps)}"
    )
    console.print(Text(text, style="bold"), soft_wrap=True)
    captured = f"captured steps {record.target_first}–{record.target_last} of {record.first_step}–{record.last_step}"
    console.print(Text(f"{captured} into {printable(outcome.run)}"), soft_wrap=True)
    if outcome.fidelity is not None:
        console.print()
        render_fidelity(outcome.fidelity, console)
