"""Damaged run directories: each travels as one tar, and is asked what the commands ask of a run."""

import io
import os
import sys
import tarfile
import tempfile
from contextlib import suppress
from pathlib import Path
from random import Random
from zlib import crc32

import fuzz_mutations
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from fuzz_questions import ask_run

from phasepoint.core.errors import PhasepointError

sys.path.insert(0, str(Path(__file__).parents[1] / "cli"))

FIFO = object()
"""Stands in a tree for a named pipe; a string stands for a symbolic link to that place, bytes for a file."""

_OWNER = {"pid": 7, "start_ticks": 1, "machine": "elsewhere", "hostname": "node-1"}


def check_run(path):
    """Unpack a run and ask it things that its bytes choose; returns whether any step of it was read.

    Raises:
        AssertionError: what was answered does not hold.
    """
    with tempfile.TemporaryDirectory() as folder:
        try:
            unpack_tree(Path(path), Path(folder))
        except (tarfile.TarError, OSError, ValueError):
            return False  # the tar is damaged, not the run in it
        return ask_run(str(Path(folder) / "run"), Random(crc32(Path(path).read_bytes())))


def pack_tree(tree):
    """A tar of files, links and pipes by their path: equal for equal trees."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, content in sorted(tree.items()):
            member = tarfile.TarInfo(name)
            member.mode = 0o755
            if isinstance(content, bytes):
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
                continue
            member.type = tarfile.FIFOTYPE if content is FIFO else tarfile.SYMTYPE
            member.linkname = "" if content is FIFO else content
            tar.addfile(member)
    return data.getvalue()


def unpack_tree(path, folder):
    """Make what a tar holds; nothing outside the folder is written, and no device is made."""

    def allow(member, where):
        member = tarfile.tar_filter(member, where)
        return None if member.isdev() and not member.isfifo() else member

    with tarfile.open(path, mode="r:") as tar:
        tar.extractall(folder, filter=allow)


def mutate_run(random, tree, others):
    """A tar of the run, some of whose files hold something else, are gone, or are no files."""
    tree = dict(tree)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        files = [name for name, content in tree.items() if isinstance(content, bytes)]
        if not files:
            break
        _mutate_tree(random, tree, files, random.choice(others))
    return pack_tree(tree)


def _mutate_tree(random, tree, files, other):
    kind = random.random()
    parts = [name for name in files if name.endswith(".parquet")]
    texts = [name for name in files if name.endswith(".json")]
    if kind < 0.55 and parts:
        name = random.choice(parts)
        tree[name] = mutate_part(random, tree[name])
    elif kind < 0.7 and texts:
        name = random.choice(texts)
        with suppress(ValueError, RecursionError):  # damaged before
            tree[name] = fuzz_mutations.mutate_json(random, tree[name])
    elif kind < 0.78:
        name = random.choice(files)
        tree[name] = fuzz_mutations.mutate_bytes(random, tree[name], [tree[one] for one in files])
    else:
        _move_file(random, tree, files, other)


def _move_file(random, tree, files, other):
    name, second = random.choice(files), random.choice(files)
    folder, _, file = name.rpartition("/")
    kind = random.randrange(12)
    if kind == 0:
        del tree[name]
    elif kind == 1:
        tree[name] = b""
    elif kind == 2:
        tree[name], tree[second] = tree[second], tree[name]
    elif kind == 3:
        tree[f"{folder}/{random.choice(_NAMES)}-{file}"] = tree[name]
    elif kind == 4:
        _move_folder(random, tree, folder, random.choice((_to_shard(random, folder), second.rpartition("/")[0])))
    elif kind == 5:
        _remove_folder(tree, folder)
        tree[folder] = random.choice((b"", b"{}", FIFO))
    elif kind == 6:
        tree[f"{name}/{file}"] = tree.pop(name)
    elif kind == 7:
        tree[name] = FIFO
    elif kind < 10:
        tree[name] = random.choice(
            (file, "/dev/zero", "/dev/null", "nowhere", "..", ".", os.path.relpath(second, folder))
        )
    else:
        replaced = random.choice(list(other))
        tree[replaced] = other[replaced]
    _drop_what_is_below_files(tree)


_NAMES = ("part", "merged", "part-window-000000", "part-00000000", "0", ".tmp", "a b", "é", "x" * 90)
_SHARDS = (
    "host=00000", "host=00001", "host=00000.1", "host=00007", "host=00000.999999999", "host=999999999999999999",
    "host=00001.2",
)  # fmt: skip


def _to_shard(random, folder):
    top, _, rest = folder.partition("/")
    _, _, table = rest.partition("/")
    return "/".join(filter(None, (top, random.choice(_SHARDS), table)))


def _move_folder(random, tree, source, target):
    moved = {name: content for name, content in tree.items() if name.startswith(f"{source}/")}
    if random.randrange(2):
        _remove_folder(tree, source)
    for name, content in moved.items():
        tree[target + name[len(source) :]] = content


def _remove_folder(tree, folder):
    for name in [name for name in tree if name.startswith(f"{folder}/")]:
        del tree[name]


def _drop_what_is_below_files(tree):
    """A path that leads through a file is no path; which of the two stays is the shorter one."""
    for name in list(tree):
        above = name.rpartition("/")[0]
        while above and name in tree:
            if above in tree:
                del tree[name]
            above = above.rpartition("/")[0]


NUMBERS = (*fuzz_mutations.NUMBERS[:18], 3, 100, 10**6, 10**9, 10**12, 2**61, 2**62, 2**62 + 1, 2**62 - 1, 3 * 10**18)
TEXTS = (
    *fuzz_mutations.TEXTS, "compute", "communication", "idle", "kernel", "op", "layer", "model", "cpu:0", "gpu:1",
    "sample", "kineto", "xplane", "raw/../../x", "raw/x.zst", "eval", "f32[8,8]{1,0}", "0,1", "1,2,3", "all_reduce",
    "recorder.cost.total", "gc.pause", "memory.limit", "checkpoint", "{}", "jit(step)/a/b", "fusion", "dot", "while",
)  # fmt: skip


def mutate_part(random, data):
    """Parquet of which cells, rows or columns are others, gone, null or of another type."""
    try:
        table = pq.read_table(pa.BufferReader(data))
    except (pa.ArrowException, OSError):
        return data  # damaged before
    for _ in range(random.choice((1, 1, 2, 3, 6))):
        if table.num_columns:
            with suppress(pa.ArrowException, ValueError, OverflowError, TypeError):  # not possible with this table
                table = _mutate_table(random, table)
    sink = pa.BufferOutputStream()
    with suppress(pa.ArrowException):
        pq.write_table(table, sink, compression="zstd")
        return sink.getvalue().to_pybytes()
    return data


def _mutate_table(random, table):
    index = random.randrange(table.num_columns)
    name, column = table.schema.names[index], table.column(index)
    kind = random.randrange(16)
    if kind < 9:
        return table.set_column(index, table.schema.field(index), _mutate_values(random, table, column))
    if kind == 9:
        return table.remove_column(index)
    if kind == 10:
        return table.append_column(random.choice((f"{name}_", "host", "attempt", name)), column)
    if kind == 11:
        return table.rename_columns([f"{one}_" if at == index else one for at, one in enumerate(table.schema.names)])
    if kind == 12:
        other = random.choice((pa.float64(), pa.int32(), pa.uint64(), pa.string(), pa.binary(), pa.null(), pa.bool_()))
        return table.set_column(index, name, column.cast(other, safe=False))
    rows = list(range(table.num_rows))
    if kind == 13:
        random.shuffle(rows)
    elif kind == 14:
        rows = [row for row in rows if random.random() < random.choice((0.0, 0.5, 0.9))]
    else:
        rows += random.choices(rows, k=random.choice((1, 3, len(rows)))) if rows else []
    return table.take(pa.array(rows, pa.int64()))


def _mutate_values(random, table, column):
    values = column.to_pylist()
    whole = random.random() < 0.15
    value = _strange(random, column.type, values)
    change = random.randrange(6)
    for row in range(len(values)) if whole else [random.randrange(len(values) or 1) for _ in range(2)]:
        if not values:
            break
        if change == 0:
            values[row] = None
        elif change == 1 and isinstance(values[row], int | float):
            values[row] = values[row] * random.choice((-1, 2, 1000)) + random.choice((0, 1, -1))
        elif change == 2:
            values[row] = random.choice(values)
        elif change == 3 and (alike := [one for one in table.columns if one.type == column.type]):
            values[row] = random.choice(alike)[row].as_py()
        else:
            values[row] = value
    return pa.array(values, column.type)


def _strange(random, kind, values):
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if pa.types.is_floating(kind):
        return random.choice(fuzz_mutations.FLOATS)
    if pa.types.is_string(kind):
        return random.choice(TEXTS)
    if pa.types.is_list(kind):
        return random.choices(TEXTS, k=random.randrange(4))
    if pa.types.is_binary(kind):
        known = [value for value in values if value]
        return fuzz_mutations.mutate_bytes(random, random.choice(known), known) if known else b""
    return random.choice(NUMBERS)


def run_seeds():
    """Trees of small runs: of two hosts of which one was killed, still to be converted, compacted, imported."""
    from made_run import made_run
    from unconverted_run import unconverted_run

    from phasepoint.store import compact_run

    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / name for name in ("made", "raw", "compacted", "kineto", "xplane")]
        made_run(paths[0])
        _killed_host(paths[0])
        unconverted_run(paths[1], only=True)
        made_run(paths[2])
        _killed_host(paths[2])
        compact_run(paths[2])
        _import("kineto", paths[3])
        _import("xplane", paths[4])
        return [_tree(path) for path in paths]


def _killed_host(path):
    """A second host, killed, started again and killed once more."""
    from made_run import START_NS, run_tables, step_rows

    from phasepoint.core.tables import table_from_rows
    from phasepoint.store import open_shard

    tables = run_tables(step_rows())
    for first in (0, 60):
        begin_ns = START_NS + 2 * first * 10**9
        writer = open_shard(path, 1, epoch_unix_ns=begin_ns, clock=lambda at=begin_ns: at)
        for name, rows in tables.items():
            kept = [row for row in rows if first <= (row.get("step") or 0) < first + 40]
            writer.append(name, table_from_rows(name, kept))
        writer.flush()
        name = Path(path) / writer.shard / "session.json"
        session = msgspec.json.decode(name.read_bytes())
        name.write_bytes(msgspec.json.encode({**session, "owner": _OWNER}))


def _import(format, path):
    from fuzz_seeds import seeds

    from phasepoint.sources.ingest.import_run import import_file

    with tempfile.TemporaryDirectory() as folder:
        for host, seed in enumerate(seeds(format, real=False)):
            file = Path(folder) / f"{host}"
            file.write_bytes(msgspec.json.encode(seed) if format == "kineto" else seed.SerializeToString())
            with suppress(PhasepointError):
                import_file(file, format, path, host)


def _tree(path):
    """Its files below `run/`, the same at every time and on every machine."""
    tree = {}
    for file in sorted(Path(path).rglob("*")):
        if not file.is_file():
            continue
        name, data = f"run/{file.relative_to(path)}", file.read_bytes()
        if file.name in {"run.json", "session.json"}:
            known = msgspec.json.decode(data)
            fixed = {"owner": _OWNER} if file.name == "session.json" else {"created_unix_ns": 10**18, "python": "3.11"}
            fixed |= {"notes": {}} if "notes" in known else {}
            fixed |= {"created_on": "node-1", "tool_version": "1", "command": ["a"]} if file.name == "run.json" else {}
            data = msgspec.json.encode({**known, **fixed})
        elif name.split("/")[-2] == "conversions":
            table = pq.read_table(file)
            index = table.schema.get_field_index("convert_cost_ps")
            fixed = pa.array([10**9] * table.num_rows, pa.int64())
            sink = pa.BufferOutputStream()
            pq.write_table(table.set_column(index, "convert_cost_ps", fixed), sink)
            data = sink.getvalue().to_pybytes()
        tree[name] = data
    return tree
