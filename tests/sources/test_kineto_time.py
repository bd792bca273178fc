import json
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from phasepoint.sources.chrome.gather import exact_ps
from phasepoint.sources.chrome.reader import read_kineto
from phasepoint.sources.events.capture import CaptureRequest


def starts_ps(texts, *, epoch_unix_ns=0, base_ns=0):
    """Starts of events whose times are written like this; None where there is none that can be read."""
    events = [f'{{"ph": "X", "cat": "cpu_op", "name": "{i}", "ts": {text}, "dur": 1}}' for i, text in enumerate(texts)]
    data = f'{{"baseTimeNanoseconds": {base_ns}, "traceEvents": [{", ".join(events)}]}}'
    found = read_kineto(data.encode(), CaptureRequest(epoch_unix_ns=epoch_unix_ns))
    times = {int(row["name"]): row["start_ps"] for row in found.spans.to_pylist()}
    return [times.get(i) for i in range(len(texts))]


def test_nanoseconds_since_1970_survive():
    assert starts_ps(["1712195495519689.123"], epoch_unix_ns=1712195495519689000) == [123_000]


@given(
    st.lists(st.integers(-(10**15), 10**15), min_size=1, max_size=20),
    st.integers(-(10**9), 10**9),
    st.integers(0, 10**15),
)
def test_decimal_text_is_converted_exactly(times_ns, shift_ns, base_us):
    texts = [str(Decimal(base_us * 10**6 + time_ns * 1000).scaleb(-6)) for time_ns in times_ns]
    plain = [f"{Decimal(text):f}" for text in texts]
    expected = [time_ns * 1000 - shift_ns * 1000 for time_ns in times_ns]
    assert starts_ps(plain, epoch_unix_ns=base_us * 1000 + shift_ns) == expected
    assert starts_ps([json.dumps(text) for text in texts], epoch_unix_ns=base_us * 1000 + shift_ns) == expected


@pytest.mark.parametrize(
    ("text", "expected_ps"),
    [
        ("12", 12_000_000),
        ('"12.5"', 12_500_000),
        ("1.2e3", 1_200_000_000),
        ("0.0000004", 0),
        ("0.0000006", 1),
        ("-0.5", -500_000),
        ('""', None),
        ("null", None),
        ("true", None),
        ('"soon"', None),
        ("NaN", None),
        ("Infinity", None),
        ("1e999999", None),
        ("9223372036854775807", None),
        ("[1]", None),
    ],
)
def test_odd_numbers_alone_and_among_others(text, expected_ps):
    plain = text.strip('"').encode()
    if plain not in (b"9223372036854775807",):  # a time, but none near the others
        assert exact_ps(plain) == expected_ps
    assert starts_ps(["1.000", text, "2.000"]) == [1_000_000, expected_ps, 2_000_000]
    if expected_ps is not None:
        assert starts_ps([text]) == [expected_ps]
