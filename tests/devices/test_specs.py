import gzip
import json
import os
import re
import tomllib
from importlib.resources import files
from pathlib import Path

import pytest

from phasepoint.devices import device_spec, device_specs, unknown_device_note

PEAKS = ("flop_per_s", "sparse_flop_per_s")
FIELDS = {
    *("name", "vendor", "aliases", "architecture", "devices_per_chip", "tile", "chip"),
    *("memory_bytes", "memory_bytes_per_s", "link_bytes_per_s", *PEAKS),
}

CHIP = {
    "multiprocessors": ("SM", "CU"),
    "f32_lanes": ("lanes",),
    "cache_bytes": ("MiB",),
    "clock_hz": ("MHz",),
    "power_w": ("W",),
    "process_nm": ("nm",),
}


@pytest.mark.parametrize(
    ("name", "kind", "peak_flop_per_s", "bytes_per_s"),
    [
        ("TPU v2", "bf16", 23e12, 358e9),  # a JAX device is half a chip
        ("TPU v3", "bf16", 61.5e12, 450e9),
        ("TPU v4", "bf16", 275e12, 1200e9),
        ("TPU v5 lite", "bf16", 197e12, 819e9),
        ("TPU v5p", "bf16", 459e12, 2765e9),
        ("TPU v6 lite", "bf16", 918e12, 1638e9),
        ("TPU7x", "f8", 2307e12, 3.69e12),
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
        assert set(entry) <= FIELDS, entry["name"]
        numbers = [("GB", "GiB", entry["memory_bytes"]), ("GB/s", "TB/s", entry["memory_bytes_per_s"])]
        numbers += [("TFLOP/s", "TOP/s", n) for key in PEAKS for n in entry.get(key, {}).values()]
        numbers += [("GB/s", "TB/s", number) for number in entry.get("link_bytes_per_s", {}).values()]
        numbers += [(*CHIP[key], number) for key, number in entry.get("chip", {}).items()]
        for *units, number in numbers:
            assert set(number) == {"value", "unit", "source"}, entry["name"]
            assert number["unit"] in units, entry["name"]
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
        assert all(1e12 < rate.value < 2e16 for rate in spec.flop_per_s.values()), spec.name
        assert all(3e10 < rate.value < 2e12 for rate in spec.link_bytes_per_s.values()), spec.name
        assert spec.flop_per_s


def test_memory_of_half_a_chip():
    assert device_spec("TPU v3").memory_bytes.value == 16 * 2**30
    assert device_spec("TPU v3").memory_bytes.published == "32 GiB"


def test_whether_a_source_was_compared_is_said():
    assert device_spec("TPU v4").flop_per_s["bf16"].source.read == "2026-11-21"
    assert all(
        rate.source.read for spec in device_specs() if spec.vendor == "Google" for rate in spec.flop_per_s.values()
    )


# As drivers and frameworks report them: torch.cuda.get_device_name, jax.Device.device_kind, deviceProperties of Kineto,
# the product names of rocprofv3.
REPORTED = {
    "TPU v2": "TPU v2",
    "TPU v3": "TPU v3",
    "TPU v4": "TPU v4",
    "TPU v5 lite": "TPU v5e",
    "TPU v5": "TPU v5p",
    "TPU v6 lite": "TPU v6e",
    "TPU7x": "TPU7x",
    "Tesla P4": "Tesla P4",
    "Tesla P100-PCIE-16GB": "Tesla P100 PCIe 16 GB",
    "Tesla P100-SXM2-16GB": "Tesla P100 SXM2",
    "Tesla V100-PCIE-32GB": "V100 PCIe 32 GB",
    "Tesla V100-SXM2-32GB": "V100 SXM2 32 GB",
    "Tesla T4": "T4",
    "NVIDIA A10": "A10",
    "NVIDIA A10G": "A10G",
    "NVIDIA A40": "A40",
    "NVIDIA A100-PCIE-40GB": "A100 PCIe 40 GB",
    "NVIDIA A100-SXM4-40GB": "A100 SXM4 40 GB",
    "NVIDIA A100-PG509-200": "A100 SXM4 40 GB",
    "NVIDIA A100 80GB PCIe": "A100 PCIe 80 GB",
    "NVIDIA A100-SXM4-80GB": "A100 SXM4 80 GB",
    "NVIDIA GeForce RTX 3090": "GeForce RTX 3090",
    "NVIDIA GeForce RTX 4090": "GeForce RTX 4090",
    "NVIDIA RTX 6000 Ada Generation": "RTX 6000 Ada",
    "NVIDIA L4": "L4",
    "NVIDIA L40": "L40",
    "NVIDIA L40S": "L40S",
    "NVIDIA H100 PCIe": "H100 PCIe",
    "NVIDIA H100 NVL": "H100 NVL",
    "NVIDIA H100 80GB HBM3": "H100 SXM5",
    "NVIDIA H200 NVL": "H200 NVL",
    "NVIDIA H200": "H200 SXM",
    "NVIDIA GH200 480GB": "GH200 96 GB",
    "NVIDIA GH200 144G HBM3e": "GH200 144 GB",
    "NVIDIA B100": "B100",
    "NVIDIA B200": "B200 SXM",
    "NVIDIA GB200": "GB200",
    "NVIDIA B300 SXM6 AC": "B300 SXM",
    "NVIDIA GB300": "GB300",
    "AMD Instinct MI100": "Instinct MI100",
    "gfx908": "Instinct MI100",
    "AMD Instinct MI210": "Instinct MI210",
    "AMD Instinct MI250": "Instinct MI250",
    "AMD Instinct MI250X": "Instinct MI250X",
    "AMD Instinct MI300A": "Instinct MI300A",
    "AMD Instinct MI300X": "Instinct MI300X",
    "AMD Instinct MI325X": "Instinct MI325X",
    "AMD Instinct MI350X": "Instinct MI350X",
    "AMD Instinct MI355X": "Instinct MI355X",
}


@pytest.mark.parametrize(("reported", "name"), REPORTED.items())
def test_devices_are_found_by_the_names_that_are_reported(reported, name):
    assert device_spec(reported).name == name
    assert device_spec(f"gpu:7 {reported}").name == name


def test_sparse_peaks_are_twice_the_dense_ones_as_rounded_or_less():
    """B300's and GB300's f4 units gain less from sparsity: that is what NVIDIA publishes."""
    checked = 0
    for spec in device_specs():
        for kind, sparse in spec.sparse_flop_per_s.items():
            ratio = sparse.value / spec.flop_per_s[kind].value
            least, most = (1.3, 1.4) if (spec.name, kind) in {("B300 SXM", "f4"), ("GB300", "f4")} else (1.99, 2.025)
            assert least <= ratio <= most, (spec.name, kind)
            checked += 1
    assert checked > 100


@pytest.mark.parametrize("name", ["TPU v6 lite", "Tesla T4", "Tesla V100-SXM2-32GB", "AMD Instinct MI250X"])
def test_chips_without_structured_sparsity_have_no_sparse_peaks(name):
    assert not device_spec(name).sparse_flop_per_s


def test_narrower_types_are_no_slower():
    """Equal they may be: f64 and f32 of AMD's matrix cores, f32 and tf32 of GeForce."""
    for spec in device_specs():
        for narrow, wide in (
            ("f32", "f64"),
            ("tf32", "f32"),
            ("bf16", "tf32"),
            ("f8", "bf16"),
            ("f4", "f8"),
            ("s8", "f16"),
        ):
            peaks = spec.flop_per_s
            if narrow in peaks and wide in peaks:
                assert peaks[narrow].value >= peaks[wide].value, (spec.name, narrow, wide)


def test_newer_generations_are_faster():
    for older, newer, kind in [
        ("TPU v4", "TPU v5p", "bf16"),
        ("TPU v5 lite", "TPU v6 lite", "bf16"),
        ("Tesla T4", "NVIDIA L4", "f16"),
        ("Tesla V100-SXM2-32GB", "NVIDIA A100-SXM4-40GB", "f16"),
        ("NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3", "bf16"),
        ("NVIDIA H200", "NVIDIA B100", "bf16"),
        ("NVIDIA B100", "NVIDIA B200", "bf16"),
        ("NVIDIA B200", "NVIDIA GB200", "bf16"),
        ("AMD Instinct MI100", "AMD Instinct MI210", "bf16"),
        ("AMD Instinct MI210", "AMD Instinct MI300A", "bf16"),
        ("AMD Instinct MI300X", "AMD Instinct MI350X", "bf16"),
        ("AMD Instinct MI350X", "AMD Instinct MI355X", "bf16"),
    ]:
        assert device_spec(older).flop_per_s[kind].value < device_spec(newer).flop_per_s[kind].value, (older, newer)


@pytest.mark.parametrize(
    ("name", "link", "bytes_per_s"),
    [
        ("TPU v5 lite", "ici", 400e9),
        ("TPU7x", "ici", 600e9),  # half a chip's
        ("Tesla V100-SXM2-32GB", "nvlink", 300e9),
        ("NVIDIA A100-SXM4-80GB", "nvlink", 600e9),
        ("NVIDIA H200", "nvlink", 900e9),
        ("NVIDIA H200", "pcie", 128e9),
        ("NVIDIA GB300", "nvlink", 1.8e12),
        ("AMD Instinct MI300X", "infinity-fabric", 896e9),
    ],
)
def test_links(name, link, bytes_per_s):
    assert device_spec(name).link_bytes_per_s[link].value == bytes_per_s


def test_a_kind_of_link_that_is_not_there_is_absent():
    assert set(device_spec("Tesla T4").link_bytes_per_s) == {"pcie"}


def test_the_name_of_an_architecture_finds_no_device_but_says_which_products_it_is():
    assert device_spec("gfx942:sramecc+:xnack-") is None
    note = unknown_device_note("gpu:0 gfx942:sramecc+:xnack-")
    assert "Instinct MI300A, Instinct MI300X, Instinct MI325X" in note
    assert "specs.toml" in unknown_device_note("gfx9999")


def test_measured_devices_of_another_source_agree():
    """The specifications that came with measurements on five GPUs; NeuSight's flop/s are at the clock it ran at."""
    root = os.environ.get("PHASEPOINT_DATA")
    if root is None:
        pytest.skip("PHASEPOINT_DATA does not say where the measured data is")
    paths = sorted(Path(root, "learn", "gpu_ops", "devices").glob("*.json"))
    assert len(paths) == 5
    for path in paths:
        theirs = json.loads(path.read_text(encoding="utf-8"))
        ours = device_spec(theirs["Device"])
        assert ours.memory_bytes_per_s.value == theirs["Mem_Bw"] * 1e9, path.name
        assert ours.flop_per_s["f32"].value == pytest.approx(theirs["SingleFLOPs"] * 1e9, rel=0.04), path.name
        assert theirs["Dev_Mem"] * 1e9 <= ours.memory_bytes.value <= (theirs["Dev_Mem"] + 1) * 1e9, path.name


def test_names_in_real_traces_are_found_or_known_to_be_ambiguous():
    """`AMD Radeon Graphics` is what an MI250 without its product's name reports; ARTEMIS publishes no peaks."""
    root = os.environ.get("PHASEPOINT_DATA")
    if root is None:
        pytest.skip("PHASEPOINT_DATA does not say where the measured data is")
    names = set()
    for path in Path(root, "traces", "kineto").glob("*.json.gz"):
        text = gzip.decompress(path.read_bytes()).decode("utf-8", "replace")
        properties = re.search(r'"deviceProperties"\s*:\s*\[(.*?)\]', text, re.DOTALL)
        names |= set(re.findall(r'"name"\s*:\s*"([^"]*)"', properties[1])) if properties else set()
    for path in Path(root, "traces", "rocprof").glob("*.json.gz"):
        text = gzip.decompress(path.read_bytes()).decode("utf-8", "replace")
        names |= {name for name in re.findall(r'"product_name"\s*:\s*"([^"]*)"', text) if "Instinct" in name}
    assert len(names) > 5
    assert {name for name in names if device_spec(name) is None} == {"", "AMD Radeon Graphics", "ARTEMIS"}


def test_lanes_times_clock_is_the_published_peak_of_f32():
    """Two flop per lane and clock; matrix cores of AMD's CDNA double or quadruple what the lanes do."""
    checked = 0
    for spec in device_specs():
        if spec.chip is None:
            continue
        chip = spec.chip
        lanes = 2 * chip.multiprocessors.value * chip.f32_lanes.value * chip.clock_hz.value
        ratio = spec.flop_per_s["f32"].value / lanes
        assert any(abs(ratio - times) < 0.035 * times for times in ((1, 2) if spec.vendor == "AMD" else (1,))), (
            spec.name,
            ratio,
        )
        checked += 1
    assert checked >= 40


@pytest.mark.parametrize(
    ("name", "multiprocessors", "cache_mib", "clock_mhz", "power_w"),
    [
        ("Tesla P4", 20, 2, 1063, 75),
        ("NVIDIA_A100-PCIE-40GB", 108, 40, 1410, 250),
        ("NVIDIA H100 80GB HBM3", 132, 50, 1980, 700),
        ("NVIDIA L4", 58, 48, 2040, 72),
        ("AMD Instinct MI250", 104, 8, 1700, 280),  # one of two devices on the chip
    ],
)
def test_chip_of_one_device(name, multiprocessors, cache_mib, clock_mhz, power_w):
    chip = device_spec(name).chip
    assert (chip.multiprocessors.value, chip.cache_bytes.value) == (multiprocessors, cache_mib * 2**20)
    assert (chip.clock_hz.value, chip.power_w.value) == (clock_mhz * 1e6, power_w)


def test_gpus_have_a_chip_where_its_figures_are_published():
    without = {spec.name for spec in device_specs() if spec.chip is None and spec.vendor != "Google"}
    assert without == {"B100", "B300 SXM"}
    assert device_spec("TPU v4").chip is None
