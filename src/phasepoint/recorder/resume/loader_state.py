"""A data loader's state as text: kept with a checkpoint while recording, put back in a replay.

Taken from what loaders offer by themselves: `state_dict` and `load_state_dict` (torchdata's StatefulDataLoader, and
others that follow it), `get_state` and `set_state` (Grain). The text is JSON; what JSON lacks (bytes, tuples, arrays,
keys that are no text) stands in it as an object with the key `~`, so that nothing is lost and nothing is executed.

The global generators of random numbers that a data loader may draw from: Python's, NumPy's, PyTorch's.
"""

import base64
import json
import random
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from msgspec import Struct

MOST_STATE_BYTES = 64 << 10
"""Longer states are not kept: they would make the table of checkpoints as large as a checkpoint."""

_TAG = "~"
_WAYS = (
    ("loader", "state_dict", "load_state_dict"),
    ("iterator", "get_state", "set_state"),
    ("iterator", "state_dict", "load_state_dict"),
)
"""Whose state, what gives it, what takes it; the first that fits is used."""


class LoaderState(Struct, frozen=True):
    """Where a loader stood.

    Attributes:
        owner: whose state it is: loader, iterator.
        load: name of the method that takes it.
        state: the state.
    """

    owner: str
    load: str
    state: Any

    def to_text(self) -> str | None:
        """The state as JSON; None where it is too long or holds what cannot be written."""
        try:
            plain = plain_state(self.state)
            text = json.dumps({"owner": self.owner, "load": self.load, "state": plain})
        except (TypeError, ValueError, RecursionError):
            return None
        return text if len(text) <= MOST_STATE_BYTES else None

    @staticmethod
    def from_text(text: str) -> "LoaderState":
        """The state from `to_text`.

        Raises:
            ValueError: it is not of this form.
        """
        found = json.loads(text)
        try:
            state = LoaderState(found["owner"], found["load"], rich_state(found["state"]))
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"no state of a loader: {error!r}") from error
        if (state.owner, state.load) not in {(owner, load) for owner, _, load in _WAYS}:
            raise ValueError(f"no state of a loader: {state.owner}.{state.load} is not known")
        return state


def plain_state(value: Any) -> Any:
    """A state as JSON has it, from which `rich_state` makes it again.

    Raises:
        TypeError: it holds what cannot be written.
        ValueError: it is too long.
    """
    return _plain(value, [MOST_STATE_BYTES])


def take_state(loader: Any, iterator: Any) -> str | None:
    """State of a loader in the middle of a loop, after the batch given last; None where it offers none that fits."""
    for owner, give, load in _WAYS:
        source = loader if owner == "loader" else iterator
        if callable(getattr(source, give, None)) and callable(getattr(source, load, None)):
            return LoaderState(owner, load, getattr(source, give)()).to_text()
    return None


def restore_state(state: LoaderState, loader: Iterable[Any]) -> Iterator[Any] | None:
    """An iterator of the loader that goes on after the state; None where the loader does not take it.

    What the loader raises passes.
    """
    if state.owner == "loader":
        load = getattr(loader, state.load, None)
        if load is None:
            return None
        load(state.state)
        return iter(loader)
    iterator = iter(loader)
    load = getattr(iterator, state.load, None)
    if load is None:
        return None
    load(state.state)
    return iterator


def _plain(value: Any, left: list[int]) -> Any:
    """A value as JSON has it.

    Args:
        left: bytes that may still be used, in a list of one; long states are given up before they are written out.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return _spend(value, len(value) if isinstance(value, str) else 0, left)
    if isinstance(value, bytes):
        return _plain_bytes(_spend(value, len(value), left))
    if isinstance(value, list | tuple):
        items = [_plain(item, left) for item in value]
        return items if isinstance(value, list) else {_TAG: "tuple", "items": items}
    if not isinstance(value, dict):
        return _plain_array(value, left)
    if _TAG not in value and all(isinstance(key, str) for key in value):
        return {key: _plain(item, left) for key, item in value.items()}
    return {_TAG: "dict", "items": [[_plain(key, left), _plain(item, left)] for key, item in value.items()]}


def _plain_bytes(value: bytes) -> Any:
    """Bytes that are text stay readable: Grain's states are JSON."""
    try:
        return {_TAG: "text", "text": value.decode()}
    except UnicodeDecodeError:
        return {_TAG: "bytes", "base64": base64.b64encode(value).decode()}


