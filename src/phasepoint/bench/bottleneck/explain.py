"""What holds back a network that PyTorch runs operation by operation, in the process that has just measured it.

What the device does at most is measured as PyTorch runs on it: products of matrices, and copies.
"""

from collections.abc import Callable, Sequence
from typing import Any

from phasepoint.bench.bottleneck.operations import Alternative, best_ns, profile_operations, replay_operations
from phasepoint.bench.bottleneck.verdict import DeviceRates, find_bottleneck
from phasepoint.bench.runtimes.runtimes import RUNTIMES
from phasepoint.bench.suite.result import Bottleneck, Pair
from phasepoint.core.units import NS_PER_S
from phasepoint.core.workers import usable_cores
from phasepoint.zoo.architectures.weights import call

SIDE = 768
"""Rows and columns of the product: 0.9 Gflop."""

COPIED_BYTES = 32 << 20
"""Of a copy: beyond the caches of a few cores."""

REPEATS = 5
"""The fastest counts."""


def measure_rates(device: Any, precision: str, wait: Callable[[], object]) -> DeviceRates:
    """Measure a device with as many threads as are set: a tenth of a second.

    Args:
        device: of PyTorch.
        precision: `f32` or `bf16`.
        wait: returns when the device is done.
    """
    import torch

    dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[precision]
    left = torch.full((SIDE, SIDE), 0.5, device=device, dtype=dtype)
    out = torch.empty_like(left)
    source = torch.ones(COPIED_BYTES // 4, device=device)
    target = torch.empty_like(source)
    with torch.no_grad():
        product_ns = best_ns(lambda: torch.mm(left, left, out=out), wait, REPEATS)
        copy_ns = best_ns(lambda: target.copy_(source), wait, REPEATS)
    return DeviceRates(2 * SIDE**3 * NS_PER_S / product_ns, 2 * COPIED_BYTES * NS_PER_S / copy_ns)


def list_alternatives(pair: Pair, batches: Sequence[int]) -> list[Alternative]:
    """The settings that could be run instead of a pair's: element types of its runtime, batches, all cores.

    Args:
        pair: how a network is run.
        batches: sizes above 1 that it may be given.
    """
    kind, _, number = pair.device.partition(":")
    cores = usable_cores()
    threads = None if kind == "cuda" else int(number or cores)
    alternatives = [Alternative(threads, one) for one in RUNTIMES[pair.runtime].precisions if one != pair.precision]
    alternatives += [Alternative(threads, pair.precision, batch) for batch in batches]
    if threads is not None and threads < cores:
        alternatives.append(Alternative(cores, pair.precision))
    return alternatives


def explain_network(
    network: Any, inputs_of: Callable[[int], Any], pair: Pair, latency_ps: int, batches: Sequence[int]
) -> Bottleneck:
    """Time a network's operations, and judge them by what the device does at most.

    Args:
        network: the module, on its device.
        inputs_of: of so many samples, there.
        pair: how it is run.
        latency_ps: of one inference.
        batches: sizes above 1 that it may be given.
    """
    import torch

    device = torch.device(pair.device if pair.device.startswith("cuda") else "cpu")
    inputs = inputs_of(1)

    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    def run() -> None:
        with torch.no_grad():  # not inference mode, in which composite operations come undivided
            call(network, inputs)

    alternatives = list_alternatives(pair, batches)
    operations, beside_ps = profile_operations(network, run, wait)
    replayed = replay_operations(network, run, wait, operations, alternatives)
    rates = measure_rates(device, pair.precision, wait)
    return find_bottleneck(operations, latency_ps, rates, alternatives, replayed, beside_ps=beside_ps)
