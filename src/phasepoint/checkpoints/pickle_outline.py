"""The outline of a pickle, read without unpickling it: what its dictionaries hold, what its calls would be given.

A pickle is a program for a small stack machine that can call anything. Here its opcodes are only read, and nothing is
imported, called or built: a call becomes a `Call` that names its function, whatever it is.

Source: the opcodes and what each does to the stack, as Python's own `pickletools` declares them.
"""

import pickletools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from phasepoint.core.errors import SourceError

MOST_OPCODES = 3_000_000
"""An outline of more opcodes is not made. A checkpoint of 50,000 tensors has about 1,800,000."""


@dataclass(frozen=True)
class Named:
    """A class or function that the pickle names: `collections.OrderedDict`."""

    name: str


@dataclass(eq=False)
class Mapped:
    """A dictionary: its keys and values in order, as outlines; a key that is set twice is there twice."""

    items: list[tuple[Any, Any]] = field(default_factory=list)

    def keys(self) -> list[str]:
        """Its keys that are text."""
        return [key for key, _ in self.items if isinstance(key, str)]

    def find(self, key: str) -> Any:
        """The value last set for a key, None where there is none."""
        return next((value for known, value in reversed(self.items) if isinstance(known, str) and known == key), None)


@dataclass(eq=False)
class Call:
    """What the pickle would build by a call.

    Attributes:
        function: what is called.
        arguments: with what.
        state: what would be set on the result, None where nothing is.
        entries: what would be put into the result as into a dictionary.
    """

    function: Any
    arguments: Any
    state: Any = None
    entries: Mapped = field(default_factory=Mapped)

    @property
    def name(self) -> str:
        """Full name of what is called, empty where that is no name."""
        return self.function.name if isinstance(self.function, Named) else ""


class _Unknown:
    """A value of no interest."""


UNKNOWN = _Unknown()
_MARK = object()


@dataclass(frozen=True)
class Outline:
    """What a pickle describes.

    Attributes:
        value: text, numbers, None and booleans as they are; `Mapped`, lists and tuples of outlines; `Call`, `Named`;
            `UNKNOWN` for the rest. It may contain itself.
        size_bytes: bytes of the pickle.
        outside: what it refers to outside of itself (persistent ids), as outlines.
    """

    value: Any
    size_bytes: int
    outside: tuple[Any, ...]


def outline_pickle(data: bytes) -> Outline:
    """The outline of the pickle with which some bytes begin; what follows it is left alone.

    Raises:
        SourceError: it is no pickle, is damaged or cut off, or has more than `MOST_OPCODES` opcodes.
    """
    machine = _Machine()
    end = 0
    try:
        for count, (opcode, argument, position) in enumerate(pickletools.genops(data)):
            if count >= MOST_OPCODES:
                raise SourceError(f"a pickle of more than {MOST_OPCODES:,} opcodes: not read")
            machine.step(opcode.name, argument)
            end = (position or 0) + 1
    # What `genops` says of bytes that are no pickle, and what the stack says of opcodes that do not fit together.
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        raise SourceError(f"it holds no whole pickle: {error}") from error
    return Outline(machine.result, end, tuple(machine.outside))


