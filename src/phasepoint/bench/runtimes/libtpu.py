"""A TPU that is not there: its own compiler compiles the program, and the cycles that it expects tell the time.

Its own file: a runtime, beside the others; its results are predictions and say so.
"""

import os
import time
from collections.abc import Callable
from typing import Any

from phasepoint.bench.runtimes.runtimes import NotHereError
from phasepoint.core.errors import MissingExtraError
from phasepoint.core.units import PS_PER_NS
from phasepoint.learn.predict.hlo import read_hlo
from phasepoint.learn.predict.predict import predict_programs
from phasepoint.learn.predict.tpu.child import compiler_versions, on_device, slice_devices
from phasepoint.learn.predict.tpu.compile import compiler_environment, compiler_library, slice_request
from phasepoint.learn.predict.tpu.topology import parse_topology


def predict(build: Callable[[], Any], device: str) -> dict[str, Any]:
    """Compile a program for one device of a chip, and predict its time.

    Args:
        build: makes the function and its arguments; called when JAX may be imported.
        device: `tpu-v5p`.

    Returns:
        The fields of a suite's `PredictedLatency`.

    Raises:
        NotHereError: the compiler is not installed, or a loop's trips are not known.
    """
    topology = parse_topology(device)
    try:
        os.environ.update(compiler_environment(compiler_library()))
    except MissingExtraError as error:
        raise NotHereError(str(error)) from error
    function, arguments = build()
    import jax

    chip = slice_devices(slice_request(topology))[0]
    lowered = jax.jit(function).lower(*on_device(arguments, chip))
    began_ns = time.perf_counter_ns()
    compiled = lowered.compile()
    compile_ps = (time.perf_counter_ns() - began_ns) * PS_PER_NS
    hlo = compiled.runtime_executable().hlo_modules()[0].as_serialized_hlo_module_proto()
    (said,) = predict_programs([read_hlo(hlo)], topology.generation.device)
    if said.time_ps is None or said.low_ps is None or said.high_ps is None:
        raise NotHereError(f"its time on {topology.generation.device} is not known: {'; '.join(said.notes)}")
    return {
        "latency_ps": said.time_ps,
        "low_ps": said.low_ps,
        "high_ps": said.high_ps,
        "device": topology.generation.device,
        "bound": said.bound,
        "method": said.method,
        "compile_ps": compile_ps,
        "versions": compiler_versions(),
    }
