"""What a pair measures, in whatever form: a PyTorch module, a graph's file, a JAX program; its facts and inputs."""

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from phasepoint.bench.runtimes.runtimes import RUNTIMES, NotHereError, usual_runtime
from phasepoint.bench.suite.result import ModelFacts, OutputDrift
from phasepoint.core.units import PS_PER_NS
from phasepoint.zoo.architectures.architecture import Architecture
from phasepoint.zoo.architectures.catalogue import all_architectures
from phasepoint.zoo.architectures.weights import call, count_macs, count_params, settle, weight_bytes, what_distorts
from phasepoint.zoo.catalogue import zoo_programs
from phasepoint.zoo.graphs.inputs import make_graph_inputs
from phasepoint.zoo.graphs.onnx_graph import LoadedGraph, load_graph
from phasepoint.zoo.graphs.packaged import Graph, graph_of_file, packaged_graphs
from phasepoint.zoo.graphs.tflite_graph import load_tflite
from phasepoint.zoo.specs import make_inputs

SETTLING_BATCH = 2
"""Samples over which normalisations take their statistics: one alone has no variance where a layer is one pixel."""


@dataclass(frozen=True)
class Subject:
    """A model that is built.

    Attributes:
        form: `module`, `graph`, `flatbuffer` or `program`.
        network: the module; a graph's bytes or path; a function and its arguments.
        inputs: of a batch.
        batches: whether a batch may hold more than one sample.
        facts: what it is.
        build_ps: what making it took.
        note: what its reader must know.
        reference: gives its outputs in f32 by its own library; called before a runtime changes the network.
    """

    form: str
    network: Any
    inputs: Callable[[int], Any]
    batches: bool
    facts: ModelFacts
    build_ps: int
    note: str
    reference: Callable[[], Sequence[Any]]


FORMS_OF_FILES = {".onnx": "graph", ".tflite": "flatbuffer"}
"""By the end of a file's name."""


def form_of(model: str) -> str:
    """`graph`, `flatbuffer`, `program` or `module`, by the name alone."""
    packaged = packaged_graphs().get(model)
    suffix = Path(model).suffix if packaged is None else packaged.path.suffix
    if suffix in FORMS_OF_FILES:
        return FORMS_OF_FILES[suffix]
    return "program" if model in zoo_program_names() else "module"


@cache
def zoo_program_names() -> frozenset[str]:
    """Of the zoo's programs in JAX, which `learn collect` measures too."""
    return frozenset(spec.name for spec in zoo_programs())


def open_subject(model: str, *, counts: bool) -> Subject:
    """Build a model.

    Args:
        model: an architecture's name, a packaged graph's, a program's, a path that ends in `.onnx` or `.tflite`, or
            `module:function`.
        counts: whether multiply-accumulates are counted.

    Raises:
        NotHereError: there is none of this name.
        ValueError: a file is no graph.
    """
    if form_of(model) in FORMS_OF_FILES.values():
        return _open_graph(model)
    if form_of(model) == "program":
        return _open_program(model)
    return _open_module(_find_architecture(model), counts=counts)


def _find_architecture(name: str) -> Architecture:
    known = all_architectures()
    if name in known:
        return known[name]
    module_name, _, function = name.partition(":")
    if not function:
        raise NotHereError(f"no model {name!r}: expected an architecture, module:function, or a file .onnx or .tflite")
    sys.path.insert(0, str(Path.cwd()))
    network, inputs = getattr(import_module(module_name), function)()
    return Architecture(
        name, "your own", module_name, network.eval, lambda _batch: inputs, batches=False, is_random=False
    )


def _open_module(architecture: Architecture, *, counts: bool) -> Subject:
    import torch

    began_ns = time.perf_counter_ns()
    network = architecture.build()
    build_ps = (time.perf_counter_ns() - began_ns) * PS_PER_NS
    one = architecture.inputs(1)
    if architecture.is_random:
        settle(network, architecture.inputs(SETTLING_BATCH) if architecture.batches else one)
    macs = count_macs(network, one) if counts else None
    facts = ModelFacts(architecture.task, architecture.library, count_params(network), macs, weight_bytes(network))
    with torch.inference_mode():
        outputs = call(network, one)
    return Subject(
        "module",
        network,
        architecture.inputs,
        architecture.batches,
        facts,
        build_ps,
        what_distorts(network, outputs),
        lambda: outputs,
    )


