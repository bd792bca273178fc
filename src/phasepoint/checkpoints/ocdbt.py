"""OCDBT, the database in which TensorStore keeps Orbax's arrays: which files it needs, and how long each must be.

A manifest names the root of a B+tree; its nodes name other nodes and, in the leaves, where each value lies. Manifest
and nodes carry their length and a CRC-32C, so that damage to them is seen. Values are not read.

Source: "Storage format" of https://google.github.io/tensorstore/kvstore/ocdbt/index.html.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from phasepoint.core.errors import SourceError

MOST_NODE_BYTES = 8 << 20
"""Bytes of one manifest or node, unpacked: TensorStore's own limit of a node, `max_decoded_node_bytes`."""

MOST_NODES_BYTES = 128 << 20
"""Bytes of all nodes of one database, unpacked; a million chunks take about half of that."""

_MANIFEST_MAGIC = b"\x0c\xdb\x3a\x2a"
_NODE_MAGIC = b"\x0c\xdb\x20\xde"
_HEAD_BYTES = 12
_CRC_BYTES = 4
_MISSING = (1 << 64) - 1
_UNPACK_BYTES = 1 << 16

Read = Callable[[str, int, int], bytes]
"""File, first byte and count to bytes: fewer where the file is shorter, none where there is no such file."""


@dataclass(frozen=True)
class Reference:
    """Where something lies.

    Attributes:
        base: folder of the file, relative to the database; ends with `/`, or is empty.
        file: the file, relative to `base`.
        offset: first byte.
        length: bytes.
    """

    base: str
    file: str
    offset: int
    length: int

    @property
    def path(self) -> str:
        """The file, relative to the database."""
        return self.base + self.file


@dataclass(frozen=True)
class Database:
    """What an OCDBT database refers to.

    Attributes:
        ends: by file, how many bytes it must have at least.
        keys: keys of the values: `params.w/.zarray`, `params.w/0.0`.
    """

    ends: dict[str, int]
    keys: frozenset[str]


def read_database(read: Read) -> Database:
    """Walk the newest version of a database.

    Args:
        read: reads its files; paths are relative to its folder.

    Raises:
        SourceError: the manifest or a node is missing, damaged or cut off, of a kind not known here, or too large.
    """
    root = _read_manifest(read("manifest.ocdbt", 0, MOST_NODE_BYTES))
    ends: dict[str, int] = {}
    keys: set[str] = set()
    waiting = [] if root is None else [(root, "")]
    left = MOST_NODES_BYTES
    seen: set[Reference] = set()
    while waiting:
        node, prefix = waiting.pop()
        if node in seen:
            raise SourceError(f"{node.path}: a node that is its own descendant")
        seen.add(node)
        _demand(ends, node)
        if node.length > MOST_NODE_BYTES or left <= 0:
            raise SourceError(f"{node.path}: its nodes take more bytes than are read")
        body = _unwrap(read(node.path, node.offset, node.length), _NODE_MAGIC, node.path)
        left -= max(len(body.data), node.length)
        below, values, names = _read_node(body, node.base, prefix)
        waiting += below
        keys |= names
        for value in values:
            _demand(ends, value)
    return Database(ends, frozenset(keys))


def _demand(ends: dict[str, int], reference: Reference) -> None:
    ends[reference.path] = max(ends.get(reference.path, 0), reference.offset + reference.length)


class _Body:
    """Unpacked bytes that are read from front to back."""

    def __init__(self, data: bytes, name: str) -> None:
        self.data = data
        self.name = name
        self._at = 0

    def byte(self) -> int:
        return self.bytes(1)[0]

    def bytes(self, count: int) -> bytes:
        found = self.data[self._at : self._at + count]
        if len(found) < count:
            raise SourceError(f"{self.name}: ends too early")
        self._at += count
        return found

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 63:
                raise SourceError(f"{self.name}: a number of more than 64 bits")

    def varints(self, count: int) -> list[int]:
        if count > len(self.data):  # each takes a byte at least
            raise SourceError(f"{self.name}: {count} entries in {len(self.data)} bytes")
        return [self.varint() for _ in range(count)]

    def text(self, count: int) -> str:
        return self.bytes(count).decode("utf-8", errors="surrogateescape")


def _unwrap(data: bytes, magic: bytes, name: str) -> _Body:
    """Check what is around a manifest or node, and unpack what is in it."""
    if len(data) < _HEAD_BYTES + _CRC_BYTES or not data.startswith(magic):
        raise SourceError(f"{name}: not where it should be, or cut off")
    (length,) = struct.unpack_from("<Q", data, len(magic))
    if length != len(data):
        raise SourceError(f"{name}: has {len(data):,} bytes; it says {length:,}")
    (expected,) = struct.unpack_from("<L", data, len(data) - _CRC_BYTES)
    if crc32c(data[:-_CRC_BYTES]) != expected:
        raise SourceError(f"{name}: its checksum is wrong")
    body = _Body(data[_HEAD_BYTES:-_CRC_BYTES], name)
    version, packing = body.varint(), body.varint()
    if version != 0 or packing > 1:
        raise SourceError(f"{name}: format version {version}, packing {packing}: not known here")
    rest = data[_HEAD_BYTES + 2 : -_CRC_BYTES]
    return _Body(_unpack_zstd(rest, name) if packing else rest, name)


