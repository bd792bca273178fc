"""The phases: one table of all, and the largest from near."""

from collections.abc import Mapping, Sequence

from phasepoint.core.units import format_count, format_ps, format_ratio
from phasepoint.phases.clock.breakdown import OpTime
from phasepoint.report.html.breakdown import anatomy_band, breakdown_table
from phasepoint.report.tables import Cell, Table, TableColumn
from phasepoint.report.tables.html import data_table
from phasepoint.report.words.markup import Content, Markup, element, heading, join, section, swatch
from phasepoint.report.words.names import shorten
from phasepoint.report.words.palette import phase_colours
from phasepoint.report.words.wording import category_name, interval_text, ops_title, period_text
from phasepoint.summary.details import PhaseDetails, ReportDetails
from phasepoint.summary.roofline import RooflinePoint
from phasepoint.summary.types import PhaseSummary, RunSummary

_OPEN_PHASES = 1
"""Phases unfolded when the page opens."""

_NOTHING = Markup("")


def phases_section(summary: RunSummary, details: ReportDetails | None) -> Markup:
    """The table of phases."""
    if not summary.phases:
        return _NOTHING
    colours = phase_colours(summary.phases)
    near = {one.phase for one in details.phases} if details else {p.id for p in summary.phases if p.top_ops}

    def name(phase: PhaseSummary) -> Markup:
        shown = element("a", phase.name, href=f"#phase-{phase.id}") if phase.id in near else phase.name
        return join([swatch(colours[phase.id]), " ", shown])

    columns = (
        TableColumn("phase", name),
        TableColumn("share", lambda phase: phase.share, "ratio"),
        TableColumn("time", lambda phase: phase.total_ps, "ps", "total_ps"),
        TableColumn("steps", lambda phase: phase.steps, "count"),
        TableColumn("stretches", lambda phase: phase.segments, "count", "segments"),
        TableColumn("median step", lambda phase: phase.median_ps, "ps", "median_ps"),
        TableColumn("5 – 95 %", lambda phase: f"{format_ps(phase.p05_ps)} – {format_ps(phase.p95_ps)}", "", "p05_p95"),
        TableColumn("period", _period, "steps", "period_steps"),
        TableColumn("input wait", lambda phase: phase.input_ps, "ps", "input_ps"),
        TableColumn("captured", lambda phase: phase.captured_steps, "count", "captured_steps"),
        TableColumn("example", _representative, "", "representative"),
        TableColumn("restart from", lambda phase: _path(phase.restart_from)),
    )
    table = data_table(Table(columns, summary.phases, "Phases"))
    differ = [element("p", f"{phase.name}: {phase.differs}", class_="dim") for phase in summary.phases if phase.differs]
    return section("Phases", "classes of steps that behave alike", table, *differ, anchor="phases")


def _period(phase: PhaseSummary) -> Cell:
    return Cell(period_text(phase.period_steps), phase.period_steps)


def _representative(phase: PhaseSummary) -> str:
    step = phase.representative_step
    text = "–" if step is None else f"step {format_count(step)}"
    return text if phase.representative_window is None else f"{text}, window {phase.representative_window}"


def _path(path: str | None) -> Content:
    """A path in the room a table has; the whole of it shows on hover, and stands among the checkpoints."""
    return "–" if path is None else element("code", shorten(path, 30), title=path)


def near_section(summary: RunSummary, details: ReportDetails | None) -> Markup:
    """The largest phases one by one; without phases, the ops of the run."""
    near = {one.phase: one for one in details.phases} if details else {}
    shown = [phase for phase in summary.phases if phase.id in near or (not details and phase.top_ops)]
    blocks: list[Content] = [
        _phase_block(summary, phase, near.get(phase.id), details, is_open=index < _OPEN_PHASES)
        for index, phase in enumerate(shown)
    ]
    if not shown and summary.top_ops:
        blocks = [element("h3", ops_title(summary.categories, "")), _ops_table(summary.top_ops, "the whole run")]
    if not blocks:
        return _NOTHING
    missing = [phase.name for phase in summary.phases if not phase.top_ops]
    if missing:
        blocks.append(element("p", f"Never captured: {', '.join(missing)}.", class_="dim"))
    if details is not None and details.peaks_unknown:
        blocks.append(element("p", f"No roofline: {details.peaks_unknown}.", class_="dim"))
    aside = "what their time went into; ± is a 95 % interval"
    return section("A closer look at each phase", aside, *blocks, anchor="near")


