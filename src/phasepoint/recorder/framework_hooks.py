"""Hooks of one framework: put in when it has been imported, now or later, and taken out again."""

from collections.abc import Callable

from phasepoint.recorder.guard import Guard, guarded
from phasepoint.recorder.import_watch import when_imported
from phasepoint.recorder.session import Remove

Hook = Callable[[str], list[Remove]]
"""Puts the hooks of a module in, by its name; returns what takes each out."""


def hook_when_imported(module: str, guard: Guard, hook: Hook) -> Remove:
    """Put a framework's hooks in as soon as its module has been imported.

    Args:
        module: full name.
        guard: catches what goes wrong in putting them in.
        hook: does it.

    Returns:
        What takes the hooks out, or sees to it that they do not come in any more.
    """
    install = _Install(module, guard, hook)
    forget = when_imported(module, install.run)

    def remove() -> None:
        forget()
        install.undo()

    return remove


class _Install:
    """The hooks of one framework."""

    def __init__(self, module: str, guard: Guard, hook: Hook) -> None:
        self.guard = guard
        self._module = module
        self._hook = hook
        self._removes: list[Remove] = []

    @guarded
    def run(self) -> None:
        self._removes = self._hook(self._module)

    def undo(self) -> None:
        for remove in reversed(self._removes):
            remove()
        self._removes = []
