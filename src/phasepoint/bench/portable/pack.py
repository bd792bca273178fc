"""Puts graphs, what is asked of them and the runner into one file that Python runs."""

import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import msgspec

import phasepoint
from phasepoint.bench.portable import runner
from phasepoint.bench.runtimes.runtimes import RUNTIMES
from phasepoint.bench.suite.result import VERSION, ModelFacts, SuiteRequest
from phasepoint.bench.suite.run import tasks_of
from phasepoint.bench.suite.subject import FORMS_OF_FILES, form_of, load_graph_of
from phasepoint.core.errors import OutputExistsError, StoreError, UsageError

MAIN = "from phasepoint.bench.portable.runner import main\n\nmain()\n"

MODULES = (
    "bench/portable/runner",
    "bench/runtimes/runtimes",
    "bench/suite/timing",
    "core/units",
    "devices/cpu_now",
    "zoo/architectures/architecture",
    "zoo/graphs/inputs",
)
"""Of Phasepoint, that the runner imports beside its runtimes: none of them needs more than NumPy."""


def write_pack(path: Path, request: SuiteRequest, *, force: bool = False) -> int:
    """Write a pack.

    Args:
        path: of the file.
        request: what is measured; graphs alone.
        force: write over a file that is there.

    Returns:
        Its size in bytes.

    Raises:
        UsageError: a model is no graph, or its weights lie in other files.
        OutputExistsError: the file is there.
        StoreError: a graph cannot be read, or the pack not be written.
    """
    if path.exists() and not force:
        raise OutputExistsError(f"{path} is there already; give --force to write over it, or another --out")
    models, sources = {}, {}
    for number, name in enumerate(dict.fromkeys(pair.model for pair in request.pairs)):
        if form_of(name) not in FORMS_OF_FILES.values():
            raise UsageError(f"{name} is no graph; a pack holds graphs: packaged ones, FILE.onnx, FILE.tflite")
        try:
            graph, loaded = load_graph_of(name)
        except (OSError, ValueError) as error:
            raise StoreError(f"{name}: cannot be packed: {error}") from error
        if isinstance(loaded.source, str):
            raise UsageError(f"{name}: its weights are too large for one file, or lie beside it; it is not packed")
        file = f"graphs/{number}{graph.path.suffix}"
        sources[file] = loaded.source
        models[name] = {
            "file": file,
            "form": form_of(name),
            "inputs": [vars(one) for one in loaded.inputs],
            "facts": ModelFacts(graph.task, graph.library, loaded.params, loaded.macs, loaded.weight_bytes),
            "note": loaded.note,
        }
    tasks = [{"pair": task.pair, "round": task.number} for task in tasks_of(request)]
    asked = {"request": request, "models": models, "tasks": tasks, "version": VERSION}
    beside = path.with_name(f".{path.name}.part")
    try:
        with zipfile.ZipFile(beside, "w", zipfile.ZIP_DEFLATED) as pack:
            pack.writestr("__main__.py", MAIN)
            for name, text in runner_modules():
                pack.writestr(name, text)
            pack.writestr(runner.ASKED, msgspec.json.encode(asked))
            for name, data in sources.items():
                pack.writestr(name, data)
        beside.replace(path)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise StoreError(f"{path}: cannot be written: {error.strerror}") from error
    return path.stat().st_size


def runner_modules() -> Iterator[tuple[str, bytes]]:
    """Paths and texts of what the runner imports; packages are empty in a pack."""
    rows = [row.module for row in RUNTIMES.values() if set(row.forms) & set(FORMS_OF_FILES.values())]
    paths = [PurePosixPath("phasepoint", f"{name}.py") for name in MODULES]
    paths += [PurePosixPath("phasepoint/bench/runtimes", f"{name}.py") for name in rows]
    for folder in sorted({folder for path in paths for folder in path.parents if folder.name}):
        yield f"{folder}/__init__.py", b""
    root = Path(phasepoint.__file__).parent.parent
    for path in paths:
        yield str(path), (root / path).read_bytes()
