"""A corpus of kernels with the cycles that the TPU's compiler expects of them: no TPU is needed, and no measurement.

`python -m phasepoint.learn.predict.tpu.harvest` is the process that compiles a batch of programs.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from phasepoint.core.units import PS_PER_S
from phasepoint.hlo.fingerprint import fingerprint_module
from phasepoint.hlo.loops import write_trip_counts
from phasepoint.hlo.module import parse_module_proto
from phasepoint.hlo.work import estimated_cycles
from phasepoint.learn.corpus.child import Say, head_of, kept, serve
from phasepoint.learn.corpus.collect import CollectedCorpus, Measurer, Progress, collect
from phasepoint.learn.corpus.folder import write_program
from phasepoint.learn.corpus.measure import Measurement, Round
from phasepoint.learn.corpus.runs import ProgramReference, find_specs
from phasepoint.learn.hlo_graph.kernels import kernels_of_module
from phasepoint.learn.predict.tpu.child import compiler_versions, on_device, slice_devices
from phasepoint.learn.predict.tpu.compile import compiler_environment, compiler_library, slice_request
from phasepoint.learn.predict.tpu.topology import Topology
from phasepoint.zoo.specs import ProgramSpec

CYCLES_NOTE = "times are cycles that the TPU's compiler expects, by the clock; nothing was measured"


def collect_compiled(
    out: str | Path,
    programs: Sequence[ProgramReference],
    topology: Topology,
    *,
    workers: int = 1,
    progress: Progress | None = None,
) -> CollectedCorpus:
    """Compile programs for one chip into a corpus; what it holds already is not compiled again.

    Args:
        out: the corpus, or a folder to make.
        programs: to be compiled.
        topology: the chip, or a slice of whose chips the first is taken.
        workers: processes at a time.
        progress: called with batches done and batches in all.

    Raises:
        MissingExtraError: the compiler is not installed.
        ModelError: the corpus is of another device, version or featuriser.
    """
    generation = topology.generation
    settings = {
        "ps_per_cycle": PS_PER_S / generation.clock_hz * generation.cycle_ratio,
        "environ": compiler_environment(compiler_library()),
        **slice_request(topology),
    }
    device = {"name": generation.device, "kind": "tpu", "cores": None, "versions": compiler_versions()}
    measurer = Measurer("phasepoint.learn.predict.tpu.harvest", device, settings)
    return collect(out, programs, rounds=1, repeats=1, cores=(), workers=workers, measurer=measurer, progress=progress)


def _compile_batch(task: Mapping[str, Any], say: Say) -> None:
    os.environ.update(task["environ"])
    specs = find_specs([ProgramReference(**one) for one in task["programs"]])
    device = slice_devices(task)[0]
    for name, spec in specs.items():
        if task["left"][name]:
            with kept(spec, task, say, part="compiling"):
                _compile(spec, task, device)
                say(round=name)


def _compile(spec: ProgramSpec, task: Mapping[str, Any], device: Any) -> None:
    import jax

    function, shapes = spec.build()
    compiled = jax.jit(function).lower(*on_device(shapes, device)).compile()
    hlo = write_trip_counts(compiled.runtime_executable().hlo_modules()[0].as_serialized_hlo_module_proto())
    module = parse_module_proto(hlo)
    kernels = kernels_of_module(module)
    cycles = {kernel.name: estimated_cycles(kernel.instruction) for kernel in kernels.kernels}
    times_ps = {
        name: np.array([max(round(count * task["ps_per_cycle"]), 1)], np.int64)
        for name, count in cycles.items()
        if count is not None
    }
    executions = {kernel.name: kernel.executions or 1 for kernel in kernels.kernels}
    rounds = (Round(1, np.empty(0, np.int64), executions, times_ps),)
    measured = Measurement(hlo, fingerprint_module(module), kernels, rounds)
    head = replace(
        head_of(spec, task["device"]),
        runs=1,
        fingerprint=measured.fingerprint,
        not_traced=measured.not_traced(),
        notes=(CYCLES_NOTE, *kernels.notes),
    )
    write_program(task["out"], head, hlo=hlo, rows=measured.rows())


if __name__ == "__main__":
    serve(_compile_batch)
