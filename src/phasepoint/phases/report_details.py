"""What the report shows beyond the summary and the timeline: layers, step times, roofline, traces, methods.

Everything here is computed from an `Analysis`; the report draws it.
"""

from dataclasses import dataclass

from phasepoint.phases.analysis import Analysis
from phasepoint.phases.distribution import StepDistribution, build_distribution
from phasepoint.phases.layers import LayerTree, build_layer_tree
from phasepoint.phases.method_comparison import MethodSummary, compare_methods
from phasepoint.phases.op_costs import read_op_costs
from phasepoint.phases.representative import WindowTrace, read_traces
from phasepoint.phases.roofline import DevicePeaks, RooflinePoint, find_peaks, roofline_points
from phasepoint.phases.summary_types import PhaseSummary, RunSummary

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
                distribution=_distribution(analysis, phase),
                roofline=roofline_points(ops),
                trace=traces.get(phase.id),
            )
        )
    methods = compare_methods(analysis, summary.reference_host, every=every_method)
    return ReportDetails(DETAILS_VERSION, tuple(phases), peaks, unknown, methods)


def _distribution(analysis: Analysis, phase: PhaseSummary) -> StepDistribution:
    return build_distribution(analysis.clock.dur_ps[analysis.labels == phase.id])
