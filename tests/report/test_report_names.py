import unicodedata
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from phasepoint.phases.clock.breakdown import AccountPart
from phasepoint.report.words.names import printable, shorten
from phasepoint.report.words.palette import OUTSIDE_COLOUR, PART_COLOURS, part_colour


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


def test_a_phase_named_like_a_measured_part_keeps_its_own_colour():
    phase = AccountPart("compiling", 1, 1, 1, 1.0, "measured", "phase", 3)
    assert part_colour(phase, {3: "#123456"}) == "#123456"
    assert part_colour(replace(phase, kind="compiling", phase=None), {3: "#123456"}) == PART_COLOURS["compiling"]
    assert part_colour(replace(phase, kind="named", phase=None), {3: "#123456"}) == OUTSIDE_COLOUR
