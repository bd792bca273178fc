import dataclasses
import datetime
import decimal
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_summary import EVIL, sample_summary

from phasepoint.report.documents import phases_document, plain, to_json
from phasepoint.summary.types import RunSummary


def test_version_and_kind_come_first():
    assert list(json.loads(to_json("thing", {"a": 1}))) == ["version", "kind", "a"]
    assert json.loads(to_json("summary", sample_summary()))["version"] == 1


def test_every_field_of_the_summary_is_there():
    document = json.loads(to_json("summary", sample_summary()))
    assert set(document) == {f.name for f in dataclasses.fields(RunSummary)} | {"kind"}
    assert document["phases"][0]["top_ops"][2]["op"] == EVIL


def test_phases_document_is_part_of_the_summary():
    whole = json.loads(to_json("summary", sample_summary()))
    part = json.loads(to_json("phases", phases_document(sample_summary())))
    assert part.pop("kind") == "phases"
    assert part == {name: whole[name] for name in part}


@given(st.integers())
def test_integers_stay_exact(value):
    assert json.loads(to_json("n", {"value": value}))["value"] == value


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (float("nan"), None),
        (float("inf"), None),
        (decimal.Decimal(2**90), 2**90),
        (decimal.Decimal("0.5"), 0.5),
        (decimal.Decimal("NaN"), None),
        (np.int64(7), 7),
        (np.float64("nan"), None),
        (datetime.date(2026, 1, 2), "2026-01-02"),
        (b"\x00\xff", "00ff"),
        (frozenset({1}), [1]),
    ],
)
def test_values_as_json_knows_them(value, expected):
    assert plain(value) == expected


@given(st.text())
def test_text_cannot_steer_a_terminal(name):
    text = to_json("n", {"name": name}, indent=None)
    assert text.isascii()
    assert text.isprintable()
    assert json.loads(text)["name"] == name


def test_content_must_have_names():
    with pytest.raises(TypeError, match="mapping or a dataclass"):
        to_json("n", [1, 2])
