import pytest

from phasepoint.core.units import format_bytes, format_count, format_ps, format_ratio


@pytest.mark.parametrize(
    ("time_ps", "text"),
    [
        (0, "0 s"),
        (999, "999 ps"),
        (1_000, "1.00 ns"),
        (1_234_000, "1.23 µs"),
        (45_600_000_000, "45.6 ms"),
        (99_960_000_000, "100 ms"),
        (1_000_000_000_000, "1.00 s"),
        (119_000_000_000_000, "119 s"),
        (600_000_000_000_000, "10.0 min"),
        (7_200_000_000_000_000, "2.00 h"),
        (-1_500_000_000, "-1.50 ms"),
        (None, "–"),
    ],
)
def test_times_have_three_figures_and_a_unit(time_ps, text):
    assert format_ps(time_ps) == text


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.50 KiB"), (3 * 2**30, "3.00 GiB"), (None, "–")]
)
def test_sizes(size, text):
    assert format_bytes(size) == text


@pytest.mark.parametrize(("ratio", "text"), [(0.1234, "12.3 %"), (1.0, "100 %"), (0.0, "0.0 %"), (None, "–")])
def test_ratios(ratio, text):
    assert format_ratio(ratio) == text


def test_counts():
    assert (format_count(1_234_567), format_count(None)) == ("1,234,567", "–")
