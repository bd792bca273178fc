"""The analytic model as a method: a device's roofline, corrected by what measured kernels took above it.

A specification gives the least time. How far above it kernels stay was measured on some devices, and is taken for all
of their kind; the interval is as wide as that was, and where nothing was measured, wider still.
"""

from collections.abc import Sequence
from functools import cache

import numpy as np

from phasepoint.core.arrays import Floats
from phasepoint.devices.specs import DeviceSpec
from phasepoint.learn.analytic import AnalyticModel, analytic_from_arrays, analytic_of_device, predict_analytic
from phasepoint.learn.graphs import KernelGraph
from phasepoint.learn.model_file import Model
from phasepoint.learn.predict_calibration import CALIBRATIONS, PS_PER_US
from phasepoint.learn.predict_network import network_model
from phasepoint.learn.predict_target import Target
from phasepoint.learn.predict_types import Asked, Start, Times

SHARED = 0.7
"""Correlation of the errors within a program: one device's kernels are fast or slow together, as the medians of the
five GPUs in `gpu_ops` differ by as much as kernels of one of them do. An assumption, not fitted."""


def analytic_times(
    graphs: Sequence[KernelGraph], target: Target, model: Model | None
) -> tuple[Floats, tuple[str, ...]]:
    """What the plain analytic model says of some kernels on a device: the baseline of every estimate.

    Args:
        graphs: [n].
        target: the device.
        model: the user's.

    Returns:
        Times, ps, shape [n], and what limits each: compute, memory, latency.
    """
    if not graphs:
        return np.zeros(0), ()
    roofline, bound = predict_analytic(analytic_of_target(target, model), graphs)
    if target.spec is None:
        return np.asarray(roofline, np.float64), tuple(bound)
    launch = PS_PER_US * CALIBRATIONS[target.kind].launch_us[0]
    limits = ["latency" if time_ps < launch else name for time_ps, name in zip(roofline, bound, strict=True)]
    return np.asarray(roofline, np.float64), tuple(limits)


def analytic_of_target(target: Target, model: Model | None) -> AnalyticModel:
    """The analytic model of a device: of a CPU as fitted to its corpus, of others from the specification.

    A CPU without a trained model is the one at hand, by its measured peaks.

    Raises:
        ModelError: the model's baseline is damaged.
    """
    if target.spec is not None:
        return analytic_of_device(target.spec)
    trained = network_model(target, model)
    if trained is not None:
        return analytic_from_arrays(trained.arrays, source=f"fitted to the corpus of {trained.name}")
    return analytic_of_device(_this_cpu()[0])


def start_analytic(target: Target, model: Model | None) -> Start:
    """The analytic model answers for every device and kernel."""
    found = CALIBRATIONS[target.kind]

    def answer(asked: Asked) -> Times:
        above = [found.kinds.get(graph.kind, found.default) for graph in asked.graphs]
        middle, low, high = (
            PS_PER_US * launch + asked.analytic_ps * np.array([getattr(one, name) for one in above])
            for launch, name in zip(found.launch_us, ("factor", "low", "high"), strict=True)
        )
        return Times(middle, low, high, np.full(len(asked.kernels), np.nan))

    measured_here = target.spec is None and network_model(target, model) is None
    return Start(answer, notes=_this_cpu()[1] if measured_here else (), shared=SHARED, basis=found.source)


@cache
def _this_cpu() -> tuple[DeviceSpec, tuple[str, ...]]:
    """This machine's peaks, and what was said while they were measured."""
    from phasepoint.devices.cpu_peaks import measured_cpu_spec

    said: list[str] = []
    return measured_cpu_spec(say=said.append), tuple(said)
