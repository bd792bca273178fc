"""A suite of measured models as a page: a map of models and devices, what is worth its time, every pair."""

import math
from collections.abc import Sequence
from importlib.metadata import version

from phasepoint.bench.bottleneck.proof import told_changes
from phasepoint.bench.suite.result import PairResult
from phasepoint.bench.suite.summary import PairSummary
from phasepoint.core.units import format_counted, format_ps, format_ratio
from phasepoint.report.html.page import page_html
from phasepoint.report.tables import Table
from phasepoint.report.tables.html import data_table
from phasepoint.report.tables.suites import (
    change_columns,
    layer_columns,
    pair_words,
    predicted_columns,
    setting_words,
    suite_columns,
)
from phasepoint.report.words.markup import Content, Markup, bullets, drawing, element, join, section, swatch
from phasepoint.report.words.palette import cycle_colours

_WIDTH, _ROW, _LABEL = 1000, 17, 260  # of a drawing, of a line in it, of the names on its left
_PLOT = 420  # height of the plot of size over time
_CURVES = 220  # and of the curves of a run without a break
_MARGIN = 64  # of it, for its axes
_SLOW = "#d55e00"  # of the palette's set


def suite_html(folder: str, summaries: Sequence[PairSummary], results: Sequence[PairResult]) -> str:
    """The page.

    Args:
        folder: of the suite, as it was asked for.
        summaries: of all pairs.
        results: that they are of.
    """
    measured = sorted((one for one in summaries if one.latency_ps), key=lambda one: one.latency_ps or 0)
    predicted = [one for one in summaries if one.predicted is not None]
    others = [one for one in summaries if one.status not in ("measured", "predicted")]
    head: list[Content] = [
        element("p", f"{folder}: {machine_words(results)}", class_="dim"),
        element("h1", suite_sentence(measured, others)),
        *(element("p", note, class_="note") for note in suite_notes(measured)),
    ]
    parts: list[Content] = [element("header", *head)]
    if measured:
        parts.append(section("Latency of one sample", "logarithmic; its 95 % interval as a line", _bars(measured)))
        if len({setting_words(one.pair) for one in measured}) > 1:
            aside = (
                "each model against its own fastest setting: white is as fast, full colour four times as slow or more"
            )
            parts.append(section("Models on settings", aside, _heat(measured)))
        parts.append(section("Size against time", "filled: none is both larger and faster", _plot(measured)))
        curves = [one for one in results if one.sustained]
        if curves:
            aside = "inferences a second, over its own first seconds"
            parts.append(section("A run without a break", aside, _curves(curves)))
        changes = told_changes(measured, results)
        if changes:
            aside = "a sample, how many times as fast: told from the operations of one inference, and measured"
            told = data_table(Table(change_columns(changes), changes, "Changes"))
            parts.append(section("What would be faster", aside, told))
        explained = [one for one in measured if one.bottleneck is not None and one.bottleneck.every_layer]
        if explained:
            aside = "of one inference, operation by operation; what no layer takes is overhead of the framework"
            parts.append(section("Inside each network", aside, *map(_layers, explained)))
        table = data_table(Table(suite_columns(measured), measured, "Pairs"))
        parts.append(section("All pairs", "one row each", table))
    if predicted:
        aside = "not measured: told from what the device's own compiler makes of the program"
        told = data_table(Table(predicted_columns(), predicted, "Predictions"))
        parts.append(section("Devices that are not here", aside, told))
    if others:
        lines = [f"{pair_words(one.pair)}: {one.status}: {one.reason}" for one in others]
        parts.append(section("Not measured", format_counted(len(others), "pair"), bullets(lines)))
    footer = element("footer", f"Phasepoint {version('phasepoint')}")
    return page_html(f"Models of {folder}", join([element("main", *parts), footer]))


def suite_sentence(measured: Sequence[PairSummary], others: Sequence[PairSummary]) -> str:
    """What the suite says first.

    Args:
        measured: the fastest first.
        others: those that were not.
    """
    if not measured and not others:
        return "Nothing was measured here: what follows is predicted"
    if not measured:
        return f"None of {format_counted(len(others), 'pair')} could be measured"
    models = format_counted(len({one.pair.model for one in measured}), "model")
    first, last = measured[0], measured[-1]
    said = f"{models} on {format_counted(len({setting_words(one.pair) for one in measured}), 'setting')}: "
    said += f"one sample takes from {format_ps(first.latency_ps)} ({first.pair.model}) "
    said += f"to {format_ps(last.latency_ps)} ({last.pair.model})"
    return said + (f"; {format_counted(len(others), 'pair')} could not be measured" if others else "")


def machine_words(results: Sequence[PairResult]) -> str:
    """The devices, and what ran the models, with versions."""
    told = [one.conditions for one in results if one.conditions is not None]
    devices = sorted({one.device for one in told})
    versions = sorted({f"{name} {version}" for one in told for name, version in one.versions.items()})
    return ", ".join([*devices, *versions]) or "nothing was measured"


