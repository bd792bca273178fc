"""What a file or a run of unknown origin can do to a machine: memory, time, and how the command ends.

    python benchmarks/untrusted.py                     # a quarter of an hour on two cores
    python benchmarks/untrusted.py --list
    python benchmarks/untrusted.py --only gzip-rocprof-events run-manifest-fifo

Every input is made in a temporary folder, and the real command reads it in a process of its own: bombs of every packed
format (valid events, white space, a text or brackets without end), files nested a million deep, lengths that lie, and
runs whose tables, manifests or captures are bombs, pipes, devices or folders by the thousand. Held to: 1 GiB of memory,
10 s, and an exit code that `docs/cli.md` lists for what somebody else did wrong. A bomb that stays within what packed
data may unpack to is simply read, within the same limits.
"""

import argparse
import json
import os
import random
import resource
import signal
import sqlite3
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

MOST_MIB, MOST_S = 1024, 10.0
TIMEOUT_S, ADDRESS_BYTES = 60.0, 8 << 30
"""Where a process that breaks the limits is stopped, lest it hurt the machine."""

DOCUMENTED = frozenset((0, 3, 4, 5, 7, 8, 9, 11, 13, 18))
"""Exit codes for what is wrong with an input; 70, a fault of ours, and a signal are none."""

BOMB_BYTES = 1200 << 20
ALLOWED_BYTES, ALLOWED_XPLANE_BYTES, NOISE_BYTES = 110 << 20, 48 << 20, 1_500_000
"""What unpacks so far beside so much that does not shrink is just within the bounds of packing."""

STEP_PS = 10**9
SHARD = "host=00000"


@dataclass(frozen=True)
class Case:
    """One input and the command that reads it.

    Attributes:
        name: of the case.
        make: writes the input to a path and returns its size once unpacked, None where nothing is packed.
        command: words of the command; `IN` and `OUT` stand for the input and for what may be written.
        file: name of the input.
    """

    name: str
    make: Callable[[Path], int | None]
    command: tuple[str, ...] = ("import", "IN", "--out", "OUT")
    file: str = "input"


@dataclass(frozen=True)
class Outcome:
    """What one case came to."""

    case: str
    size_bytes: int
    unpacked_bytes: int | None
    code: int | None
    seconds: float
    cpu_s: float
    peak_mib: float
    said: str

    @property
    def broken(self) -> str:
        """Which limits it broke, empty where it kept them all."""
        broken = [f"{self.peak_mib:.0f} MiB"] * (self.peak_mib > MOST_MIB)
        seconds = min(self.seconds, self.cpu_s)  # what others take of a busy machine is not the command's
        broken += [f"{seconds:.1f} s"] * (seconds > MOST_S)
        if self.code not in DOCUMENTED:
            broken.append("stopped" if self.code is None else f"exit code {self.code}")
        return ", ".join(broken + ["a traceback"] * ("Traceback" in self.said))


# Packed files.


