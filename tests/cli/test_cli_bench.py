"""`phasepoint bench`: validations as documents and text, and what they say to files that hold too little."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from made_models import write_made


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
