"""The page's data for its script: one list per column, every number as it was computed, nothing formatted.

Whatever stands here stands in the report's `--json` document too. Names are text: the JSON cannot end its element,
and the script puts names into the page as text only.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from phasepoint.phases.clock.accounting import SLOWER
from phasepoint.report.html.stack import rooflines
from phasepoint.report.words.names import printable
from phasepoint.report.words.palette import CATEGORY_COLOURS, OUTSIDE_COLOUR, PART_COLOURS, cycle_colours, phase_colours
from phasepoint.stack.analyses.overview import StackOverview
from phasepoint.summary.details import PhaseDetails, ReportDetails
from phasepoint.summary.machine_lane import MachineLane
from phasepoint.summary.timeline import Timeline, TimelineMark
from phasepoint.summary.types import PhaseSummary, RunSummary, StripSegment


def script_data(
    summary: RunSummary,
    timeline: Timeline | None,
    details: ReportDetails | None,
    overview: StackOverview | None = None,
) -> str:
    """Everything that the script draws, as JSON that cannot end the element it stands in."""
    text = json.dumps(page_data(summary, timeline, details, overview), separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def page_data(
    summary: RunSummary,
    timeline: Timeline | None,
    details: ReportDetails | None,
    overview: StackOverview | None = None,
) -> dict[str, Any]:
    """The same as values; its layout is declared in web/src/data.ts."""
    colours = phase_colours(summary.phases)
    phases = {phase.id: phase for phase in summary.phases}
    near = details.phases if details else ()
    peaks = None if details is None or details.peaks is None else details.peaks
    rates = [{"kind": rate.kind, "flop_per_s": rate.flop_per_s} for rate in peaks.rates] if peaks else []
    return {
        "run": printable(summary.run),
        "end": summary.strip[-1].start_ps + summary.strip[-1].dur_ps if summary.strip else 0,
        "phases": [{"id": p.id, "name": printable(p.name), "colour": colours[p.id]} for p in summary.phases],
        "strip": _strip(summary.strip),
        "timeline": _timeline(timeline) if timeline is not None and timeline.end_ps else None,
        "details": {str(one.phase): _phase(one, phases[one.phase]) for one in near},
        "peaks": {"memory_bytes_per_s": peaks.memory_bytes_per_s, "rates": rates} if peaks else None,
        "stack": rooflines(overview),
        "methods": _methods(details),
        "category_colours": CATEGORY_COLOURS,
        "outside_colour": OUTSIDE_COLOUR,
        "slower_colour": PART_COLOURS[SLOWER],
    }


def _columns(rows: Iterable[object], **names: str) -> dict[str, list[Any]]:
    """Attributes of rows as lists: `names` is name in the data → attribute."""
    listed = list(rows)
    values = {key: [getattr(row, attribute) for row in listed] for key, attribute in names.items()}
    return {key: [printable(v) if isinstance(v, str) else v for v in column] for key, column in values.items()}


def _strip(strip: Sequence[StripSegment]) -> dict[str, list[Any]]:
    steps = {"first": "first_step", "last": "last_step", "merged": "merged"}
    return _columns(strip, start="start_ps", dur="dur_ps", phase="phase", name="name", **steps)


def _timeline(timeline: Timeline) -> dict[str, Any]:
    of_steps = {"start": "start_ps", "end": "end_ps", "first": "first_step", "n": "n_steps"}
    of_times = {"p05": "p05_ps", "median": "median_ps", "p95": "p95_ps", "max": "max_ps", "input_share": "input_share"}
    marks = {}
    for name in ("windows", "checkpoints", "hints", "gaps"):
        rows: Sequence[TimelineMark] = getattr(timeline, name)
        gone = {"gone": "is_gone"} if any(mark.is_gone for mark in rows) else {}
        if rows:
            marks[name] = _columns(rows, start="start_ps", dur="dur_ps", text="text", **gone)
    return {
        "all_steps": timeline.all_steps,
        "points": _columns(timeline.points, at="at_ps", step="step", dur="dur_ps", input="input_ps", phase="phase"),
        "bins": _columns(timeline.bins, **of_steps, **of_times),
        "series": [
            {"name": printable(s.name), "unit": printable(s.unit), "at": list(s.at_ps), "values": list(s.values)}
            for s in timeline.series
        ],
        "marks": marks,
        "machine": None if timeline.machine is None else _machine_columns(timeline.machine),
    }


def _machine_columns(lane: MachineLane) -> dict[str, list[Any]]:
    """Its columns; those of which nothing is known are empty."""
    columns = {name.removesuffix("_ps"): list(values) for name, values in vars(lane).items()}
    return {name: values if any(value is not None for value in values) else [] for name, values in columns.items()}


def _phase(one: PhaseDetails, phase: PhaseSummary) -> dict[str, Any]:
    spread = one.distribution
    trace: dict[str, Any] | None = None
    of_layers = {name: name for name in ("name", "parent", "is_op", "self_ps", "flop", "bytes")}
    of_points = {name: name for name in ("op", "self_ps", "flop_per_byte", "flop_per_s")}
    if one.trace is not None:
        texts = ("tracks", "names", "categories")
        trace = {name: [printable(text) for text in getattr(one.trace, name)] for name in texts}
        numbers = ("track", "name", "category", "depth", "start", "dur")
        trace |= {name: list(getattr(one.trace, name)) for name in numbers}
        trace |= {"end": one.trace.dur_ps, "label": printable(f"{phase.name}, step {one.trace.step}")}
    return {
        "median": phase.median_ps,
        "p05": phase.p05_ps,
        "p95": phase.p95_ps,
        "layers": None if one.layers is None else _columns(one.layers.nodes, **of_layers),
        "distribution": {
            "edges": list(spread.edges_ps),
            "counts": list(spread.counts),
            "beyond": spread.beyond,
            "longest": spread.longest_ps,
        },
        "roofline": _columns(one.roofline, **of_points),
        "trace": trace,
    }


def _methods(details: ReportDetails | None) -> list[dict[str, Any]]:
    """The methods' strips; a phase of another method has no name in common with ours, so it has a colour by rank."""
    rows = []
    for one in details.methods if details else ():
        times: dict[int, int] = {}
        for segment in one.strip:
            if segment.phase is not None:
                times[segment.phase] = times.get(segment.phase, 0) + segment.dur_ps
        ranked = sorted(times, key=lambda phase: (-times[phase], phase))
        colours = {str(phase): colour for phase, colour in zip(ranked, cycle_colours(len(ranked)), strict=True)}
        rows.append({"method": one.method, "strip": _strip(one.strip), "colours": colours})
    return rows
