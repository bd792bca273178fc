"""The methods that predict a kernel's time, tried in order: what one leaves open, the next answers.

**compiler** (`tpu/cycles.py`): the TPU's own, of programs that it compiled. **network**: the trained model of kernels,
for the CPU whose corpus it learned from. **operators** (`gpu.py`): every GPU. **analytic**: a device's roofline,
corrected by what measured kernels took above it. A specification gives the least time; how far above it kernels stay
was measured on some devices, and is taken for all of their kind. The interval is as wide as that was, and where nothing
was measured, wider still.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from phasepoint.core.arrays import Floats
from phasepoint.core.errors import ModelError
from phasepoint.core.units import PS_PER_US
from phasepoint.devices.specs import DeviceSpec
from phasepoint.learn.hlo_graph.graphs import FEATURISER_VERSION, KernelGraph
from phasepoint.learn.kernels.model import KIND, KernelModel
from phasepoint.learn.models.analytic import AnalyticModel, analytic_from_arrays, analytic_of_device, predict_analytic
from phasepoint.learn.models.model_file import StoredModel, builtin_models, read_model
from phasepoint.learn.predict.gpu import start_operators
from phasepoint.learn.predict.tpu.cycles import start_cycles
from phasepoint.learn.predict.types import Asked, Start, TargetDevice, Times

BUILTIN = "kernels-cpu"

NETWORK_SHARED = 0.3
"""Correlation of the network's errors within a program. An assumption, not fitted."""

_MISSING = "no trained model of CPU kernels came with this package: times are of this machine's measured peaks alone"


def network_model(target: TargetDevice, model: StoredModel | None) -> StoredModel | None:
    """The model that answers for a device: the user's, or for a CPU that of the package; None where there is none.

    Raises:
        ModelError: it is of another featuriser version, or of another device.
    """
    if model is None and target.kind == "cpu" and BUILTIN in builtin_models():
        model = read_model(f"builtin:{BUILTIN}", kind=KIND)
    if model is None or model.kind != KIND:
        return None
    check_featuriser(model)
    device = model.card.get("device")
    name = device.get("name") if isinstance(device, Mapping) else device
    if target.kind != "cpu" and target.name != name:
        raise ModelError(
            f"model {model.name!r} was trained on {name!r} and knows no other device, so it cannot predict for "
            f"{target.name!r}; give --device cpu, or leave --model out"
        )
    return model


def start_network(target: TargetDevice, model: StoredModel | None) -> Start:
    """The network answers for the device of its corpus.

    Raises:
        ModelError: as `network_model`.
    """
    found = network_model(target, model)
    if found is None:
        return Start(None, notes=(_MISSING,) if target.kind == "cpu" else ())
    network = KernelModel.from_model(found)
    device = _device_name(network.device)
    overhead = found.card.get("overhead", {})

    def answer(asked: Asked) -> Times:
        said = network.predict(asked.graphs)
        return Times(said.time_ps, said.low_ps, said.high_ps, said.distance)

    return Start(
        answer,
        notes=_other_cpu_notes(network.device),
        is_learned=True,
        shared=NETWORK_SHARED,
        basis=f"learned from kernels measured on {device}, {found.card.get('date', 'date unknown')}",
        device=device,
        launch_ps=float(overhead.get("launch_ps", 0.0)),
        program_ps=float(overhead.get("program_ps", 0.0)),
    )


def _device_name(device: Mapping[str, Any]) -> str:
    return str(device.get("name", "a CPU"))


def _other_cpu_notes(device: Mapping[str, Any]) -> tuple[str, ...]:
    """That this machine's CPU is not the one that the model knows, where it is not."""
    from phasepoint.devices.cpu_peaks import cpu_identity

    here, known = cpu_identity().model, _device_name(device)
    if here and here.casefold() in known.casefold():
        return ()
    return (f"times are those of {known}; this machine's CPU is another: {here or 'its name is not known'}",)


