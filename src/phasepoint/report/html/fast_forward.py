"""Fast-forward: how each phase is reached again and what that costs, and what a few steps say of the whole run.

The replays beside a run: whether each did what the original did, and the whole run if all went so.
"""

from phasepoint.core.units import format_count, format_counted, format_ps, format_ratio
from phasepoint.replay.compact.compact import PartEstimate
from phasepoint.replay.fast_forward import FastForward, NearbyReplay
from phasepoint.replay.plan.plan import ReplayPlan
from phasepoint.report.tables import Cell, Table, TableColumn
from phasepoint.report.tables.html import data_table
from phasepoint.report.words.markup import Content, Markup, bullets, element, facts, heading, join, section, swatch
from phasepoint.report.words.palette import OUTSIDE_COLOUR, PART_COLOURS, phase_colours
from phasepoint.report.words.wording import category_name, interval_text, replay_command
from phasepoint.summary.types import RunSummary

_NOTHING = Markup("")


def replays_table(found: FastForward) -> Markup:
    """A row for each replay; empty where there is none."""
    blocks: list[Content] = [element("p", problem, class_="note") for problem in found.problems]
    if found.replays:
        columns = (
            TableColumn("replay", lambda one: element("code", one.path.rstrip("/").rpartition("/")[2], title=one.path)),
            TableColumn("phase", lambda one: one.record.phase),
            TableColumn("steps", lambda one: f"{one.record.first_step:,} – {one.record.last_step:,}"),
            TableColumn("verdict", _verdict),
            TableColumn("step time", _step_ratio, "ratio", "step_ratio"),
            TableColumn("op cosine", _op_cosine, "cosine", "op_cosine"),
            TableColumn("the run if all went so", _after, "ps", "after_ps"),
            TableColumn("what differs", _differs, "", "differs"),
        )
        aside = "each against the same steps of this run"
        blocks.append(heading("h3", "Replays of this run", aside))
        blocks.append(data_table(Table(columns, found.replays, "Replays of this run")))
    return element("div", *blocks, id="replays") if blocks else _NOTHING


def _verdict(one: NearbyReplay) -> str:
    if one.record.status != "done":
        return one.record.status.replace("-", " ")
    return "–" if one.fidelity is None else one.fidelity.verdict


def _step_ratio(one: NearbyReplay) -> Cell:
    ratio = None if one.fidelity is None else one.fidelity.times.ratio
    return Cell("–" if ratio is None else f"× {ratio:.3f}", ratio)


def _op_cosine(one: NearbyReplay) -> Cell:
    cosine = None if one.fidelity is None else one.fidelity.ops.cosine
    return Cell("–" if cosine is None else f"{cosine:.4f}", cosine)


def _after(one: NearbyReplay) -> Cell:
    """`17.3 s (× 0.93)`, with the interval on hover; an unchanged replay has none."""
    if one.estimate is None:
        return Cell("–", None)
    after = one.estimate.after
    shown = f"{format_ps(after.value_ps)} (× {one.estimate.ratio:.2f})"
    if after.low_ps is None or after.high_ps is None:
        return Cell(shown, after.value_ps)
    interval = f"95 % interval {format_ps(after.low_ps)} – {format_ps(after.high_ps)}"
    return Cell(element("span", shown, title=interval), after.value_ps)


def _differs(one: NearbyReplay) -> Content:
    if one.problem is not None:
        return element("span", one.problem, class_="wrap")
    if one.fidelity is None or not one.fidelity.differences:
        return "nothing that could be compared"
    differences = one.fidelity.differences
    whole = "; ".join(difference.text for difference in differences)
    return element("span", ", ".join(dict.fromkeys(difference.code for difference in differences)), title=whole)


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
    refused = [(row.phase, row.reason or "") for row in found.plans if row.plan is None]
    if refused:
        title = element("summary", f"{format_counted(len(refused), 'phase')} without a checkpoint to replay from")
        blocks.append(element("details", title, facts(refused), class_="more"))
    blocks.append(replays_table(found))
    blocks.append(_compact(found))
    aside = "a phase again, from its checkpoint, without the run before it"
    return section("Fast-forward", aside, *blocks, anchor="fast-forward")


