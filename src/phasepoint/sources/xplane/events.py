"""The compiled loop that decodes events of lines into arrays.

Bookkeeping of the profiler is recognised by the event's metadata and never becomes a row; what it says about launches
and completions is kept: a thread-pool region names the task it runs, an `end:` event says when an asynchronous op
finished.
"""

import numpy as np

from phasepoint.core.compiled import compiled
from phasepoint.core.dense import mix_key
from phasepoint.sources.xplane.wire import INTACT, LENGTH, VARINT, read_field, read_varint_at

# mypy: disable-error-code="no-untyped-def"
# ruff: noqa: ANN001, ANN201, ANN202, PLR0912, PLR0915, PLR0917, PLR1714

KEEP, IGNORE, REGION, STOP, RECORD, END = 0, 1, 2, 3, 4, 5
"""What an event is to us, by its metadata: a span; bookkeeping; a pool thread takes up a task; it is done with it;
a thread hands a task to a pool; an op completed."""

SLOTS = {
    "hlo_op": 1,
    "program_id": 2,
    "run_id": 3,
    "device_ordinal": 4,
    "correlation_id": 5,
    "step_num": 6,
    "_p": 7,
    "_c": 8,
    "device_offset_ps": 9,
    "device_duration_ps": 10,
    "_r": 11,
    "device_id": 12,
}
"""Stats of events that are read, everything else is stepped over. Source of the names: openxla/xla,
`xla/tsl/profiler/utils/xplane_schema.cc` (November 2026)."""

HAS_OP, HAS_PROGRAM, HAS_RUN = (1 << SLOTS[name] for name in ("hlo_op", "program_id", "run_id"))
HAS_CORRELATION, HAS_STEP, IS_ROOT = (1 << SLOTS[name] for name in ("correlation_id", "step_num", "_r"))
HAS_DEVICE_ID = 1 << SLOTS["device_id"]

_SLOT_OP, _SLOT_PROGRAM, _SLOT_RUN, _SLOT_ORDINAL, _SLOT_CORRELATION, _SLOT_STEP, _SLOT_P, _SLOT_C = range(1, 9)
_OP, _PROGRAM, _RUN, _ORDINAL, _CORRELATION, _STEP, _P, _C = (1 << slot for slot in range(1, 9))
_DEVICE_TIME = 1 << 9 | 1 << 10  # slots 9 and 10: offset and duration on the device's own clock
_KIND_MASK = _OP | _PROGRAM | _RUN | _CORRELATION | _STEP | IS_ROOT | HAS_DEVICE_ID
"""The plain names of slots and their bits, as compiled loops want constants."""

LIMIT_PS = 1 << 60
"""Times beyond ± 13 days of the profile's start cannot be placed: with the session's epoch they must fit 64 bits."""


# Compiled loops.


@compiled(inline="always")
def _index_of(key, lut, keys, indices):
    if 0 <= key < len(lut):
        return lut[key]
    if len(keys):
        i = np.searchsorted(keys, key)
        if i < len(keys) and keys[i] == key:
            return indices[i]
    return np.int32(-1)


@compiled()
def _read_any_event(
    data, pos, end, meta_lut, meta_ids, meta_index, meta_class, slot_lut, slot_ids, slot_index, slots, kinds
):
    """XEvent: metadata_id=1, offset_ps=2, duration_ps=3, stats=4, num_occurrences=5, in any order.

    Returns the metadata's index, offset, duration, a mask of the slots found, and whether the event can be placed.
    """
    key = offset = duration = mask = np.int64(0)
    placed = True
    while pos < end:
        number, wire, value, length, pos, state = read_field(data, pos, end)
        if state != INTACT:
            return _index_of(key, meta_lut, meta_ids, meta_index), offset, duration, mask, False
        if number == 4 and wire == LENGTH:
            slot = _read_any_stat(data, value, value + length, slot_lut, slot_ids, slot_index, slots, kinds)
            mask |= np.int64(1) << slot if slot >= 0 else np.int64(0)
        elif wire == VARINT:
            if number == 1:
                key = value
            elif number == 2:
                offset, placed = value, True
            elif number == 3:
                duration = value
            elif number == 5:
                placed = False
    return _index_of(key, meta_lut, meta_ids, meta_index), offset, duration, mask, placed


@compiled()
def _read_any_stat(data, pos, end, slot_lut, slot_ids, slot_index, slots, kinds):
    """One XStat, in any order, into its slot; -1 where nobody asked for it or its value is of another type."""
    slot = np.int32(-1)
    content = size = np.int64(0)
    kind, state = 0, INTACT
    while pos < end:
        number, wire, value, length, pos, state = read_field(data, pos, end)
        if state != INTACT:
            return np.int32(-1)
        if number == 1 and wire == VARINT:
            slot = _index_of(value, slot_lut, slot_ids, slot_index)
        elif 2 <= number <= 7 and (wire == LENGTH) == (number in {5, 6}):
            kind, content, size = number, value, length
    is_text = kind in {5, 7}
    if slot < 0 or (slot == 1) != is_text or not (is_text or kind in {3, 4}):
        return np.int32(-1)
    slots[slot] = content
    kinds[slot] = size if kind == 5 else -1
    return slot