def _plain_array(value: Any, left: list[int]) -> Any:
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    is_tensor = torch is not None and isinstance(value, torch.Tensor)
    if not is_tensor and (numpy is None or not isinstance(value, numpy.ndarray | numpy.generic)):
        raise TypeError(f"{type(value).__name__} cannot be written")
    _spend(value, int(value.nbytes), left)
    array = value.detach().cpu().numpy() if is_tensor else numpy.asarray(value)  # type: ignore[union-attr]
    if array.dtype.hasobject:
        raise TypeError("an array of objects cannot be written")
    return {
        _TAG: "tensor" if is_tensor else "array",
        "dtype": array.dtype.str,
        "shape": list(array.shape),
        "base64": base64.b64encode(array.tobytes()).decode(),
    }


def rich_state(value: Any) -> Any:
    """The state that `plain_state` was given; raises KeyError, TypeError or ValueError where it is not of its form."""
    if isinstance(value, list):
        return [rich_state(item) for item in value]
    if not isinstance(value, dict):
        return value
    if _TAG in value:
        return _RICH[value[_TAG]](value)
    return {key: rich_state(item) for key, item in value.items()}


def _rich_array(value: dict[str, Any]) -> Any:
    import numpy as np

    data = np.frombuffer(base64.b64decode(value["base64"]), np.dtype(value["dtype"]))
    array = data.reshape(value["shape"]).copy()
    return array if array.ndim else array[()]


def _rich_tensor(value: dict[str, Any]) -> Any:
    import torch

    return torch.as_tensor(_rich_array(value))


_RICH: dict[str, Callable[[dict[str, Any]], Any]] = {
    "tuple": lambda value: tuple(rich_state(item) for item in value["items"]),
    "dict": lambda value: {rich_state(key): rich_state(item) for key, item in value["items"]},
    "text": lambda value: value["text"].encode(),
    "bytes": lambda value: base64.b64decode(value["base64"]),
    "array": _rich_array,
    "tensor": _rich_tensor,
}


def _spend(value: Any, size_bytes: int, left: list[int]) -> Any:
    left[0] -= size_bytes
    if left[0] < 0:
        raise ValueError("too long")
    return value


class RandomState(Struct, frozen=True):
    """State of the global generators; None for those of libraries that were not imported, or devices not in use."""

    python: Any
    numpy: Any
    torch: Any
    cuda: Any

    @staticmethod
    def take(*, with_devices: bool = True) -> "RandomState":
        """The state now. Imports nothing and starts no device.

        Args:
            with_devices: whether to ask devices that are in use for theirs; without, nothing waits for a device.
        """
        numpy, torch = sys.modules.get("numpy.random"), sys.modules.get("torch")
        cuda = with_devices and torch is not None and torch.cuda.is_initialized()
        return RandomState(
            random.getstate(),
            None if numpy is None else numpy.get_state(),
            None if torch is None else torch.get_rng_state(),
            torch.cuda.get_rng_state_all() if torch is not None and cuda else None,
        )

    def put_back(self) -> None:
        """Let the generators go on from here."""
        random.setstate(self.python)
        numpy, torch = sys.modules.get("numpy.random"), sys.modules.get("torch")
        if self.numpy is not None and numpy is not None:
            numpy.set_state(self.numpy)
        if self.torch is not None and torch is not None:
            torch.set_rng_state(self.torch)
        if self.cuda is not None and torch is not None:
            torch.cuda.set_rng_state_all(self.cuda)

    def to_plain(self) -> Any:
        """The host's generators as JSON has them; loaders draw from no others."""
        return plain_state([self.python, self.numpy, self.torch])

    @staticmethod
    def from_plain(plain: Any) -> "RandomState":
        """The state from `to_plain`; raises KeyError, TypeError or ValueError where it is not of its form."""
        python, numpy, torch = rich_state(plain)
        return RandomState(python, numpy, torch, None)
