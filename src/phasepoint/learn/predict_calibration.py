"""How far above the roofline kernels stay, by kind of device and of kernel."""

from collections.abc import Mapping
from dataclasses import dataclass

PS_PER_US = 1e6


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
