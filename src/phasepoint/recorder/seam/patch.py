"""Replaces an attribute of somebody else's module or class, and puts it back.

Others wrap the same names. What was put on top of ours is left in place on removal; ours then only passes calls on.

Wraps a function in place, whatever name its callers hold it by.

`from torch import save` copies a reference to the function: replacing the attribute `torch.save` later does not reach
it. Here the function object stays, and its code is exchanged for a few instructions that call the wrapper, so that
every reference, taken before or after, leads there. Nobody's modules are searched for references.

Source: `function.__code__` is a documented, writable attribute (Python language reference, 3.2.8.1).
"""

from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

from phasepoint.recorder.seam.session import Remove

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
        return lambda: None
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


def patch_function(owner: Any, name: str, wrap: Callable[[Any], Any]) -> Remove:
    """Let every call of the function `owner.name`, by whatever name, call `wrap(original)`.

    What is no plain Python function (a builtin, an object with `__call__`) is replaced under this name alone, as
    `patch_attribute` does.

    Args:
        owner: the module that has it.
        name: the attribute; where it does not exist nothing is done.
        wrap: gives the replacement for the original, which it gets as a function of its own.

    Returns:
        What puts the original code back, unless somebody else has exchanged it meanwhile: ours is then still called.
    """
    function = getattr(owner, name, None)
    if type(function) is not FunctionType:
        return patch_attribute(owner, name, wrap)
    return _exchange(function, wrap)


def _exchange(function: FunctionType, wrap: Callable[[Any], Any]) -> Remove:
    code = function.__code__
    original = _copy(function)
    wrapped = function.__dict__.get("__wrapped__", _MISSING)
    ours = _calling(wrap(original), code)
    function.__wrapped__ = original  # type: ignore[attr-defined]  # inspect.signature asks it
    function.__code__ = ours

    def remove() -> None:
        if function.__code__ is not ours:
            return
        function.__code__ = code
        if wrapped is _MISSING:
            function.__dict__.pop("__wrapped__", None)
        else:
            function.__wrapped__ = wrapped  # type: ignore[attr-defined]

    return remove


def _copy(function: FunctionType) -> FunctionType:
    """A function that does what this one does, and keeps doing it when this one's code is exchanged."""
    copy = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__qualname__, copy.__module__, copy.__doc__ = function.__qualname__, function.__module__, function.__doc__
    copy.__annotations__ = function.__annotations__
    copy.__dict__.update(function.__dict__)
    return copy


_PLACE = "phasepoint: the function that is called instead"


def _template(*args: Any, **kwargs: Any) -> Any:
    target: Any = "phasepoint: the function that is called instead"
    return target(*args, **kwargs)


def _calling(target: Callable[..., Any], code: CodeType) -> CodeType:
    """Code that passes its arguments to `target`; it may stand in a function whose code is `code`."""
    template = _template.__code__
    constants = tuple(target if constant == _PLACE else constant for constant in template.co_consts)
    # A function takes code with as many free variables as its closure has cells; these are not used.
    return template.replace(co_consts=constants, co_name=code.co_name, co_freevars=code.co_freevars)
