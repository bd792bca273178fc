"""The page's data for its script: one list per column, every number as it was computed, nothing formatted.

Whatever stands here stands in the report's `--json` document too. Names are text: the JSON cannot end its element,
and the script puts names into the page as text only.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from phasepoint.report.html.stack import rooflines
from phasepoint.report.words.names import printable
from phasepoint.report.words.palette import CATEGORY_COLOURS, OUTSIDE_COLOUR, cycle_colours, phase_colours
from phasepoint.stack.analyses.overview import StackOverview
from phasepoint.summary.details import LayerTree, PhaseDetails, ReportDetails
from phasepoint.summary.representative import WindowTrace
from phasepoint.summary.roofline import RooflinePoint
from phasepoint.summary.timeline import StepBin, StepPoint, Timeline, TimelineMark
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
    return {
        "run": printable(summary.run),
        "end": summary.strip[-1].start_ps + summary.strip[-1].dur_ps if summary.strip else 0,
        "phases": [{"id": p.id, "name": printable(p.name), "colour": colours[p.id]} for p in summary.phases],
        "strip": _strip(summary.strip),
        "timeline": _timeline(timeline) if timeline is not None and timeline.end_ps else None,
        "details": {str(one.phase): _phase(one, phases[one.phase]) for one in near},
        "peaks": _peaks(details),
        "stack": rooflines(overview),
        "methods": _methods(details),
        "category_colours": CATEGORY_COLOURS,
        "outside_colour": OUTSIDE_COLOUR,
    }


def _columns(rows: Iterable[object], names: Mapping[str, str]) -> dict[str, list[Any]]:
    """Attributes of rows as lists: `names` is name in the data → attribute."""
    listed = list(rows)
    return {key: [_shown(getattr(row, attribute)) for row in listed] for key, attribute in names.items()}


def _shown(value: Any) -> Any:
    return printable(value) if isinstance(value, str) else value


def _strip(strip: Sequence[StripSegment]) -> dict[str, list[Any]]:
    names = {"start": "start_ps", "dur": "dur_ps", "phase": "phase", "name": "name"}
    return _columns(strip, {**names, "first": "first_step", "last": "last_step", "merged": "merged"})


def _timeline(timeline: Timeline) -> dict[str, Any]:
    marks = {name: getattr(timeline, name) for name in ("windows", "checkpoints", "hints", "gaps")}
    return {
        "all_steps": timeline.all_steps,
        "points": _points(timeline.points),
        "bins": _bins(timeline.bins),
        "series": [
            {"name": printable(s.name), "unit": printable(s.unit), "at": list(s.at_ps), "values": list(s.values)}
            for s in timeline.series
        ],
        "marks": {name: _marks(rows) for name, rows in marks.items() if rows},
    }


def _points(points: Sequence[StepPoint]) -> dict[str, list[Any]]:
    return _columns(points, {"at": "at_ps", "step": "step", "dur": "dur_ps", "input": "input_ps", "phase": "phase"})


def _bins(bins: Sequence[StepBin]) -> dict[str, list[Any]]:
    times = {"p05": "p05_ps", "median": "median_ps", "p95": "p95_ps", "max": "max_ps"}
    names = {"start": "start_ps", "end": "end_ps", "first": "first_step", "n": "n_steps", **times}
    return _columns(bins, {**names, "input_share": "input_share"})


def _marks(marks: Sequence[TimelineMark]) -> dict[str, list[Any]]:
    names = {"start": "start_ps", "dur": "dur_ps", "text": "text"}
    return _columns(marks, {**names, "gone": "is_gone"} if any(mark.is_gone for mark in marks) else names)


def _phase(one: PhaseDetails, phase: PhaseSummary) -> dict[str, Any]:
    spread = one.distribution
    return {
        "median": phase.median_ps,
        "p05": phase.p05_ps,
        "p95": phase.p95_ps,
        "layers": _layers(one.layers),
        "distribution": {
            "edges": list(spread.edges_ps),
            "counts": list(spread.counts),
            "beyond": spread.beyond,
            "longest": spread.longest_ps,
        },
        "roofline": _roofline(one.roofline),
        "trace": _trace(one.trace, phase) if one.trace else None,
    }


def _layers(tree: LayerTree | None) -> dict[str, list[Any]] | None:
    if tree is None:
        return None
    return _columns(tree.nodes, {name: name for name in ("name", "parent", "is_op", "self_ps", "flop", "bytes")})


def _roofline(points: Sequence[RooflinePoint]) -> dict[str, list[Any]]:
    return _columns(points, {name: name for name in ("op", "self_ps", "flop_per_byte", "flop_per_s")})


def _trace(trace: WindowTrace, phase: PhaseSummary) -> dict[str, Any]:
    texts = {name: [printable(text) for text in getattr(trace, name)] for name in ("tracks", "names", "categories")}
    numbers = {name: list(getattr(trace, name)) for name in ("track", "name", "category", "depth", "start", "dur")}
    label = printable(f"{phase.name}, step {trace.step}")
    return {**texts, **numbers, "end": trace.dur_ps, "label": label}


def _peaks(details: ReportDetails | None) -> dict[str, Any] | None:
    if details is None or details.peaks is None:
        return None
    rates = [{"kind": rate.kind, "flop_per_s": rate.flop_per_s} for rate in details.peaks.rates]
    return {"memory_bytes_per_s": details.peaks.memory_bytes_per_s, "rates": rates}


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
