from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from phasepoint.report.terminal.summary import strip_cells
from phasepoint.summary.types import StripSegment


def _strip(lengths):
    at, strip = 0, []
    for dur, phase in lengths:
        strip.append(StripSegment(at, dur, phase, str(phase), None, None))
        at += dur
    return strip


def test_cells_take_the_phase_with_most_of_their_time():
    assert strip_cells(_strip([(25, 0), (20, 1), (55, None)]), 4) == [0, 1, None, None]


def test_one_cell_for_many_short_stretches():
    assert strip_cells(_strip([(3, 0), (4, 1), (3, 0)]), 1) == [0]


def test_nothing_to_draw():
    assert strip_cells([], 10) == []
    assert strip_cells(_strip([(5, 0)]), 0) == []


@given(
    st.lists(st.tuples(st.integers(1, 50), st.sampled_from([None, 0, 1, 2])), min_size=1, max_size=30),
    st.integers(1, 60),
)
def test_against_a_slow_oracle(lengths, cells):
    strip = _strip(lengths)
    total = sum(dur for dur, _ in lengths)
    for index, phase in enumerate(strip_cells(strip, cells)):
        low, high = index * total // cells, (index + 1) * total // cells
        if high == low:
            continue
        times = {}
        for s in strip:
            overlap = max(Fraction(min(high, s.start_ps + s.dur_ps) - max(low, s.start_ps)), 0)
            times[s.phase] = times.get(s.phase, 0) + overlap
        assert times[phase] == max(times.values())
