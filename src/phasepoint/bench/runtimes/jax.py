"""JAX: a function compiled by XLA for the CPU or a GPU.

Its own file: a runtime, beside the others.
"""

import time
from typing import Any

from phasepoint.bench.runtimes.runtimes import NotHereError, Prepared
from phasepoint.core.units import PS_PER_NS


def prepare(network: Any, device: str, precision: str) -> Prepared:
    """Compile a function for its inputs.

    Args:
        network: a function and its arguments, arrays.
        device: `cpu:2` or `cuda:0`; how many threads a CPU gives it is set before JAX is imported.
        precision: `f32`: as it is.

    Raises:
        NotHereError: there is no such GPU.
    """
    import jax

    del precision
    kind, _, number = device.partition(":")
    try:
        devices = jax.devices(kind)
    except RuntimeError as error:
        raise NotHereError(f"JAX sees no {kind} device") from error
    place = int(number or 0) if kind == "cuda" else 0
    if place >= len(devices):
        raise NotHereError(f"JAX sees {len(devices)} {kind} devices")
    function, arguments = network
    placed = jax.device_put(arguments, devices[place])
    began_ns = time.perf_counter_ns()
    compiled = jax.jit(function).lower(*placed).compile()
    compile_ps = (time.perf_counter_ns() - began_ns) * PS_PER_NS

    def device_bytes() -> int | None:
        told = devices[place].memory_stats() or {}
        return told.get("peak_bytes_in_use")

    return Prepared(
        place=lambda inputs: jax.device_put(inputs, devices[place]),
        run=lambda inputs: jax.block_until_ready(compiled(*inputs)),
        compile_ps=compile_ps,
        device=devices[place].device_kind,
        versions={"jax": jax.__version__},
        device_bytes=device_bytes,
    )
