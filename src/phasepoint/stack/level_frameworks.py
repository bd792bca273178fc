"""Which framework makes the work, and the instrument it has."""

from collections.abc import Iterable, Mapping
from typing import Any

from phasepoint.core.errors import UsageError
from phasepoint.stack.level_instrument import Instrument

FRAMEWORKS = ("torch", "jax")

_HOMES = {"torch": "torch", "jax": "jax", "jaxlib": "jax", "flax": "jax"}
"""Package that a value's class comes from → framework."""


def make_instrument(framework: str) -> Instrument:
    """The instrument of a framework that has been imported.

    Raises:
        UsageError: there is no such framework.
        MissingExtraError: it is not installed.
    """
    from importlib import import_module

    from phasepoint.core.errors import MissingExtraError

    if framework not in FRAMEWORKS:
        raise UsageError(f"framework {framework!r}: expected {' or '.join(FRAMEWORKS)}")
    try:
        import_module(framework)
    except ImportError as error:
        raise MissingExtraError(f"{framework} is not installed: pip install 'phasepoint[{framework}]'") from error
    if framework == "torch":
        from phasepoint.stack.level_torch import TorchInstrument

        return TorchInstrument()
    from phasepoint.stack.level_jax import JaxInstrument

    return JaxInstrument()


def frameworks_of(values: Iterable[Any]) -> set[str]:
    """Frameworks of the values, looking into lists, tuples and mappings."""
    found: set[str] = set()
    waiting = list(values)
    while waiting:
        value = waiting.pop()
        if isinstance(value, list | tuple):
            waiting += value
        elif isinstance(value, Mapping):
            waiting += value.values()
        else:
            found |= {_HOMES.get(base.__module__.partition(".")[0], "") for base in type(value).__mro__}
    return found & set(FRAMEWORKS)
