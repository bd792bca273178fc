"""Runs of a few spans, written through the store, for tests of the stack."""

from types import SimpleNamespace

from phasepoint.core.tables import TABLES, table_from_rows
from phasepoint.store import create_run, open_run, open_shard

START_NS = 1_700_000_000_000_000_000
NS = 1_000

_SPAN = {"window": 0, "parent": None, "level": "kernel", "category": "compute", "device": "gpu:0", "track": "stream 7"}


def kernel(start_ns, end_ns, **fields):
    """A kernel of `gpu:0` that some span launched."""
    return span(start_ns, end_ns, **{"launch": 0, **fields})


def span(start_ns, end_ns, *, name="k", **fields):
    """A span between two times in ns."""
    dur_ps = (end_ns - start_ns) * NS
    return {**_SPAN, "name": name, "start_ps": start_ns * NS, "dur_ps": dur_ps, "self_ps": dur_ps, **fields}


def run_of(path, *hosts, **tables):
    """A run with a shard for each list of spans; `tables` are rows of other tables of the first shard."""
    create_run(path, command=("python", "train.py"), frameworks={"torch": "2.13"}, devices=("gpu:0",))
    for host, spans in enumerate(hosts):
        times = iter((START_NS,))
        writer = open_shard(path, host, epoch_unix_ns=START_NS, clock=lambda times=times: next(times, START_NS + 10**9))
        writer.append("spans", table_from_rows("spans", [{"span": i, **row} for i, row in enumerate(spans)]))
        for name, rows in (tables if host == 0 else {}).items():
            assert name in TABLES
            writer.append(name, table_from_rows(name, rows))
        writer.close()
    return open_run(path)


class ShardOf:
    """A shard whose tables' rows are given; spans are numbered as they stand."""

    def __init__(self, *, host=0, epoch_unix_ns=START_NS, **tables):
        self.host = host
        self.shard = SimpleNamespace(name=f"host={host:05d}", session=SimpleNamespace(epoch_unix_ns=epoch_unix_ns))
        spans = [{"span": i, **row} for i, row in enumerate(tables.pop("spans", ()))]
        self._tables = {name: table_from_rows(name, rows) for name, rows in {**tables, "spans": spans}.items()}

    def table(self, name, columns=None):
        table = self._tables.get(name, TABLES[name].empty)
        return table if columns is None else table.select(columns)

    def once(self, make):
        return make(self)
