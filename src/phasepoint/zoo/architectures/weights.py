"""Random weights that cost what trained ones do, and what a network holds: parameters, multiply-accumulates.

Times depend on values in two ways: numbers close to zero (denormal) are slow on many CPUs, and constants can be folded
away. A network as a library makes it has both: layers that begin at zero, and normalisations whose statistics are not
those of its activations, which then vanish or grow from layer to layer.
"""

import warnings
from typing import Any

LEAST_DENORMAL = 1e-4
"""Share of denormal numbers in weights or outputs from which times are said to be distorted. A choice."""


def settle(network: Any, inputs: Any) -> None:
    """Draw constant weights anew, and give normalisations the statistics of their inputs.

    Args:
        network: in evaluation mode; it is changed.
        inputs: of two samples or more, as it is called with.
    """
    import torch
    from torch import nn

    chance = torch.Generator().manual_seed(0)
    for weight in network.parameters():
        if weight.ndim > 1 and weight.is_floating_point() and bool((weight == weight.flatten()[0]).all()):
            with torch.no_grad():
                scale = (weight.numel() / weight.shape[0]) ** -0.5
                weight.copy_(scale * torch.randn(weight.shape, generator=chance))
    norms = [part for part in network.modules() if isinstance(part, nn.modules.batchnorm._BatchNorm)]
    if not norms:
        return
    before = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = 1.0
        norm.train()
    try:
        with torch.no_grad():
            call(network, inputs)
    finally:
        for norm, momentum in zip(norms, before, strict=True):
            norm.momentum = momentum
            norm.eval()
            norm.num_batches_tracked.zero_()


def call(network: Any, inputs: Any) -> Any:
    """Run a network on arguments by name or by place."""
    return network(**inputs) if isinstance(inputs, dict) else network(*inputs)


def what_distorts(network: Any, outputs: Any) -> str:
    """Why times of a network are not those of a trained one, in words; empty where nothing was found."""
    import torch
    from torch.utils._pytree import tree_leaves

    for what, tensors in (("weights", list(network.parameters())), ("outputs", tree_leaves(outputs))):
        floats = [x.detach() for x in tensors if isinstance(x, torch.Tensor) and x.is_floating_point() and x.numel()]
        count = sum(x.numel() for x in floats)
        if any(not bool(x.isfinite().all()) for x in floats):
            return f"{what} are not finite"
        tiny = sum(int(((x != 0) & (x.abs() < torch.finfo(x.dtype).tiny)).sum()) for x in floats)
        if tiny > LEAST_DENORMAL * count:
            return f"{tiny / count:.2%} of the {what} are denormal"
        if what == "weights" and any(x.ndim > 1 and bool((x == x.flatten()[0]).all()) for x in floats if x.numel() > 1):
            return "weights of a layer are all alike"
    return ""


def count_params(network: Any) -> int:
    """Numbers that are trained."""
    return sum(weight.numel() for weight in network.parameters())


def weight_bytes(network: Any) -> int:
    """Of parameters and buffers."""
    return sum(x.numel() * x.element_size() for x in (*network.parameters(), *network.buffers()))


def count_macs(network: Any, inputs: Any) -> int | None:
    """Multiply-accumulates of products and convolutions in one run; None where a part cannot be counted.

    Args:
        network: in evaluation mode, on the CPU.
        inputs: as it is called with.

    Attention and recurrent layers are taken apart into their products: the fused ones of a CPU are not in PyTorch's
    table of counts (`torch.utils.flop_counter`).
    """
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    counter = FlopCounterMode(display=False)
    try:
        with warnings.catch_warnings(), torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
            warnings.simplefilter("ignore", UserWarning)  # of switching a library off that the build may not have
            with torch.backends.mkldnn.flags(enabled=False), counter:
                call(network, inputs)
    except (RuntimeError, NotImplementedError):
        return None
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
    return int(counter.get_total_flops() // 2)
