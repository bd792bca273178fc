"""Graphs that installed packages ship, in ONNX and TensorFlow Lite: real networks, most of them
trained, nothing to download.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

Shapes = Mapping[str, tuple[int, ...]]
"""Of a graph's inputs by name, where the file leaves dimensions open; the first is the batch where it is 1."""


class _Package(NamedTuple):
    """Where a package keeps its graphs.

    Attributes:
        module: of the package.
        pattern: of files in its folder.
        task: what these graphs are for.
        shapes: of their inputs, where the files leave them open.
    """

    module: str
    pattern: str
    task: str
    shapes: Shapes


PACKAGES = (
    _Package("onnx", "backend/test/data/light/light_*.onnx", "classification", {}),
    _Package("silero_vad", "data/silero_vad.onnx", "speech", {"input": (1, 576), "state": (2, 1, 128)}),
    _Package("silero_vad", "data/silero_vad_16k_op15.onnx", "speech", {"input": (1, 576), "state": (2, 1, 128)}),
    _Package("rapidocr_onnxruntime", "models/*det*.onnx", "reading", {"x": (1, 3, 640, 640)}),
    _Package("rapidocr_onnxruntime", "models/*rec*.onnx", "reading", {"x": (1, 3, 48, 320)}),
    _Package("rapidocr_onnxruntime", "models/*cls*.onnx", "reading", {"x": (1, 3, 48, 192)}),
    _Package("magika", "models/*/model.onnx", "classification", {"bytes": (1, 2048)}),
    _Package("basic_pitch", "saved_models/**/*.onnx", "music", {}),
    _Package("basic_pitch", "saved_models/**/*.tflite", "music", {}),
    _Package("mediapipe", "modules/**/*.tflite", "faces, hands, poses", {}),
)


@dataclass(frozen=True)
class Graph:
    """One graph.

    Attributes:
        name: package and file, or the file's.
        task: what it is for.
        library: the distribution that ships it.
        path: of the file.
        shapes: of its inputs, where it leaves them open.
    """

    name: str
    task: str
    library: str
    path: Path
    shapes: Shapes = field(default_factory=dict)


@cache
def packaged_graphs() -> Mapping[str, Graph]:
    """Graphs of the packages that are installed, by name."""
    return {graph.name: graph for package in PACKAGES for graph in _graphs_of(package)}


def _graphs_of(package: _Package) -> Iterator[Graph]:
    spec = find_spec(package.module)
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        for path in sorted(Path(folder).glob(package.pattern)):
            inner = path.parent.name if path.stem in ("model", "nmp") else path.stem
            ending = path.suffix if path.suffix != ".onnx" else ""
            name = f"{package.module}/{inner.removeprefix('light_')}{ending}"
            yield Graph(name, package.task, package.module, path, package.shapes)


def graph_of_file(path: Path) -> Graph:
    """A user's own file."""
    return Graph(str(path), "your own", path.name, path)
