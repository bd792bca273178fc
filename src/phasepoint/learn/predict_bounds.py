"""What physics allows: no kernel is predicted below its arithmetic at the peak and its bytes at the bandwidth."""

from collections.abc import Sequence

import numpy as np

from phasepoint.core.arrays import Floats
from phasepoint.devices.specs import DeviceSpec
from phasepoint.learn.graphs import KERNEL_FEATURE_NAMES, KernelGraph
from phasepoint.learn.kernels import Kernel

PS_PER_S = 1e12

_MAY_RUN_AS = {
    "f64": ("f64",),
    "f32": ("f32", "tf32", "bf16", "f16"),
    "bf16": ("bf16", "f16", "f8"),
    "f16": ("bf16", "f16", "f8"),
    "s8": ("s8",),
    "u8": ("s8",),
}
"""Element types whose peak a product may reach: frameworks round f32 factors to tf32 (NVIDIA) or bf16 (TPU) unless told
not to."""

_WINOGRAD = 4.0
"""How many times fewer products a convolution may need than by definition: F(4 × 4, 3 × 3), which GPU libraries use.
Source: Lavin, Gray, "Fast Algorithms for Convolutional Neural Networks", CVPR 2016, section 4.1."""


def least_times(kernels: Sequence[Kernel], graphs: Sequence[KernelGraph], spec: DeviceSpec | None) -> Floats:
    """The least time of each kernel, ps: the larger of arithmetic at the peak and bytes at the memory's bandwidth.

    Bytes are those of arrays that stand outside the kernel, each once. Where no peaks are known, 0.

    Args:
        kernels: [n].
        graphs: [n] their features.
        spec: what the device can do.
    """
    if spec is None or not kernels:
        return np.zeros(len(kernels))
    features = np.stack([graph.kernel_features for graph in graphs]).astype(np.float64)
    flop, read, written = (
        features[:, KERNEL_FEATURE_NAMES.index(name)] for name in ("flop", "bytes_read", "bytes_written")
    )
    peak = np.array([_peak(spec, kernel) for kernel in kernels])
    saved = np.array([_WINOGRAD if graph.kind == "convolution" and spec.vendor != "Google" else 1 for graph in graphs])
    flop = flop / saved
    least: Floats = PS_PER_S * np.maximum(flop / peak, (read + written) / spec.memory_bytes_per_s.value)
    return least


def _peak(spec: DeviceSpec, kernel: Kernel) -> float:
    """The highest rate at which a kernel's narrowest floating-point operand may be worked on, flop/s."""
    types = {node.shape.text.partition("[")[0] for node in kernel.nodes if node.opcode == "parameter"}
    names = {name for kind in types for name in _MAY_RUN_AS.get(kind, ())} or set(spec.flop_per_s)
    rates = [spec.flop_per_s[name].value for name in names if name in spec.flop_per_s]
    return max(rates, default=max((rate.value for rate in spec.flop_per_s.values()), default=np.inf))
