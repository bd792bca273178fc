"""safetensors: a JSON header that says where each tensor lies, then the tensors.

Source: the format as https://github.com/huggingface/safetensors describes it (8 bytes of header length, little-endian;
the header; the data, which the `data_offsets` of the tensors cover without holes).
"""

from typing import Literal

import msgspec

from phasepoint.checkpoints.facts import CheckpointFacts, CheckpointPlace, CheckpointState, tell_contents

MOST_HEADER_BYTES = 100_000_000
"""The format's own limit of a header."""

_LENGTH_BYTES = 8  # of the header's length, by the format
_METADATA = "__metadata__"


class _Tensor(msgspec.Struct):
    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


def is_safetensors(place: CheckpointPlace) -> bool:
    """A file that is called so, or that begins as one does."""
    if not place.is_file:
        return False
    if place.base_name.endswith(".safetensors"):
        return True
    head = place.read(count=_LENGTH_BYTES + 2)
    return head[_LENGTH_BYTES:] == b'{"' and int.from_bytes(head[:_LENGTH_BYTES], "little") <= MOST_HEADER_BYTES


def inspect_safetensors(place: CheckpointPlace) -> CheckpointFacts:
    """Whether the file is as long as its header promises. What is in it is told by the names of its tensors."""
    size_bytes = place.files[""]
    head = place.read(count=_LENGTH_BYTES)
    header_bytes = int.from_bytes(head, "little")
    if len(head) == _LENGTH_BYTES and header_bytes > MOST_HEADER_BYTES:
        return _not_whole(
            "corrupt", f"its header would have {header_bytes:,} bytes, more than the format allows", place
        )
    if size_bytes < _LENGTH_BYTES + header_bytes or len(head) < _LENGTH_BYTES:
        return _not_whole("incomplete", f"it has {size_bytes:,} bytes and ends within its header", place)
    try:
        entries = msgspec.json.decode(place.read(start=_LENGTH_BYTES, count=header_bytes), type=dict[str, msgspec.Raw])
        tensors = {name: msgspec.json.decode(raw, type=_Tensor) for name, raw in entries.items() if name != _METADATA}
        data_bytes = _data_bytes(tensors)
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        return _not_whole("corrupt", f"its header cannot be read: {error}", place)
    promised = _LENGTH_BYTES + header_bytes + data_bytes
    if size_bytes != promised:
        state: Literal["incomplete", "corrupt"] = "incomplete" if size_bytes < promised else "corrupt"
        return _not_whole(state, f"it has {size_bytes:,} bytes, and its header promises {promised:,}", place)
    return CheckpointFacts("safetensors", "whole", None, size_bytes, tell_contents(tensors))


def _data_bytes(tensors: dict[str, _Tensor]) -> int:
    """Bytes of all tensors.

    Raises:
        ValueError: there is a hole between them, or they overlap.
    """
    end = 0
    for begin, after in sorted(tensor.data_offsets for tensor in tensors.values()):
        if begin != end or after < begin:
            raise ValueError(f"a tensor lies at bytes {begin} to {after}; expected it to begin at {end}")
        end = after
    return end


def _not_whole(state: CheckpointState, problem: str, place: CheckpointPlace) -> CheckpointFacts:
    return CheckpointFacts("safetensors", state, problem, place.size_bytes)
