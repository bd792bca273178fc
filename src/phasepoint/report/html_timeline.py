"""The timeline of the page: lanes of SVG above one time axis, drawn here, zoomed by the script.

Every lane is an `svg` of its own whose `viewBox` is the visible stretch of time, so that zooming is one attribute.
Marks are strokes of fixed width (`non-scaling-stroke`): zooming moves them apart and does not fatten them.
"""

import json
from collections.abc import Callable, Sequence

from phasepoint.core.units import PS_PER_S, format_bytes, format_count, format_ps, format_ratio
from phasepoint.phases.summary_types import RunSummary, StripSegment
from phasepoint.phases.timeline import Mark, Series, StepBin, StepPoint, Timeline
from phasepoint.report.markup import Content, Markup, element, join, swatch
from phasepoint.report.palette import phase_colours
from phasepoint.report.scale import Scale, fit_scale, tick_values

UNITS = 1_000_000
"""Width of the time axis in the drawing's units."""

_STEP_HEIGHT, _WAIT_HEIGHT, _SERIES_HEIGHT, _STRIP_HEIGHT, _MARK_HEIGHT = 150, 44, 54, 30, 14


def timeline_section(summary: RunSummary, timeline: Timeline | None) -> Markup:
    """The section with all lanes that have something in them."""
    if not summary.strip:
        return Markup("")
    lanes = [_strip_lane(summary)]
    if timeline is not None and timeline.end_ps:
        lanes += _timeline_lanes(summary, timeline)
    controls = element("div", *map(_button, _BUTTONS), class_="controls", role="group", aria_label="Zoom")
    heading = element("h2", "Timeline ", element("small", _aside(summary, timeline)))
    axis = _lane("", Markup('<svg class="axis" width="100%" height="18"></svg>'), 18)
    cursor = Markup('<div class="cursor" hidden></div><div class="tip" role="status" hidden></div>')
    drawing = element("div", *lanes, axis, cursor, class_="timeline", id="timeline")
    return element("section", element("div", heading, controls, class_="bar-head"), _legend(summary), drawing)


_BUTTONS = (
    ("in", "Zoom in", "+"),
    ("out", "Zoom out", "−"),
    ("left", "Earlier", "←"),
    ("right", "Later", "→"),
    ("all", "Show all", "all"),
)


def _button(button: tuple[str, str, str]) -> Markup:
    action, label, sign = button
    return element("button", sign, type="button", data_zoom=action, title=label, aria_label=label)


def _aside(summary: RunSummary, timeline: Timeline | None) -> str:
    host = f"host {summary.reference_host}" if len(summary.hosts) > 1 else ""
    shown = "" if timeline is None or timeline.all_steps else "band: 5 – 95 % of the steps; points: the slowest"
    return ", ".join(part for part in (host, shown, "drag to zoom") if part)


def _legend(summary: RunSummary) -> Markup:
    colours = phase_colours(summary.phases)
    names: list[tuple[str, str]] = [(phase.name, colours[phase.id]) for phase in summary.phases]
    if any(segment.phase is None for segment in summary.strip):
        names.append(("outside steps", colours[None]))
    items = (element("span", swatch(colour), " ", name) for name, colour in names)
    return element("p", *items, class_="legend")


def _timeline_lanes(summary: RunSummary, timeline: Timeline) -> list[Markup]:
    lanes = []
    if timeline.bins:
        lanes.append(_steps_lane(summary, timeline))
    if any(one.input_share for one in timeline.bins):
        lanes.append(_wait_lane(timeline))
    lanes += [_series_lane(series, timeline.end_ps) for series in timeline.series]
    for name in ("windows", "checkpoints", "hints", "gaps"):
        marks: tuple[Mark, ...] = getattr(timeline, name)
        if marks:
            lanes.append(_marks_lane(name, marks, timeline.end_ps))
    return lanes


def _lane(label: str, drawing: Markup, height: int, scale_labels: Content = "") -> Markup:
    side = element("div", element("span", label), scale_labels, class_="lane-label")
    return element("div", side, element("div", drawing, class_="lane-body"), class_="lane", data_height=height)


def _svg(height: int, *shapes: Content, label: str) -> Markup:
    box = f"0 0 {UNITS} {height}"
    inside = join([element("title", label), *shapes])
    return element(
        "svg", inside, class_="zoom", viewBox=box, preserveAspectRatio="none", width="100%", height=height, role="img"
    )


