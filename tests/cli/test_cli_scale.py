"""`phasepoint scale`: plans and validations as documents and text, and what they say to wrong input."""

import json

import pytest

from made_results import made_results, write_results

PLAN = ("scale", "plan", "--benchmark", "resnet", "--system", "tpu-v3", "--chips", "16", "--to", "1024")


def test_a_plan_is_a_document_and_a_table(phasepoint, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    outcome = phasepoint(*PLAN, "--measured", "42.2min", "--json")
    found = json.loads(outcome.out)
    assert (outcome.code, found["version"], found["kind"]) == (0, 1, "scale plan")
    assert [row["chips"] for row in found["systems"]] == [32, 64, 128, 256, 512, 1024]
    assert found["start"]["time_min"] == 42.2
    shown = phasepoint(*PLAN, "--measured", "0.7h", "--batch", "4096")
    assert shown.code == 0
    assert "resnet on 1,024 × tpu-v3" in shown.out
    assert "--batch" not in shown.out
    assert "Say it with --batch" in phasepoint(*PLAN, "--measured", "2532s").out


@pytest.mark.parametrize("text", ["42.2", "long", "1.2.3min", "-3min"])
def test_a_time_without_a_unit_is_refused(phasepoint, text):
    outcome = phasepoint(*PLAN, f"--measured={text}")
    assert outcome.code == 2
    assert "expected a number with s, min, h or d" in outcome.err


def test_scale_alone_says_what_predictions_rest_on(phasepoint, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    sets = json.loads(phasepoint("scale", "--json").out)["sets"]
    assert sets[0]["file"] == "mlperf_training_results.parquet"
    assert all(row["count"] > 10 and 0 < row["mape"] < 0.2 for row in sets)
    shown = phasepoint("scale")
    assert shown.code == 0
    assert all(row["name"] in shown.out for row in sets)


def test_a_folder_is_validated(phasepoint, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    write_results(tmp_path, made_results())
    outcome = phasepoint("scale", "validate", str(tmp_path), "--json")
    (answer,) = json.loads(outcome.out)["files"]
    assert (outcome.code, answer["file"], answer["pairs"]) == (0, "mlperf_training_results.parquet", 120)
    assert 0 < answer["mape"] < 1
    assert sum(band["pairs"] for band in answer["by"] if band["name"].startswith("chips")) == 120
    shown = phasepoint("scale", "validate", str(tmp_path))
    assert "perfect scaling" in shown.out
    assert "chips above 64×" in shown.out


def test_folders_without_measurements_are_refused(phasepoint, tmp_path):
    outcome = phasepoint("scale", "validate", str(tmp_path / "none"))
    assert outcome.code == 2
    assert "no such folder" in outcome.err
    outcome = phasepoint("scale", "validate", str(tmp_path))
    assert outcome.code == 9
    assert "holds none of mlperf_training_results.parquet" in outcome.err
    (tmp_path / "tpu_gemm.parquet").write_bytes(b"")
    outcome = phasepoint("scale", "validate", str(tmp_path))
    assert outcome.code == 7
    assert "no Parquet file that can be read" in outcome.err
