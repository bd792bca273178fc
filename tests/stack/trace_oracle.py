"""What ran on each device, read straight from files of profilers: slow, exact, and sharing no code with the readers.

Every oracle gives the executions by device: whole picoseconds, and whether the file holds their launch.
"""

import gzip
import json
import sqlite3
from collections import defaultdict
from decimal import Decimal

PS_PER_US = 10**6
PS_PER_NS = 10**3


def union_ps(intervals):
    """Time covered by intervals."""
    total, reach = 0, None
    for start, end in sorted(intervals):
        if reach is None or start > reach:
            total += end - start
            reach = end
        elif end > reach:
            total += end - reach
            reach = end
    return total


def totals(executions):
    """What device time says of a device, from (start, end, launched) of its executions."""
    return {
        "span_ps": max(end for _, end, _ in executions) - min(start for start, _, _ in executions),
        "busy_ps": union_ps((start, end) for start, end, _ in executions),
        "orphan_ps": union_ps((start, end) for start, end, launched in executions if not launched),
        "orphan_events": sum(not launched for _, _, launched in executions),
        "events": len(executions),
    }


def kineto_executions(path):
    """Kernels, copies, fills and commands of a device's control processor; without any of them, ATen ops."""
    document = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal, parse_int=Decimal)
    events = [e for e in document["traceEvents"] if e.get("ph") == "X" and "cat" in e]
    calls = [e for e in events if e["cat"].endswith(("_runtime", "_driver"))]
    known = {e["args"]["correlation"] for e in calls if "correlation" in e.get("args", ())}
    found = defaultdict(list)
    for e in events:
        if e["cat"] in ("kernel", "gpu_memcpy", "gpu_memset", "mtia_ccp_events"):
            family = "mtia" if e["cat"].startswith("mtia") else "gpu"
            number = e["args"].get("device", e["pid"])
            found[f"{family}:{number}"].append((*_stretch(e), e["args"].get("correlation") in known))
    if not found:
        found["cpu:0"] = [(*_stretch(e), True) for e in events if e["cat"] == "cpu_op"]
    return found


def _stretch(event):
    start, dur = event["ts"] * PS_PER_US, event["dur"] * PS_PER_US
    assert start == int(start)
    assert dur == int(dur)
    return int(start), int(start + dur)


def xplane_executions(path):
    """Events of the streams of the GPUs' planes; launched where an event of the host has their correlation id."""
    space = path.read_bytes()
    planes = [_plane(content) for number, content in _fields(space) if number == 1]
    known = {
        event["correlation_id"]
        for name, lines in planes
        if name.startswith("/host:")
        for _, _, events in lines
        for event in events
        if "correlation_id" in event
    }
    found = {}
    for name, lines in planes:
        events = [
            (1000 * time_ns + event["offset_ps"], event["dur_ps"], event.get("correlation_id") in known)
            for line, time_ns, events in lines
            if line.startswith("Stream #")
            for event in events
        ]
        if name.startswith("/device:GPU:") and events:
            number = name.removeprefix("/device:GPU:")
            found[f"gpu:{number}"] = [(start, start + dur, launched) for start, dur, launched in events]
    return found


def _plane(content):
    """Name of an XPlane, and (name, start in ns, events) of its lines."""
    name, lines, stats = "", [], {}
    for number, value in _fields(content):
        if number == 2:
            name = value.decode()
        elif number == 3:
            lines.append(value)
        elif number == 5:
            entry = dict(_fields(dict(_fields(value))[2]))
            stats[entry.get(1, 0)] = entry.get(2, b"").decode()
    return name, [_line(line, stats) for line in lines]


def _line(content, stats):
    fields = list(_fields(content))
    first = dict(fields)
    events = [_event(value, stats) for number, value in fields if number == 4]
    return first.get(2, b"").decode(), first.get(3, 0), events


def _event(content, stats):
    event = {"offset_ps": 0, "dur_ps": 0}
    for number, value in _fields(content):
        if number in (2, 3):
            event[{2: "offset_ps", 3: "dur_ps"}[number]] = value
        elif number == 4:
            stat = dict(_fields(value))
            if stats.get(stat.get(1, 0)) == "correlation_id":
                event["correlation_id"] = stat.get(3, stat.get(4))
    return event


def _fields(content):
    """(number, value) of a protobuf message: integers as they are, texts and messages as bytes."""
    at = 0
    while at < len(content):
        key, at = _varint(content, at)
        size = {1: 8, 5: 4}.get(key & 7)
        if key & 7 == 0:
            value, at = _varint(content, at)
        else:
            if size is None:
                size, at = _varint(content, at)
            value, at = content[at : at + size], at + size
        yield key >> 3, value


def _varint(content, at):
    value = shift = 0
    while True:
        byte = content[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def nsys_executions(path):
    """Kernels, copies and fills of an Nsight Systems export; launched where a runtime call has their correlation id."""
    found = defaultdict(list)
    with sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True) as db:
        known = set(db.execute("select globalTid >> 24, correlationId from CUPTI_ACTIVITY_KIND_RUNTIME"))
        for kind in ("KERNEL", "MEMCPY", "MEMSET"):
            query = f"select deviceId, start, end, globalPid >> 24, correlationId from CUPTI_ACTIVITY_KIND_{kind}"
            for device, start, end, process, correlation in db.execute(query):
                launched = (process, correlation) in known
                found[f"gpu:{device}"].append((start * PS_PER_NS, end * PS_PER_NS, launched))
    return found


def rocprof_executions(path):
    """Dispatches and copies of a rocprofv3 file, by agent; launched where an API call has their correlation id."""
    (tool,) = json.loads(gzip.decompress(path.read_bytes()))["rocprofiler-sdk-tool"]
    records = tool["buffer_records"]
    calls = [*records["hip_api"], *records["hsa_api"]]
    known = {call["correlation_id"]["internal"] for call in calls}
    found = defaultdict(list)
    for record in [*records["kernel_dispatch"], *records["memory_copy"]]:
        agent = record["dispatch_info"]["agent_id"] if "dispatch_info" in record else record["dst_agent_id"]
        launched = record["correlation_id"]["internal"] in known
        stretch = (record["start_timestamp"] * PS_PER_NS, record["end_timestamp"] * PS_PER_NS, launched)
        found[agent["handle"]].append(stretch)
    return found
