"""The runtimes: what each can run, and the function that prepares a network for it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any


@dataclass(frozen=True)
class Prepared:
    """A network that is ready to run.

    Attributes:
        place: puts inputs where the network wants them, in its precision.
        run: from placed inputs to outputs; it returns when they are there.
        compile_ps: what compiling took; None where nothing was compiled before the first run.
        device: in the maker's words.
        versions: of what runs it.
        device_bytes: most memory on the device that tensors took so far; None on a CPU.
    """

    place: Callable[[Any], Any]
    run: Callable[[Any], Any]
    compile_ps: int | None
    device: str
    versions: Mapping[str, str]
    device_bytes: Callable[[], int | None]


@dataclass(frozen=True)
class Runtime:
    """A row.

    Attributes:
        name: as the user gives it.
        module: in this folder.
        forms: of the networks that it runs: `module` of PyTorch, `graph` of ONNX, `flatbuffer` of TensorFlow Lite,
            `program` of JAX.
        precisions: that it can compute in.
        compiles: whether it compiles a network before the first run, or in it.
        explains: whether what holds a network back can be told where it runs it.
        predicts: whether it runs nothing, and its module has a `predict` in the place of `prepare`.
        options: for the module's `prepare`.
    """

    name: str
    module: str
    forms: tuple[str, ...]
    precisions: tuple[str, ...]
    compiles: bool = False
    explains: bool = False
    predicts: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)

    def check(self, form: str, precision: str) -> None:
        """Raises NotHereError for a form or a precision that it does not run."""
        if form not in self.forms:
            raise NotHereError(f"{self.name} does not run a {form}")
        if precision not in self.precisions:
            raise NotHereError(f"{self.name} computes in {', '.join(self.precisions)}")

    def prepare(self, network: Any, device: str, precision: str) -> Prepared:
        """Prepare a network of one of its forms for a device.

        Raises:
            NotHereError: the device is not on this machine.
        """
        module = import_module(f"phasepoint.bench.runtimes.{self.module}")
        prepared: Prepared = module.prepare(network, device, precision, **self.options)
        return prepared

    def predict(self, build: Callable[[], Any], device: str) -> dict[str, Any]:
        """The fields of what a network should take on a device that is not there.

        Raises:
            NotHereError: this machine cannot tell.
        """
        said: dict[str, Any] = import_module(f"phasepoint.bench.runtimes.{self.module}").predict(build, device)
        return said


class NotHereError(Exception):
    """This machine, or what is installed on it, cannot run the pair."""


RUNTIMES: Mapping[str, Runtime] = {
    row.name: row
    for row in (
        Runtime("eager", "torch", ("module",), ("f32", "bf16"), explains=True, options={"compiles": False}),
        Runtime("compiled", "torch", ("module",), ("f32", "bf16"), compiles=True, options={"compiles": True}),
        Runtime("jax", "jax", ("program",), ("f32",), compiles=True),
        Runtime("onnxruntime", "onnx_runtime", ("graph",), ("f32", "int8"), compiles=True, explains=True),
        Runtime("openvino", "openvino", ("graph",), ("f32", "bf16"), compiles=True),
        Runtime("libtpu", "libtpu", ("program",), ("f32",), compiles=True, predicts=True),
        Runtime("litert", "litert", ("flatbuffer",), ("f32",), compiles=True),
    )
}
"""By name; the first that runs a form is what it gets where nothing else is asked for."""


def usual_runtime(form: str) -> str:
    """What runs a form where nothing else is asked for, and gives the outputs that others are held against.

    Example:
        >>> usual_runtime("graph")
        'onnxruntime'
    """
    return next(row.name for row in RUNTIMES.values() if form in row.forms)