class _Machine:
    """The stack and the memo. An opcode that does not fit them raises LookupError, AttributeError or TypeError."""

    def __init__(self) -> None:
        self.result: Any = UNKNOWN
        self.outside: list[Any] = []
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def step(self, name: str, argument: Any) -> None:
        """One opcode."""
        if name in _LITERALS:
            self._stack.append(argument)
        elif name in _CONSTANTS:
            self._stack.append(_CONSTANTS[name]())
        elif name in _UNKNOWNS:
            for _ in range(_UNKNOWNS[name]):
                self._stack.pop()
            self._stack.append(UNKNOWN)
        elif name in _GETS:
            self._stack.append(self._memo[int(argument)])
        elif name in _PUTS:
            self._memo[len(self._memo) if argument is None else int(argument)] = self._stack[-1]
        elif name not in {"PROTO", "FRAME"}:
            _STEPS[name](self, argument)

    def to_mark(self) -> list[Any]:
        """Takes everything above the last mark, and the mark, off the stack."""
        found = []
        while (value := self._stack.pop()) is not _MARK:
            found.append(value)
        found.reverse()
        return found

    def mark(self, argument: Any) -> None:
        self._stack.append(_MARK)

    def tuple_of(self, count: int) -> None:
        values = [self._stack.pop() for _ in range(count)]
        self._stack.append(tuple(reversed(values)))

    def marked(self, make: Callable[[list[Any]], Any]) -> None:
        self._stack.append(make(self.to_mark()))

    def set_item(self, argument: Any) -> None:
        value, key = self._stack.pop(), self._stack.pop()
        _entries(self._stack[-1]).items.append((key, value))

    def set_items(self, argument: Any) -> None:
        values = self.to_mark()
        _entries(self._stack[-1]).items.extend(zip(values[::2], values[1::2], strict=True))

    def append(self, argument: Any) -> None:
        value = self._stack.pop()
        _extend(self._stack[-1], [value])

    def appends(self, argument: Any) -> None:
        values = self.to_mark()
        _extend(self._stack[-1], values)

    def drop_marked(self, argument: Any) -> None:
        self.to_mark()

    def drop(self, argument: Any) -> None:
        self._stack.pop()

    def double(self, argument: Any) -> None:
        self._stack.append(self._stack[-1])

    def name(self, argument: str) -> None:
        self._stack.append(Named(argument.replace(" ", ".", 1)))

    def name_from_stack(self, argument: Any) -> None:
        name, module = self._stack.pop(), self._stack.pop()
        self._stack.append(Named(f"{module}.{name}") if isinstance(name, str) and isinstance(module, str) else UNKNOWN)

    def call(self, argument: Any) -> None:
        arguments, function = self._stack.pop(), self._stack.pop()
        self._stack.append(Call(function, arguments))

    def call_with_names(self, argument: Any) -> None:
        self._stack.pop()
        self.call(argument)

    def call_marked(self, argument: str) -> None:
        self._stack.append(Call(Named(argument.replace(" ", ".", 1)), tuple(self.to_mark())))

    def call_object(self, argument: Any) -> None:
        function, *arguments = self.to_mark()
        self._stack.append(Call(function, tuple(arguments)))

    def build(self, argument: Any) -> None:
        state = self._stack.pop()
        if isinstance(self._stack[-1], Call):
            self._stack[-1].state = state

    def refer(self, argument: Any) -> None:
        self.outside.append(self._stack.pop() if argument is None else argument)
        self._stack.append(UNKNOWN)

    def stop(self, argument: Any) -> None:
        self.result = self._stack.pop()


def _entries(value: Any) -> Mapped:
    """Where entries of a value go: a dictionary's own, or those of what will be called to make one."""
    if isinstance(value, Call):
        return value.entries
    return value if isinstance(value, Mapped) else Mapped()


def _extend(value: Any, more: list[Any]) -> None:
    if isinstance(value, list):
        value.extend(more)


def _pairs(values: list[Any]) -> Mapped:
    return Mapped(list(zip(values[::2], values[1::2], strict=True)))


_LITERALS = frozenset(
    (
        *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
        *("STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"),
    )
)
_CONSTANTS: Mapping[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
    "EMPTY_DICT": Mapped,
    "EMPTY_SET": list,
}
_UNKNOWNS: Mapping[str, int] = {
    **dict.fromkeys(("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8", "NEXT_BUFFER"), 0),
    **dict.fromkeys(("EXT1", "EXT2", "EXT4"), 0),
    "READONLY_BUFFER": 1,
}
"""Opcodes whose result is of no interest, and how many values each takes off the stack."""

_GETS = frozenset(("GET", "BINGET", "LONG_BINGET"))
_PUTS = frozenset(("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"))

_STEPS: Mapping[str, Callable[[_Machine, Any], None]] = {
    "MARK": _Machine.mark,
    "TUPLE": lambda machine, _: machine.marked(tuple),
    "TUPLE1": lambda machine, _: machine.tuple_of(1),
    "TUPLE2": lambda machine, _: machine.tuple_of(2),
    "TUPLE3": lambda machine, _: machine.tuple_of(3),
    "LIST": lambda machine, _: machine.marked(list),
    "FROZENSET": lambda machine, _: machine.marked(list),
    "DICT": lambda machine, _: machine.marked(_pairs),
    "SETITEM": _Machine.set_item,
    "SETITEMS": _Machine.set_items,
    "APPEND": _Machine.append,
    "APPENDS": _Machine.appends,
    "ADDITEMS": _Machine.appends,
    "POP": _Machine.drop,
    "POP_MARK": _Machine.drop_marked,
    "DUP": _Machine.double,
    "GLOBAL": _Machine.name,
    "STACK_GLOBAL": _Machine.name_from_stack,
    "REDUCE": _Machine.call,
    "NEWOBJ": _Machine.call,
    "NEWOBJ_EX": _Machine.call_with_names,
    "INST": _Machine.call_marked,
    "OBJ": _Machine.call_object,
    "BUILD": _Machine.build,
    "PERSID": _Machine.refer,
    "BINPERSID": _Machine.refer,
    "STOP": _Machine.stop,
}