def _unpack_zstd(data: bytes, name: str) -> bytes:
    pieces: list[bytes] = []
    size = 0
    try:
        with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
            while piece := stream.read(_UNPACK_BYTES):
                pieces.append(piece)
                size += len(piece)
                if size > MOST_NODE_BYTES:
                    raise SourceError(f"{name}: takes more than {MOST_NODE_BYTES:,} bytes unpacked: not read")
    except (OSError, pa.ArrowException) as error:
        raise SourceError(f"{name}: cannot be unpacked: {error}") from error
    return b"".join(pieces)


def _read_manifest(data: bytes) -> Reference | None:
    """The root of the newest version; None where that is empty."""
    body = _unwrap(data, _MANIFEST_MAGIC, "manifest.ocdbt")
    body.bytes(16)  # uuid
    if body.varint() != 0:
        raise SourceError("manifest.ocdbt: numbered manifests: not known here")
    body.varints(2)  # most bytes of an inline value, of a node
    body.byte()  # arity of the version tree
    if body.varint() == 1:
        body.bytes(4)  # level of compression
    files = _read_files(body, "")
    count = body.varint()
    body.varints(count)  # generations
    body.bytes(count)  # heights of the trees
    roots = _read_references(body, files, count)
    if not roots:
        raise SourceError("manifest.ocdbt: it has no version")
    return roots[-1]


def _read_files(body: _Body, base: str) -> list[tuple[str, str]]:
    """The table of files: folder and name of each, with what each shares with the one before left out."""
    count = body.varint()
    prefixes = [0, *body.varints(count - 1)] if count else []
    suffixes, bases = body.varints(count), body.varints(count)
    files: list[tuple[str, str]] = []
    before = b""
    for prefix, suffix, base_length in zip(prefixes, suffixes, bases, strict=True):
        if prefix > len(before):
            raise SourceError(f"{body.name}: a name begins with more than the one before it has")
        before = before[:prefix] + body.bytes(suffix)
        path = before.decode("utf-8", errors="surrogateescape")
        own = before[:base_length].decode("utf-8", errors="surrogateescape")
        files.append((base + own, path[len(own) :]))
    return files


def _read_references(body: _Body, files: list[tuple[str, str]], count: int) -> list[Reference | None]:
    """References to nodes with their statistics; None for one to nothing."""
    indices, offsets, lengths = body.varints(count), body.varints(count), body.varints(count)
    for _ in range(3):
        body.varints(count)  # keys, bytes of nodes, bytes of values below
    return [
        None if (offset, length) == (_MISSING, _MISSING) else _reference(body, files, index, offset, length)
        for index, offset, length in zip(indices, offsets, lengths, strict=True)
    ]


def _reference(body: _Body, files: list[tuple[str, str]], index: int, offset: int, length: int) -> Reference:
    if index >= len(files):
        raise SourceError(f"{body.name}: names file number {index} of {len(files)}")
    return Reference(*files[index], offset, length)


def _read_node(
    body: _Body, base: str, prefix: str
) -> tuple[list[tuple[Reference, str]], list[Reference], frozenset[str]]:
    """Nodes below it with the beginning of their keys, values, and keys of these; one of both is empty."""
    height = body.byte()
    files = _read_files(body, base)
    count = body.varint()
    prefixes = [0, *body.varints(count - 1)] if count else []
    suffixes = body.varints(count)
    shared = body.varints(count) if height else []
    keys: list[bytes] = []
    left = MOST_NODE_BYTES
    for begin, suffix in zip(prefixes, suffixes, strict=True):
        before = keys[-1] if keys else b""
        if begin > len(before):
            raise SourceError(f"{body.name}: a key begins with more than the one before it has")
        keys.append(before[:begin] + body.bytes(suffix))
        left -= len(keys[-1])
        if left < 0:
            raise SourceError(f"{body.name}: its keys take more than {MOST_NODE_BYTES:,} bytes: not read")
    if height:
        nodes = _read_references(body, files, count)
        names = (prefix + _text(key[:length]) for key, length in zip(keys, shared, strict=True))
        return [(node, name) for node, name in zip(nodes, names, strict=True) if node is not None], [], frozenset()
    lengths = body.varints(count)
    kinds = body.bytes(count)
    outside = [length for length, kind in zip(lengths, kinds, strict=True) if kind]
    indices, offsets = body.varints(len(outside)), body.varints(len(outside))
    body.bytes(sum(length for length, kind in zip(lengths, kinds, strict=True) if not kind))
    places = zip(indices, offsets, outside, strict=True)
    values = [_reference(body, files, index, offset, length) for index, offset, length in places]
    return [], values, frozenset(prefix + _text(key) for key in keys)


def _text(key: bytes) -> str:
    return key.decode("utf-8", errors="surrogateescape")


def _crc_table() -> list[int]:
    table = []
    for first in range(256):
        value = first
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


_TABLE = _crc_table()


def crc32c(data: bytes) -> int:
    """CRC-32C (Castagnoli) of some bytes.

    Source: RFC 3720, appendix B.4: polynomial 0x1EDC6F41, reflected 0x82F63B78.
    """
    crc = 0xFFFFFFFF
    table = _TABLE
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF
