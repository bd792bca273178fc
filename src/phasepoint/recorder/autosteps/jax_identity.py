"""Which program of the job a jitted function is: its code, however often it is wrapped or made anew."""

import functools
import re
from collections.abc import Hashable
from typing import Any

_INTERNAL = ("jax.", "jaxlib.")
_PARALLEL = "jax._src.pmap"
"""Module of JAX whose functions stand for the job's own."""

_NOT_A_NAME = re.compile(r"[^0-9A-Za-z_]")


def program_name(fun: Any) -> str:
    """The function's name as XLA writes it in a module's name, without its signs."""
    while isinstance(fun, functools.partial):
        fun = fun.func
    return plain_name(str(getattr(fun, "__name__", type(fun).__name__)))


def plain_name(name: str) -> str:
    """A name without the signs that XLA leaves out."""
    return _NOT_A_NAME.sub("_", name)


def program_key(fun: Any) -> Hashable | None:
    """What two functions have in common that are the same program; None for JAX's own small programs.

    The code object of the job's function where there is one, so that a function that is jitted anew in every round
    stays one program, and two functions of one name are two.

    >>> program_key(functools.partial(program_key)) == program_key(program_key)
    True
    """
    user = _unwrapped(fun)
    if str(getattr(user, "__module__", "")) == _PARALLEL:
        user = _unwrapped(_inside_pmap(user))
    module = str(getattr(user, "__module__", ""))
    if module.startswith(_INTERNAL):
        return None
    code = getattr(user, "__code__", None)
    return (module, program_name(fun)) if code is None else code


def _unwrapped(fun: Any) -> Any:
    """The function behind partials, decorators and bound methods."""
    for _ in range(32):  # nobody wraps so often; a circle ends
        if isinstance(fun, functools.partial):
            fun = fun.func
        elif getattr(fun, "__wrapped__", None) is not None:
            fun = fun.__wrapped__
        elif getattr(fun, "__func__", None) is not None:
            fun = fun.__func__
        else:
            break
    return fun


def _inside_pmap(fun: Any) -> Any:
    """The job's function inside the one that `pmap` made of it; the latter, where it is not found."""
    for cell in getattr(fun, "__closure__", None) or ():
        held = _cell_value(cell)
        if hasattr(held, "call_wrapped"):
            return held.f
    return fun


def _cell_value(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # an empty cell
        return None
