"""What the report computes beyond the summary, each against a slow oracle or values counted by hand."""

import json
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_run import EVAL, OPS, WINDOW_STEPS, WINDOWS, step_rows
from sample_findings import sample_findings

from phasepoint.core.units import PS_PER_MS
from phasepoint.report.documents import to_json
from phasepoint.report.html.data import page_data
from phasepoint.summary.analysis import analyse_run
from phasepoint.summary.details import (
    BINS,
    LEAST_SHARE,
    MAX_DEPTH,
    NO_LAYER,
    WHY_NOT,
    adjusted_rand_index,
    build_distribution,
    build_layer_tree,
    compare_methods,
)
from phasepoint.summary.representative import MAX_SPANS, _trace
from phasepoint.summary.roofline import OpCost, find_peaks, read_op_costs, roofline_points

SMALL = st.integers(0, 10**6)


def cost(op, layer, self_ps, flop=None, size=None):
    return OpCost(op, "compute", layer, 1, self_ps, flop, size)


def test_layers_by_hand():
    costs = [cost("dot", "Net/Dense", 60, 10, 5), cost("add", "Net/Dense", 30, 2, 8), cost("copy", None, 10)]
    tree = build_layer_tree(costs, 4, root="train")
    assert [(n.name, n.parent, n.is_op, n.self_ps, n.flop, n.bytes) for n in tree.nodes] == [
        ("train", None, False, 100, 12, 13),
        ("Net", 0, False, 90, 12, 13),
        ("Dense", 1, False, 90, 12, 13),
        ("dot", 2, True, 60, 10, 5),
        ("add", 2, True, 30, 2, 8),
        (NO_LAYER, 0, False, 10, 0, 0),
        ("compute", 5, False, 10, 0, 0),
        ("copy", 6, True, 10, 0, 0),
    ]
    assert (tree.steps, tree.costs_known_ps, tree.layers_known_ps) == (4, 90, 90)


layers = st.none() | st.lists(st.sampled_from(["Net", "a", "b", "<c>"]), min_size=1, max_size=20).map("/".join)
op_costs = st.builds(
    cost, st.text(max_size=3), layers, SMALL, st.none() | SMALL, st.none() | SMALL
)  # few names, so that they meet


@given(st.lists(op_costs, max_size=30))
def test_every_node_is_the_sum_of_those_below_it(costs):
    nodes = build_layer_tree(costs, 1, root="all").nodes
    below = {}
    for i, node in enumerate(nodes):
        if node.parent is not None:
            assert node.parent < i
            below.setdefault(node.parent, []).append(node)
    for i, children in below.items():
        for name in ("self_ps", "flop", "bytes"):
            assert getattr(nodes[i], name) == sum(getattr(child, name) for child in children)
    assert all(node.is_op == (i not in below) for i, node in enumerate(nodes[1:], 1))
    assert nodes[0].self_ps == sum(one.self_ps for one in costs)


def test_what_is_too_small_to_see_is_one_node_and_deep_paths_end():
    costs = [cost(f"op{i}", "Net", 1) for i in range(500)] + [cost("big", "/".join("abcdefghijklmnopqrst"), 10**6)]
    nodes = build_layer_tree(costs, 1, root="all").nodes
    assert [n.self_ps for n in nodes if n.name == "500 smaller ones"] == [500]
    assert LEAST_SHARE * nodes[0].self_ps > 500
    depth = {0: 0}
    for i, node in enumerate(nodes[1:], 1):
        depth[i] = depth[node.parent] + 1
    assert max(depth.values()) == MAX_DEPTH + 1


@given(st.lists(st.integers(0, 10**13), min_size=1, max_size=300))
def test_a_histogram_counts_every_step_once(values):
    found = build_distribution(np.array(values, np.int64))
    assert sum(found.counts) + found.beyond == len(values)
    assert len(found.edges_ps) == len(found.counts) + 1 <= BINS + 1
    assert found.longest_ps == max(values)
    assert found.beyond == sum(value > found.edges_ps[-1] for value in values)
    for i, (low, high) in enumerate(zip(found.edges_ps, found.edges_ps[1:], strict=False)):
        is_last = i == len(found.counts) - 1
        assert found.counts[i] == sum(low <= v < high or (is_last and v == high) for v in values)


