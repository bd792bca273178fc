"""Sums of the analyses against a slow oracle that looks at every span and every nanosecond by itself."""

from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stack_runs import NS, run_of, span

from phasepoint.core.tables import table_from_rows
from phasepoint.stack.analyses.table import find_analysis
from phasepoint.stack.shard.shard import StackShard

LAYERS = ("M/a", "M/b", "M/c")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return run_of(tmp_path_factory.mktemp("empty") / "run", [])


class Spans(StackShard):
    """A shard with given spans."""

    def __init__(self, run, rows):
        super().__init__(run, run.shards[0])
        self._tables["spans"] = table_from_rows("spans", rows)


@st.composite
def traces(draw):
    """Host spans that nest on two threads, and kernels that some of them launched; some have a layer of their own."""
    rows = []

    def nest(track, low, high, parent, depth):
        place = low
        while place < high and len(rows) < 30 and draw(st.integers(0, 3)):
            start = draw(st.integers(place, high))
            end = draw(st.integers(start, high))
            number = len(rows)
            layer = draw(st.sampled_from((None, None, *LAYERS)))
            direction = draw(st.sampled_from((None, None, "forward", "backward")))
            level = draw(st.sampled_from(("layer", "op", "runtime")))
            common = {"device": "host", "track": track, "category": "host", "parent": parent}
            rows.append({"span": number, **span(start, end, level=level, layer=layer, direction=direction, **common)})
            if depth < 3:
                nest(track, start, end, number, depth + 1)
            place = end + draw(st.integers(0, 2))

    for track in ("main", "autograd"):
        nest(track, 0, 40, None, 0)
    n_host = len(rows)
    for _ in range(draw(st.integers(0, 12))):
        start = draw(st.integers(0, 50))
        device = draw(st.sampled_from(("gpu:0", "gpu:1")))
        launch = draw(st.none() | st.integers(0, n_host - 1)) if n_host else None
        name, stream = draw(st.sampled_from(("gemm", "relu"))), draw(st.sampled_from(("1", "2")))
        one = span(start, start + draw(st.integers(0, 9)), name=name, device=device, track=f"{device} {stream}")
        rows.append({"span": len(rows), **one, "launch": launch})
    return rows


def above(rows, row, column):
    """A span's own value, else that of the nearest above it by launch and parent."""
    while row is not None:
        if row[column] is not None:
            return row[column]
        up = row.get("launch") if row.get("launch") is not None else row.get("parent")
        row = None if up is None else rows[up]
    return None


def filled(rows):
    return [{"layer": None, "direction": None, "launch": None, **row} for row in rows]


def kernels_of(rows):
    return [row for row in rows if row["level"] == "kernel"]


def result(name, shard):
    return find_analysis(name).of_shard(shard).rows.to_pylist()


@settings(max_examples=150)
@given(rows=traces())
def test_kernels_by_name_layer_and_model_add_up_to_the_device_time(run, rows):
    rows = filled(rows)
    shard = Spans(run, rows)
    has_layers = any(row["layer"] for row in rows)
    by_name, by_layer, by_device, attributed = (defaultdict(int) for _ in range(4))
    for row in kernels_of(rows):
        layer = above(rows, row, "layer")
        by_name[row["device"], row["name"]] += row["dur_ps"]
        by_layer[row["device"], layer] += row["dur_ps"]
        by_device[row["device"]] += row["dur_ps"]
        attributed[row["device"]] += row["dur_ps"] if layer else 0
    assert {(r["device"], r["name"]): r["device_ps"] for r in result("A10", shard)} == by_name
    if not has_layers:
        return  # operations stand for layers: another test
    found = result("A11", shard)
    assert {(r["device"], r["layer"]): r["device_ps"] for r in found} == by_layer
    model = {r["device"]: r for r in result("A15", shard)}
    assert {device: r["device_ps"] for device, r in model.items()} == by_device
    for device, r in model.items():
        assert r["attributed_ps"] == attributed[device]
        assert r["unattributed_ps"] == by_layer.get((device, None), 0)
        assert sum(one["device_ps"] for one in found if one["device"] == device) == r["device_ps"]
        assert sum(one["kernels"] for one in found if one["device"] == device) == r["kernels"]
    assert sum(r["time_ps"] for r in result("A8", shard)) == sum(by_device.values())


@settings(max_examples=150)
@given(rows=traces())
def test_latency_of_a_layer_is_every_nanosecond_in_which_its_own_work_ran(run, rows):
    rows = filled(rows)
    if not any(row["layer"] for row in rows):
        return
    shard = Spans(run, rows)
    at_work, on_device = defaultdict(set), defaultdict(set)
    hosts = [row for row in rows if row["level"] != "kernel"]
    for track in {row["track"] for row in hosts}:
        for ns in range(60):
            running = [
                r for r in hosts if r["track"] == track and r["start_ps"] <= ns * NS < r["start_ps"] + r["dur_ps"]
            ]
            if running:  # the innermost is the one that was begun last
                inner = max(running, key=lambda r: (r["start_ps"], -r["dur_ps"], r["span"]))
                at_work[above(rows, inner, "layer"), above(rows, inner, "direction")].add(ns)
    for row in kernels_of(rows):
        key = above(rows, row, "layer"), above(rows, row, "direction")
        ran = range(row["start_ps"] // NS, (row["start_ps"] + row["dur_ps"]) // NS)
        at_work[key].update(ran)
        on_device[key].update(ran)
    found = {(r["layer"], r["direction"]): r for r in result("A13", shard)}
    for key, instants in at_work.items():
        if key[0] is not None:
            assert found[key]["latency_ps"] == len(instants) * NS
    for key, r in found.items():
        assert r["device_ps"] == len(on_device[key]) * NS
        assert r["latency_ps"] == r["device_ps"] + r["non_device_ps"]
        assert key[0] is not None or r["non_device_ps"] == 0
    whole = defaultdict(set)
    for (layer, _), instants in at_work.items():
        if layer is not None:
            whole[layer] |= instants
    latency = {r["layer"]: r["latency_ps"] for r in result("A3", shard) if r["layer"]}
    assert {layer: ps for layer, ps in latency.items() if ps} == {k: len(v) * NS for k, v in whole.items() if v}
    by_type = result("A6", shard)
    assert sum(r["latency_ps"] for r in by_type if r["type"]) == sum(latency.values())
