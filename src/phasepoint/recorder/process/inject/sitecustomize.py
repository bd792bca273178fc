"""Python runs this at the start of every process under `phasepoint record`, whose PYTHONPATH begins with this folder.

It waits until JAX or PyTorch has been imported to begin to look for steps, or for what another starter looks for
(`phasepoint stack measure` names its own), so that other processes pay nothing, and makes room for the `sitecustomize`
that would have run instead of it.
"""

import os
import sys

_FRAMEWORKS = ("jax", "torch")
_STARTER = os.environ.get("PHASEPOINT_STARTER", "phasepoint.recorder.autosteps.start")
"""Module whose `start_from_environ` begins to look."""


class _FirstImport:
    """A finder that finds nothing: it lets the recorder begin when a framework has been imported, then leaves.

    Not before: what the framework imports for itself is no cost of ours.
    """

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> object:
        if fullname not in _FRAMEWORKS:
            return None
        others = [finder for finder in sys.meta_path if finder is not self]  # type: ignore[comparison-overlap]
        specs = (finder.find_spec(fullname, path, target) for finder in others)  # type: ignore[arg-type]
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is not None and spec.loader is not None:
            spec.loader = _StartAfter(spec.loader, self)  # type: ignore[assignment]
        return spec


class _StartAfter:
    """The framework's own loader, and the recorder's beginning after it."""

    def __init__(self, loader: object, finder: _FirstImport) -> None:
        self._loader = loader
        self._finder = finder

    def __getattr__(self, name: str) -> object:
        return getattr(self._loader, name)

    def exec_module(self, module: object) -> None:
        module.__spec__.loader = module.__loader__ = self._loader  # type: ignore[attr-defined]
        self._loader.exec_module(module)  # type: ignore[attr-defined]
        finders: list[object] = sys.meta_path  # type: ignore[assignment]
        if self._finder in finders:
            finders.remove(self._finder)
            module.__spec__._initializing = False  # type: ignore[attr-defined] # its code has run, and no one waits for it
            _start()


def _start() -> None:
    import time

    began_ns = time.thread_time_ns()
    try:
        import importlib

        start_from_environ = importlib.import_module(_STARTER).start_from_environ
        import_cost = importlib.import_module("phasepoint.recorder.clock.importing")
    except ImportError as error:
        import atexit

        why = f"{error} in {sys.executable}; install phasepoint into that environment"
        atexit.register(lambda: sys.stderr.write(f"phasepoint: not recorded: {why}\n"))
        return
    start_from_environ()
    import_cost.spent_ns += time.thread_time_ns() - began_ns  # type: ignore[attr-defined]


def _run_the_next_one() -> None:
    import importlib

    ours = sys.modules.pop("sitecustomize", None)
    try:
        importlib.import_module("sitecustomize")
    except ModuleNotFoundError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        if ours is not None:
            sys.modules.setdefault("sitecustomize", ours)


_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib takes 10 ms to import at each start
sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder) != _HERE]  # noqa: PTH100
sys.meta_path.insert(0, _FirstImport())  # type: ignore[arg-type]
_run_the_next_one()
