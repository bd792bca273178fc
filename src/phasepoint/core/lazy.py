"""What is made when it is first asked for: names of a package, so that importing it costs nothing; and groundwork.

Its own file: every package's `__init__` imports it, and no library comes with it.
"""

from collections.abc import Callable, Mapping
from functools import cached_property
from importlib import import_module
from typing import Any, Self, TypeVar

Made = TypeVar("Made")


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


class Once:
    """A value of which functions make groundwork that many share: `shard.once(read_calls)`."""

    def once(self, make: Callable[[Self], Made]) -> Made:
        """What a function makes of this value, made at the first call and kept."""
        if make not in self._made_once:
            self._made_once[make] = make(self)
        made: Made = self._made_once[make]
        return made

    @cached_property
    def _made_once(self) -> dict[Callable[..., Any], Any]:
        return {}
