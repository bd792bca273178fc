import tomllib
from importlib.resources import files

import pytest

from phasepoint.devices import device_spec, device_specs, unknown_device_note


@pytest.mark.parametrize(
    ("name", "kind", "peak_flop_per_s", "bytes_per_s"),
    [
        ("TPU v2", "bf16", 23e12, 358e9),  # a JAX device is half a chip
        ("TPU v3", "bf16", 61.5e12, 450e9),
        ("TPU v4", "bf16", 275e12, 1200e9),
        ("TPU v5 lite", "bf16", 197e12, 819e9),
        ("TPU v5p", "bf16", 459e12, 2765e9),
        ("TPU v6 lite", "bf16", 918e12, 1638e9),
        ("TPU7x", "f8", 2307e12, 3.7e12),
        ("Tesla P100-PCIE-16GB", "f32", 9.3e12, 732e9),
        ("Tesla V100-SXM2-16GB", "f16", 125e12, 900e9),
        ("Tesla T4", "f16", 65e12, 320e9),
        ("NVIDIA A100-SXM4-80GB", "bf16", 312e12, 2039e9),
        ("NVIDIA H100 80GB HBM3", "bf16", 989.4e12, 3352e9),
        ("NVIDIA H200", "bf16", 989.5e12, 4.8e12),
        ("NVIDIA B200", "bf16", 2250e12, 8e12),
        ("AMD Instinct MI210", "bf16", 181e12, 1638.4e9),
        ("AMD Instinct MI250X", "bf16", 191.5e12, 1638.4e9),
        ("AMD Instinct MI300X", "bf16", 1307.4e12, 5.3e12),
    ],
)
def test_peaks_of_one_device(name, kind, peak_flop_per_s, bytes_per_s):
    spec = device_spec(name)
    assert spec is not None
    assert spec.flop_per_s[kind].value == peak_flop_per_s
    assert spec.memory_bytes_per_s.value == bytes_per_s


@pytest.mark.parametrize(
    ("name", "tile"),
    [
        ("TPU v2", (8, 128)),
        ("TPU v5 lite", (8, 128)),
        ("TPU v6 lite", (8, 256)),
        ("TPU7x", (8, 256)),
        ("NVIDIA H200", (16, 8)),
        ("Tesla T4", None),
    ],
)
def test_tiles(name, tile):
    found = device_spec(name).tile
    assert tile == (None if found is None else (found.rows, found.columns))


@pytest.mark.parametrize("name", ["nvidia h200", "gpu:3 NVIDIA H200", "NVIDIA-H200", "NVIDIA_H200"])
def test_names_are_compared_without_case_place_and_punctuation(name):
    assert device_spec(name) is device_spec("NVIDIA H200")


@pytest.mark.parametrize(
    "name", ["", "cpu", "NVIDIA", "NVIDIA H2000", "NVIDIA H100", "A100", "AMD Instinct MI250X / MI250", "TPU v9"]
)
def test_what_is_not_in_the_table_is_not_guessed(name):
    assert device_spec(name) is None
    assert repr(name) in unknown_device_note(name)


def test_every_number_has_a_unit_and_a_source_and_every_source_is_used():
    table = tomllib.loads(files("phasepoint.devices").joinpath("specs.toml").read_text(encoding="utf-8"))
    used = set()
    for entry in table["device"]:
        for number in (entry["memory_bytes"], entry["memory_bytes_per_s"], *entry["flop_per_s"].values()):
            assert set(number) == {"value", "unit", "source"}, entry["name"]
            used.add(number["source"])
        if "tile" in entry:
            assert set(entry["tile"]) == {"rows", "columns", "source"}, entry["name"]
            used.add(entry["tile"]["source"])
    assert used == set(table["sources"])
    assert all(source["url"].startswith("https://") and source["title"] for source in table["sources"].values())


def test_no_two_devices_share_a_name_and_all_numbers_are_plausible():
    names = [spec.name for spec in device_specs()]
    assert len(set(names)) == len(names)
    for spec in device_specs():
        assert device_spec(spec.name) is spec
        assert 1e11 < spec.memory_bytes_per_s.value < 1e13, spec.name
        assert 8e9 <= spec.memory_bytes.value < 1e12, spec.name
        assert all(1e12 < rate.value < 1e16 for rate in spec.flop_per_s.values()), spec.name


def test_memory_of_half_a_chip():
    assert device_spec("TPU v3").memory_bytes.value == 16 * 2**30
    assert device_spec("TPU v3").memory_bytes.published == "32 GiB"


def test_whether_a_source_was_compared_is_said():
    assert device_spec("TPU v4").flop_per_s["bf16"].source.read == "2026-11-21"
    assert all(
        rate.source.read for spec in device_specs() if spec.vendor == "Google" for rate in spec.flop_per_s.values()
    )
