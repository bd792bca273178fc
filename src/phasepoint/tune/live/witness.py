"""Whether two batches hold the same, bit for bit: what a new setting must give before it may make the job's batches.

Its own file: what a batch is made of is known nowhere else.
"""

import hashlib
import pickle
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any


def batch_digest(batch: Any) -> bytes:
    """A hash of what a batch holds: arrays by type, shape and bytes, containers by their parts, the rest as pickled."""
    digest = hashlib.blake2b(digest_size=16)
    for part in _parts(batch):
        digest.update(part)
    return digest.digest()


def _parts(value: Any) -> Iterator[bytes | memoryview]:
    yield type(value).__qualname__.encode()
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield repr(key).encode()
            yield from _parts(item)
    elif isinstance(value, list | tuple):
        yield str(len(value)).encode()
        for item in value:
            yield from _parts(item)
    elif isinstance(value, str | bytes | int | float | complex | bool | None):
        yield repr(value).encode()
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from _parts(getattr(value, field.name))
    elif hasattr(value, "detach") and hasattr(value, "numpy"):  # a tensor of PyTorch
        import torch

        plain = value.detach().cpu().contiguous().view(-1)
        yield from _array(plain.view(torch.uint8) if plain.numel() else plain, value.dtype, value.shape)
    elif hasattr(value, "__array__"):
        yield from _array(value, getattr(value, "dtype", ""), getattr(value, "shape", ()))
    else:
        yield _pickled(value)


def _array(values: Any, dtype: Any, shape: Any) -> Iterator[bytes | memoryview]:
    import numpy as np

    yield f"{dtype} {tuple(shape)}".encode()
    array = np.ascontiguousarray(values)
    yield pickle.dumps(array) if array.dtype.hasobject else array.tobytes()


def _pickled(value: Any) -> bytes:
    """Objects of the user's own; what cannot be pickled differs from everything, itself included."""
    try:
        return pickle.dumps(value, protocol=5)
    except Exception:  # noqa: BLE001 - whatever the object's own code raises
        import secrets

        return secrets.token_bytes(16)
