"""Names of a package that are imported when they are first used, so that importing the package costs nothing."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def lazy_names(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package whose names live in modules of its own or of floors below.

    Args:
        package: its `__name__`.
        homes: name → module; one that begins with a dot lies in the package.

    Example:
        `__getattr__ = lazy_names(__name__, {"open_run": ".reader"})`
    """

    def find(name: str) -> Any:
        if name in homes:
            return getattr(import_module(homes[name], package), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return find