def test_one_very_long_step_stands_apart():
    found = build_distribution(np.array([*range(1000, 2000), 10**12], np.int64))
    assert found.edges_ps[-1] < 2000
    assert found.beyond == 10


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=2, max_size=40))
def test_agreement_is_the_adjusted_rand_index(pairs):
    from sklearn.metrics import adjusted_rand_score

    a, b = (np.array(side, np.int64) for side in zip(*pairs, strict=True))
    assert adjusted_rand_index(a, b) == pytest.approx(adjusted_rand_score(a, b), abs=1e-9)


def test_costs_are_those_of_the_ops_table(opened):
    run, _, _ = opened
    analysis = analyse_run(run)
    phase_of = dict(zip([row["step"] for row in step_rows()], analysis.labels.tolist(), strict=True))
    expected = Counter()
    for first in WINDOWS:
        for step in range(first, first + WINDOW_STEPS):
            for name, _, self_ms in [("eval_fusion.9", "", 90)] if step in EVAL else OPS:
                expected[phase_of[step], name] += self_ms * PS_PER_MS
    found = {(phase, one.op): one.self_ps for phase, costs in read_op_costs(analysis).items() for one in costs}
    assert found == expected


def test_flop_and_bytes_are_of_the_op_s_own_program(tmp_path):
    """Two programs of one name, compiled for two batch sizes: the instruction of the right one counts."""
    from made_run import run_tables

    from phasepoint.core.tables import table_from_rows
    from phasepoint.store import create_run, open_run, open_shard

    create_run(tmp_path / "run", command=("x",), frameworks={}, devices=("cpu",))
    tables = run_tables(step_rows())
    for row in tables["ops"]:
        row["program"] = 1 if row["step"] < 50 else 2
    base = {"computation": "main", "opcode": "dot", "category": "compute", "shape": "f32[]", "operands": []}
    base |= {"calls": [], "is_root": True, "is_entry": True, "layer": "Net/<b>"}
    tables["programs"] = [{"program": i, "name": "jit_f", "first_window": 0, "instructions": 1} for i in (1, 2)]
    tables["instructions"] = [{"program": i, "op": "fusion.1", "flop": 100 * i, "bytes": 7, **base} for i in (1, 2)]
    writer = open_shard(tmp_path / "run", 0, epoch_unix_ns=10**18, clock=lambda: 10**18 + 10**13)
    for name, rows in tables.items():
        writer.append(name, table_from_rows(name, rows))
    writer.close()
    costs = [c for costs in read_op_costs(analyse_run(open_run(tmp_path / "run"))).values() for c in costs]
    seen = [first + i for first in WINDOWS for i in range(WINDOW_STEPS) if first + i not in EVAL]
    assert sum(c.flop or 0 for c in costs) == sum(2 * (100 if step < 50 else 200) for step in seen)
    assert sum(c.bytes or 0 for c in costs) == 2 * 7 * len(seen)
    assert all(c.flop is None for c in costs if c.op != "fusion.1")


def test_roofline_points_by_hand():
    costs = [cost("a", "L", 2 * 10**12, 4000, 500), cost("b", None, 10**12, None, 5), cost("c", None, 0, 5, 5)]
    (point,) = roofline_points(costs)
    assert (point.op, point.flop_per_byte, point.flop_per_s) == ("a", 8.0, 2000.0)


def _run_with(*devices):
    return SimpleNamespace(shards=[SimpleNamespace(session=SimpleNamespace(devices=devices))])