def _x(at_ps: int, end_ps: int) -> int:
    return at_ps * UNITS // end_ps


def _strip_lane(summary: RunSummary) -> Markup:
    """Phases over time: one path per phase, each stretch a rectangle."""
    end_ps = _end(summary.strip)
    colours = phase_colours(summary.phases)
    paths: dict[int | None, list[str]] = {}
    for segment in summary.strip:
        low, high = _x(segment.start_ps, end_ps), _x(segment.start_ps + segment.dur_ps, end_ps)
        paths.setdefault(segment.phase, []).append(f"M{low} 0H{high}V{_STRIP_HEIGHT}H{low}Z")
    shapes = [
        element("path", d="".join(path), fill=colours[phase], fill_opacity="0.45" if phase is None else "1")
        for phase, path in paths.items()
    ]
    return _lane("phases", _svg(_STRIP_HEIGHT, *shapes, label="Phases over time"), _STRIP_HEIGHT)


def _steps_lane(summary: RunSummary, timeline: Timeline) -> Markup:
    """Step times: a band over 5 – 95 % of the steps, its median, and points in the colour of their phase."""
    scale = fit_scale(min(b.p05_ps for b in timeline.bins), max(b.max_ps for b in timeline.bins))
    shapes = [_grid(scale, _STEP_HEIGHT)]
    if not timeline.all_steps:
        shapes += _band(timeline.bins, timeline.end_ps, scale)
    colours = phase_colours(summary.phases)
    by_phase: dict[int | None, list[StepPoint]] = {}
    for point in timeline.points:
        by_phase.setdefault(point.phase, []).append(point)
    for phase, points in by_phase.items():
        dots = "".join(f"M{_x(p.at_ps, timeline.end_ps)} {_y(p.dur_ps, scale, _STEP_HEIGHT)}h0" for p in points)
        shapes.append(element("path", d=dots, class_="dots", stroke=colours[phase]))
    labels = _scale_labels(scale, _STEP_HEIGHT, format_ps)
    title = "step time, log scale" if scale.is_log else "step time"
    return _lane(title, _svg(_STEP_HEIGHT, *shapes, label="Step time over time"), _STEP_HEIGHT, labels)


def _band(bins: Sequence[StepBin], end_ps: int, scale: Scale) -> list[Markup]:
    area, line = [], []
    for one in bins:
        low, high = _x(one.start_ps, end_ps), _x(one.end_ps, end_ps)
        top, bottom = _y(one.p95_ps, scale, _STEP_HEIGHT), _y(one.p05_ps, scale, _STEP_HEIGHT)
        middle = _y(one.median_ps, scale, _STEP_HEIGHT)
        area.append(f"M{low} {top}H{high}V{max(bottom, top + 1)}H{low}Z")
        line.append(f"M{low} {middle}H{high}")
    return [
        element("path", d="".join(area), class_="band"),
        element("path", d="".join(line), class_="median"),
    ]


def _wait_lane(timeline: Timeline) -> Markup:
    """Waiting for input as a share of the steps' time, 0 to 100 %."""
    bars = []
    for one in timeline.bins:
        low, high = _x(one.start_ps, timeline.end_ps), _x(one.end_ps, timeline.end_ps)
        top = round(_WAIT_HEIGHT * (1 - min(one.input_share or 0.0, 1.0)), 1)
        bars.append(f"M{low} {_WAIT_HEIGHT}V{top}H{high}V{_WAIT_HEIGHT}Z")
    scale = Scale(0.0, 1.0)
    labels = _scale_labels(scale, _WAIT_HEIGHT, lambda share: f"{100 * share:.0f} %", at_most=2)
    shape = element("path", d="".join(bars), class_="wait")
    return _lane("input wait", _svg(_WAIT_HEIGHT, shape, label="Waiting for input over time"), _WAIT_HEIGHT, labels)


def _series_lane(series: Series, end_ps: int) -> Markup:
    scale = fit_scale(0.0, max(series.values, default=1.0), is_binary=series.unit == "bytes")
    points = [
        f"{_x(at, end_ps)} {_y(value, scale, _SERIES_HEIGHT)}"
        for at, value in zip(series.at_ps, series.values, strict=True)
    ]
    line = element("path", d="M" + "L".join(points), class_="series")
    labels = _scale_labels(scale, _SERIES_HEIGHT, lambda value: _value(value, series.unit), at_most=2)
    shapes = (_grid(scale, _SERIES_HEIGHT, at_most=2), line)
    return _lane(series.name, _svg(_SERIES_HEIGHT, *shapes, label=series.name), _SERIES_HEIGHT, labels)


