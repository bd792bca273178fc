from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phasepoint.sources.kineto_time import least_microseconds_ps, microseconds_to_ps


def test_nanoseconds_since_1970_survive():
    time_ps, known = microseconds_to_ps([b"1712195495519689.123"], offset_ps=-1712195495519689 * 10**6)
    assert (time_ps.tolist(), known.tolist()) == ([123_000], [True])


@given(
    st.lists(st.integers(-(10**15), 10**15), min_size=1, max_size=20),
    st.integers(-(10**18), 10**18),
    st.integers(0, 10**21),
)
def test_decimal_text_is_converted_exactly(times_ns, shift_ps, base_ps):
    texts = [b"%d.%03d" % divmod(time_ns, 1000) if time_ns >= 0 else b"-%d.%03d" % divmod(-time_ns, 1000)
             for time_ns in times_ns]  # fmt: skip
    time_ps, known = microseconds_to_ps(texts, offset_ps=shift_ps)
    assert time_ps.tolist() == [time_ns * 1000 + shift_ps for time_ns in times_ns]
    assert known.all()
    absolute = [str(Decimal(base_ps + time_ns * 1000).scaleb(-6)).encode() for time_ns in times_ns]
    time_ps, known = microseconds_to_ps(absolute, offset_ps=-base_ps)
    assert time_ps.tolist() == [time_ns * 1000 for time_ns in times_ns]
    assert known.all()


@pytest.mark.parametrize(
    ("text", "expected_ps"),
    [
        (b"12", 12_000_000),
        (b'"12.5"', 12_500_000),
        (b"1.2e3", 1_200_000_000),
        (b"0.0000004", 0),
        (b"0.0000006", 1),
        (b"", None),
        (b"null", None),
        (b"true", None),
        (b'"soon"', None),
        (b"NaN", None),
        (b"Infinity", None),
        (b"1e999999", None),
        (b"9223372036854775807", None),
        (b"[1]", None),
    ],
)
def test_odd_numbers_alone_and_among_others(text, expected_ps):
    for texts in ([text], [b"1.000", text, b"2.000"]):
        time_ps, known = microseconds_to_ps(texts)
        place = len(texts) // 2
        assert known[place] == (expected_ps is not None)
        assert time_ps[place] == (expected_ps or 0)
        if len(texts) == 3:
            assert time_ps[[0, 2]].tolist() == [1_000_000, 2_000_000]


def test_no_times():
    time_ps, known = microseconds_to_ps([])
    assert time_ps.dtype == np.int64
    assert len(time_ps) == len(known) == 0
    assert least_microseconds_ps([b"", b"null"]) == 0
    assert least_microseconds_ps([b"3.5", b"2.5"]) == 2_500_000