def test_peaks_are_the_device_s_or_there_is_a_reason():
    peaks, why = find_peaks(_run_with("gpu:0 NVIDIA H200", "gpu:1 NVIDIA H200"))
    assert why is None
    assert peaks.memory_bytes_per_s == 4.8e12
    assert peaks.rates[0].flop_per_s == max(rate.flop_per_s for rate in peaks.rates)
    assert all(rate.source for rate in peaks.rates)
    assert "no peak rates are known for device 'cpu'" in find_peaks(_run_with("cpu"))[1]
    assert "several kinds" in find_peaks(_run_with("gpu:0 NVIDIA H200", "cpu"))[1]
    assert "does not name" in find_peaks(_run_with())[1]


def test_the_trace_is_the_spans_of_the_step(near):
    trace = near.phases[0].trace
    assert (trace.window, trace.step) == (0, 10)
    assert trace.tracks == ("cpu:0 · worker 1", "host · main")
    spans = [
        (trace.tracks[t], trace.names[n], s, d, depth)
        for t, n, s, d, depth in zip(trace.track, trace.name, trace.start, trace.dur, trace.depth, strict=True)
    ]
    ms = PS_PER_MS
    assert [(track, start, dur, depth) for track, _, start, dur, depth in spans] == [
        ("host · main", 0, 2 * ms, 0),
        ("cpu:0 · worker 1", 3 * ms, 20 * ms, 0),
        ("cpu:0 · worker 1", 4 * ms, 3 * ms, 1),
    ]
    assert trace.dur_ps == 23 * ms
    assert trace.left_out == 0


def test_only_the_longest_spans_of_a_large_step_are_kept(opened):
    import pyarrow as pa
    import pyarrow.compute as pc

    spans = opened[0].table("spans")
    rows = spans.filter((pc.field("window") == 0) & (pc.field("step") == 10))
    few = pa.concat_tables([rows] * 2000)
    n = few.num_rows
    dur = pa.array(np.arange(n)[::-1] + 1)
    numbered = pa.array(np.arange(n))
    for name, column in (("dur_ps", dur), ("span", numbered), ("parent", pa.nulls(n, pa.int64()))):
        few = few.set_column(few.schema.get_field_index(name), name, column)
    trace = _trace(few)
    assert len(trace.start) == MAX_SPANS
    assert trace.left_out == n - MAX_SPANS
    assert min(trace.dur) == n - MAX_SPANS + 1


def test_methods_side_by_side(opened, near):
    rows = {row.method: row for row in near.methods}
    assert list(rows) == ["recurrent", "ols", "kmeans", "dbscan"]
    assert rows["recurrent"].chosen
    assert rows["recurrent"].agreement == 1
    assert rows["recurrent"].phases == len(opened[1].phases)
    assert rows["recurrent"].strip == opened[1].strip
    assert rows["ols"].why_not is None
    assert rows["kmeans"].why_not == rows["dbscan"].why_not == WHY_NOT
    every = compare_methods(analyse_run(opened[0]), 0, every=True)
    assert all(row.why_not is None and 0 <= row.top_share <= 1 for row in every)


def _numbers(value):
    if isinstance(value, dict):
        return set().union(*map(_numbers, value.values()), set())
    if isinstance(value, list):
        return set().union(*map(_numbers, value), set())
    return {value} if isinstance(value, int | float) and not isinstance(value, bool) else set()


def test_every_number_on_the_page_is_in_the_document(opened, near):
    _, summary, timeline = opened
    document = {"summary": summary, "timeline": timeline, "details": near, "findings": sample_findings()}
    known = _numbers(json.loads(to_json("report", document)))
    drawn = _numbers(json.loads(json.dumps(page_data(summary, timeline, near))))
    end = summary.strip[-1].start_ps + summary.strip[-1].dur_ps
    assert drawn - known <= {end}
    assert end == timeline.end_ps


def test_every_exact_value_in_a_table_is_in_the_document(opened, near):
    import re

    from phasepoint.report.html.page import summary_html

    _, summary, timeline = opened
    document = {"summary": summary, "timeline": timeline, "details": near, "findings": sample_findings()}
    known = _numbers(json.loads(to_json("report", document)))
    html = summary_html(summary, timeline, sample_findings(), near)
    cells = [float(text) for text in re.findall(r'data-v="([^"]+)"', html)]
    assert len(cells) > 50
    assert set(cells) <= known