@compiled()
def _hash_kind(data, key):
    """Equal for equal kinds; an inline text counts by its bytes, wherever it stands."""
    op = key[1]
    for i in range(key[1], key[1] + key[2]):
        op = mix_key(op if i > key[1] else np.int64(0), np.int64(data[i]), np.int64(0), np.int64(0))
    return mix_key(key[0], op, key[3], key[4] << 40 ^ key[5] << 8 ^ key[6] ^ key[2] << 20)


@compiled()
def _is_kind(data, key, known):
    for column in (0, 2, 3, 4, 5, 6):
        if known[column] != key[column]:
            return False
    for i in range(key[2]):
        if data[key[1] + i] != data[known[1] + i]:
            return False
    return key[2] > 0 or known[1] == key[1]


@compiled()
def _kind_of(data, key, kinds, n_kinds, table):
    """Number of a kind, entered at the end if it is new; and the lists, which may have grown."""
    place = _hash_kind(data, key) & (len(table) - 1)
    while table[place] >= 0:
        if _is_kind(data, key, kinds[table[place]]):
            return table[place], kinds, table
        place = (place + 1) & (len(table) - 1)
    if n_kinds == len(kinds):
        kinds = np.concatenate((kinds, np.empty_like(kinds)))
        table = np.full(4 * len(kinds), -1, np.int64)
        for i in range(n_kinds):
            place = _hash_kind(data, kinds[i]) & (len(table) - 1)
            while table[place] >= 0:
                place = (place + 1) & (len(table) - 1)
            table[place] = i
        place = _hash_kind(data, key) & (len(table) - 1)
        while table[place] >= 0:
            place = (place + 1) & (len(table) - 1)
    for column in range(7):  # assigning a row takes seconds to compile
        kinds[n_kinds, column] = key[column]
    table[place] = n_kinds
    return n_kinds, kinds, table


