import numpy as np
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stack_runs import span

from phasepoint.core.tables import LEVELS, table_from_rows
from phasepoint.stack.shard.hierarchy import NONE, find_rows, inherited, nearest_above


def enclosing(spans, level):
    """The nearest span of a level above each."""
    return nearest_above(spans, pc.equal(spans["level"], level).to_numpy())


def spans_of(*rows):
    return table_from_rows("spans", [{"span": i, **row} for i, row in enumerate(rows)])


def host(level, **fields):
    return span(0, 10, level=level, device="host", track="main", category="host", **fields)


def kernel(**fields):
    return span(20, 30, **fields)


CHAIN = (
    host("model", name="step"),
    host("layer", name="net/dense", parent=0, layer="net/dense", direction="forward"),
    host("op", name="aten::linear", parent=1),
    host("op", name="aten::addmm", parent=2),
    host("runtime", name="cudaLaunchKernel", parent=3),
    kernel(name="gemm", launch=4),
    kernel(name="orphan"),
)


def test_a_kernel_stands_under_what_launched_it():
    spans = spans_of(*CHAIN)
    assert enclosing(spans, "runtime").tolist() == [NONE, NONE, NONE, NONE, NONE, 4, NONE]
    assert enclosing(spans, "op").tolist() == [NONE, NONE, NONE, 2, 3, 3, NONE]
    assert enclosing(spans, "layer").tolist() == [NONE, NONE, 1, 1, 1, 1, NONE]
    assert enclosing(spans, "model").tolist() == [NONE, 0, 0, 0, 0, 0, NONE]


def test_a_layer_and_a_direction_are_handed_down():
    spans = spans_of(*CHAIN)
    assert inherited(spans, "layer").to_pylist() == [None, *["net/dense"] * 5, None]
    assert inherited(spans, "direction").to_pylist() == [None, *["forward"] * 5, None]


def test_a_launch_outside_every_layer_leaves_the_layer_of_its_own_track():
    spans = spans_of(
        span(0, 50, level="layer", layer="net"),
        host("runtime", name="cudaGraphLaunch"),
        kernel(launch=1, parent=0),
    )
    assert enclosing(spans, "layer").tolist() == [NONE, NONE, 0]
    assert inherited(spans, "layer").to_pylist() == ["net", None, "net"]


def test_numbers_count_within_their_window():
    rows = [host("op", window=3, span=7), kernel(window=3, span=9, launch=7), kernel(window=4, span=9, launch=7)]
    spans = table_from_rows("spans", rows)
    assert enclosing(spans, "op").tolist() == [NONE, 0, NONE]
    wanted = np.array([3, 4, 4, 5]), np.array([9, 9, 7, 9])
    assert find_rows(spans, *wanted).tolist() == [1, 2, NONE, NONE]


def test_spans_that_enclose_each_other_in_a_circle_lead_nowhere():
    spans = spans_of(host("op", parent=1), host("op", parent=0), host("op", parent=2), host("op", parent=40))
    assert enclosing(spans, "layer").tolist() == [NONE] * 4


def test_no_spans_have_nothing_above():
    spans = spans_of()
    assert enclosing(spans, "op").tolist() == []
    assert inherited(spans, "layer").to_pylist() == []


@st.composite
def forests(draw):
    """Spans whose parent or launch stands before or after them, in windows, numbered with or without holes."""
    n = draw(st.integers(1, 20))
    stride = draw(st.sampled_from((1, 1, 3)))
    rows = []
    for window in range(draw(st.integers(1, 2))):
        rank = draw(st.permutations(range(n)))
        for i in range(n):
            below = [j for j in range(n) if rank[j] < rank[i]]
            refer = st.none() | st.sampled_from([j * stride for j in below]) if below else st.none()
            rows.append(
                kernel(
                    window=window,
                    span=i * stride,
                    parent=draw(refer),
                    launch=draw(refer),
                    level=draw(st.sampled_from(LEVELS)),
                    layer=draw(st.sampled_from((None, None, "a", "b"))),
                )
            )
    return rows


def climb(rows, i, stop):
    """The first row above row i at which to stop: launches first, then, if that leads nowhere, its own parent."""
    at = {(row["window"], row["span"]): k for k, row in enumerate(rows)}

    def first(k, columns):
        number = next((rows[k][c] for c in columns if rows[k][c] is not None), None)
        if number is None:
            return None
        above = at[rows[k]["window"], number]
        return above if stop(rows[above]) else first(above, ("launch", "parent"))

    found = first(i, ("launch", "parent"))
    return first(i, ("parent",)) if found is None and rows[i]["launch"] is not None else found


@pytest.mark.parametrize("level", ["layer", "kernel"])
@settings(max_examples=100)
@given(rows=forests())
def test_the_nearest_span_above_is_found_as_by_climbing(level, rows):
    spans = table_from_rows("spans", rows)
    found = [None if row == NONE else row for row in enclosing(spans, level).tolist()]
    assert found == [climb(rows, i, lambda row: row["level"] == level) for i in range(len(rows))]
    expected = []
    for i, row in enumerate(rows):
        above = i if row["layer"] else climb(rows, i, lambda row: row["layer"])
        expected.append(None if above is None else rows[above]["layer"])
    assert inherited(spans, "layer").to_pylist() == expected
