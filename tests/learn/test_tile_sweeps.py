"""Tiles of a kernel on a device that nobody tuned it for: sweeps, the stored model, and what is said of bad input."""

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from phasepoint.core.errors import ModelError
from phasepoint.learn.choosing import tile_sweeps
from phasepoint.learn.choosing.sweep_table import read_sweeps
from phasepoint.learn.choosing.tile_sweeps import evaluate, known_sweeps, learn_sweep, train, tune_sweep
from phasepoint.learn.models.model_file import StoredModel, read_model, write_model

NAMES = ("block_size_x", "tile_size_x", "unroll")


def _silent(_done, _total):
    pass


def _write(path, best_block, *, speed=1.0, names=NAMES):
    """A bowl around a block size and tile 4; blocks of 512 do not run."""
    rows = [(b, t, u) for b in (16, 32, 48, 64, 96, 128, 192, 256, 512) for t in (1, 2, 4, 8) for u in (0, 1, 2, 4)]
    away = [np.log2(b / best_block) ** 2 + np.log2(t / 4) ** 2 + 0.3 * (u != 2) for b, t, u in rows]
    times = [None if row[0] == 512 else speed * (1 + 0.3 * a) for row, a in zip(rows, away, strict=True)]
    columns = dict(zip(names, zip(*rows, strict=True), strict=True))
    pq.write_table(pa.table({**columns, "time_ms": pa.array(times, pa.float64())}), path)


@pytest.fixture
def folder(tmp_path):
    _write(tmp_path / "gemm_big_A.parquet", 64)
    _write(tmp_path / "gemm_big_B.parquet", 96, speed=20.0)
    _write(tmp_path / "stencil_A.parquet", 128)
    return tmp_path


def test_sweeps_are_read_by_kernel_and_device(folder):
    sweeps = read_sweeps(folder)
    assert [(sweep.kernel, sweep.device) for sweep in sweeps] == [
        ("gemm_big", "A"),
        ("gemm_big", "B"),
        ("stencil", "A"),
    ]
    assert sweeps[0].names == NAMES
    assert sweeps[0].configs.shape == (144, 3)
    assert np.isnan(sweeps[0].time_ms).sum() == 16
    assert np.nanmin(sweeps[1].time_ms) == pytest.approx(20.0)


def test_repeated_configurations_keep_the_least_time(tmp_path):
    rows = {"a": [2, 1, 2, 1], "time_ms": [3.0, 5.0, 2.0, None]}
    pq.write_table(pa.table(rows), tmp_path / "k_d.parquet")
    (sweep,) = read_sweeps(tmp_path)
    assert sweep.configs.tolist() == [[1], [2]]
    assert sweep.time_ms.tolist() == [5.0, 2.0]
    assert sweep.notes == ("k_d: 2 rows repeat a configuration; the least time counts",)


def test_ten_measurements_are_enough_with_another_device(folder):
    model = train(folder, seed=0, progress=_silent, leave_out="B", iterations=40)
    assert [row["device"] for row in model.card["sweeps"]] == ["A", "A"]
    (row,) = [row for row in evaluate(model, folder, seed=0, progress=_silent).rows if row.group == "gemm_big_B"]
    assert (row.n, row.top1) == (144, 1.0)
    assert row.regret == pytest.approx(0.0, abs=1e-9)
    assert row.tau > 0.5
    assert row.mape > 0


def test_a_device_is_never_a_prior_of_itself(folder):
    model = train(folder, seed=0, progress=_silent, iterations=40)
    notes = evaluate(model, folder, seed=0, progress=_silent).notes
    assert notes == (
        "gemm_big_A: priors from B",
        "gemm_big_B: priors from A",
        "stencil_A: no other device is known, searched from nothing",
    )
    alone = folder / "only"
    alone.mkdir()
    (folder / "gemm_big_A.parquet").rename(alone / "gemm_big_A.parquet")
    with_model = evaluate(model, alone, seed=0, progress=_silent)
    assert with_model.notes == ("gemm_big_A: priors from B",)
    without_own = train(folder, seed=0, progress=_silent, leave_out="A", iterations=40)
    assert evaluate(without_own, alone, seed=0, progress=_silent).rows == with_model.rows


def test_without_any_other_device_a_search_still_runs(folder, monkeypatch):
    monkeypatch.setattr(tile_sweeps, "builtin_models", tuple)
    found = evaluate(None, folder / "stencil_A.parquet", seed=0, progress=_silent)
    (row,) = found.rows
    assert (row.mape, row.tau) == (None, None)
    assert row.regret < 0.5
    assert "no model of tiles came with the package" in found.notes[0]


def test_the_shipped_model_is_taken_where_none_is_given(folder, monkeypatch):
    model = train(folder, seed=0, progress=_silent, leave_out="B", iterations=40)
    monkeypatch.setattr(tile_sweeps, "builtin_models", lambda: ("tile-sweeps",))
    monkeypatch.setattr(tile_sweeps, "read_model", lambda path, kind: model)
    found = evaluate(None, folder / "gemm_big_B.parquet", seed=0, progress=_silent)
    assert found.model == "builtin"
    assert found.notes == ("gemm_big_B: priors from A",)


