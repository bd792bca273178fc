"""The phases: one table of all, and the largest from near."""

from collections.abc import Mapping, Sequence

from phasepoint.core.units import format_bytes, format_count, format_ps, format_ratio
from phasepoint.phases.clock.breakdown import OpTime
from phasepoint.report.html.markup import Content, Markup, element, join, swatch
from phasepoint.report.html.tables import (
    Cell,
    Column,
    breakdown_table,
    count,
    data_table,
    duration,
    figures,
    ratio,
    text,
)
from phasepoint.report.words.names import shorten
from phasepoint.report.words.palette import part_colours, phase_colours
from phasepoint.report.words.wording import category_name, interval_text
from phasepoint.summary.details import PhaseDetails, ReportDetails
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
    columns = [
        text("phase"),
        figures("share", "share"),
        figures("time", "total_ps"),
        figures("steps", "steps"),
        figures("times", "segments"),
        figures("median step", "median_ps"),
        Column("5 – 95 %", "p05_p95"),
        figures("period", "period_steps"),
        figures("input wait", "input_ps"),
        figures("captured", "captured_steps"),
        text("stands for it", "representative"),
        text("restart from", "restart_from"),
    ]
    rows = [_phase_row(phase, colours[phase.id], is_near=phase.id in near) for phase in summary.phases]
    heading = element("h2", "Phases ", element("small", "classes of steps that behave alike"))
    return element("section", heading, data_table(columns, rows, label="Phases"), id="phases")


def _phase_row(phase: PhaseSummary, colour: str, *, is_near: bool) -> Sequence[Content | Cell]:
    step = phase.representative_step
    stands_for = "–" if step is None else f"step {format_count(step)}"
    if phase.representative_window is not None:
        stands_for += f", window {phase.representative_window}"
    period = phase.period_steps
    name: Content = element("a", phase.name, href=f"#phase-{phase.id}") if is_near else phase.name
    return (
        join([swatch(colour), " ", name]),
        ratio(phase.share),
        duration(phase.total_ps),
        count(phase.steps),
        count(phase.segments),
        duration(phase.median_ps),
        f"{format_ps(phase.p05_ps)} – {format_ps(phase.p95_ps)}",
        Cell("–" if period is None else f"{period:,.0f} steps", period),
        duration(phase.input_ps),
        count(phase.captured_steps),
        stands_for,
        _path(phase.restart_from),
    )


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
        blocks = [element("h3", "Top ops of the whole run"), _ops_table(summary.top_ops, "the whole run")]
    if not blocks:
        return _NOTHING
    missing = [phase.name for phase in summary.phases if not phase.top_ops]
    if missing:
        blocks.append(element("p", f"Never captured: {', '.join(missing)}.", class_="dim"))
    if details is not None and details.peaks_unknown:
        blocks.append(element("p", f"No roofline: {details.peaks_unknown}.", class_="dim"))
    aside = "what their time went into; ± is a 95 % interval"
    return element("section", element("h2", "Phases from near ", element("small", aside)), *blocks, id="near")


def _phase_block(
    summary: RunSummary,
    phase: PhaseSummary,
    near: PhaseDetails | None,
    details: ReportDetails | None,
    *,
    is_open: bool,
) -> Markup:
    colour = phase_colours(summary.phases)[phase.id]
    facts = f"{format_ratio(phase.share)} · {_steps(phase.steps)} · median {format_ps(phase.median_ps)}"
    title = element("summary", swatch(colour), " ", phase.name, " ", element("span", facts, class_="dim"))
    parts = breakdown_table(phase.breakdown, part_colours(summary), label=f"Breakdown of {phase.name}")
    first: list[Content] = [element("div", element("h3", "Breakdown"), parts)]
    if near is not None:
        first.append(element("div", element("h3", "Step times"), _histogram(phase)))
    blocks: list[Content] = [element("div", *first, class_="columns")]
    if phase.top_ops:
        blocks += [element("h3", "Top ops"), _ops_table(phase.top_ops, phase.name)]
    if near is not None and details is not None:
        blocks += [_layers(phase, near), _roofline(phase, near, details), _trace(phase, near)]
    attributes = {"open": "open"} if is_open else {}
    return element("details", title, *blocks, class_="phase", id=f"phase-{phase.id}", **attributes)


