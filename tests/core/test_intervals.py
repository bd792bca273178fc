import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phasepoint.core.intervals import covered_ps, held_in, intersect, partition, subtract, union, unite

pairs = st.lists(st.tuples(st.integers(-20, 60), st.integers(0, 15)), max_size=25)


def make(spans):
    array = np.array(spans, np.int64).reshape(-1, 2)
    return union(array[:, 0], array.sum(1))


def points(spans):
    return {t for start, length in spans for t in range(start, start + length)}


def points_of(intervals):
    return {t for a, b in zip(intervals.start_ps.tolist(), intervals.end_ps.tolist(), strict=True) for t in range(a, b)}


@given(pairs)
def test_union_covers_every_instant_once(spans):
    result = make(spans)
    assert points_of(result) == points(spans)
    assert result.total_ps == len(points(spans))
    assert (result.start_ps[1:] > result.end_ps[:-1]).all()


@given(pairs, pairs)
def test_set_operations_match_sets_of_instants(left, right):
    a, b = make(left), make(right)
    assert points_of(intersect(a, b)) == points(left) & points(right)
    assert points_of(subtract(a, b)) == points(left) - points(right)
    assert points_of(unite((a, b))) == points(left) | points(right)


@given(pairs, st.lists(st.tuples(st.integers(-25, 70), st.integers(0, 40)), max_size=6))
def test_covered_time_of_windows(spans, windows):
    low = np.array([a for a, _ in windows], np.int64)
    high = np.array([a + n for a, n in windows], np.int64)
    expected = [len(points(spans) & set(range(a, a + n))) for a, n in windows]
    assert covered_ps(make(spans), low, high).tolist() == expected


@given(pairs, pairs, pairs, st.integers(-30, 60), st.integers(0, 50))
def test_partition_charges_the_first_layer_and_closes(first, second, third, low, length):
    result = partition([make(first), make(second), make(third)], np.array([low]), np.array([low + length]))[0]
    window = set(range(low, low + length))
    a, b, c = points(first), points(second), points(third)
    rest = window - a - b - c
    assert result.tolist() == [len(window & a), len(window & b - a), len(window & c - a - b), len(rest)]
    assert result.sum() == length


def test_times_near_the_limit_of_64_bits_stay_exact():
    start = np.array([2**61, 2**61 + 1], np.int64)
    assert union(start, start + 3).total_ps == 4


def test_an_interval_that_ends_before_it_starts_is_refused():
    with pytest.raises(ValueError, match="none before its start"):
        union(np.array([5]), np.array([4]))


@given(pairs, st.lists(st.booleans(), min_size=25, max_size=25))
def test_union_takes_only_the_chosen(spans, chosen):
    array = np.array(spans, np.int64).reshape(-1, 2)
    where = np.array(chosen[: len(spans)], np.bool_)
    result = union(array[:, 0], array.sum(1), where=where)
    assert points_of(result) == points([span for span, wanted in zip(spans, chosen, strict=False) if wanted])


def test_union_of_many_is_the_union_of_few():
    random = np.random.default_rng(7)
    for n_runs in (1, 3, 20_000):
        start = np.concatenate([np.sort(run) for run in np.array_split(random.integers(0, 10**6, 20_000), n_runs)])
        end = start + random.integers(0, 40, len(start))
        where = random.random(len(start)) < 0.9
        few = unite(
            [union(start[i : i + 1000], end[i : i + 1000], where=where[i : i + 1000]) for i in range(0, 20_000, 1000)]
        )
        many = union(start, end, where=where)
        covered = np.zeros(10**6 + 41, np.int64)
        np.add.at(covered, start[where], 1)
        np.add.at(covered, end[where], -1)
        assert many.total_ps == few.total_ps == int((np.cumsum(covered) > 0).sum())
        assert (many.start_ps[1:] > many.end_ps[:-1]).all()
        assert (many.end_ps > many.start_ps).all()


def test_union_of_many_refuses_a_reversed_interval():
    start = np.arange(5000)
    with pytest.raises(ValueError, match="none before its start"):
        union(start, start - 1)


@given(
    st.lists(st.tuples(st.integers(0, 300), st.integers(0, 40)), max_size=3),
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=48, max_size=60),
)
def test_few_intervals_over_many_windows_in_order(spans, gaps_and_lengths):
    """The quick way for few intervals against a count instant by instant."""
    low, high, at = [], [], 0
    for gap, length in gaps_and_lengths:
        low.append(at + gap)
        at += gap + length
        high.append(at)
    covered = union(np.array([a for a, _ in spans], np.int64), np.array([a + n for a, n in spans], np.int64))
    inside = {t for a, n in spans for t in range(a, a + n)}
    expected = [sum(t in inside for t in range(a, b)) for a, b in zip(low, high, strict=True)]
    assert covered_ps(covered, np.array(low), np.array(high)).tolist() == expected


@given(st.lists(st.tuples(st.integers(-20, 20), st.integers(-20, 20))), st.lists(st.integers(-25, 25)))
def test_held_in_any_range(ranges, values):
    first, last = (np.array([one[i] for one in ranges], np.int64) for i in (0, 1))
    found = held_in(np.array(values, np.int64), first, last).tolist()
    assert found == [any(low <= value <= high for low, high in ranges) for value in values]
