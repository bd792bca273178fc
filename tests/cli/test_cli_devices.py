"""`phasepoint devices`: what the table holds, each number with its source."""

import json

import pytest

from phasepoint.devices import device_specs


@pytest.mark.parametrize("columns", ["60", "140"])
def test_all_devices_have_a_row(phasepoint, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    done = phasepoint("devices")
    assert done.code == 0
    lines = done.out.splitlines()
    for spec in device_specs():
        assert any(line.startswith(f"{spec.name}  ") for line in lines), spec.name
    (row,) = (line for line in lines if line.startswith("TPU v6e "))
    assert row.split() == ["TPU", "v6e", "32", "1638", "918", "918", "1836", "800"]


def test_one_device_with_its_sources(phasepoint, monkeypatch):
    monkeypatch.setenv("COLUMNS", "140")
    done = phasepoint("devices", "gpu:0 NVIDIA L40S")
    rows = {line[:17].strip(): line[17:].split() for line in done.out.splitlines()}
    assert rows["bf16 dense"] == ["362.05", "Tflop/s", "362.05", "TFLOP/s", "[1]"]
    assert rows["bf16 sparse"] == ["733", "Tflop/s", "733", "TFLOP/s", "[1]"]
    assert "https://www.nvidia.com/en-us/data-center/l40s/" in done.out


def test_json_has_every_number_with_its_source(phasepoint):
    document = json.loads(phasepoint("devices", "TPU v3", "--json").out)
    assert (document["version"], document["kind"]) == (1, "devices")
    (device,) = document["devices"]
    assert device["name"] == "TPU v3"
    assert device["flop_per_s"]["bf16"]["value"] == 61.5e12
    assert device["flop_per_s"]["bf16"]["published"] == "123 TFLOP/s"
    assert device["flop_per_s"]["bf16"]["source"]["url"] == "https://docs.cloud.google.com/tpu/docs/v3"
    assert len(json.loads(phasepoint("devices", "--json").out)["devices"]) == len(device_specs())


def test_an_unknown_device_is_not_guessed(phasepoint):
    done = phasepoint("devices", "NVIDIA H2000")
    assert done.code == 9
    assert "'NVIDIA H2000'" in done.err
    assert done.out == ""


def test_the_cpu_is_measured_and_kept_in_the_users_cache(phasepoint, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    document = json.loads(phasepoint("devices", "cpu", "--json").out)
    (device,) = document["devices"]
    assert set(device["flop_per_s"]) == {"f32", "f64"}
    assert device["flop_per_s"]["f32"]["source"]["title"].startswith("measured on this machine, ")
