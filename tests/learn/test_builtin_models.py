"""The models that come with the package: what they weigh, what their cards say, and that they work as installed."""

from importlib.resources import files

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from phasepoint.core.errors import ModelError
from phasepoint.devices import device_spec
from phasepoint.learn.models.model_file import builtin_models, read_model
from phasepoint.learn.tasks import evaluate_task, find_task

EXPECTED = ("conv-solvers-gfx1030", "conv-solvers-gfx908", "gpu-ops", "kernels-cpu", "tile-sweeps", "tpu-tiles")
MOST_BYTES = 5_000_000
"""What all models together may weigh in an installation."""


def test_the_models_are_there_and_small():
    assert builtin_models() == EXPECTED
    folder = files("phasepoint.learn").joinpath("models")
    sizes = [len(file.read_bytes()) for name in EXPECTED for file in folder.joinpath(name).iterdir() if file.is_file()]
    assert sum(sizes) <= MOST_BYTES


@pytest.mark.parametrize("name", EXPECTED)
def test_a_card_says_what_a_model_is(name):
    card = read_model(f"builtin:{name}").card
    assert {"date", "seed", "errors", "corpus"} <= set(card)
    assert "device" in card or "devices" in card


def _write(folder, name, **columns):
    pq.write_table(pa.table(columns), folder / f"{name}.parquet")


def test_operators_of_a_device_that_nobody_trained_on(tmp_path):
    """Times at a fifth above the roofline of the device: what is said lies within the order of magnitude."""
    spec = device_spec("NVIDIA H100 80GB HBM3")
    sizes = np.array([1 << 26, 1 << 27, 1 << 28, 1 << 29])  # far above what starting a kernel takes
    times_ms = 1e3 * 1.2 * 12 * sizes / spec.memory_bytes_per_s.value
    rows = {"kernel": ["k"] * 4, "latency_ms": times_ms, "op": ["add"] * 4, "B": [1 << 10] * 4, "H": sizes >> 10}
    _write(tmp_path, "add", device=["NVIDIA H100 80GB HBM3"] * 4, **rows)
    _write(tmp_path, "mul", device=["Nobody's GPU"] * 4, **{**rows, "op": ["mul"] * 4})
    found = evaluate_task(find_task("gpu_ops"), "builtin", tmp_path)
    groups = {row.group: row for row in found.rows}
    assert groups["element-wise"].n == 4
    assert groups["element-wise"].mape < 0.3
    assert groups["element-wise"].tau == pytest.approx(1.0)
    assert any("Nobody's GPU" in note for note in found.notes)


PROBLEM = "128-28-28-1x1-64-28-28-16-0x0-1x1-1x1-0-NCHW-FP32-F"


def test_solvers_of_a_device_with_a_model(tmp_path):
    _write(
        tmp_path,
        "gfx908",
        problem=[PROBLEM] * 2,
        solver=["GemmFwd1x1_0_1", "ConvDirectNaiveConvFwd"],
        time_ms=[0.1, 10.0],
    )
    (row,) = evaluate_task(find_task("conv_solvers"), "builtin", tmp_path).rows
    assert (row.group, row.n, row.regret, row.top1) == ("gfx908", 1, 0.0, 1.0)


def test_solvers_of_a_device_without_a_model(tmp_path):
    _write(tmp_path, "gfx000", problem=[PROBLEM] * 2, solver=["a", "b"], time_ms=[0.1, 10.0])
    with pytest.raises(ModelError, match="gfx000"):
        evaluate_task(find_task("conv_solvers"), "builtin", tmp_path)


def test_a_tile_of_a_kernel_that_nobody_knows_in_ten_measurements(tmp_path):
    grid = [(x, y, t) for x in (16, 32, 64, 128) for y in (1, 2, 4, 8) for t in (1, 2, 4)]
    x, y, t = (np.array(column) for column in zip(*grid, strict=True))
    time_ms = 1.0 + np.abs(np.log2(x * y / 128)) + 0.3 * np.abs(t - 2)
    _write(tmp_path, "mine_A100", block_size_x=x, block_size_y=y, tile_size_x=t, time_ms=time_ms)
    (row,) = evaluate_task(find_task("tile_sweeps"), "builtin", tmp_path).rows
    assert (row.group, row.n) == ("mine_A100", 48)
    assert 0 <= row.regret <= 0.5