def suite_notes(measured: Sequence[PairSummary]) -> list[str]:
    """What a reader must know of the figures."""
    notes = []
    if measured and all(one.rounds < 2 for one in measured):
        notes.append(
            "Each pair was measured in one process: intervals hold what scatters within it, and two processes differ "
            "by more. --rounds 3 measures that too."
        )
    unsteady = sum(bool(one.unsteady) for one in measured)
    if unsteady:
        notes.append(f"{format_counted(unsteady, 'pair')} of {len(measured)} had no steady times: see their notes.")
    return notes


def _bars(measured: Sequence[PairSummary]) -> Markup:
    """Each model's latencies, one mark for each setting, from the least to the most."""
    settings = sorted({setting_words(one.pair) for one in measured})
    colours = dict(zip(settings, cycle_colours(len(settings)), strict=True))
    ends = [time for one in measured for time in (one.low_ps, one.latency_ps, one.high_ps) if time]
    low, high = math.log(min(ends)), math.log(max(ends))

    def x(time_ps: int) -> float:
        return round(_LABEL + (math.log(time_ps) - low) / max(high - low, 1e-9) * (_WIDTH - _LABEL - 90), 1)

    models = list(dict.fromkeys(one.pair.model for one in measured))
    height, drawn = (len(models) + 1) * _ROW, list[Markup]()
    for power in range(math.ceil(low / math.log(10)), math.floor(high / math.log(10)) + 1):
        at = x(10**power)
        drawn.append(element("line", x1=at, x2=at, y1=0, y2=height - _ROW, class_="grid"))
        drawn.append(element("text", format_ps(10**power), x=at, y=height - 4, text_anchor="middle"))
    for row, model in enumerate(models):
        y = row * _ROW + _ROW / 2
        drawn.append(element("text", model, x=_LABEL - 10, y=y + 4, text_anchor="end", class_="strong"))
        mine = [one for one in measured if one.pair.model == model]
        for one in mine:
            colour = colours[setting_words(one.pair)]
            if one.low_ps is not None and one.high_ps is not None:
                drawn.append(element("line", x1=x(one.low_ps), x2=x(one.high_ps), y1=y, y2=y, stroke=colour))
            title = element("title", f"{pair_words(one.pair)}: {format_ps(one.latency_ps)}")
            drawn.append(element("circle", title, cx=x(one.latency_ps or 1), cy=y, r=4, fill=colour))
        last = mine[-1]
        end = x(last.high_ps or last.latency_ps or 1)
        drawn.append(element("text", format_ps(last.latency_ps), x=end + 8, y=y + 4))
    legend = [element("span", swatch(colours[name]), " ", name) for name in settings]
    return join([element("p", join(legend), class_="legend"), drawing(drawn, _WIDTH, height, "Latency of each model")])


def _layers(one: PairSummary) -> Markup:
    """A network's parts in a line, and its layers below it where that is opened."""
    found = one.bottleneck
    assert found is not None
    latency_ps = sum(found.parts_ps.values())
    parts = sorted(found.parts_ps.items(), key=lambda item: -item[1])
    told = ", ".join(f"{name} {format_ratio(time / max(latency_ps, 1))}" for name, time in parts if time > 0)
    line = element("summary", element("strong", pair_words(one.pair)), f": {format_ps(latency_ps)}, {told}")
    rows = sorted((row for row in found.every_layer if row.time_ps), key=lambda row: -row.time_ps)
    idle = len(found.every_layer) - len(rows)
    more = element("p", f"{format_counted(idle, 'layer')} too short to be timed", class_="dim") if idle else ""
    return element("details", line, data_table(Table(layer_columns(max(latency_ps, 1)), rows, "Layers")), more)


SLOWEST_SHOWN = 4.0
"""Times as slow as a model's fastest setting from which the colour is full: a choice."""


def _heat(measured: Sequence[PairSummary]) -> Markup:
    """A cell for each model and setting, coloured by how much slower it is than the model's fastest."""
    settings = sorted({setting_words(one.pair) for one in measured})
    models = list(dict.fromkeys(one.pair.model for one in measured))
    latency_ps = {(one.pair.model, setting_words(one.pair)): one.latency_ps or 1 for one in measured}
    width, drawn = (_WIDTH - _LABEL) / len(settings), list[Markup]()
    for column, setting in enumerate(settings):
        x = _LABEL + (column + 0.5) * width
        drawn.append(element("text", setting, x=round(x, 1), y=_ROW - 5, text_anchor="middle"))
    for row, model in enumerate(models, 1):
        y = row * _ROW
        drawn.append(element("text", model, x=_LABEL - 10, y=y + 12, text_anchor="end", class_="strong"))
        fastest_ps = min(time for (name, _), time in latency_ps.items() if name == model)
        for column, setting in enumerate(settings):
            time_ps = latency_ps.get((model, setting))
            if time_ps is None:
                continue
            slower = time_ps / fastest_ps
            full = min(math.log(slower) / math.log(SLOWEST_SHOWN), 1.0)
            title = element("title", f"{model} on {setting}: {format_ps(time_ps)}, {slower:.2f} times its fastest")
            x, wide = round(_LABEL + column * width, 1), round(width - 2, 1)
            shade = round(0.7 * full, 3)
            drawn.append(element("rect", title, x=x, y=y, width=wide, height=_ROW - 2, fill=_SLOW, fill_opacity=shade))
            middle = round(x + width / 2, 1)
            drawn.append(element("text", format_ps(time_ps), x=middle, y=y + 12, text_anchor="middle", class_="strong"))
    return drawing(drawn, _WIDTH, (len(models) + 1) * _ROW, "Latency of each model on each setting")


