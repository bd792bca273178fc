"""JSON that ends too early or holds what JSON does not allow."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from phasepoint.sources.events.damaged_json import close_json, read_json


@pytest.mark.parametrize(
    ("text", "closed"),
    [
        (b'[{"a": 1}, {"a": 2, "b', b'[{"a": 1}]'),
        (b'{"spans": [{"name": "a, ]} \\"b"}, {"na', b'{"spans": [{"name": "a, ]} \\"b"}]}'),
        (b'{"a": {"b": [1, 2, 3', b'{"a": {"b": [1, 2]}}'),
        (b'{"a": 1}', b'{"a": 1}'),
        (b"", b""),
        (b"[1, 2}, 3]", b"[1]"),
    ],
)
def test_a_text_is_closed_after_its_last_whole_value(text, closed):
    assert close_json(text) == closed


def test_whole_files_are_read_as_they_are():
    assert read_json(b'{"a": [1, NaN]}'.replace(b"NaN", b"2"), dict) == ({"a": [1, 2]}, None)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b'{"a": NaN, "b": [-Infinity, 1]}', {"a": None, "b": [None, 1]}),
        (b'{"a": "line\nbreak"}', {"a": "line break"}),
        (b'{"a": "\xff"}', {"a": "\ufffd"}),
    ],
)
def test_what_json_does_not_allow_is_mended(text, value):
    found, problem = read_json(text, dict)
    assert found == value
    assert problem.startswith("damaged JSON (")
    assert problem.endswith("), mended")


def test_damage_in_the_middle_loses_the_rest():
    found, problem = read_json(b'{"rows": [{"a": 1}, {"a": 2}, {"a": @}, {"a": 4}]}', dict)
    assert found == {"rows": [{"a": 1}, {"a": 2}]}
    assert "what stands after byte 36 of 50 is lost" in problem


def test_what_is_no_json_is_an_error():
    with pytest.raises(msgspec.DecodeError):
        read_json(b"hello", dict)


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=12,
)


@given(values.filter(lambda value: isinstance(value, dict | list)), st.floats(0, 1))
def test_every_beginning_of_a_text_can_be_closed(value, share):
    text = json.dumps(value).encode()
    closed = close_json(text[: int(len(text) * share)])
    assert closed == b"" or isinstance(json.loads(closed), type(value))