def write_packed(path: Path, head: bytes, unit: bytes, tail: bytes, size: int = BOMB_BYTES, noise: int = 0) -> int:
    """One member of gzip: `head`, `unit` again and again up to a size, `tail` with some noise in the place of `%s`."""
    chunk = unit * max(1, (4 << 20) // len(unit))
    times = max(1, size // len(chunk))
    tail = tail.replace(b"%s", random.Random(0).randbytes(noise).hex().encode())
    machine = zlib.compressobj(9, zlib.DEFLATED, -15)
    crc = zlib.crc32(head)
    with path.open("wb") as file:
        file.write(b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + machine.compress(head) + machine.flush(zlib.Z_FULL_FLUSH))
        packed = machine.compress(chunk) + machine.flush(zlib.Z_FULL_FLUSH)  # it refers to nothing before it
        for _ in range(times):
            file.write(packed)
            crc = zlib.crc32(chunk, crc)
        file.write(machine.compress(tail) + machine.flush())
        whole = len(head) + times * len(chunk) + len(tail)
        file.write(struct.pack("<II", zlib.crc32(tail, crc), whole & 0xFFFFFFFF))
    return whole


def write_zstd(path: Path, head: bytes, unit: bytes, size: int = BOMB_BYTES) -> int:
    """Frames of Zstandard, with the size in front as captures have it."""
    import pyarrow as pa

    codec = pa.Codec("zstd", compression_level=3)
    chunk = unit * max(1, (4 << 20) // len(unit))
    times = size // len(chunk)
    whole = len(head) + times * len(chunk)
    frames = codec.compress(head, asbytes=True) + codec.compress(chunk, asbytes=True) * times
    path.write_bytes(b"\x5a\x2a\x4d\x18" + struct.pack("<IQ", 8, whole) + frames)
    return whole


def write_members(path: Path) -> int:
    """A million members of gzip, of a few bytes each."""
    first = zlib.compressobj(9, zlib.DEFLATED, 31)
    head = first.compress(TEXTS["kineto"].head) + first.flush()
    machine = zlib.compressobj(9, zlib.DEFLATED, 31)
    member = machine.compress(b"  ") + machine.flush()
    path.write_bytes(head + member * 1_000_000)
    return 2_000_000 + len(TEXTS["kineto"].head)


def write_gzip_in_gzip(path: Path) -> int:
    inner = path.with_name("inner")
    size = write_packed(inner, *TEXTS["kineto"].bomb("events"))
    machine = zlib.compressobj(9, zlib.DEFLATED, 31)
    path.write_bytes(machine.compress(inner.read_bytes()) + machine.flush())
    inner.unlink()
    return size


@dataclass(frozen=True)
class Text:
    """A text format: what stands before its events, one event, and what stands behind them."""

    head: bytes
    event: bytes
    tail: bytes

    def bomb(self, kind: str) -> tuple[bytes, bytes, bytes]:
        """Head, what is repeated, and tail."""
        if kind == "events":
            return self.head, self.event + b",", self.event + self.tail
        repeated = {"space": b" ", "string": b"a", "brackets": b"["}[kind]
        start = self.head + self.event + b","
        if kind == "string":
            return start + b'{"name": "', repeated, b'"}' + self.tail
        return start, repeated, (self.event if kind == "space" else b"") + self.tail

    def noisy(self) -> tuple[bytes, bytes, bytes]:
        """Events, and behind them an object with noise."""
        return self.head, self.event + b",", b'{"noise": "%s"}' + self.tail


TEXTS: Mapping[str, Text] = {
    "kineto": Text(
        b'{"schemaVersion": 1, "baseTimeNanoseconds": 1700000000000000000, "traceEvents": [',
        b'{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 2, "ts": 10.5, "dur": 2.5, "args": {}}',
        b"]}",
    ),
    "chrome": Text(b"[", b'{"ph": "X", "name": "work", "pid": 1, "tid": 2, "ts": 10, "dur": 7}', b"]"),
    "rocprof": Text(
        b'{"rocprofiler-sdk-tool": [{"metadata": {"pid": 42}, "agents": [], "buffer_records": {"hip_api": [',
        b'{"kind": 2, "operation": 0, "thread_id": 7, "correlation_id": {"internal": 10}, '
        b'"start_timestamp": 300, "end_timestamp": 800}',
        b"]}}]}",
    ),
    "jaeger": Text(
        b'{"data": [{"traceID": "t", "processes": {}, "spans": [',
        b'{"traceID": "t", "spanID": "a", "operationName": "work", "startTime": 1600000000000000, "duration": 10, '
        b'"references": [], "tags": [], "processID": "p1"}',
        b"]}]}",
    ),
    "otel": Text(
        b'{"resourceSpans": [{"resource": {"attributes": []}, "scopeSpans": [{"spans": [',
        b'{"traceId": "5b8a", "spanId": "a", "name": "work", "startTimeUnixNano": "1700000000000000100", '
        b'"endTimeUnixNano": "1700000000000000500", "attributes": []}',
        b"]}]}]}",
    ),
}


def write_text(path: Path, pieces: tuple[bytes, bytes, bytes], size: int, noise: int = 0) -> int:
    return write_packed(path, *pieces, size=size, noise=noise)


# Protocol buffers.


def varint(number: int) -> bytes:
    """Source: protobuf.dev, "Encoding"."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*out, number))


def payload(field: int, content: bytes) -> bytes:
    """A field with its length in front."""
    return varint(field << 3 | 2) + varint(len(content)) + content


def opened(field: int, size: int) -> bytes:
    """The beginning of a field of a size."""
    return varint(field << 3 | 2) + varint(size)


EVENT = payload(4, b"\x08\x01\x10\x80\x08\x18\x40")
LATE_EVENT = payload(4, b"\x08\x01\x10" + varint(10**9) + b"\x18\x80\x08")
META = payload(4, b"\x08\x01" + payload(2, b"\x08\x01" + payload(2, b"matmul")))


def write_xplane(path: Path, unit: bytes, *, field: int = 3, size: int = BOMB_BYTES, noise: int = 0) -> int:
    """An XSpace whose one plane has a field of a size, filled with something; noise stands in a field of its own."""
    front = payload(2, b"/host:CPU") + META
    filled = max(1, (4 << 20) // len(unit)) * len(unit)
    filled *= max(1, size // filled)
    plane = front + (opened(field, filled) if field else b"")
    head = opened(1, len(plane) + filled) + plane
    tail = payload(15, b"%s") if not noise else opened(15, 2 * noise) + b"%s"
    return write_packed(path, head, unit, tail, filled, noise)


def write_nested(path: Path, depth: int = 200_000) -> int:
    """Messages within messages, each a few bytes longer than what it holds."""
    out = EVENT
    for _ in range(min(depth, 20_000)):
        out = payload(1, out)
    return write_packed(path, b"", out, b"", len(out))


HLO_HEAD = payload(1, b"jit_f")


def write_hlo(path: Path, unit: bytes, *, size: int = BOMB_BYTES, noise: int = 0) -> int:
    """An `HloModuleProto` of many computations or instructions."""
    return write_packed(path, HLO_HEAD, unit, opened(99, 2 * noise) + b"%s", size, noise)


HLO_TEXT = Text(b"HloModule m\nENTRY e {\n  a = f32[8]{0} parameter(0)\n", b"", b"  ROOT r = f32[8]{0} add(a, a)\n}\n")


# Plain files.


def write_bytes(path: Path, *pieces: bytes) -> None:
    path.write_bytes(b"".join(pieces))


def write_plain(path: Path, text: Text, kind: str) -> None:
    """Brackets or objects a million deep in the place of events, or one event with numbers of thousands of digits."""
    if kind == "nested":
        write_bytes(path, text.head, b"[" * DEEP, b"]" * DEEP, text.tail)
    elif kind == "objects":
        write_bytes(path, text.head, b'{"args":' * DEEP, b"}" * DEEP)
    else:
        huge = text.event.replace(b"10", b"1" + b"0" * 30).replace(b"300", b"3" + b"0" * 5000)
        write_bytes(path, text.head, huge, text.tail)


MANY = 200_000


def write_events(path: Path, text: Text, event: Callable[[int], Mapping[str, Any]], count: int = MANY) -> None:
    """A file of events that differ."""
    events = ",".join(json.dumps(event(number)) for number in range(count))
    write_bytes(path, text.head, events.encode(), text.tail)


def jaeger_span(number: int, start: int, duration: int, *, parent: int | None = None) -> Mapping[str, Any]:
    above = [] if parent is None else [{"refType": "CHILD_OF", "traceID": "t", "spanID": str(parent)}]
    names = {"traceID": "t", "spanID": str(number), "operationName": f"work {number % 1000}", "processID": "p1"}
    return {**names, "startTime": 16 * 10**14 + start, "duration": duration, "references": above, "tags": []}


def module_call(number: int) -> Mapping[str, Any]:
    """A call of a module inside the one before."""
    place = {"ph": "X", "cat": "python_function", "name": f"nn.Module: Layer_{number % 1000}", "pid": 1, "tid": 2}
    return {**place, "ts": number, "dur": 2 * (MANY - number), "args": {}}


def write_nested_events(path: Path, count: int = MANY) -> None:
    """A line of an XSpace whose events each hold the next."""
    events = b"".join(
        payload(4, b"\x08\x01\x10" + varint(number) + b"\x18" + varint(2 * (count - number))) for number in range(count)
    )
    write_bytes(path, payload(1, payload(2, b"/host:CPU") + META + payload(3, events)))


KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"


def write_sqlite(path: Path, *statements: str) -> None:
    with sqlite3.connect(path) as connection:
        connection.executescript(";\n".join(("CREATE TABLE StringIds (id INTEGER, value TEXT)", *statements)))


def write_packed_sqlite(path: Path) -> int:
    """An export whose one text is long and empty, packed."""
    plain = path.with_name("plain")
    write_sqlite(plain, "INSERT INTO StringIds VALUES (1, CAST(zeroblob(300000000) AS TEXT))")
    data = plain.read_bytes()
    machine = zlib.compressobj(9, zlib.DEFLATED, 31)
    path.write_bytes(machine.compress(data) + machine.flush())
    plain.unlink()
    return len(data)


ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT"
KERNEL_COLUMNS = "start INTEGER, 'end' INTEGER, deviceId INTEGER, streamId INTEGER, shortName INTEGER"
KERNEL_ROW = f"INSERT INTO {KERNELS} VALUES (1, 2, 0, 7, 1)"


# Runs.


def make_run(path: Path, *, tables: Mapping[str, list[dict[str, Any]]] | None = None) -> None:
    """A closed run of twenty steps, and rows of other tables."""
    from phasepoint.core.tables import table_from_rows
    from phasepoint.store import create_run, open_shard

    create_run(path, command=("python", "train.py"))
    writer = open_shard(path, 0, epoch_unix_ns=1_700_000_000_000_000_000)
    steps = [{"step": n, "start_ps": n * STEP_PS, "dur_ps": STEP_PS} for n in range(20)]
    for name, rows in {"steps": steps, **(tables or {})}.items():
        writer.append(name, table_from_rows(name, rows))
    writer.close()


def with_part(path: Path, write: Callable[[Path], int | None], *, table: str = "steps", name: str = "part-x") -> Any:
    """A run with one more part in a table."""
    make_run(path)
    folder = path / SHARD / table
    folder.mkdir(exist_ok=True)
    return write(folder / f"{name}.parquet")


def write_equal_rows(path: Path, rows: int = 10**9, *, row_groups: int = 100, encoded: bool = True) -> int:
    """Steps that are all alike: runs of a dictionary's one entry."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = ("step", "start_ps", "dur_ps")
    zeros = pa.array([0], pa.int64()).take(pa.repeat(pa.scalar(0, pa.int32()), rows // row_groups))
    table = pa.table(dict.fromkeys(names, zeros))
    schema = pa.schema([pa.field(name, pa.int64(), nullable=False) for name in names])
    with pq.ParquetWriter(path, schema, compression="zstd", use_dictionary=encoded) as writer:
        for _ in range(row_groups):
            writer.write_table(table.cast(schema), row_group_size=rows // row_groups)
    return 24 * rows


def write_wide(path: Path, columns: int = 100_000) -> None:
    """A part of very many columns."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({f"c{n}": pa.array([0]) for n in range(columns)}), path)


def write_long_text(path: Path, size: int = 1 << 30) -> int:
    """A part with one text, of one letter again and again."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from phasepoint.core.tables import table_from_rows

    gap = {"why": "outside-steps", "start_ps": 0, "dur_ps": 5, "unknown": "x"}
    table = table_from_rows("gaps", [gap])
    at = table.schema.get_field_index("unknown")
    table = table.set_column(at, table.schema.field(at), pa.array(["a" * size], table.schema.field(at).type))
    pq.write_table(table, path, compression="zstd")
    return size


def nested_pages(path: Path) -> int:
    """A dictionary of one long text that a million rows name: a few kB each time it is spelled out."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from phasepoint.core.tables import table_from_rows

    gap = {"why": "outside-steps", "start_ps": 0, "dur_ps": 5, "unknown": "x"}
    table = table_from_rows("gaps", [gap]).take(pa.repeat(pa.scalar(0, pa.int64()), 1_000_000))
    at = table.schema.get_field_index("unknown")
    texts = pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), 1_000_000), pa.array(["a" * 2000]))
    table = table.set_column(at, pa.field("unknown", texts.type, nullable=False), texts)
    pq.write_table(table, path, compression="zstd", store_schema=False)
    return 2000 * 1_000_000


def with_window(path: Path, format: str, write: Callable[[Path], int]) -> int:
    """A run with one window, whose capture is written here."""
    costs = dict.fromkeys(("start_cost_ps", "stop_cost_ps", "capture_cost_ps"), 0)
    span = {"window": 0, "first_step": 3, "last_step": 4, "start_ps": 3 * STEP_PS, "dur_ps": 2 * STEP_PS}
    window = {**span, **costs, "reason": "sample", "format": format, "bytes": 10, "raw": "raw/window-000000.bin.zst"}
    make_run(path, tables={"windows": [window]})
    (path / SHARD / "raw").mkdir(exist_ok=True)
    return write(path / SHARD / "raw" / "window-000000.bin.zst")


def with_program(path: Path, unit: bytes, size: int = BOMB_BYTES) -> int:
    """A run with one program, whose HLO is packed with Zstandard."""
    import pyarrow as pa

    codec = pa.Codec("zstd", compression_level=3)
    chunk = unit * max(1, (4 << 20) // len(unit))
    packed = codec.compress(chunk, asbytes=True) * (size // len(chunk))
    program = {
        **dict.fromkeys(("program", "first_window", "instructions", "flop", "bytes", "transcendentals"), 0),
        **{"name": "f", "fingerprint": "0" * 16, "hlo": packed},
    }
    make_run(path, tables={"programs": [program]})
    return len(chunk) * (size // len(chunk))


def with_json(path: Path, file: str, *pieces: bytes) -> None:
    make_run(path)
    write_bytes(path / file, *pieces)


def with_repeated(path: Path, file: str) -> None:
    """A run with 100 MB of one key in the place of a file."""
    with_json(path, file, b'{"format_version": "1.0"', b', "frameworks": {"a": "b"}' * 4_000_000, b"}")


def with_special(path: Path, file: str, target: str | None) -> None:
    """A run with a pipe (None), or a link to a device, in the place of a file; the last part of a table for `*`."""
    make_run(path)
    place = next(path.glob(file))
    place.unlink()
    if target is None:
        os.mkfifo(place)
    else:
        place.symlink_to(target)


def with_folders(path: Path, count: int, *, whole: bool) -> None:
    """A run with many more hosts, of which each has a session or is an empty folder."""
    make_run(path)
    session = (path / SHARD / "session.json").read_bytes()
    for host in range(1, count):
        (path / f"host={host:05d}").mkdir()
        if whole:
            (path / f"host={host:05d}" / "session.json").write_bytes(session)


def with_parts(path: Path, count: int) -> None:
    """A run with one part of `steps` under very many names."""
    make_run(path)
    part = next((path / SHARD / "steps").glob("*.parquet"))
    for number in range(count):
        part.with_name(f"part-{number + 1:08d}.parquet").hardlink_to(part)


def with_session(path: Path, **values: str) -> None:
    """A run whose session says other numbers."""
    make_run(path)
    place = path / SHARD / "session.json"
    session = json.loads(place.read_text())
    text = json.dumps({**session, **dict.fromkeys(values, "@")})
    for value in values.values():
        text = text.replace('"@"', value, 1)
    place.write_text(text)


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


SUMMARY = ("summary", "IN")
PREDICT = ("predict", "IN", "--device", "tpu-v4")
READERS = (
    SUMMARY,
    ("report", "IN", "--output", "OUT"),
    ("stack", "IN"),
    ("export", "IN", "--format", "chrome", "--output", "OUT"),
)
DEEP = 1_000_000


def text_cases() -> list[Case]:
    """Files of the formats that are text."""
    cases = []
    for name, text in TEXTS.items():
        sizes = {"events": BOMB_BYTES, "space": BOMB_BYTES, "string": BOMB_BYTES, "brackets": 100_000}
        for kind, size in sizes.items():
            cases.append(Case(f"gzip-{name}-{kind}", partial(write_text, pieces=text.bomb(kind), size=size)))
        allowed = partial(write_text, pieces=text.noisy(), size=ALLOWED_BYTES, noise=NOISE_BYTES)
        cases.append(Case(f"gzip-{name}-allowed", allowed))
        for kind in ("nested", "objects", "huge-numbers"):
            cases.append(Case(f"plain-{name}-{kind}", partial(write_plain, text=text, kind=kind)))
    return cases


def shape_cases() -> list[Case]:
    """Plain files of events that stand to each other as no program's do: what takes the square of their number?"""
    jaeger, kineto, chrome = (TEXTS[name] for name in ("jaeger", "kineto", "chrome"))
    overlapping = {"ph": "X", "name": "work", "pid": 1, "tid": 2}
    writers: Mapping[str, Callable[[Path], None]] = {
        "jaeger-overlapping": lambda p: write_events(p, jaeger, lambda n: jaeger_span(n, n, 10**6)),
        "jaeger-chain": lambda p: write_events(
            p, jaeger, lambda n: jaeger_span(n, n, 2 * (MANY - n), parent=n - 1 if n else None)
        ),
        "jaeger-loop": lambda p: write_events(p, jaeger, lambda n: jaeger_span(n, n, 10, parent=(n + 1) % MANY)),
        "kineto-modules": lambda p: write_events(p, kineto, module_call),
        "chrome-overlapping": lambda p: write_events(p, chrome, lambda n: {**overlapping, "ts": n, "dur": 10**6}),
        "xplane-nested": write_nested_events,
    }
    return [Case(f"plain-{name}", write) for name, write in writers.items()]


def binary_cases() -> list[Case]:
    """Packed and plain files of the other formats, and HLO."""
    beyond = opened(1, 1 << 40) + payload(2, b"/host:CPU") + META + opened(3, 1 << 30) + EVENT * 3
    allowed: dict[str, Any] = {"size": ALLOWED_BYTES, "noise": NOISE_BYTES}
    xplane = {"size": ALLOWED_XPLANE_BYTES}
    one = payload(3, payload(1, b"c") + payload(2, payload(1, b"x") + payload(2, b"add")))
    return [
        Case("gzip-xplane-events", partial(write_xplane, unit=EVENT)),
        Case("gzip-xplane-zeros", partial(write_xplane, unit=b"\0")),
        Case("gzip-xplane-nested", write_nested),
        Case("gzip-xplane-allowed", partial(write_xplane, unit=LATE_EVENT, **allowed | xplane)),
        Case("gzip-xplane-small-events", partial(write_xplane, unit=EVENT, **allowed | xplane)),
        Case("gzip-xplane-short-events", partial(write_xplane, unit=b"\x22\0", **allowed | xplane)),
        Case("gzip-xplane-lines", partial(write_xplane, unit=b"\x1a\0", field=0, **allowed | xplane)),
        Case("gzip-xplane-planes", lambda p: write_packed(p, b"", b"\x0a\0", b"%s", ALLOWED_XPLANE_BYTES, NOISE_BYTES)),
        Case("gzip-in-gzip", write_gzip_in_gzip),
        Case("gzip-members", write_members),
        Case("gzip-sqlite", write_packed_sqlite),
        Case("gzip-hlo-proto", partial(write_hlo, unit=one), PREDICT, "m.pb.gz"),
        Case("gzip-hlo-proto-empty", partial(write_hlo, unit=b"\x1a\0", **allowed), PREDICT, "m.pb.gz"),
        Case("gzip-hlo-proto-allowed", partial(write_hlo, unit=one, **allowed), PREDICT, "m.pb.gz"),
        Case(
            "gzip-hlo-text",
            lambda p: write_packed(p, HLO_TEXT.head, b"  b = f32[8]{0} add(a, a)\n", HLO_TEXT.tail),
            PREDICT,
            "m.txt",
        ),
        Case("gzip-hlo-text-space", lambda p: write_packed(p, HLO_TEXT.head, b" ", HLO_TEXT.tail), PREDICT, "m.txt"),
        Case("gzip-mlir-space", lambda p: write_packed(p, b"module {", b" ", b"}"), PREDICT, "m.txt"),
        Case("plain-hlo-text-comments", lambda p: write_bytes(p, b"//\n" * 300_000), PREDICT, "m.txt"),
        Case("plain-xplane-beyond", lambda p: write_bytes(p, beyond)),
        Case("plain-sqlite-view", lambda p: write_sqlite(p, f"CREATE VIEW {KERNELS} AS {ENDLESS} i AS start FROM n")),
        Case(
            "plain-sqlite-view-blob",
            lambda p: write_sqlite(p, f"CREATE VIEW {KERNELS} AS SELECT zeroblob(1000000000) AS start"),
        ),
        Case(
            "plain-sqlite-generated",
            lambda p: write_sqlite(
                p,
                f"CREATE TABLE {KERNELS} (start INTEGER, 'end' INTEGER, deviceId INTEGER, streamId INTEGER, "
                "shortName AS (zeroblob(1000000000)))",
                f"INSERT INTO {KERNELS} VALUES (1, 2, 0, 7)",
            ),
        ),
        Case(
            "plain-sqlite-generated-text",
            lambda p: write_sqlite(
                p,
                "DROP TABLE StringIds",
                "CREATE TABLE StringIds (id INTEGER, value AS (CAST(zeroblob(900000000) AS TEXT)))",
                "INSERT INTO StringIds VALUES (1), (2), (3)",
                f"CREATE TABLE {KERNELS} ({KERNEL_COLUMNS})",
                KERNEL_ROW,
            ),
        ),
        Case(
            "plain-sqlite-columns",
            lambda p: write_sqlite(
                p, f"CREATE TABLE {KERNELS} ({KERNEL_COLUMNS}, {', '.join(f'c{n}' for n in range(1900))})"
            ),
        ),
        Case("pipe", make_pipe),
        Case("device", lambda p: p.symlink_to("/dev/zero")),
        Case("pipe-hlo", make_pipe, PREDICT, "m.pb"),
        Case("device-hlo", lambda p: p.symlink_to("/dev/zero"), PREDICT, "m.pb"),
    ]


def run_cases() -> list[Case]:
    """Runs."""
    kineto, manifest, session = TEXTS["kineto"], "run.json", f"{SHARD}/session.json"
    cases = [Case(f"run-equal-rows-{words[0]}", partial(with_part, write=write_equal_rows), words) for words in READERS]
    cases += [
        Case("run-200-million-rows", partial(with_part, write=partial(write_equal_rows, rows=190_000_000)), SUMMARY),
        Case(
            "run-allowed-rows",
            partial(with_part, write=partial(write_equal_rows, rows=10_000_000, row_groups=1)),
            SUMMARY,
        ),
        Case("run-columns", partial(with_part, write=write_wide), SUMMARY),
        Case("run-long-text", partial(with_part, write=write_long_text, table="gaps"), SUMMARY),
        Case("run-dictionary-text", partial(with_part, write=nested_pages, table="gaps"), SUMMARY),
        Case(
            "run-raw-zstd",
            lambda p: with_window(p, "kineto", lambda raw: write_zstd(raw, kineto.head, kineto.event + b",")),
            SUMMARY,
        ),
        Case(
            "run-raw-xplane",
            lambda p: with_window(
                p, "xplane", lambda raw: write_zstd(raw, opened(1, 30 << 20) + opened(3, 30 << 20), EVENT, 30 << 20)
            ),
            SUMMARY,
        ),
        Case("run-program-zstd", partial(with_program, unit=b"\0"), PREDICT),
        Case("run-program-empty", partial(with_program, unit=b"\x1a\0", size=30 << 20), PREDICT),
        Case("run-manifest-pipe", partial(with_special, file=manifest, target=None), SUMMARY),
        Case("run-manifest-device", partial(with_special, file=manifest, target="/dev/zero"), SUMMARY),
        Case("run-session-pipe", partial(with_special, file=session, target=None), SUMMARY),
        Case("run-session-device", partial(with_special, file=session, target="/dev/zero"), SUMMARY),
        Case("run-table-pipe", partial(with_special, file=f"{SHARD}/steps/*.parquet", target=None), SUMMARY),
        Case("run-table-device", partial(with_special, file=f"{SHARD}/steps/*.parquet", target="/dev/zero"), SUMMARY),
        Case("run-manifest-nested", lambda p: with_json(p, manifest, b'{"x":' * DEEP, b"}" * DEEP), SUMMARY),
        Case("run-manifest-repeated", partial(with_repeated, file=manifest), SUMMARY),
        Case("run-session-nested", lambda p: with_json(p, session, b"[" * DEEP, b"]" * DEEP), SUMMARY),
        Case("run-session-repeated", partial(with_repeated, file=session), SUMMARY),
        Case("run-folders", partial(with_folders, count=20_000, whole=False), SUMMARY),
        Case("run-hosts", partial(with_folders, count=5_000, whole=True), SUMMARY),
        Case("run-parts", partial(with_parts, count=20_000), SUMMARY),
        Case(
            "run-session-huge",
            lambda p: with_session(p, epoch_unix_ns="1" + "0" * 30, closed_unix_ns="1" + "0" * 5000),
            SUMMARY,
        ),
        Case(
            "run-session-far", lambda p: with_session(p, epoch_unix_ns="9" * 18, closed_unix_ns="-" + "9" * 18), SUMMARY
        ),
    ]
    for words in READERS[1:]:
        cases.append(Case(f"run-parts-{words[0]}", partial(with_parts, count=20_000), words))
    return cases


def measure(case: Case, folder: Path) -> Outcome:
    """Make the input in a process of its own, whose memory counts for nobody, and run the command on it."""
    place, out, log = folder / case.file, folder / "out", folder / "log"
    words = [sys.executable, __file__, "--make", case.name, str(place)]
    made = subprocess.run(words, capture_output=True, text=True, check=False)
    if made.returncode:
        raise SystemExit(f"{case.name}: cannot be made: {made.stderr[-2000:]}")
    size = _size_of(place)
    words = [{"IN": str(place), "OUT": str(out)}.get(word, word) for word in case.command]
    with log.open("wb") as said:
        start = time.perf_counter()
        child = subprocess.Popen(
            [sys.executable, "-m", "phasepoint", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=said,
            start_new_session=True,
        )
        resource.prlimit(child.pid, resource.RLIMIT_AS, (ADDRESS_BYTES, ADDRESS_BYTES))
        stopped = False
        while True:
            pid, status, usage = os.wait4(child.pid, os.WNOHANG)
            if pid:
                break
            if not stopped and time.perf_counter() - start > TIMEOUT_S:
                os.killpg(child.pid, signal.SIGKILL)
                stopped = True
            time.sleep(0.01)
        seconds = time.perf_counter() - start
    child.returncode = os.waitstatus_to_exitcode(status)
    lines = log.read_text("utf-8", "replace").strip().splitlines()
    told = next((line for line in lines if line.startswith(("error", "Traceback"))), lines[0] if lines else "")
    return Outcome(
        case=case.name,
        size_bytes=size,
        unpacked_bytes=json.loads(made.stdout),
        code=None if stopped else child.returncode,
        seconds=seconds,
        cpu_s=usage.ru_utime + usage.ru_stime,
        peak_mib=usage.ru_maxrss / 1024,
        said=told.replace(str(place), "IN").replace(str(folder), "…")[:200],
    )


def _size_of(place: Path) -> int:
    """Bytes of a file, or of the files below a folder; 0 of pipes and devices."""
    files = place.rglob("*") if place.is_dir() else [place]
    return sum(file.stat().st_size for file in files if file.is_file())


def _shown(size: int | None) -> str:
    return "" if size is None else f"{size / 1e6:.1f} MB" if size >= 100_000 else f"{size / 1e3:.1f} kB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="cases; all if left out")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--list", action="store_true", help="name the cases and end")
    parser.add_argument("--make", nargs=2, metavar=("NAME", "PATH"), help="write one case's input and end")
    args = parser.parse_args()
    cases = {case.name: case for case in (*text_cases(), *shape_cases(), *binary_cases(), *run_cases())}
    if args.list:
        print("\n".join(cases))
        return
    if args.make:
        print(json.dumps(cases[args.make[0]].make(Path(args.make[1]))))
        return
    if unknown := sorted(set(args.only or ()).difference(cases)):
        parser.error(f"no case {', '.join(unknown)}; --list names them")
    outcomes = []
    columns = ("case", "size", "unpacked", "exit code", "time", "of processors", "memory", "said")
    print(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|", flush=True)
    for name in args.only or cases:
        with tempfile.TemporaryDirectory(prefix="phasepoint-untrusted-") as folder:
            one = measure(cases[name], Path(folder))
        outcomes.append(one)
        sizes = f"{_shown(one.size_bytes)} | {_shown(one.unpacked_bytes)}"
        code = "–" if one.code is None else one.code
        said = one.said.replace("|", "\\|")
        times = f"{one.seconds:.1f} s | {one.cpu_s:.1f} s"
        print(f"| {name} | {sizes} | {code} | {times} | {one.peak_mib:.0f} MiB | {said} |", flush=True)
    if args.json:
        args.json.write_text(json.dumps([asdict(one) for one in outcomes], indent=1))
    broken = [one for one in outcomes if one.broken]
    print(f"\n{len(outcomes) - len(broken)} of {len(outcomes)} cases within {MOST_MIB} MiB and {MOST_S:.0f} s")
    for one in broken:
        print(f"{one.case}: {one.broken}")
    sys.exit(bool(broken))


if __name__ == "__main__":
    main()