def check_featuriser(model: StoredModel) -> None:
    """Refuse a model that was trained on other features.

    Raises:
        ModelError: it was.
    """
    version = model.card.get("featuriser")
    if version != FEATURISER_VERSION:
        raise ModelError(
            f"model {model.name!r} was trained on features of version {version!r}, this release computes version "
            f"{FEATURISER_VERSION}; train it anew with `phasepoint learn train`"
        )


@dataclass(frozen=True)
class Above:
    """How far above the roofline kernels stay.

    Attributes:
        factor: median of measured over roofline time.
        low: factor at the lower end of the interval.
        high: at the upper end.
    """

    factor: float
    low: float
    high: float


@dataclass(frozen=True)
class Calibration:
    """What was measured on devices of a kind.

    Attributes:
        source: on which, when, how many.
        launch_us: what the shortest kernels take: middle, lower end, upper end; µs.
        default: for kinds of kernel that are not listed.
        kinds: by kind of kernel.
    """

    source: str
    launch_us: tuple[float, float, float]
    default: Above
    kinds: Mapping[str, Above]


CALIBRATIONS: Mapping[str, Calibration] = {
    "gpu": Calibration(
        "specification; time above the roofline as on five GPUs (P4, P100, V100, T4, A100; f32)",
        (3.0, 1.0, 10.0),
        Above(1.6, 1.0, 6.0),
        {
            "dot": Above(2.0, 1.2, 6.0),
            "convolution": Above(1.6, 0.7, 6.0),
            "reduce": Above(1.9, 1.4, 3.5),
            "loop-fusion": Above(1.4, 1.1, 2.0),
            "copy": Above(1.4, 1.1, 3.0),
        },
    ),
    "tpu": Calibration(
        "specification; time above the roofline as of 15 kernels on one TPU v3",
        (0.8, 0.4, 1.6),
        Above(1.4, 0.9, 4.0),
        {},
    ),
    "cpu": Calibration(
        "peaks measured on this machine; nothing was calibrated", (1.0, 0.1, 10.0), Above(2.0, 0.5, 16.0), {}
    ),
}
"""Kind of device → what was measured there.

Sources. GPU: `gpu_ops` (NeuSight's measurements), 236,000 operators; 5 %, 50 % and 95 % quantiles of time over roofline
where that is above 50 µs, the widest of the five devices (2026-11-21); a convolution may stay below its roofline, since
Winograd's algorithm needs fewer products. Launch: the shortest kernels of public traces of A100, H100, MI250 and MI300
take 1 to 3 µs. TPU: TpuGraphs' `op_tuning_data`, 15 kernels with their default tiles, against a TPU v3: 0.8 µs + 1.4 ×
roofline has ratios from 0.6 to 3.0, so that n is 15 and of one device; the interval is wider. CPU: assumed.
"""


ANALYTIC_SHARED = 0.7
"""Correlation of the errors within a program: one device's kernels are fast or slow together, as the medians of the
five GPUs in `gpu_ops` differ by as much as kernels of one of them do. An assumption, not fitted."""


def analytic_times(
    graphs: Sequence[KernelGraph], target: TargetDevice, model: StoredModel | None
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


def analytic_of_target(target: TargetDevice, model: StoredModel | None) -> AnalyticModel:
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


def start_analytic(target: TargetDevice, model: StoredModel | None) -> Start:
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
    return Start(answer, notes=_this_cpu()[1] if measured_here else (), shared=ANALYTIC_SHARED, basis=found.source)


@cache
def _this_cpu() -> tuple[DeviceSpec, tuple[str, ...]]:
    """This machine's peaks, and what was said while they were measured."""
    from phasepoint.devices.cpu_peaks import measured_cpu_spec

    said: list[str] = []
    return measured_cpu_spec(say=said.append), tuple(said)


@dataclass(frozen=True)
class Method:
    """A way to predict kernels.

    Attributes:
        name: as results say it.
        start: for a device, and a model that the user gave.
    """

    name: str
    start: Callable[[TargetDevice, StoredModel | None], Start]


METHODS: tuple[Method, ...] = (
    Method("compiler", start_cycles),
    Method("network", start_network),
    Method("operators", start_operators),
    Method("analytic", start_analytic),
)