def test_other_parameters_are_no_prior_and_their_order_does_not_matter(folder):
    (folder / "gemm_big_B.parquet").unlink()
    known = learn_sweep(read_sweeps(folder)[0])
    _write(folder / "gemm_big_C.parquet", 64, names=("block_size_x", "tile_size_y", "unroll"))
    _, other, _ = read_sweeps(folder)
    assert not known.fits(other)
    table = pq.read_table(folder / "gemm_big_A.parquet")
    pq.write_table(table.select(["unroll", "time_ms", "tile_size_x", "block_size_x"]), folder / "gemm_big_C.parquet")
    first, turned, _ = read_sweeps(folder)
    assert known.fits(turned)
    np.testing.assert_array_equal(
        known.predict(first.names, first.configs), known.predict(turned.names, turned.configs[:, [2, 1, 0]][:, ::-1])
    )


def test_training_is_deterministic_and_stored_whole(folder, tmp_path):
    model, again = (train(folder, seed=0, progress=_silent, iterations=20) for _ in range(2))
    write_model(model, tmp_path / "m")
    stored = read_model(tmp_path / "m", kind="tile_sweeps")
    for name, array in model.arrays.items():
        np.testing.assert_array_equal(array, again.arrays[name])
        np.testing.assert_array_equal(array, stored.arrays[name])
    rows = [evaluate(one, folder, seed=0, progress=_silent).rows for one in (model, stored)]
    assert rows[0] == rows[1]
    assert model.card["errors"]["gemm_big_B"]["n"] == 144


def test_every_method_searches_a_sweep(folder):
    sweep = read_sweeps(folder)[0]
    best = round(float(np.nanmin(sweep.time_ms)) * 1e9)
    for method in ("annealing", "random", "exhaustive"):
        assert tune_sweep(sweep, method=method, budget=144).best.time_ps == best


def test_nothing_that_runs_is_said(tmp_path):
    times = pa.array([None] * 40 + [1.0], pa.float64())
    pq.write_table(pa.table({"p": list(range(41)), "time_ms": times}), tmp_path / "k_d.parquet")
    model = StoredModel("m", "tile_sweeps", {}, {"sweeps": []})
    found = evaluate(model, tmp_path, seed=0, progress=_silent, budget=2)
    assert (found.rows[0].regret, found.rows[0].top1) == (None, 0.0)
    assert "none of 2 measured configurations runs" in found.notes[0]


def test_bad_input_is_refused_with_what_was_expected(tmp_path):
    def refused(match, **columns):
        pq.write_table(pa.table(columns), tmp_path / "k_d.parquet")
        with pytest.raises(ModelError, match=match):
            train(tmp_path, seed=0, progress=_silent)

    with pytest.raises(ModelError, match=r"one per kernel and device, KERNEL_DEVICE\.parquet, is expected"):
        train(tmp_path, seed=0, progress=_silent)
    refused("parameters and time_ms are expected", a=[1])
    refused("parameters and time_ms are expected", time_ms=[1.0])
    refused("parameters are whole numbers", a=["x"], time_ms=[1.0])
    refused("parameters are whole numbers", a=[0.5], time_ms=[1.0])
    refused("a parameter is missing in some rows", a=[1, None], time_ms=[1.0, 2.0])
    refused("no configuration that runs", a=[1], time_ms=pa.array([None], pa.float64()))
    (tmp_path / "k_d.parquet").write_text("x")
    with pytest.raises(ModelError, match="cannot be read as parquet"):
        train(tmp_path, seed=0, progress=_silent)
    pq.write_table(pa.table({"ordinary": [1], "time_ms": [1.0]}), tmp_path / "k_d.parquet")
    damaged = (tmp_path / "k_d.parquet").read_bytes().replace(b"ordinary", b"ord\x8anary")
    (tmp_path / "k_d.parquet").write_bytes(damaged)
    with pytest.raises(ModelError, match="cannot be read as parquet"):
        train(tmp_path, seed=0, progress=_silent)
    (tmp_path / "k_d.parquet").rename(tmp_path / "kd.parquet")
    with pytest.raises(ModelError, match="does not say kernel and device"):
        train(tmp_path, seed=0, progress=_silent)
    _write(tmp_path / "kd.parquet", 64)
    (tmp_path / "kd.parquet").rename(tmp_path / "k_d.parquet")
    with pytest.raises(ModelError, match="only sweeps of d, which are left out"):
        train(tmp_path, seed=0, progress=_silent, leave_out="d")
    with pytest.raises(ModelError, match="of kind 'operators'"):
        evaluate(StoredModel("m", "operators", {}), tmp_path, seed=0, progress=_silent)
    with pytest.raises(ModelError, match=r"is missing; train the model anew"):
        known_sweeps(StoredModel("m", "tile_sweeps", {}, {}))


DATA = Path(os.environ.get("PHASEPOINT_DATA", "/nonexistent")) / "learn" / "tile_sweeps"


@pytest.mark.data
@pytest.mark.skipif(not DATA.is_dir(), reason="PHASEPOINT_DATA does not name a folder with learn/tile_sweeps")
def test_measured_sweeps_are_read_whole():
    sweeps = read_sweeps(DATA)
    assert all(len(np.unique(sweep.configs, axis=0)) == len(sweep.configs) > 1000 for sweep in sweeps)
    assert all(sweep.notes == () for sweep in sweeps)
