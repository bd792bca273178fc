"""Fast-forward: how each phase is reached again and what that costs, and what a few steps say of the whole run.

The replays beside a run: whether each did what the original did, and the whole run if all went so.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from phasepoint.core.units import format_count, format_counted, format_ps, format_ratio
from phasepoint.replay.compact.compact import Compact, PartEstimate
from phasepoint.replay.fast_forward import FastForward, NearbyReplay
from phasepoint.replay.plan.plan import PhasePlan, ReplayPlan
from phasepoint.report.html.markup import Content, Markup, element, join, swatch
from phasepoint.report.html.tables import Cell, Column, data_table, duration, figures, text
from phasepoint.report.words.palette import OUTSIDE_COLOUR, part_colours, phase_colours
from phasepoint.report.words.wording import category_name, interval_text, replay_command
from phasepoint.summary.types import RunSummary

if TYPE_CHECKING:
    from phasepoint.replay.change.types import Estimate
    from phasepoint.replay.fidelity.fidelity import Fidelity

_NOTHING = Markup("")


def replays_table(found: FastForward) -> Markup:
    """A row for each replay; empty where there is none."""
    blocks: list[Content] = [element("p", problem, class_="note") for problem in found.problems]
    if found.replays:
        columns = [
            text("replay"),
            text("phase"),
            text("steps"),
            text("verdict"),
            Column("step time", "step_ratio", is_figure=True),
            Column("op cosine", "op_cosine", is_figure=True),
            Column("the run if all went so", "after_ps", is_figure=True),
            text("what differs", "differs"),
        ]
        rows = [_row(one) for one in found.replays]
        aside = "each against the same steps of this run"
        blocks.append(element("h3", "Replays of this run ", element("small", aside)))
        blocks.append(data_table(columns, rows, label="Replays of this run"))
    return element("div", *blocks, id="replays") if blocks else _NOTHING


def _row(one: NearbyReplay) -> Sequence[Content | Cell]:
    record, fidelity = one.record, one.fidelity
    name = one.path.rstrip("/").rpartition("/")[2]
    times = None if fidelity is None else fidelity.times.ratio
    cosine = None if fidelity is None else fidelity.ops.cosine
    return (
        element("code", name, title=one.path),
        record.phase,
        f"{record.first_step:,} – {record.last_step:,}",
        _verdict(one),
        Cell("–" if times is None else f"× {times:.3f}", times),
        Cell("–" if cosine is None else f"{cosine:.4f}", cosine),
        _after(one.estimate),
        _differs(fidelity, one.problem),
    )


def _verdict(one: NearbyReplay) -> str:
    if one.record.status != "done":
        return one.record.status.replace("-", " ")
    return "–" if one.fidelity is None else one.fidelity.verdict


def _after(estimate: "Estimate | None") -> Cell:
    """`17.3 s (× 0.93)`, with the interval on hover; an unchanged replay has none."""
    if estimate is None:
        return Cell("–", None)
    after = estimate.after
    shown = f"{format_ps(after.value_ps)} (× {estimate.ratio:.2f})"
    if after.low_ps is None or after.high_ps is None:
        return Cell(shown, after.value_ps)
    interval = f"95 % interval {format_ps(after.low_ps)} – {format_ps(after.high_ps)}"
    return Cell(element("span", shown, title=interval), after.value_ps)


def _differs(fidelity: "Fidelity | None", problem: str | None) -> Content:
    if problem is not None:
        return element("span", problem, class_="wrap")
    if fidelity is None or not fidelity.differences:
        return "nothing that could be compared"
    whole = "; ".join(one.text for one in fidelity.differences)
    return element("span", ", ".join(dict.fromkeys(one.code for one in fidelity.differences)), title=whole)


_COSTS = (
    ("startup_ps", "starting"),
    ("compile_ps", "compiling"),
    ("restore_ps", "restoring"),
    ("skip_ps", "skipping batches"),
    ("forward_ps", "steps"),
    ("outside_ps", "between steps"),
)


def fast_forward_section(summary: RunSummary, found: FastForward | None) -> Markup:
    """The section; empty where nothing is known of replays."""
    if found is None or not summary.phases:
        return _NOTHING
    colours = phase_colours(summary.phases)
    planned = [(row.plan, row) for row in found.plans if row.plan is not None]
    blocks: list[Content] = [_plan(plan, colours[row.phase_id], found.command) for plan, row in planned]
    if found.unavailable is not None:
        blocks.append(element("p", f"No phase can be replayed: {found.unavailable}.", class_="dim"))
    blocks.append(_refused([row for row in found.plans if row.plan is None]))
    blocks.append(replays_table(found))
    blocks.append(_compact(found, part_colours(summary)))
    aside = "a phase again, from its checkpoint, without the run before it"
    return element("section", element("h2", "Fast-forward ", element("small", aside)), *blocks, id="fast-forward")


def _plan(plan: ReplayPlan, colour: str, command: tuple[str, ...]) -> Markup:
    """One phase: where from, how far, at what cost; unfolds to the command."""
    win = element(
        "span", element("strong", format_ps(plan.cost_ps)), f" · {format_ratio(plan.ratio)} of the run", class_="win"
    )
    title = element("span", swatch(colour), " ", plan.phase, class_="title")
    head = element("summary", title, win, element("span", _way(plan), class_="remedy"))
    facts: list[tuple[str, Content]] = [("replay this phase", _command(plan, command))]
    if plan.checkpoint is not None:
        facts.append(("checkpoint", element("code", plan.checkpoint)))
    facts.append(("cost", _costs(plan)))
    facts.append(("it will tell", _lines(plan.tells)))
    if plan.notes:
        facts.append(("to know", _lines(plan.notes)))
    rows = (element("div", element("dt", name), element("dd", content)) for name, content in facts)
    return element(
        "details", head, element("dl", *rows, class_="facts"), class_="finding", id=f"replay-{plan.phase_id}"
    )


def _way(plan: ReplayPlan) -> str:
    if plan.checkpoint is None:
        start = "from the start of the job"
    elif plan.checkpoint_step is None:
        start = "from the checkpoint before the first step"
    else:
        start = f"from the checkpoint after step {format_count(plan.checkpoint_step)}"
    captured = plan.target_last - plan.target_first + 1
    return (
        f"{start}: {_steps(plan.forward_steps)} to step {format_count(plan.last_step)}, {captured} captured, "
        f"{format_count(plan.compared_steps)} compared"
    )


def _command(plan: ReplayPlan, command: tuple[str, ...]) -> Markup:
    line = replay_command(plan.run, plan.phase, command, from_start=plan.checkpoint is None)
    return element("div", element("code", line, data_copy=""), class_="query")


def _costs(plan: ReplayPlan) -> Markup:
    """The parts of the cost in one line, those that are not known named as such."""
    basis = dict(plan.basis)
    parts: list[Content] = []
    for field, name in _COSTS:
        time_ps = getattr(plan, field)
        if time_ps == 0:
            continue
        shown = "not known" if time_ps is None else format_ps(time_ps)
        parts.append(element("span", f"{name} {shown}", title=basis[field.removesuffix("_ps")]))
    whole = f" = {format_ps(plan.cost_ps)}, of {format_ps(plan.full_ps)} for the whole run"
    return join([join(parts, " + "), whole])


def _lines(lines: tuple[str, ...]) -> Markup:
    return element("ul", *(element("li", line) for line in lines))


def _refused(rows: list[PhasePlan]) -> Markup:
    if not rows:
        return _NOTHING
    title = element("summary", f"{len(rows)} phase{'s' if len(rows) > 1 else ''} that no checkpoint leads to")
    facts = (element("div", element("dt", row.phase), element("dd", row.reason or "")) for row in rows)
    return element("details", title, element("dl", *facts, class_="facts"), class_="more")


def _compact(found: FastForward, colours: Mapping[str, str]) -> Markup:
    """What a few steps say of the whole run, beside what was measured."""
    if found.compact is None:
        return (
            element("p", f"The run from a few steps: {found.no_compact}.", class_="dim")
            if found.no_compact
            else _NOTHING
        )
    one = found.compact
    share = format_ratio(one.steps_used / one.steps_total)
    aside = f"{format_count(one.steps_used)} of {format_counted(one.steps_total, 'step')} ({share}) stand for all"
    whole = PartEstimate("all steps", one.steps_total, one.estimate_ps, one.low_ps, one.high_ps, one.actual_ps)
    columns = [
        text("time inside steps", "part"),
        figures("estimate", "estimate_ps"),
        text("95 % interval", "interval"),
        figures("measured", "actual_ps"),
        Column("off by", "off_ratio", is_figure=True),
    ]
    rows = [
        _part(part, one, name)
        for part, name in ((whole, whole.name), *((p, _named(p, colours)) for p in one.by_category))
    ]
    table = data_table(columns, rows, label="The run from a few steps", with_filter=False)
    heading = element("h3", "The run from a few steps ", element("small", aside))
    notes = (element("p", note, class_="dim") for note in one.notes)
    return element("div", heading, table, *notes, id="compact")


def _named(part: PartEstimate, colours: Mapping[str, str]) -> Content:
    return join([swatch(colours.get(part.name, OUTSIDE_COLOUR)), " ", category_name(part.name)])


def _part(part: PartEstimate, whole: Compact, name: Content) -> list[Content | Cell]:
    off = (
        None if part.actual_ps is None or not whole.actual_ps else (part.estimate_ps - part.actual_ps) / whole.actual_ps
    )
    return [
        name,
        duration(part.estimate_ps),
        _interval(part),
        duration(part.actual_ps),
        Cell("–" if off is None else f"{100 * off:+.2f} %", off),
    ]


def _interval(part: PartEstimate) -> str:
    """`± 412 ms`, or both ends where they lie far from each other."""
    if part.high_ps is None:
        return "not known"
    if 10 * (part.high_ps - part.low_ps) < part.estimate_ps:
        return interval_text(part.estimate_ps, part.low_ps, part.high_ps)
    return f"{format_ps(part.low_ps)} – {format_ps(part.high_ps)}"


def _steps(count: int) -> str:
    return format_counted(count, "step")
