"""What the report shows beyond the summary and the timeline: layers, step times, roofline, traces, methods.

Of every phase: its layers as a tree with what captured steps spent in each, a histogram of its step times, its ops
below the device's roof, its representative step. Of the run: the methods of phase detection side by side.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from phasepoint.core.arrays import Int64s
from phasepoint.core.encoding import renumber
from phasepoint.core.statistics import quantile_ps
from phasepoint.phases.clock.steps import sum_ps
from phasepoint.phases.detection.detect import detect_phases
from phasepoint.phases.detection.result import PhaseResult
from phasepoint.phases.detection.table import METHODS
from phasepoint.summary.analysis import Analysis, ops_of_steps
from phasepoint.summary.representative import WindowTrace, read_traces
from phasepoint.summary.roofline import DevicePeaks, OpCost, RooflinePoint, find_peaks, read_op_costs, roofline_points
from phasepoint.summary.timeline import build_strip
from phasepoint.summary.types import RunSummary, StripSegment

WHY_NOT = "takes seconds: report --all-methods runs it"

TOP = 3
"""Phases whose share of the time is told: the papers before judge a method by its three largest."""


@dataclass(frozen=True)
class MethodSummary:
    """What one method finds.

    Attributes:
        method: its name.
        chosen: whether the rest of the report rests on it.
        phases: phases found; None where it was not run.
        segments: stretches of one phase; None likewise.
        top_share: share of the steps' time in its three largest phases; None likewise.
        agreement: adjusted Rand index against the chosen method's labels: 1 the same, 0 no better than chance.
        strip: the reference host's time as it cuts it.
        why_not: why it was not run, None where it was.
    """

    method: str
    chosen: bool
    phases: int | None
    segments: int | None
    top_share: float | None
    agreement: float | None
    strip: tuple[StripSegment, ...]
    why_not: str | None


def compare_methods(analysis: Analysis, host: int | None, *, every: bool = False) -> tuple[MethodSummary, ...]:
    """The methods on the run's tables, the chosen one first.

    Args:
        analysis: of the run, by the chosen method.
        host: whose strip to cut; None for a run without hosts.
        every: run the slow ones too; otherwise they are named with the reason why they were not run.
    """
    if host is None or not analysis.clock.n_steps:
        return ()
    ops = ops_of_steps(analysis.clock, analysis.tables["ops"])
    rows = [_summarize(analysis, analysis.result, host)]
    for method in METHODS.values():
        if method.name == analysis.result.method:
            continue
        if not every and not method.is_quick:
            rows.append(MethodSummary(method.name, False, None, None, None, None, (), WHY_NOT))
            continue
        result = detect_phases(analysis.tables["steps"], ops, method=method.name)
        rows.append(_summarize(analysis, result, host))
    return tuple(rows)


def _summarize(analysis: Analysis, result: PhaseResult, host: int) -> MethodSummary:
    clock, labels = analysis.clock, result.labels
    times = sorted((sum_ps(clock.dur_ps[labels == phase.id]) for phase in result.phases), reverse=True)
    names = {phase.id: phase.name for phase in result.phases}
    is_chosen = result is analysis.result
    return MethodSummary(
        method=result.method,
        chosen=is_chosen,
        phases=len(result.phases),
        segments=len(result.segments),
        top_share=sum(times[:TOP]) / clock.inside_ps if clock.inside_ps else None,
        agreement=1.0 if is_chosen else adjusted_rand_index(analysis.labels, labels),
        strip=build_strip(clock, labels, names, host),
        why_not=None,
    )


def adjusted_rand_index(a: Int64s, b: Int64s) -> float:
    """How far two labellings `[n]` of the same steps agree, chance taken out; 1 where both are one class.

    Source: Hubert & Arabie, "Comparing Partitions" (1985).
    """
    codes_a, codes_b = renumber(a)[1], renumber(b)[1]
    width = int(codes_b.max(initial=0)) + 1
    together = _pairs(np.bincount(renumber(codes_a * width + codes_b)[1]))
    in_a, in_b = _pairs(np.bincount(codes_a)), _pairs(np.bincount(codes_b))
    all_pairs = len(a) * (len(a) - 1) / 2
    expected = in_a * in_b / all_pairs if all_pairs else 0.0
    most = (in_a + in_b) / 2
    return 1.0 if most == expected else float((together - expected) / (most - expected))


def _pairs(counts: Int64s) -> float:
    """Pairs within classes of these sizes: Σ n (n − 1) / 2."""
    sizes = counts.astype(np.float64)
    return float((sizes * (sizes - 1)).sum() / 2)


MAX_DEPTH = 12
"""Levels of the tree; a path with more parts keeps the rest of them in its last one."""
LEAST_SHARE = 0.002
"""A node below this share of the time, the flop and the bytes is added up with its like: nobody could see it."""

NO_LAYER = "no layer recorded"
SMALLER = "smaller ones"


@dataclass(frozen=True)
class LayerNode:
    """A module, or an op in it; its figures include everything below it.

    Attributes:
        name: last part of the module path, or the op's name.
        parent: position of the node above it in the tree's nodes, None for the root, which comes first.
        is_op: whether it is an op (a leaf).
        self_ps: self time of its ops, added over devices and threads.
        flop: floating-point operations of the ops where they are known.
        bytes: bytes accessed by the ops where they are known.
    """

    name: str
    parent: int | None
    is_op: bool
    self_ps: int
    flop: int
    bytes: int


@dataclass(frozen=True)
class LayerTree:
    """The layers of one phase's captured steps.

    Attributes:
        steps: captured steps that were added up.
        nodes: root first, each after its parent, siblings by time; the children of a node add up to it.
        costs_known_ps: self time of the ops whose flop and bytes are known.
        layers_known_ps: self time of the ops whose layer is known.
    """

    steps: int
    nodes: tuple[LayerNode, ...]
    costs_known_ps: int
    layers_known_ps: int


@dataclass
class _Branch:
    """A node while the tree is being built."""

    name: str
    is_op: bool = False
    figures: list[int] = field(default_factory=lambda: [0, 0, 0])
    below: dict[tuple[str, bool], "_Branch"] = field(default_factory=dict)

    def add(self, figures: Sequence[int]) -> None:
        self.figures = [a + b for a, b in zip(self.figures, figures, strict=True)]


def build_layer_tree(costs: Sequence[OpCost], steps: int, *, root: str) -> LayerTree:
    """The tree over the ops of one phase.

    Args:
        costs: of the phase.
        steps: captured steps they were added over.
        root: name of the first node: the phase's.
    """
    top = _Branch(root)
    for cost in costs:
        figures = (cost.self_ps, cost.flop or 0, cost.bytes or 0)
        branch = top
        branch.add(figures)
        for part in _path(cost):
            branch = branch.below.setdefault((part, False), _Branch(part))
            branch.add(figures)
        branch.below.setdefault((cost.op, True), _Branch(cost.op, is_op=True)).add(figures)
    nodes: list[LayerNode] = []
    _flatten(top, None, [max(total, 1) for total in top.figures], nodes)
    known_ps = sum(cost.self_ps for cost in costs if cost.flop is not None and cost.bytes is not None)
    return LayerTree(steps, tuple(nodes), known_ps, sum(cost.self_ps for cost in costs if cost.layer))


def _path(cost: OpCost) -> list[str]:
    """The modules around an op, outermost first; `NO_LAYER` and its category where they are not known."""
    if not cost.layer:
        return [NO_LAYER, cost.category]
    parts = [part for part in cost.layer.split("/") if part] or [cost.layer]
    return parts if len(parts) < MAX_DEPTH else [*parts[: MAX_DEPTH - 1], "/".join(parts[MAX_DEPTH - 1 :])]


def _flatten(branch: _Branch, parent: int | None, totals: Sequence[int], nodes: list[LayerNode]) -> None:
    """Append a branch and what is below it; what is too small to see becomes one node."""
    at = len(nodes)
    nodes.append(LayerNode(branch.name, parent, branch.is_op, *branch.figures))
    below = sorted(branch.below.values(), key=lambda b: (-b.figures[0], b.name, b.is_op))
    small = [b for b in below if all(f < LEAST_SHARE * t for f, t in zip(b.figures, totals, strict=True))]
    small = small if len(small) > 1 else []
    hidden = {id(b) for b in small}
    for child in below:
        if id(child) not in hidden:
            _flatten(child, at, totals, nodes)
    if small:
        rest = _Branch(f"{len(small)} {SMALLER}", is_op=True)
        for child in small:
            rest.add(child.figures)
        nodes.append(LayerNode(rest.name, at, True, *rest.figures))


BINS = 48
"""About as many as a picture of the usual size can show apart."""
TAIL = 0.99
"""The bins end at this quantile, so that one step of an hour does not press all others into the first bin."""


@dataclass(frozen=True)
class StepDistribution:
    """A histogram of step times.

    Attributes:
        edges_ps: `[n + 1]`, rising; a bin holds its lower edge, the last one its upper edge too.
        counts: `[n]`, steps per bin.
        beyond: steps longer than the last edge.
        longest_ps: the longest step.
    """

    edges_ps: tuple[int, ...]
    counts: tuple[int, ...]
    beyond: int
    longest_ps: int


def build_distribution(dur_ps: Int64s) -> StepDistribution:
    """The histogram of step times `[n_steps]`, n ≥ 1, in ps.

    Raises:
        ValueError: no steps.
    """
    low_ps, high_ps, longest_ps = int(dur_ps.min()), quantile_ps(dur_ps, TAIL), int(dur_ps.max())
    if len(dur_ps) < 1 / (1 - TAIL):  # then the quantile is the longest or all but: nothing is gained by a tail
        high_ps = longest_ps
    n = max(min(BINS, high_ps - low_ps), 1)
    edges = np.array([low_ps + (high_ps - low_ps) * i // n for i in range(n + 1)], np.int64)
    inside = dur_ps[dur_ps <= high_ps]
    place = np.clip(np.searchsorted(edges, inside, side="right") - 1, 0, n - 1)
    counts = np.bincount(place, minlength=n)
    return StepDistribution(tuple(edges.tolist()), tuple(counts.tolist()), int(len(dur_ps) - len(inside)), longest_ps)


DETAILS_VERSION = 1
"""Version of the layout below; it grows when a field changes its meaning or goes."""
MAX_PHASES = 12
"""Phases told in detail: the largest; the others are in the summary."""


@dataclass(frozen=True)
class PhaseDetails:
    """One phase from near.

    Attributes:
        phase: its id.
        layers: what its captured steps did, by layer; None where none was captured.
        distribution: its step times, of all steps.
        roofline: its ops below the device's roof; empty where no op's flop and bytes are known.
        trace: its representative step; None where it was not captured.
    """

    phase: int
    layers: LayerTree | None
    distribution: StepDistribution
    roofline: tuple[RooflinePoint, ...]
    trace: WindowTrace | None


@dataclass(frozen=True)
class ReportDetails:
    """All of it.

    Attributes:
        version: layout of these details.
        phases: the largest first, as in the summary, at most `MAX_PHASES`.
        peaks: of the run's device, None where they are not known.
        peaks_unknown: why they are not, None where they are.
        methods: of phase detection, side by side.
    """

    version: int
    phases: tuple[PhaseDetails, ...]
    peaks: DevicePeaks | None
    peaks_unknown: str | None
    methods: tuple[MethodSummary, ...]


def build_details(analysis: Analysis, summary: RunSummary, *, every_method: bool = False) -> ReportDetails:
    """The details of a run.

    Args:
        analysis: of the run.
        summary: of the same analysis.
        every_method: whether the slow methods of phase detection run along for comparison.
    """
    shown = summary.phases[:MAX_PHASES]
    costs = read_op_costs(analysis)
    traces = read_traces(analysis, shown)
    peaks, unknown = find_peaks(analysis.run)
    phases = []
    for phase in shown:
        ops = costs.get(phase.id, ())
        phases.append(
            PhaseDetails(
                phase=phase.id,
                layers=build_layer_tree(ops, phase.captured_steps, root=phase.name) if ops else None,
                distribution=build_distribution(analysis.clock.dur_ps[analysis.labels == phase.id]),
                roofline=roofline_points(ops),
                trace=traces.get(phase.id),
            )
        )
    methods = compare_methods(analysis, summary.reference_host, every=every_method)
    return ReportDetails(DETAILS_VERSION, tuple(phases), peaks, unknown, methods)
