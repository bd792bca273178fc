"""LiteRT, which was TensorFlow Lite, on the CPU: what phones and boards run.

Its own file: a runtime, beside the others.
"""

import time
from importlib.metadata import version
from typing import Any

from phasepoint.bench.runtimes.runtimes import NotHereError, Prepared
from phasepoint.core.units import PS_PER_NS
from phasepoint.devices.cpu_now import cpu_model


def prepare(network: Any, device: str, precision: str) -> Prepared:
    """Make an interpreter of a graph, with the library's own kernels for CPUs.

    Args:
        network: the graph's bytes.
        device: `cpu:2`.
        precision: `f32`: as the graph is.

    Raises:
        NotHereError: the device is no CPU.
    """
    from ai_edge_litert.interpreter import Interpreter

    del precision
    kind, _, number = device.partition(":")
    if kind != "cpu":
        raise NotHereError(f"LiteRT runs here on CPUs and not on {kind}; give cpu:N")
    began_ns = time.perf_counter_ns()
    interpreter = Interpreter(model_content=network, num_threads=int(number) if number else None)
    interpreter.allocate_tensors()
    made_ps = (time.perf_counter_ns() - began_ns) * PS_PER_NS
    places = {one["name"]: one["index"] for one in interpreter.get_input_details()}
    results = [one["index"] for one in interpreter.get_output_details()]

    def run(inputs: Any) -> Any:
        for name, array in inputs.items():
            interpreter.set_tensor(places[name], array)
        interpreter.invoke()
        return [interpreter.get_tensor(index) for index in results]

    return Prepared(
        place=lambda inputs: inputs,
        run=run,
        compile_ps=made_ps,
        device=cpu_model(),
        versions={"ai-edge-litert": version("ai-edge-litert")},
        device_bytes=lambda: None,
    )
