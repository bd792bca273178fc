"""Damage, by chance but repeatable: to bytes, to JSON, to protobuf messages, to SQLite files."""

import copy
import gzip
import json
import math
import sqlite3

NUMBERS = (
    0, 1, -1, 2, 7, 255, 256, 2**31 - 1, 2**31, -(2**31), 2**32, 2**53, 2**63 - 1, -(2**63), 2**63, 2**64 - 1, 2**64,
    10**30, -(10**30),
)  # fmt: skip
FLOATS = (0.5, -0.0, 1e-9, 1e18, 1e308, -1e308, 4373768380354.218, math.nan, math.inf, -math.inf)
TEXTS = (
    "", " ", "0", "-1", "1e999", "host", "gpu:0", "a" * 3000, '"\\\n\t', "\x00", "é\U0001f600", "\ud800",
    "ProfilerStep#5", "phasepoint.step#18446744073709551616", "nccl:all_reduce", "null", "[[", "{",
)  # fmt: skip
_DEEP = "a value that is nested deep"
_DEEP_TEXT = b'"a value that is nested deep"'
PIECES = (
    b"", b"\x00", b"\xff", b'"', b"\\", b"\\u", b"\\ud83d", b"{", b"}", b"[", b"]", b",", b":", b"null", b"NaN", b"-",
    b"e", b"99999999999999999999", b"\n", b"\x80" * 11, b'"traceEvents": [', b'{"ph": "X"',
)  # fmt: skip


def mutate_bytes(random, data, others):
    """One to four cuts, flips, copies and insertions."""
    data = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        place = random.randrange(len(data) + 1)
        length = min(random.choice((1, 1, 2, 4, 8, 30, 300)), len(data) - place)
        kind = random.randrange(7)
        if kind == 0 and length:
            data[place] ^= 1 << random.randrange(8)
        elif kind == 1:
            del data[place : place + length]
        elif kind == 2:
            data[place:place] = data[place : place + length] * random.choice((1, 1, 2, 50))
        elif kind == 3:
            data[place : place + random.choice((0, length))] = random.choice(PIECES)
        elif kind == 4:
            data[place : place + length] = random.randbytes(length)
        elif kind == 5:
            del data[place:]
        else:
            other = random.choice(others)
            begin = random.randrange(len(other) + 1)
            data[place : place + length] = other[begin : begin + random.choice((4, 40, 400))]
    return bytes(data)


def mutate_json(random, data):
    """A JSON text in which some values are others, gone, doubled, moved or nested."""
    document = json.loads(data)
    for _ in range(random.choice((1, 1, 2, 3, 6))):
        places = list(_places(document))
        if not places:
            break
        holder, key = random.choice(places)
        _mutate_place(random, holder, key, places)
    style = {
        "ensure_ascii": bool(random.randrange(2)),
        "separators": random.choice(((", ", ": "), (",", ":"), (" , ", " :\n"))),
        "indent": random.choice((None, None, None, 1, "\t")),
    }
    text = json.dumps(document, **style).encode("utf-8", "surrogatepass")
    depth = random.choice((3, 70, 700, 20_000))
    opening, closing = random.choice(((b"[", b"]"), (b'{"a":', b"}")))
    return text.replace(_DEEP_TEXT, opening * depth + b"1" + closing * depth)


def _places(value):
    """Every (container, key) below a value."""
    stack = [value]
    while stack:
        holder = stack.pop()
        if isinstance(holder, dict | list):
            for key in list(holder) if isinstance(holder, dict) else range(len(holder)):
                yield holder, key
                stack.append(holder[key])


def _mutate_place(random, holder, key, places):
    if (isinstance(holder, list) and key >= len(holder)) or (isinstance(holder, dict) and key not in holder):
        return  # an earlier mutation took it
    kind = random.randrange(8)
    if kind == 0:
        del holder[key]
    elif kind == 1 and isinstance(holder, list):
        holder[key:key] = [copy.deepcopy(holder[key]) for _ in range(random.choice((1, 2, 40)))]
    elif kind == 2 and isinstance(holder, list):
        random.shuffle(holder)
    elif kind == 3:
        other, place = random.choice(places)
        if (isinstance(other, list) and place < len(other)) or (isinstance(other, dict) and place in other):
            holder[key] = copy.deepcopy(other[place])
    elif kind == 4 and isinstance(holder, dict):
        holder[random.choice([*TEXTS[:8], *holder])] = holder.pop(key)
    elif kind == 5 and isinstance(holder[key], int | float) and math.isfinite(holder[key]):
        holder[key] = holder[key] * random.choice((-1, 10, 1000, 0.001)) + random.choice((0, 1, -1, 0.5))
    else:
        holder[key] = _strange(random)


