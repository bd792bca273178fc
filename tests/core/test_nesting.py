import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phasepoint.core.intervals import union
from phasepoint.core.nesting import depths, nest_spans

spans_strategy = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 40), st.integers(0, 20), st.booleans()), max_size=16
)


def arrays(spans):
    array = np.array([s[:3] for s in spans], np.int64).reshape(-1, 3)
    return array[:, 0], array[:, 1], array[:, 1] + array[:, 2], np.array([s[3] for s in spans], np.bool_)


def paint(spans):
    """Self times, instant by instant."""
    order = sorted(range(len(spans)), key=lambda i: (spans[i][1], -spans[i][1] - spans[i][2], i))
    start = [s[1] for s in spans]
    end = [s[1] + s[2] for s in spans]
    reach = list(end)
    for k, i in enumerate(order):
        for j in order[k + 1 :]:
            if spans[j][0] == spans[i][0] and start[j] < end[i] < end[j]:
                reach[i] = min(reach[i], start[j])
    own = [0] * len(spans)
    for track in {s[0] for s in spans}:
        for t in range(70):
            active = [i for i in order if spans[i][0] == track and start[i] <= t < reach[i]]
            leading = [i for i in active if not spans[i][3]]
            if active:
                own[(leading or active)[-1]] += 1
    return own


@given(spans_strategy)
def test_self_time_is_what_painting_gives(spans):
    track, start, end, subordinate = arrays(spans)
    result = nest_spans(track, start, end, subordinate=subordinate)
    assert result.self_ps.tolist() == paint(spans)


@given(spans_strategy)
def test_self_times_add_up_to_busy_time(spans):
    track, start, end, _ = arrays(spans)
    result = nest_spans(track, start, end)
    busy = sum(union(start[track == t], end[track == t]).total_ps for t in range(3))
    assert result.self_ps.sum() == busy
    per_span = np.zeros(len(spans), np.int64)
    np.add.at(per_span, result.segment_span, result.segment_end_ps - result.segment_start_ps)
    assert per_span.tolist() == result.self_ps.tolist()


@given(spans_strategy)
def test_a_parent_encloses_and_is_the_innermost(spans):
    track, start, end, _ = arrays(spans)
    result = nest_spans(track, start, end)
    for i, parent in enumerate(result.parent.tolist()):
        around = [
            j for j in range(len(spans))
            if track[j] == track[i] and start[j] <= start[i] < end[j] and end[j] >= end[i]
            and (start[j], -end[j], j) < (start[i], -end[i], i)
        ]  # fmt: skip
        expected = max(around, key=lambda j: (start[j], -end[j], j)) if around else -1
        assert parent == expected


@given(spans_strategy, st.lists(st.integers(-1, 2), min_size=16, max_size=16))
def test_labelled_segments_are_those_of_the_spans_with_their_labels(spans, labels):
    track, start, end, subordinate = arrays(spans)
    label = np.array(labels[: len(spans)], np.int16)
    plain = nest_spans(track, start, end, subordinate=subordinate)
    room = (np.full(40, 9, np.int32), np.full(40, 9, np.int64), np.full(40, 9, np.int64))
    labelled = nest_spans(track, start, end, subordinate=subordinate, label=label, room=room)
    kept = label[plain.segment_span] >= 0
    assert labelled.segment_span.tolist() == label[plain.segment_span][kept].tolist()
    assert labelled.segment_start_ps.tolist() == plain.segment_start_ps[kept].tolist()
    assert labelled.segment_end_ps.tolist() == plain.segment_end_ps[kept].tolist()
    assert labelled.parent.tolist() == plain.parent.tolist()
    assert labelled.self_ps.tolist() == plain.self_ps.tolist()


def test_misnested_spans_are_counted_and_cut():
    result = nest_spans(np.zeros(3), np.array([0, 1, 5]), np.array([10, 6, 12]))
    assert (result.misnested, result.parent.tolist(), result.self_ps.tolist()) == (1, [-1, 0, -1], [1, 4, 7])


def test_no_spans():
    empty = np.empty(0, np.int64)
    assert nest_spans(empty, empty, empty).misnested == 0


@pytest.mark.parametrize(("starts", "ends"), [([3], [2]), ([1, 2], [3])])
def test_what_is_no_span_is_refused(starts, ends):
    with pytest.raises(ValueError, match=r"ends before it starts|tracks"):
        nest_spans(np.zeros(len(starts)), np.array(starts), np.array(ends))


def test_a_staircase_of_misnested_spans_takes_linear_time():
    n = 400_000
    start = np.arange(n)
    begin = time.process_time()
    result = nest_spans(np.zeros(n), start, start + n)
    assert result.misnested == n - 1
    assert time.process_time() - begin < 5


@given(st.lists(st.integers(-1, 30), max_size=31))
def test_depths_are_what_walking_up_gives(parents):
    parent = np.array([at if at < len(parents) else -1 for at in parents], np.int64)

    def walked(row):
        for depth in range(len(parent) + 1):
            if parent[row] < 0:
                return depth
            row = parent[row]
        return -1

    assert depths(parent).tolist() == [walked(row) for row in range(len(parent))]


def test_a_chain_of_a_million_has_depths():
    parent = np.arange(-1, 10**6 - 1)
    assert depths(parent)[-1] == 10**6 - 1