def _steps(number: int, what: str = "") -> str:
    return f"{format_count(number)} {what}step{'' if number == 1 else 's'}"


def _chart(kind: str, phase: PhaseSummary, label: str) -> Markup:
    attributes: Mapping[str, str] = {"role": "img", "aria_label": label} if kind in ("histogram", "roofline") else {}
    return element("div", class_=f"chart {kind}", data_chart=kind, data_phase=phase.id, **attributes)


def _histogram(phase: PhaseSummary) -> Markup:
    spread = f"5 – 95 % {format_ps(phase.p05_ps)} – {format_ps(phase.p95_ps)}"
    return _chart("histogram", phase, f"Step times of {phase.name}: median {format_ps(phase.median_ps)}, {spread}")


def _ops_table(ops: Sequence[OpTime], name: str) -> Markup:
    columns = [
        text("op"),
        text("category"),
        figures("self time", "self_ps"),
        Column("± 95 %", ""),
        figures("share", "share"),
        figures("executions", "count"),
        text("layer or program", "layer_or_program"),
    ]
    rows = (
        (
            element("code", op.op, title=op.op),
            category_name(op.category),
            duration(op.self_ps),
            interval_text(op.self_ps, op.low_ps, op.high_ps),
            ratio(op.share),
            count(op.count),
            element("code", op.layer or op.program or "–"),
        )
        for op in ops
    )
    return data_table(columns, rows, label=f"Top ops of {name}")


def _layers(phase: PhaseSummary, near: PhaseDetails) -> Markup:
    tree = near.layers
    if tree is None:
        return _NOTHING
    total_ps = tree.nodes[0].self_ps
    known = tree.costs_known_ps / total_ps if total_ps else None
    aside = f"self time of {_steps(tree.steps, 'captured ')}; flop and bytes known for {format_ratio(known)} of it"
    return element(
        "div", element("h3", "Layers ", element("small", aside)), _chart("icicle", phase, f"Layers of {phase.name}")
    )


def _roofline(phase: PhaseSummary, near: PhaseDetails, details: ReportDetails) -> Markup:
    if not near.roofline or details.peaks is None:
        return _NOTHING
    peaks = details.peaks
    aside = f"{peaks.device}: memory {peaks.memory_published}, {peaks.memory_source}"
    columns = [
        text("op"),
        figures("self time", "self_ps"),
        figures("flop", "flop"),
        figures("bytes", "bytes"),
        figures("flop per byte", "flop_per_byte"),
        figures("reached", "flop_per_s"),
        text("layer"),
    ]
    rows = (
        (
            element("code", point.op, title=point.op),
            duration(point.self_ps),
            Cell(f"{point.flop:.3g}", point.flop),
            Cell(format_bytes(point.bytes), point.bytes),
            Cell(f"{point.flop_per_byte:.3g}", point.flop_per_byte),
            Cell(f"{point.flop_per_s / 1e12:.3g} Tflop/s", point.flop_per_s),
            element("code", point.layer or "–"),
        )
        for point in near.roofline
    )
    table = data_table(columns, rows, label=f"Roofline of {phase.name}")
    label = f"Roofline of {phase.name}: {len(near.roofline)} ops below the peaks of {peaks.device}, listed below"
    folded = element("details", element("summary", "The same as a table"), table)
    heading = element("h3", "Roofline ", element("small", aside))
    return element("div", heading, _chart("roofline", phase, label), folded)


def _trace(phase: PhaseSummary, near: PhaseDetails) -> Markup:
    trace = near.trace
    if trace is None:
        return _NOTHING
    aside = f"step {format_count(trace.step)} of window {trace.window}, {format_ps(trace.dur_ps)}"
    if trace.left_out:
        aside += f"; the {format_count(trace.left_out)} shortest events are left out"
    heading = element("h3", "One step, event by event ", element("small", aside))
    return element("div", heading, _chart("trace", phase, ""))