def load_graph_of(model: str) -> tuple[Graph, LoadedGraph]:
    """A graph, by its name among those of packages or its file's, and what it holds.

    Raises:
        NotHereError: there is no such file.
        OSError: it cannot be read.
        ValueError: it is no graph.
    """
    graph = packaged_graphs().get(model) or graph_of_file(Path(model))
    if not graph.path.is_file():
        raise NotHereError(f"{graph.path}: no such file")
    return graph, load_graph(graph.path, graph.shapes) if form_of(model) == "graph" else load_tflite(graph.path)


def _open_graph(model: str) -> Subject:
    form = form_of(model)
    began_ns = time.perf_counter_ns()
    graph, loaded = load_graph_of(model)
    build_ps = (time.perf_counter_ns() - began_ns) * PS_PER_NS
    facts = ModelFacts(graph.task, graph.library, loaded.params, loaded.macs, loaded.weight_bytes)

    def reference() -> Sequence[Any]:
        prepared = RUNTIMES[usual_runtime(form)].prepare(loaded.source, "cpu", "f32")
        outputs: Sequence[Any] = prepared.run(make_graph_inputs(loaded.inputs, 1))
        return outputs

    return Subject(
        form,
        loaded.source,
        lambda batch: make_graph_inputs(loaded.inputs, batch),
        any(one.has_batch for one in loaded.inputs),
        facts,
        build_ps,
        loaded.note,
        reference,
    )


def _open_program(model: str) -> Subject:
    import jax

    began_ns = time.perf_counter_ns()
    spec = next(spec for spec in zoo_programs() if spec.name == model)
    function, shapes = spec.build()
    arguments = make_inputs(shapes, integer_bound=spec.integer_bound)
    build_ps = (time.perf_counter_ns() - began_ns) * PS_PER_NS
    first = jax.tree.leaves(arguments[0]) if isinstance(arguments[0], dict) else []  # parameters, by the zoo's rule
    facts = ModelFacts(spec.family, "phasepoint", sum(x.size for x in first), None, sum(x.nbytes for x in first))
    network = function, arguments
    return Subject("program", network, lambda _batch: arguments, False, facts, build_ps, "", lambda: ())


def drift_of(reference: Any, outputs: Any) -> OutputDrift | None:
    """How far outputs are from those of a reference; None where their shapes depend on their values, as a detector's.

    Args:
        reference, outputs: trees of tensors or arrays.
    """
    import numpy as np

    pairs = list(zip(_arrays(reference), _arrays(outputs), strict=False))
    if not pairs or any(a.shape != b.shape for a, b in pairs):
        return None
    apart = sum(float(np.square(a - b).sum()) for a, b in pairs)
    whole = sum(float(np.square(a).sum()) for a, _ in pairs)
    rows = [a.reshape(-1, a.shape[-1]).argmax(-1) == b.reshape(-1, b.shape[-1]).argmax(-1) for a, b in pairs if a.ndim]
    same = float(np.concatenate(rows).mean()) if rows else 1.0
    return OutputDrift((apart / whole) ** 0.5 if whole else 0.0, same)


def _arrays(outputs: Any) -> list[Any]:
    """Floating-point leaves as f64 arrays."""
    import numpy as np

    if isinstance(outputs, dict):
        outputs = list(outputs.values())
    if isinstance(outputs, list | tuple):
        return [array for part in outputs for array in _arrays(part)]
    if hasattr(outputs, "is_floating_point"):
        return [outputs.detach().to("cpu").double().numpy()] if outputs.is_floating_point() else []
    if isinstance(outputs, np.ndarray) and outputs.dtype.kind == "f":
        return [outputs.astype(np.float64)]
    values = getattr(outputs, "to_tuple", None)  # of transformers
    return _arrays(values()) if values is not None else []
