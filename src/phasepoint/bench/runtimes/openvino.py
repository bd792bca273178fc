"""OpenVINO on the CPU: ONNX graphs, as a peer of ONNX Runtime.

Its own file: a runtime, beside the others.
"""

import time
from typing import Any

from phasepoint.bench.runtimes.runtimes import NotHereError, Prepared
from phasepoint.core.units import PS_PER_NS

_TYPES = {"f32": "FP32", "bf16": "BF16"}


def prepare(network: Any, device: str, precision: str) -> Prepared:
    """Compile a graph.

    Args:
        network: the graph's bytes, or its path.
        device: `cpu:2`.
        precision: `f32` or `bf16`, where the CPU multiplies in it.

    Raises:
        NotHereError: the device is no CPU, or this one does not multiply in the precision.
    """
    import openvino

    kind, _, number = device.partition(":")
    if kind != "cpu":
        raise NotHereError(f"OpenVINO does not run on {kind}; give cpu:N")
    core = openvino.Core()
    able = core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    if _TYPES[precision] not in able:
        raise NotHereError(f"OpenVINO computes on this CPU in {', '.join(able)}")
    options: dict[str, Any] = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": precision}
    if number:
        options["INFERENCE_NUM_THREADS"] = int(number)
    began_ns = time.perf_counter_ns()
    compiled = core.compile_model(core.read_model(network), "CPU", options)
    compile_ps = (time.perf_counter_ns() - began_ns) * PS_PER_NS
    request = compiled.create_infer_request()
    return Prepared(
        place=lambda inputs: inputs,
        run=lambda inputs: list(request.infer(inputs, share_inputs=True, share_outputs=True).values()),
        compile_ps=compile_ps,
        device=core.get_property("CPU", "FULL_DEVICE_NAME"),
        versions={"openvino": openvino.__version__.partition("-")[0]},
        device_bytes=lambda: None,
    )
