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

    kind, _, number = device.partition(":")
    provider = _PROVIDERS[kind]
    if provider not in onnxruntime.get_available_providers():
        raise NotHereError(f"this onnxruntime has {', '.join(onnxruntime.get_available_providers())}")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # what is fatal; errors are raised
    if kind == "cpu" and number:
        options.intra_op_num_threads = int(number)
    settings = {"device_id": int(number or 0)} if kind == "cuda" else {}
    began_ns = time.perf_counter_ns()
    source = _quantised(network) if precision == "int8" else network
    session = onnxruntime.InferenceSession(source, options, providers=[(provider, settings)])
    made_ps = (time.perf_counter_ns() - began_ns) * PS_PER_NS
    return Prepared(
        place=lambda inputs: inputs,
        run=lambda inputs: session.run(None, inputs),
        compile_ps=made_ps,
        device=cpu_model() if kind == "cpu" else kind,
        versions={"onnxruntime": onnxruntime.__version__},
        device_bytes=lambda: None,
    )


def _quantised(network: bytes | str) -> bytes:
    from onnxruntime.quantization import quantize_dynamic

    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "as-it-is.onnx", Path(folder) / "quantised.onnx"
        source.write_bytes(network if isinstance(network, bytes) else Path(network).read_bytes())
        quantize_dynamic(source, target)
        return target.read_bytes()