def _plot(measured: Sequence[PairSummary]) -> Markup:
    """Parameters over latency, both by their logarithms, of the setting that has most models."""
    settings = [setting_words(one.pair) for one in measured]
    chosen = max(sorted(set(settings)), key=settings.count)
    points = [one for one in measured if setting_words(one.pair) == chosen and one.model and one.latency_ps]
    times = [math.log(one.latency_ps or 1) for one in points]
    sizes = [math.log(max(one.model.params, 1)) for one in points if one.model]

    def place(value: float, values: Sequence[float], least: float, most: float) -> float:
        return round(least + (value - min(values)) / max(max(values) - min(values), 1e-9) * (most - least), 1)

    drawn, largest = list[Markup](), -math.inf
    for one, time, size in sorted(zip(points, times, sizes, strict=True), key=lambda row: (row[1], -row[2])):
        is_front = size > largest
        largest = max(largest, size)
        cx = place(time, times, _MARGIN, _WIDTH - 150)
        cy = place(size, sizes, _PLOT - _MARGIN, 14)
        params = f"{one.model.params / 1e6:,.2f} M" if one.model else ""
        title = element("title", f"{one.pair.model}: {format_ps(one.latency_ps)}, {params} parameters")
        fill = "#0072b2" if is_front else "none"
        drawn.append(element("circle", title, cx=cx, cy=cy, r=4.5, fill=fill, stroke="#0072b2"))
        if is_front:
            at, anchor = (cx + 8, "start") if cx < _WIDTH / 2 else (cx - 8, "end")
            drawn.append(element("text", one.pair.model, x=at, y=cy + 4, text_anchor=anchor, class_="strong"))
    for end, anchor in ((min(times), "start"), (max(times), "end")):
        at = place(end, times, _MARGIN, _WIDTH - 150)
        drawn.append(element("text", format_ps(round(math.exp(end))), x=at, y=_PLOT - 6, text_anchor=anchor))
    for end in (min(sizes), max(sizes)):
        at = place(end, sizes, _PLOT - _MARGIN, 14)
        drawn.append(element("text", f"{math.exp(end) / 1e6:,.2g} M", x=_MARGIN - 10, y=at + 4, text_anchor="end"))
    return join(
        [
            element("p", f"{chosen}: parameters over latency", class_="dim"),
            drawing(drawn, _WIDTH, _PLOT, "Size against time"),
        ]
    )


def _curves(results: Sequence[PairResult]) -> Markup:
    """Speed in each second of each process, over the median of its first ten seconds."""
    colours = dict(zip((one.pair for one in results), cycle_colours(len(results)), strict=False))
    lines, most_ps, drawn = [], 1, list[Markup]()
    for one in results:
        speeds = [window.runs / window.dur_ps for window in one.sustained]
        first = sorted(speeds[:10])[len(speeds[:10]) // 2]
        lines.append([(window.start_ps, speed / first) for window, speed in zip(one.sustained, speeds, strict=True)])
        most_ps = max(most_ps, one.sustained[-1].start_ps)
    low = min(min(value for _, value in line) for line in lines)
    high = max(max(value for _, value in line) for line in lines)

    def y(value: float) -> float:
        return round(10 + (high - value) / max(high - low, 1e-9) * (_CURVES - 40), 1)

    for value in (low, 1.0, high):
        drawn.append(element("line", x1=_MARGIN, x2=_WIDTH - 20, y1=y(value), y2=y(value), class_="grid"))
        drawn.append(element("text", f"{value:.2f}", x=_MARGIN - 8, y=y(value) + 4, text_anchor="end"))
    for one, line in zip(results, lines, strict=True):
        points = [f"{_MARGIN + at / most_ps * (_WIDTH - _MARGIN - 20):.1f},{y(value)}" for at, value in line]
        title = element("title", pair_words(one.pair))
        drawn.append(
            element("polyline", title, points=" ".join(points), fill="none", stroke=colours[one.pair], stroke_width=1.4)
        )
    drawn.append(element("text", format_ps(most_ps), x=_WIDTH - 20, y=_CURVES - 6, text_anchor="end"))
    named = [element("span", swatch(colour), " ", pair_words(pair)) for pair, colour in colours.items()]
    return join([element("p", join(named), class_="legend"), drawing(drawn, _WIDTH, _CURVES, "Speed without a break")])