def _phase_block(
    summary: RunSummary,
    phase: PhaseSummary,
    near: PhaseDetails | None,
    details: ReportDetails | None,
    *,
    is_open: bool,
) -> Markup:
    colours = phase_colours(summary.phases)
    facts = f"{format_ratio(phase.share)} · {_steps(phase.steps)} · median {format_ps(phase.median_ps)}"
    title = element("summary", swatch(colours[phase.id]), " ", phase.name, " ", element("span", facts, class_="dim"))
    parts = breakdown_table(phase.breakdown, colours, label=f"Breakdown of {phase.name}")
    first: list[Content] = [element("div", element("h3", "Breakdown"), parts)]
    if near is not None:
        spread = f"5 – 95 % {format_ps(phase.p05_ps)} – {format_ps(phase.p95_ps)}"
        label = f"Step times of {phase.name}: median {format_ps(phase.median_ps)}, {spread}"
        first.append(element("div", element("h3", "Step times"), _chart("histogram", phase, label)))
    blocks: list[Content] = [anatomy_band(phase.anatomy, phase.name), element("div", *first, class_="columns")]
    if phase.top_ops:
        blocks += [element("h3", ops_title(phase.breakdown, phase.name)), _ops_table(phase.top_ops, phase.name)]
    if near is not None and details is not None:
        blocks += [_layers(phase, near), _roofline(phase, near, details), _trace(phase, near)]
    attributes = {"open": "open"} if is_open else {}
    return element("details", title, *blocks, class_="phase", id=f"phase-{phase.id}", **attributes)


def _steps(number: int, what: str = "") -> str:
    return f"{format_count(number)} {what}step{'' if number == 1 else 's'}"


def _chart(kind: str, phase: PhaseSummary, label: str) -> Markup:
    attributes: Mapping[str, str] = {"role": "img", "aria_label": label} if kind in ("histogram", "roofline") else {}
    return element("div", class_=f"chart {kind}", data_chart=kind, data_phase=phase.id, **attributes)


def _ops_table(ops: Sequence[OpTime], name: str) -> Markup:
    columns = (
        TableColumn("op", lambda op: element("code", op.op, title=op.op)),
        TableColumn("category", lambda op: category_name(op.category)),
        TableColumn("self time", lambda op: op.self_ps, "ps", "self_ps"),
        TableColumn("± 95 %", lambda op: interval_text(op.self_ps, op.low_ps, op.high_ps), "", ""),
        TableColumn("share", lambda op: op.share, "ratio"),
        TableColumn("executions", lambda op: op.count, "count", "count"),
        TableColumn("layer or program", lambda op: element("code", op.layer or op.program or "–")),
    )
    return data_table(Table(columns, ops, f"Top ops of {name}"))


def _layers(phase: PhaseSummary, near: PhaseDetails) -> Markup:
    tree = near.layers
    if tree is None:
        return _NOTHING
    total_ps = tree.nodes[0].self_ps
    known = tree.costs_known_ps / total_ps if total_ps else None
    aside = f"self time of {_steps(tree.steps, 'captured ')}; flop and bytes known for {format_ratio(known)} of it"
    return element("div", heading("h3", "Layers", aside), _chart("icicle", phase, f"Layers of {phase.name}"))


def _roofline(phase: PhaseSummary, near: PhaseDetails, details: ReportDetails) -> Markup:
    if not near.roofline or details.peaks is None:
        return _NOTHING
    peaks = details.peaks
    aside = f"{peaks.device}: memory {peaks.memory_published}, {peaks.memory_source}"

    def intensity(point: RooflinePoint) -> Cell:
        return Cell(f"{point.flop_per_byte:.3g}", point.flop_per_byte)

    def reached(point: RooflinePoint) -> Cell:
        return Cell(f"{point.flop_per_s / 1e12:.3g} Tflop/s", point.flop_per_s)

    columns = (
        TableColumn("op", lambda point: element("code", point.op, title=point.op)),
        TableColumn("self time", lambda point: point.self_ps, "ps", "self_ps"),
        TableColumn("flop", lambda point: Cell(f"{point.flop:.3g}", point.flop), "flop"),
        TableColumn("bytes", lambda point: point.bytes, "bytes"),
        TableColumn("flop per byte", intensity, "flop/byte"),
        TableColumn("reached", reached, "flop/s", "flop_per_s"),
        TableColumn("layer", lambda point: element("code", point.layer or "–")),
    )
    table = data_table(Table(columns, near.roofline, f"Roofline of {phase.name}"))
    label = f"Roofline of {phase.name}: {len(near.roofline)} ops below the peaks of {peaks.device}, listed below"
    folded = element("details", element("summary", "The same as a table"), table)
    return element("div", heading("h3", "Roofline", aside), _chart("roofline", phase, label), folded)


def _trace(phase: PhaseSummary, near: PhaseDetails) -> Markup:
    trace = near.trace
    if trace is None:
        return _NOTHING
    aside = f"step {format_count(trace.step)} of window {trace.window}, {format_ps(trace.dur_ps)}"
    if trace.left_out:
        aside += f"; the {format_count(trace.left_out)} shortest events are left out"
    return element("div", heading("h3", "One step, event by event", aside), _chart("trace", phase, ""))