def _strange(random):
    kind = random.randrange(8)
    if kind < 3:
        return random.choice(NUMBERS)
    if kind == 3:
        return random.choice(FLOATS)
    if kind == 4:
        return random.choice((None, True, False, [], {}, [[]], {"": {}}))
    if kind == 5:
        return str(random.choice(NUMBERS))
    if kind == 6:
        return _DEEP
    return random.choice(TEXTS)


def mutate_message(random, message):
    """Bytes of a protobuf message of which some fields, at any depth, are others."""
    message = copy.deepcopy(message)
    for _ in range(random.choice((1, 1, 2, 3, 6))):
        target = message
        while True:
            below = [one for field, value in target.ListFields() for one in _messages(field, value)]
            if not below or random.random() < 0.15:
                break
            target = random.choice(below)
        fields = [field for field, _ in target.ListFields()] or list(target.DESCRIPTOR.fields)
        _mutate_field(random, target, random.choice([*fields, *target.DESCRIPTOR.fields]))
    return message.SerializeToString()


def _is_message(field):
    return field.message_type is not None


def _messages(field, value):
    if not _is_message(field):
        return []
    return list(value) if _is_repeated(field) else [value]


def _is_repeated(field):
    return field.is_repeated


def _mutate_field(random, message, field):
    kind = random.randrange(4)
    if kind == 0:
        message.ClearField(field.name)
    elif _is_repeated(field):
        values = getattr(message, field.name)
        if _is_message(field):
            if kind == 1 and len(values):
                values.add().CopyFrom(random.choice(values))
            elif kind == 2 and len(values):
                del values[random.randrange(len(values))]
            else:
                values.add()
    elif not _is_message(field):
        _set_scalar(random, message, field)


def _set_scalar(random, message, field):
    for value in (random.choice(NUMBERS), random.choice(FLOATS), random.choice(TEXTS[:-1]), random.randbytes(9)):
        try:
            setattr(message, field.name, value)
        except (TypeError, ValueError):
            continue
        if random.randrange(2):
            return


def mutate_database(random, data):
    """Bytes of an SQLite file of which cells, rows, columns or tables are others or gone."""
    connection = sqlite3.connect(":memory:")
    try:
        connection.deserialize(data)
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for _ in range(random.choice((1, 1, 2, 3, 6))):
            if tables:
                _mutate_table(random, connection, random.choice(tables))
        connection.commit()
        return connection.serialize()
    finally:
        connection.close()


def _mutate_table(random, connection, table):
    columns = [row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')]
    if not columns:
        return
    column = random.choice(columns)
    limit, offset = random.choice((1, 2, 99)), random.randrange(20)
    some = f'rowid IN (SELECT rowid FROM "{table}" ORDER BY rowid LIMIT {limit} OFFSET {offset})'
    value = random.choice((*NUMBERS[:14], *FLOATS, *TEXTS[:10], b"\x00\xff", None))
    statement, values = random.choice(
        [
            (f'UPDATE OR IGNORE "{table}" SET "{column}" = ? WHERE {some}', (value,)),
            (f'UPDATE OR IGNORE "{table}" SET "{column}" = ? WHERE {some}', (value,)),
            (f'UPDATE OR IGNORE "{table}" SET "{column}" = -"{column}" WHERE {some}', ()),
            (f'UPDATE OR IGNORE "{table}" SET "{column}" = "{random.choice(columns)}" WHERE {some}', ()),
            (f'DELETE FROM "{table}" WHERE {some}', ()),
            (f'DELETE FROM "{table}"', ()),
            (f'INSERT OR IGNORE INTO "{table}" SELECT * FROM "{table}"', ()),
            (f'ALTER TABLE "{table}" DROP COLUMN "{column}"', ()),
            (f'ALTER TABLE "{table}" RENAME COLUMN "{column}" TO "{column}_"', ()),
            (f'DROP TABLE "{table}"', ()),
        ]
    )
    try:
        connection.execute(statement, values)
    except (sqlite3.DatabaseError, OverflowError, UnicodeEncodeError):
        return  # not possible with this table


def pack(random, data):
    """The same within gzip, now and then cut or damaged there."""
    packed = gzip.compress(data, 1, mtime=0)
    return mutate_bytes(random, packed, [packed]) if random.randrange(2) else packed
