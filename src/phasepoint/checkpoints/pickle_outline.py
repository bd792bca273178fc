"""The outline of a pickle, read without unpickling it: the keys of its dictionaries, and the state of its objects.

A pickle is a program for a small stack machine that can call anything. Here its opcodes are only read, and nothing is
imported, called, hashed or built: whatever it would call becomes a `Made`. PyTorch's own restricted unpickler does not
serve: it refuses the files of most trainers (docs/design/0009-checkpoint-readers.md).

Source: Python's own `pickletools`, which declares what each opcode takes from the stack and what it leaves there.
"""

import pickletools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from phasepoint.core.errors import SourceError

MOST_OPCODES = 3_000_000
"""An outline of more opcodes is not made. A checkpoint of 50,000 tensors has about 1,800,000."""


@dataclass(eq=False)
class Made:
    """What a pickle makes: a dictionary, or whatever a call gives.

    Attributes:
        items: keys and values put into it, in order, as outlines; a key that is set twice is there twice.
        state: what would be set on it as its attributes, None where nothing is.
    """

    items: list[tuple[Any, Any]] = field(default_factory=list)
    state: Any = None

    def keys(self) -> list[str]:
        """Its keys that are text."""
        return [key for key, _ in self.items if isinstance(key, str)]

    def find(self, key: str) -> Any:
        """The value last set for a key, None where there is none."""
        return next((value for known, value in reversed(self.items) if isinstance(known, str) and known == key), None)


@dataclass(frozen=True)
class Outline:
    """What a pickle describes.

    Attributes:
        value: text, bytes, numbers, None and booleans as they are; lists (for sets too) and tuples of outlines; `Made`;
            None for what it refers to outside of itself. It may contain itself.
        size_bytes: bytes of the pickle.
    """

    value: Any
    size_bytes: int


def outline_pickle(data: bytes) -> Outline:
    """The outline of the pickle with which some bytes begin; what follows it is left alone.

    Raises:
        SourceError: it is no pickle, is damaged or cut off, or has more than `MOST_OPCODES` opcodes.
    """
    stack: list[Any] = []
    memo: dict[Any, Any] = {}
    end = 0
    try:
        for count, (opcode, argument, position) in enumerate(pickletools.genops(data)):
            if count >= MOST_OPCODES:
                raise SourceError(f"a pickle of more than {MOST_OPCODES:,} opcodes: not read")
            if opcode.name in _LITERALS:
                stack.append(argument)
            elif opcode.name in _PUTS:
                memo[len(memo) if argument is None else argument] = stack[-1]
            elif opcode.name in _GETS:
                stack.append(memo[argument])
            else:
                stack += _results(opcode, _take(stack, opcode))
            end = (position or 0) + 1
        return Outline(stack.pop(), end)
    # What `genops` says of bytes that are no pickle, and what the stack says of opcodes that do not fit together.
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        raise SourceError(f"it holds no whole pickle: {error}") from error


_MARK = object()
_PUTS = frozenset(("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"))
_GETS = frozenset(("GET", "BINGET", "LONG_BINGET"))


def _take(stack: list[Any], opcode: pickletools.OpcodeInfo) -> list[Any]:
    """Takes off the stack what an opcode is declared to take; where that is all above a mark, the mark too."""
    to_mark, below = _TAKES[opcode.name]
    taken: list[Any] = []
    if to_mark:
        while (value := stack.pop()) is not _MARK:
            taken.append(value)
    taken += [stack.pop() for _ in range(below)]
    taken.reverse()
    return taken


def _takes(before: list[pickletools.StackObject]) -> tuple[bool, int]:
    """Whether an opcode takes what is above the last mark, and how many values below that, or in all."""
    to_mark = pickletools.markobject in before
    return to_mark, before.index(pickletools.markobject) if to_mark else len(before)


_TAKES = {one.name: _takes(one.stack_before) for one in pickletools.opcodes}


def _results(opcode: pickletools.OpcodeInfo, taken: list[Any]) -> list[Any]:
    """What an opcode leaves on the stack of what it took."""
    if opcode.name in _NEW:
        return [_NEW[opcode.name](taken)]
    if opcode.name in _INTO:
        target, *values = taken
        _INTO[opcode.name](target, values)
        return [target]
    if opcode.name in {"STOP", "DUP"}:
        return taken * max(len(opcode.stack_after), 1)
    return taken if opcode.stack_after else []


def _pairs(values: list[Any]) -> list[tuple[Any, Any]]:
    """Keys and values that follow each other, as pairs."""
    return list(zip(values[::2], values[1::2], strict=True))


def _extend(target: Any, values: list[Any]) -> None:
    if isinstance(target, list):
        target += values


def _set_items(target: Any, values: list[Any]) -> None:
    if isinstance(target, Made):
        target.items += _pairs(values)


def _set_state(target: Any, values: list[Any]) -> None:
    if isinstance(target, Made):
        (target.state,) = values


_NEW: Mapping[str, Callable[[list[Any]], Any]] = {
    "MARK": lambda _: _MARK,
    "NEWTRUE": lambda _: True,
    "NEWFALSE": lambda _: False,
    **dict.fromkeys(("EMPTY_LIST", "LIST", "EMPTY_SET", "FROZENSET"), list),
    **dict.fromkeys(("EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"), tuple),
    **dict.fromkeys(("EMPTY_DICT", "DICT"), lambda taken: Made(_pairs(taken))),
    **dict.fromkeys(("GLOBAL", "STACK_GLOBAL", "INST", "OBJ", "REDUCE", "NEWOBJ", "NEWOBJ_EX"), lambda _: Made()),
    **dict.fromkeys(("PERSID", "BINPERSID"), lambda _: None),
}
"""Opcodes that leave a value of their own, by what they make of what they take."""

_INTO: Mapping[str, Callable[[Any, list[Any]], None]] = {
    **dict.fromkeys(("APPEND", "APPENDS", "ADDITEMS"), _extend),
    **dict.fromkeys(("SETITEM", "SETITEMS"), _set_items),
    "BUILD": _set_state,
}
"""Opcodes that leave the first value that they take, with the others put into it."""

_LITERALS = frozenset(one.name for one in pickletools.opcodes if one.stack_after and not one.stack_before)
_LITERALS -= _NEW.keys() | _GETS
"""Opcodes that leave their argument: texts, numbers, bytes, None."""
