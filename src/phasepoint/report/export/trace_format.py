"""Events of the Chrome trace format, as JSON text, one line each; times exact to the picosecond.

Source: "Trace Event Format" (Google, 2016). `ts` and `dur` are microseconds; six decimals make them picoseconds.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

_PS_PER_US = 1_000_000


@dataclass(frozen=True)
class Track:
    """A line of the viewer: a thread of a process, by the numbers that the format wants."""

    process: int
    thread: int


def microseconds(time_ps: int) -> str:
    """Picoseconds as a JSON number of microseconds with all its digits."""
    sign = "-" if time_ps < 0 else ""
    whole, part = divmod(abs(time_ps), _PS_PER_US)
    return f"{sign}{whole}.{part:06d}" if part else f"{sign}{whole}"


def complete(track: Track, name: str, start_ps: int, dur_ps: int, args: Mapping[str, object]) -> str:
    """A stretch of time with a name (`X`); an unknown argument is left out."""
    known = {key: value for key, value in args.items() if value is not None}
    return (
        f'{{"ph":"X",{_where(track)},"ts":{microseconds(start_ps)},"dur":{microseconds(dur_ps)},'
        f'"name":{json.dumps(name)},"args":{json.dumps(known)}}}'
    )


def flow(track: Track, flow_id: str, at_ps: int, *, is_start: bool) -> str:
    """One end of an arrow from a launch to its execution (`s`, `f`)."""
    kind = '"ph":"s"' if is_start else '"ph":"f","bp":"e"'
    where = f'{_where(track)},"ts":{microseconds(at_ps)},"id":{json.dumps(flow_id)}'
    return f'{{{kind},"cat":"launch","name":"launch",{where}}}'


def counter(process: int, name: str, at_ps: int, value: float) -> str:
    """One sample of a counter of a process (`C`)."""
    sample = json.dumps({"value": value}, allow_nan=False)
    head = f'"ph":"C","pid":{process},"tid":0,"ts":{microseconds(at_ps)}'
    return f'{{{head},"name":{json.dumps(name)},"args":{sample}}}'


def process_name(process: int, name: str) -> str:
    """What a process is called (`M`)."""
    return f'{{"ph":"M","pid":{process},"tid":0,"name":"process_name","args":{{"name":{json.dumps(name)}}}}}'


def process_order(process: int, index: int) -> str:
    """Where a process stands in the viewer (`M`)."""
    return f'{{"ph":"M","pid":{process},"tid":0,"name":"process_sort_index","args":{{"sort_index":{index}}}}}'


def thread_name(track: Track, name: str) -> str:
    """What a track is called (`M`)."""
    return f'{{"ph":"M",{_where(track)},"name":"thread_name","args":{{"name":{json.dumps(name)}}}}}'


def thread_order(track: Track, index: int) -> str:
    """Where a track stands within its process (`M`)."""
    return f'{{"ph":"M",{_where(track)},"name":"thread_sort_index","args":{{"sort_index":{index}}}}}'


def _where(track: Track) -> str:
    return f'"pid":{track.process},"tid":{track.thread}'
