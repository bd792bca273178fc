"""Calls a function as soon as a module is imported, now or later, on the thread that imports it.

A finder at the head of `sys.meta_path` looks only at the names asked for, lets the other finders find them, and runs
the callbacks after the module's own code. It costs one dictionary look-up for every other import.
"""

import sys
import threading
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from phasepoint.recorder.seam.session import Remove

OnImport = Callable[[], None]

_lock = threading.Lock()
_watched: dict[str, list[OnImport]] = {}
_asking = threading.local()


def when_imported(name: str, on_import: OnImport) -> "Remove":
    """Call `on_import()` once, at once if the module has been imported already, else after its import.

    Args:
        name: full module name.
        on_import: must not raise: it runs inside the job's `import` statement.

    Returns:
        What makes it be forgotten, if it has not been called yet.
    """
    if _is_imported(name):
        on_import()
        return _forget(name, on_import)
    with _lock:
        _watched.setdefault(name, []).append(on_import)
        if _FINDER not in sys.meta_path:
            sys.meta_path.insert(0, _FINDER)
    return _forget(name, on_import)


def _is_imported(name: str) -> bool:
    """A module that is being imported stands in `sys.modules` before its code has run to its end."""
    module = sys.modules.get(name)
    if module is None:
        return False
    return not getattr(getattr(module, "__spec__", None), "_initializing", False)


def _forget(name: str, on_import: OnImport) -> "Remove":
    def remove() -> None:
        with _lock:
            waiting = _watched.get(name, [])
            if on_import in waiting:
                waiting.remove(on_import)
            if not waiting:
                _watched.pop(name, None)
            if not _watched and _FINDER in sys.meta_path:
                sys.meta_path.remove(_FINDER)

    return remove


class _WatchFinder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in _watched or getattr(_asking, "name", None) == fullname:
            return None  # another finder asks all others too, and so asks us back
        _asking.name = fullname
        try:
            others = (finder for finder in list(sys.meta_path) if finder is not self)
            spec = next(filter(None, (finder.find_spec(fullname, path, target) for finder in others)), None)
        finally:
            _asking.name = None
        if spec is not None and spec.loader is not None:
            spec.loader = _WatchLoader(spec.loader)
        return spec


class _WatchLoader(Loader):
    """The module's own loader, with the callbacks after it; everything else is passed on to it."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> object:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        with _lock:
            waiting = _watched.pop(module.__name__, [])
        for on_import in waiting:
            on_import()


_FINDER = _WatchFinder()
