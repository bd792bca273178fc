"""What is done with each damaged trace or run: it is read whole, and what comes of it has to hold."""

from collections import defaultdict
from contextlib import suppress

import fuzz_mutations
import msgspec
from fuzz_run import check_run, mutate_run, pack_tree
from fuzz_seeds import seeds

from phasepoint.core.errors import SourceError
from phasepoint.core.tables import validate_table
from phasepoint.sources.ingest.trace_file import read_file
from phasepoint.sources.ingest.trace_folders import look_at

FORMATS = ("kineto", "chrome", "xplane", "nsys", "rocprof", "jaeger", "otel", "run")
"""Of traces; `run` is a run's folder, as a tar of it."""


class Inputs:
    """Damaged traces of one format, or runs, by number: the same number and seed give the same bytes everywhere."""

    def __init__(self, format, seed, *, real=True):
        self.format, self.seed = format, seed
        self._seeds = seeds(format, real=real)
        self._bytes = [self._plain(one) for one in self._seeds]
        self.n_seeds = len(self._seeds)

    def make(self, number):
        from random import Random

        random = Random(f"{self.format} {self.seed} {number}")
        which = random.randrange(len(self._seeds))
        if number < self.n_seeds:
            return self._bytes[number]  # each seed as it is, once
        if self.format == "run":
            return mutate_run(random, self._seeds[which], self._seeds)
        data = self._mutate(random, self._seeds[which]) if random.random() < 0.7 else self._bytes[which]
        if data is self._bytes[which] or random.random() < 0.25:
            data = fuzz_mutations.mutate_bytes(random, data, self._bytes)
        return fuzz_mutations.pack(random, data) if random.random() < 0.05 else data

    def _mutate(self, random, seed):
        if self.format == "nsys":
            return fuzz_mutations.mutate_database(random, seed)
        if self.format == "xplane":
            return fuzz_mutations.mutate_message(random, seed)
        return fuzz_mutations.mutate_json(random, self._plain(seed))

    def _plain(self, seed):
        if isinstance(seed, bytes):
            return seed
        if self.format == "run":
            return pack_tree(seed)
        return seed.SerializeToString() if self.format == "xplane" else msgspec.json.encode(seed)


def check(path, format):
    """Read a file as a trace of a format, or as a run; returns whether anything was in it.

    Raises:
        AssertionError: what was read does not hold.
    """
    if format == "run":
        return check_run(path)
    with suppress(SourceError):
        look_at(path)
    try:
        with read_file(path, format) as read:
            _check_read(read)
    except SourceError:
        return False
    return True


def _check_read(read):
    n_spans, walls = 0, defaultdict(int)
    validate_table("steps", _whole_steps(read.steps))
    durations = dict(zip(read.steps["step"].to_pylist(), read.steps["dur_ps"].to_pylist(), strict=True))
    assert all(dur_ps >= 0 for dur_ps in durations.values())
    for tables in read.tables():
        for name, table in tables.items():
            validate_table(name, table).validate(full=True)
        if "spans" in tables:
            n_spans += tables["spans"].num_rows
            assert min(tables["spans"]["dur_ps"].to_pylist(), default=0) >= 0
            assert min(tables["spans"]["self_ps"].to_pylist(), default=0) >= 0
        for row in tables["breakdowns"].to_pylist() if "breakdowns" in tables else ():
            assert row["wall_ps"] >= 0
            walls[row["step"], row["device"]] += row["wall_ps"]
    assert all(walls[step, device] == durations[step] for step, device in walls), "breakdowns do not close"
    (row,) = read.conversion().to_pylist()
    assert row["spans"] == n_spans
    assert row["events"] == row["spans"] + row["ignored_events"] + row["dropped_events"], "events do not add up"


def _whole_steps(steps):
    from phasepoint.core.tables import table_from_columns

    return table_from_columns("steps", steps.select(["step", "start_ps", "dur_ps"]).to_pydict())
