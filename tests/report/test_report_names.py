import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from phasepoint.report.words.names import printable, shorten


def test_plain_names_stay_as_they_are():
    assert printable("fusion.1234 µs × –") == "fusion.1234 µs × –"


def test_control_and_bidi_characters_are_written_out():
    assert printable("a\x1b[31m\n\u202eb\x9b") == "a\\x1b[31m\\x0a\\u202eb\\x9b"


@given(st.text())
def test_nothing_that_steers_a_terminal_is_left(name):
    assert all(unicodedata.category(c) not in {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"} for c in printable(name))


def test_shorten_keeps_both_ends():
    assert shorten("all-reduce-start.1234", 11) == "all-r….1234"


@given(st.text(), st.integers(0, 40))
def test_shorten_never_exceeds_its_width(name, width):
    assert len(shorten(name, width)) <= width
