"""ONNX Runtime, with the execution providers that the installed build has.

Its own file: a runtime, beside the others.
"""

import tempfile
import time
from pathlib import Path
from typing import Any

from phasepoint.bench.runtimes.runtimes import NotHereError, Prepared
from phasepoint.core.units import PS_PER_NS
from phasepoint.devices.cpu_now import cpu_model

_PROVIDERS = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}


def prepare(network: Any, device: str, precision: str) -> Prepared:
    """Make a session of a graph.

    Args:
        network: the graph's bytes, or its path.
        device: `cpu:2` or `cuda:0`.
        precision: `f32`: as the graph is; `int8`: its products by the library's dynamic quantisation.

    Raises:
        NotHereError: this build has no provider for the device.
    """
    import onnxruntime

    kind = device.partition(":")[0]
    began_ns = time.perf_counter_ns()
    session = make_session(network, device, precision)
    made_ps = (time.perf_counter_ns() - began_ns) * PS_PER_NS
    return Prepared(
        place=lambda inputs: inputs,
        run=lambda inputs: session.run(None, inputs),
        compile_ps=made_ps,
        device=cpu_model() if kind == "cpu" else kind,
        versions={"onnxruntime": onnxruntime.__version__},
        device_bytes=lambda: None,
    )


def make_session(network: Any, device: str, precision: str, profile: Path | None = None) -> Any:
    """A session of a graph; with `profile` each run is written there, until `end_profiling()` gives the file.

    Raises:
        NotHereError: this build has no provider for the device.
    """
    import onnxruntime

    kind, _, number = device.partition(":")
    provider = _PROVIDERS[kind]
    if provider not in onnxruntime.get_available_providers():
        raise NotHereError(f"this onnxruntime has {', '.join(onnxruntime.get_available_providers())}")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # what is fatal; errors are raised
    if kind == "cpu" and number:
        options.intra_op_num_threads = int(number)
    if profile is not None:
        options.enable_profiling, options.profile_file_prefix = True, str(profile)
    settings = {"device_id": int(number or 0)} if kind == "cuda" else {}
    source = _quantised(network) if precision == "int8" else network
    return onnxruntime.InferenceSession(source, options, providers=[(provider, settings)])


def _quantised(network: bytes | str) -> bytes:
    import onnx
    from onnxruntime.quantization import quantize_dynamic

    model = onnx.load(network) if isinstance(network, str) else onnx.load_from_string(network)
    _make_weights_of_constants(model.graph)
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "quantised.onnx"
        quantize_dynamic(model, target)
        return target.read_bytes()


def _make_weights_of_constants(graph: Any) -> None:
    """The library quantises weights alone, and some exporters write theirs as nodes."""
    constants = [node for node in graph.node if node.op_type == "Constant" and node.attribute[0].name == "value"]
    for node in constants:
        graph.initializer.add().CopyFrom(node.attribute[0].t)
        graph.initializer[-1].name = node.output[0]
        graph.node.remove(node)
