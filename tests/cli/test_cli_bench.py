"""`phasepoint bench`: validations as documents and text, and what they say to files that hold too little."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from made_models import write_made
from phasepoint.bench.suite.ask import ask_suite
from phasepoint.bench.suite.result import write_file


def test_answers_are_a_document_and_a_table(phasepoint, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "140")
    write_made(tmp_path, count=40)
    found = json.loads(phasepoint("bench", "validate", str(tmp_path), "--json").out)
    assert (found["version"], found["kind"]) == (1, "bench validate")
    assert {"device", "models", "median_ape", "inversions", "coverage90", "baselines"} <= set(found["devices"][0])
    shown = phasepoint("bench", "validate", str(tmp_path))
    assert shown.code == 0
    assert "near pairs swapped" in shown.out


def rows_of(*devices, models=30):
    return [
        {"device": device, "model": f"net{place}", "samples_per_s": 1.0 + place}
        for device in devices
        for place in range(models)
    ]


@pytest.mark.parametrize(
    ("rows", "code", "message"),
    [
        (rows_of("A"), 9, "needs other devices"),
        (rows_of("A", "B", models=12), 9, "12 models are on every device; expected 20 or more"),
        ([{"device": "A", "speed": 1.0}], 9, "no Parquet file with the columns device, model, samples_per_s"),
    ],
)
def test_files_that_hold_too_little(phasepoint, tmp_path, rows, code, message):
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    outcome = phasepoint("bench", "validate", str(tmp_path))
    assert outcome.code == code
    assert message in outcome.err


def test_a_file_that_is_damaged_and_a_folder_that_is_none(phasepoint, tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"PAR1 no")
    outcome = phasepoint("bench", "validate", str(tmp_path))
    assert outcome.code == 7
    assert "no Parquet file that can be read" in outcome.err
    outcome = phasepoint("bench", "validate", str(tmp_path / "none"))
    assert outcome.code == 2
    assert "no such folder or file" in outcome.err


SMALL = """
import torch

def small():
    return torch.nn.Linear(64, 32), (torch.randn(1, 64),)

def raises():
    raise LookupError("no weights")
"""


@pytest.mark.torch
def test_a_suite_is_measured_told_and_compared(phasepoint, tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(SMALL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "140")
    folder = tmp_path / "out"
    words = ["bench", "run", "--model", "mine:small", "--model", "mine:raises", "--devices", "cpu:1", "--rounds", "2"]
    outcome = phasepoint(*words, "--seconds", "0.2", "--out", "out")
    assert outcome.code == 0, outcome.err
    assert "mine:raises on cpu:1, eager, f32: failed: LookupError: no weights" in outcome.out
    assert "mine:small" in outcome.out
    assert f"wrote {folder.name}/report.html" in outcome.out
    page = (folder / "report.html").read_text()
    assert "1 model on 1 setting: one sample takes from" in page
    assert "1 pair could not be measured" in page
    told = json.loads(phasepoint("bench", "report", str(folder), "--json").out)
    assert [one["pair"]["model"] for one in told["pairs"]] == ["mine:raises", "mine:small"]
    small = told["pairs"][1]
    assert small["low_ps"] < small["latency_ps"] < small["high_ps"]
    assert small["rounds"] == 2
    compared = json.loads(phasepoint("bench", "compare", str(folder), str(folder), "--json").out)
    (row,) = compared["suites"][0]["comparison"]["ratios"]
    assert (row["ratio"], row["differs"]) == (1.0, False)
    shown = " ".join(phasepoint("bench", "compare", str(folder), str(folder)).out.split())
    assert "1 pair, 1.000 × as long in the median; none differs beyond what scatters" in shown


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("compare", "out"), "give two folders or more"),
        (("report", "nothing"), "nothing: no results of `phasepoint bench run`"),
        (("run", "--model", "resnet5", "--out", "x"), "no model named 'resnet5'; did you mean"),
        (("run", "--suite", "mlperf", "--out", "x"), "no suite named 'mlperf'; there is embench"),
        (("run", "--model", "mine:small", "--sustained", "long", "--out", "x"), "--sustained 'long' is no time"),
        (("run", "--model", "mine:small", "--out", "out"), "asked for otherwise"),
        (("fingerprint", "--like", "out", "--out", "x"), "needs suites of two other devices or more"),
    ],
)
def test_what_is_wrong_is_said(phasepoint, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    write_file(tmp_path / "out" / "suite.json", ask_suite(["resnet18"], devices=["cpu:1"]))
    outcome = phasepoint("bench", *words)
    assert outcome.code not in (0, 1)
    assert message in " ".join(outcome.err.split())