@compiled()
def decode_lines(data, address, bounds, base_ps, line_level, tables, outputs, careful):
    """Events of some lines into `outputs`; `careful` reads fields in any order, None the usual one only."""
    # Longer than the house likes: one loop over bytes whose state is all local; in parts it is several times as slow.
    meta_lut, meta_ids, meta_index, meta_class, slot_lut, slot_ids, slot_index = tables
    kind, start, dur, link, marks, device_times, opened, ends, entries, records = outputs
    first = np.zeros(len(bounds) + 1, np.int64)
    kinds = np.empty((256, 7), np.int64)
    table = np.full(1024, -1, np.int64)
    newest = np.full(len(meta_class), -1, np.int64)
    key = np.zeros(7, np.int64)
    slots = np.zeros(16, np.int64)
    sizes = np.zeros(16, np.int64)
    stops = np.full(len(bounds), -1, np.int64)
    n = n_marks = n_device = n_open = n_ends = n_entries = n_records = n_kinds = ignored = dropped = 0
    odd = False
    for i in range(len(bounds)):
        first[i] = n
        pos, end, state = bounds[i, 0], bounds[i, 1], INTACT
        task = run = np.int64(-1)
        last_is_op, waiting, waiting_for = False, -1, np.int64(0)
        while pos < end and state == INTACT:
            value = pos + 2
            if data[pos] == 0x22 and value <= end and data[pos + 1] < 0x80 and value + data[pos + 1] <= end:
                length = np.int64(data[pos + 1])
                pos = value + length
            else:
                before = pos
                number, wire, value, length, pos, state = read_field(data, pos, end)
                if state != INTACT:
                    stops[i] = before
                if number != 4 or wire != LENGTH:
                    continue
            if line_level[i] < 0 and state == INTACT:
                ignored += 1
                continue
            if careful is None:  # decided when this is compiled: only one of the two readers is in the loop
                # Straight through the order in which serializers write the fields, each test in its own place; a loop
                # over fields of any kind, or a call with these arrays, takes several times as long.
                stop = value + length
                number = offset = duration = mask = np.int64(0)
                at = value
                if at < stop and data[at] == 0x08:
                    number, at = read_varint_at(address, at + 1, stop)
                if 0 <= at < stop and data[at] == 0x10:
                    offset, at = read_varint_at(address, at + 1, stop)
                if 0 <= at < stop and data[at] == 0x18:
                    duration, at = read_varint_at(address, at + 1, stop)
                index = meta_lut[number] if 0 <= number < len(meta_lut) else np.int32(-1)
                if index < 0 and len(meta_ids):
                    at = -1  # an id too large for the array
                wanted = index >= 0 and meta_class[index] != IGNORE and meta_class[index] != STOP
                while 0 <= at < stop - 1 and data[at] == 0x22 and data[at + 1] < 0x80:
                    stat, at = at + 2, at + 2 + np.int64(data[at + 1])
                    if not wanted:
                        continue
                    if at > stop or at - stat <= 3 or data[stat] != 0x08 or data[stat + 1] >= 0x80:
                        at = -1
                        break
                    slot = slot_lut[data[stat + 1]]
                    if slot < 0:
                        continue
                    tag = data[stat + 2]  # uint64, int64 or reference, the last only for the op's name
                    if (slot == _SLOT_OP and tag != 0x38) or (slot != _SLOT_OP and tag != 0x18 and tag != 0x20):
                        at = -1
                        break
                    slots[slot], ended = read_varint_at(address, stat + 3, at)
                    sizes[slot] = -1
                    mask |= np.int64(1) << slot
                    if ended != at:
                        at = -1
                        break
                placed = True
                if at != stop:
                    odd = True
                    break
            else:
                index, offset, duration, mask, placed = _read_any_event(
                    data, value, value + length, meta_lut, meta_ids, meta_index, meta_class,
                    slot_lut, slot_ids, slot_index, slots, sizes,
                )  # fmt: skip
            time = base_ps[i] + offset
            fits = 0 <= duration < LIMIT_PS and -LIMIT_PS < offset < LIMIT_PS and -LIMIT_PS < time < LIMIT_PS
            if state != INTACT or index < 0 or not placed or not fits:
                dropped += 1
                continue
            what = meta_class[index]
            if what != KEEP:
                ignored += 1
                if what == END:
                    if mask & _C:
                        if waiting >= 0 and slots[_SLOT_C] == waiting_for and time <= start[waiting] + dur[waiting]:
                            waiting = -1
                        else:
                            ends[n_ends, 0], ends[n_ends, 1] = slots[_SLOT_C], time
                            n_ends += 1
                elif what == REGION:
                    task = slots[_SLOT_C] if mask & _C else np.int64(-1)
                elif what == STOP:
                    task = np.int64(-1)
                elif what == RECORD and mask & _P and not last_is_op:
                    records[n_records, 0], records[n_records, 1], records[n_records, 2] = slots[_SLOT_P], i, time
                    n_records += 1
                continue
            found = mask & _KIND_MASK
            if mask & _CORRELATION:
                found &= ~_RUN
                link[n] = slots[_SLOT_CORRELATION]
            elif mask & _RUN:
                link[n] = slots[_SLOT_RUN]
            else:
                link[n] = 0
            if mask & _STEP:
                marks[n_marks, 0], marks[n_marks, 1] = n, slots[_SLOT_STEP]
                n_marks += 1
            if mask & _DEVICE_TIME == _DEVICE_TIME and 0 <= slots[9] < LIMIT_PS and 0 <= slots[10] < LIMIT_PS:
                duration = slots[10]
                device_times[n_device, 0], device_times[n_device, 1] = n, slots[9]
                n_device += 1
            last_is_op = mask & _OP != 0
            if last_is_op and mask & _P:
                if waiting >= 0:
                    opened[n_open, 0], opened[n_open, 1] = waiting, waiting_for
                    n_open += 1
                waiting, waiting_for = n, slots[_SLOT_P]
            if last_is_op and mask & _RUN and slots[_SLOT_RUN] != run:
                run = slots[_SLOT_RUN]
                entries[n_entries, 0], entries[n_entries, 1] = n, task
                n_entries += 1
            op = slots[_SLOT_OP] if last_is_op else np.int64(0)
            op_bytes = max(sizes[_SLOT_OP], 0) if last_is_op else np.int64(0)
            program = slots[_SLOT_PROGRAM] if mask & _PROGRAM else np.int64(0)
            ordinal = slots[_SLOT_ORDINAL] & 0xFFFF if mask & _ORDINAL else np.int64(0)
            known = newest[index]
            if (
                known < 0
                or kinds[known, 1] != op
                or kinds[known, 2] != op_bytes
                or kinds[known, 3] != program
                or kinds[known, 4] != ordinal
                or kinds[known, 5] != found
                or kinds[known, 6] != line_level[i]
            ):
                key[0], key[1], key[2], key[3] = index, op, op_bytes, program
                key[4], key[5], key[6] = ordinal, found, line_level[i]
                known, kinds, table = _kind_of(data, key, kinds, n_kinds, table)
                n_kinds = max(n_kinds, known + 1)
                newest[index] = known
            kind[n], start[n], dur[n] = known, time, duration
            n += 1
        if waiting >= 0:
            opened[n_open, 0], opened[n_open, 1] = waiting, waiting_for
            n_open += 1
    first[len(bounds)] = n
    arrays = (
        first, kind[:n], start[:n], dur[:n], link[:n], kinds[:n_kinds].copy(), marks[:n_marks],
        device_times[:n_device], opened[:n_open], ends[:n_ends], entries[:n_entries], records[:n_records],
    )  # fmt: skip
    return arrays, np.array([ignored, dropped, odd]), stops
