"""Small XSpaces by hand: `PlaneBuilder(space, name).event(line, name, start_ps, dur_ps, hlo_op="dot")`."""

from xplane_schema.messages import XSpace


class PlaneBuilder:
    def __init__(self, space, name, *, timestamp_ns=0):
        self.plane = space.planes.add(name=name)
        self.timestamp_ns = timestamp_ns
        self._events, self._stats, self._lines = {}, {}, {}

    def line(self, name):
        if name not in self._lines:
            self._lines[name] = self.plane.lines.add(id=len(self._lines) + 1, name=name, timestamp_ns=self.timestamp_ns)
        return self._lines[name]

    def stat_id(self, name):
        if name not in self._stats:
            self._stats[name] = len(self._stats) + 1
            entry = self.plane.stat_metadata.add(key=self._stats[name])
            entry.value.id, entry.value.name = self._stats[name], name
        return self._stats[name]

    def metadata(self, name, *, display_name="", **stats):
        key = (name, display_name)
        if key not in self._events:
            self._events[key] = len(self._events) + 1
            entry = self.plane.event_metadata.add(key=self._events[key])
            entry.value.id, entry.value.name, entry.value.display_name = self._events[key], name, display_name
            self._fill(entry.value.stats, stats)
        return self._events[key]

    def event(self, line, name, start_ps, dur_ps, *, display_name="", of_metadata=None, inline=False, **stats):
        metadata_id = self.metadata(name, display_name=display_name, **(of_metadata or {}))
        event = self.line(line).events.add(metadata_id=metadata_id, offset_ps=start_ps, duration_ps=dur_ps)
        self._fill(event.stats, stats, inline=inline)
        return event

    def plane_stats(self, **stats):
        self._fill(self.plane.stats, stats)

    def _fill(self, stats, values, *, inline=False):
        for name, value in values.items():
            stat = stats.add(metadata_id=self.stat_id(name))
            if isinstance(value, bytes):
                stat.bytes_value = value
            elif isinstance(value, str) and inline:
                stat.str_value = value
            elif isinstance(value, str):
                stat.ref_value = self.stat_id(value)
            elif isinstance(value, float):
                stat.double_value = value
            else:
                stat.int64_value = value


def environment(space, start_unix_ns):
    PlaneBuilder(space, "Task Environment").plane_stats(profile_start_time=start_unix_ns)


def new_space():
    return XSpace()