def _marks_lane(name: str, marks: Sequence[Mark], end_ps: int) -> Markup:
    """A tick where something began, and a bar as long as it lasted."""
    bars, ticks = [], []
    for mark in marks:
        low, high = _x(mark.start_ps, end_ps), _x(mark.start_ps + mark.dur_ps, end_ps)
        bars.append(f"M{low} {_MARK_HEIGHT / 2}H{high}")
        ticks.append(f"M{low} 1V{_MARK_HEIGHT - 1}")
    shapes = (
        element("path", d="".join(bars), class_=f"mark mark-{name}"),
        element("path", d="".join(ticks), class_=f"tick mark-{name}"),
    )
    return _lane(name, _svg(_MARK_HEIGHT, *shapes, label=name), _MARK_HEIGHT)


def _y(value: float, scale: Scale, height: int) -> float:
    return round(height * (1 - scale.position(value)), 1)


def _grid(scale: Scale, height: int, at_most: int = 5) -> Markup:
    lines = "".join(f"M0 {_y(value, scale, height)}H{UNITS}" for value in tick_values(scale, at_most))
    return element("path", d=lines, class_="grid")


def _scale_labels(scale: Scale, height: int, text: Callable[[float], str], at_most: int = 5) -> Markup:
    marks = (
        element("text", text(value), x=62, y=min(max(_y(value, scale, height) + 3, 9), height), text_anchor="end")
        for value in tick_values(scale, at_most)
    )
    return element("svg", *marks, class_="scale", width=64, height=height, aria_hidden="true")


def _value(value: float, unit: str) -> str:
    return format_bytes(value) if unit == "bytes" else f"{value:,.4g} {unit}"


def script_data(summary: RunSummary, timeline: Timeline | None) -> str:
    """What the script shows on hover: places on the axis and ready texts, as JSON that cannot end its element."""
    end_ps = _end(summary.strip)
    data: dict[str, object] = {"units": UNITS, "end_s": end_ps / PS_PER_S, "ranges": [], "points": []}
    if end_ps:
        ranges = [
            [[_x(s.start_ps, end_ps), _x(s.start_ps + s.dur_ps, end_ps), _segment_text(s)] for s in summary.strip]
        ]
        if timeline is not None and timeline.end_ps:
            data["points"] = [[_x(p.at_ps, end_ps), _point_text(p)] for p in timeline.points]
            ranges.append([[_x(b.start_ps, end_ps), _x(b.end_ps, end_ps), _bin_text(b)] for b in timeline.bins])
            for marks in (timeline.windows, timeline.checkpoints, timeline.hints, timeline.gaps):
                ranges.append([[_x(m.start_ps, end_ps), _x(m.start_ps + m.dur_ps, end_ps), m.text] for m in marks])
        data["ranges"] = ranges
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _segment_text(segment: StripSegment) -> str:
    steps = ""
    if segment.first_step is not None and segment.last_step is not None:
        steps = f", steps {format_count(segment.first_step)} – {format_count(segment.last_step)}"
    merged = f" and {segment.merged - 1} short stretches" if segment.merged > 1 else ""
    return f"{segment.name}{merged}: {format_ps(segment.dur_ps)}{steps}"


def _point_text(point: StepPoint) -> str:
    wait = f", {format_ps(point.input_ps)} of it waiting for input" if point.input_ps else ""
    return f"step {format_count(point.step)}: {format_ps(point.dur_ps)}{wait}"


def _bin_text(one: StepBin) -> str:
    if one.n_steps == 1:
        return ""
    wait = "" if one.input_share is None else f", {format_ratio(one.input_share)} waiting for input"
    return (
        f"{format_count(one.n_steps)} steps from {format_count(one.first_step)}: median {format_ps(one.median_ps)}, "
        f"5 – 95 % {format_ps(one.p05_ps)} – {format_ps(one.p95_ps)}, slowest {format_ps(one.max_ps)}{wait}"
    )


def _end(strip: Sequence[StripSegment]) -> int:
    return strip[-1].start_ps + strip[-1].dur_ps if strip else 0
