"""PyTorch, operation by operation or through `torch.compile`, on CPU threads or a GPU."""

import time
from typing import Any

from phasepoint.bench.runtimes.runtimes import NotHereError, Prepared
from phasepoint.core.units import PS_PER_NS
from phasepoint.devices.cpu_now import cpu_model
from phasepoint.zoo.architectures.weights import call

_TYPES = {"f32": "float32", "bf16": "bfloat16"}


def prepare(network: Any, device: str, precision: str, *, compiles: bool) -> Prepared:
    """Move a module to a device and a precision.

    Args:
        network: the module, in evaluation mode.
        device: `cpu:2` or `cuda:0`.
        precision: `f32` or `bf16`: weights and floating-point inputs.
        compiles: whether `torch.compile` compiles it, which happens in its first run.

    Raises:
        NotHereError: there is no such GPU.
    """
    import torch

    kind, _, number = device.partition(":")
    if kind == "cpu" and number:
        torch.set_num_threads(int(number))
    if kind == "cuda" and int(number or 0) >= torch.cuda.device_count():
        raise NotHereError(f"PyTorch sees {torch.cuda.device_count()} CUDA devices")
    where = torch.device(device if kind == "cuda" else "cpu")
    dtype = getattr(torch, _TYPES[precision])
    began_ns = time.perf_counter_ns()
    network = network.to(where, dtype)
    ready = torch.compile(network) if compiles else network

    def place(value: Any) -> Any:
        return _map(lambda x: x.to(where, dtype) if x.is_floating_point() else x.to(where), value)

    def run(inputs: Any) -> Any:
        with torch.inference_mode():
            outputs = call(ready, inputs)
        if where.type == "cuda":
            torch.cuda.synchronize(where)
        return outputs

    def device_bytes() -> int | None:
        return int(torch.cuda.max_memory_allocated(where)) if where.type == "cuda" else None

    moved_ps = (time.perf_counter_ns() - began_ns) * PS_PER_NS
    return Prepared(
        place,
        run,
        moved_ps if compiles else None,
        torch.cuda.get_device_name(where) if where.type == "cuda" else cpu_model(),
        {"torch": str(torch.__version__)},
        device_bytes,
    )


def _map(change: Any, value: Any) -> Any:
    """Arguments with each tensor changed, in lists and by name too."""
    if isinstance(value, dict):
        return {name: _map(change, part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_map(change, part) for part in value)
    return change(value) if hasattr(value, "is_floating_point") else value