def _plan(plan: ReplayPlan, colour: str, command: tuple[str, ...]) -> Markup:
    """One phase: where from, how far, at what cost; unfolds to the command."""
    win = element(
        "span", element("strong", format_ps(plan.cost_ps)), f" · {format_ratio(plan.ratio)} of the run", class_="win"
    )
    title = element("span", swatch(colour), " ", plan.phase, class_="title")
    head = element("summary", title, win, element("span", _way(plan), class_="remedy"))
    line = replay_command(plan.run, plan.phase, command, from_start=plan.checkpoint is None)
    copied = element("div", element("code", line, data_copy=""), class_="query")
    said: list[tuple[Content, Content]] = [("replay this phase", copied)]
    if plan.checkpoint is not None:
        said.append(("checkpoint", element("code", plan.checkpoint)))
    said.append(("cost", _costs(plan)))
    said.append(("it will tell", bullets(plan.tells)))
    if plan.notes:
        said.append(("to know", bullets(plan.notes)))
    return element("details", head, facts(said), class_="finding", id=f"replay-{plan.phase_id}")


def _way(plan: ReplayPlan) -> str:
    if plan.checkpoint is None:
        start = "from the start of the job"
    elif plan.checkpoint_step is None:
        start = "from the checkpoint before the first step"
    else:
        start = f"from the checkpoint after step {format_count(plan.checkpoint_step)}"
    steps = f"{format_counted(plan.forward_steps, 'step')} to step {format_count(plan.last_step)}"
    captured = plan.target_last - plan.target_first + 1
    return f"{start}: {steps}, {captured} captured, {format_count(plan.compared_steps)} compared"


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


def _compact(found: FastForward) -> Markup:
    """What a few steps say of the whole run, beside what was measured."""
    if found.compact is None:
        reason = element("p", f"The run from a few steps: {found.no_compact}.", class_="dim")
        return reason if found.no_compact else _NOTHING
    compact = found.compact
    share = format_ratio(compact.steps_used / compact.steps_total)
    counted = f"{format_count(compact.steps_used)} of {format_counted(compact.steps_total, 'step')}"
    times = (compact.estimate_ps, compact.low_ps, compact.high_ps, compact.actual_ps)
    whole = PartEstimate("all steps", compact.steps_total, *times)

    def name(part: PartEstimate) -> Content:
        if part is whole:
            return part.name
        return join([swatch(PART_COLOURS.get(part.name, OUTSIDE_COLOUR)), " ", category_name(part.name)])

    def off(part: PartEstimate) -> Cell:
        if part.actual_ps is None or not compact.actual_ps:
            return Cell("–", None)
        ratio = (part.estimate_ps - part.actual_ps) / compact.actual_ps
        return Cell(f"{100 * ratio:+.2f} %", ratio)

    columns = (
        TableColumn("time inside steps", name, "", "part"),
        TableColumn("estimate", lambda part: part.estimate_ps, "ps", "estimate_ps"),
        TableColumn("95 % interval", _interval, "", "interval"),
        TableColumn("measured", lambda part: part.actual_ps, "ps", "actual_ps"),
        TableColumn("off by", off, "ratio", "off_ratio"),
    )
    table = Table(columns, (whole, *compact.by_category), "The run from a few steps")
    notes = (element("p", note, class_="dim") for note in compact.notes)
    title = heading("h3", "The run from a few steps", f"{counted} ({share}) stand for all")
    return element("div", title, data_table(table, with_filter=False), *notes, id="compact")


def _interval(part: PartEstimate) -> str:
    """`± 412 ms`, or both ends where they lie far from each other."""
    if part.high_ps is None:
        return "not known"
    if 10 * (part.high_ps - part.low_ps) < part.estimate_ps:
        return interval_text(part.estimate_ps, part.low_ps, part.high_ps)
    return f"{format_ps(part.low_ps)} – {format_ps(part.high_ps)}"
