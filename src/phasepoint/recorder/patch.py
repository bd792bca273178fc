"""Replaces an attribute of somebody else's module or class, and puts it back.

Others wrap the same names. What was put on top of ours is left in place on removal; ours then only passes calls on.
"""

from collections.abc import Callable
from typing import Any

from phasepoint.recorder.session import Remove

_MISSING = object()


def patch_attribute(owner: Any, name: str, wrap: Callable[[Any], Any]) -> Remove:
    """Set `owner.name` to `wrap(original)`.

    Args:
        owner: a module or a class. An attribute that a class inherits is put on the class itself and deleted from it
            on removal.
        name: the attribute; where it does not exist nothing is done.
        wrap: gives the replacement for what is there now.

    Returns:
        What puts the original back, unless somebody else has replaced ours meanwhile.
    """
    own = vars(owner).get(name, _MISSING)
    original = getattr(owner, name, _MISSING)
    if original is _MISSING:
        return _nothing
    replacement = wrap(original)
    setattr(owner, name, replacement)

    def remove() -> None:
        if vars(owner).get(name, _MISSING) is not replacement:
            return
        if own is _MISSING:
            delattr(owner, name)
        else:
            setattr(owner, name, own)

    return remove


def _nothing() -> None:
    return
