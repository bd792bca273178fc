"""Choosing a convolution's solver: tables, training, evaluation, and what is said of bad input."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from phasepoint.core.errors import ModelError
from phasepoint.learn.choosing import solvers
from phasepoint.learn.choosing.convolutions import parse_conv_problem, read_solvers, shapes_seen
from phasepoint.learn.choosing.solver_network import SolverTraining
from phasepoint.learn.choosing.solvers import SolverModel, evaluate, evaluate_table, mean_tau, train
from phasepoint.learn.models.model_file import StoredModel, read_model, write_model
from phasepoint.learn.tasks import kendall_tau

SMALL = SolverTraining(networks=1, width=16, epochs=60, batch=32)


def _silent(_done, _total):
    pass


def _key(channels, batch, direction="F"):
    return f"{channels}-14-14-1x1-{channels}-14-14-{batch}-0x0-1x1-1x1-0-NCHW-FP32-{direction}"


def _write(path, rows):
    columns = list(zip(*rows, strict=True)) if rows else [(), (), ()]
    names = ("problem", "solver", "time_ms")
    types = (pa.string(), pa.string(), pa.float64())
    pq.write_table(pa.table({n: pa.array(c, t) for n, c, t in zip(names, columns, types, strict=True)}), path)
    return path


def _measured(n=400):
    """Winograd wins at small batches, the matrix product at large ones; a third solver never does."""
    random = np.random.default_rng(1)
    rows = []
    for place in range(n):
        channels, batch = 8 * int(random.integers(1, 60)), int(random.integers(1, 200))
        key = _key(channels, batch, "FBW"[place % 3])
        rows += [(key, "Winograd", 0.01 * batch), (key, "Gemm", 0.3 + 0.004 * batch), (key, "Naive", 5.0 + batch)]
    return rows


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("conv")
    _write(path / "gfx1.parquet", _measured())
    return path


@pytest.fixture(scope="module")
def model(folder):
    pytest.importorskip("jax")
    return train(folder, seed=3, progress=_silent, settings=SMALL)


def test_a_table_holds_the_least_time_and_says_what_it_leaves_out(tmp_path):
    rows = [
        (_key(8, 1), "A", 2.0),
        (_key(8, 1), "A", 1.0),
        (_key(8, 1), "B", 4.0),
        (_key(8, 2), "A", 1.0),
        ("nonsense", "A", 1.0),
        ("nonsense", "B", 1.0),
        (_key(8, 1), "C", None),
        (_key(8, 1), "C", 0.0),
        (None, "C", 1.0),
    ]
    table = read_solvers(_write(tmp_path / "d.parquet", rows))
    assert (table.device, table.keys) == ("d", (_key(8, 1),))
    assert table.problems == (parse_conv_problem(_key(8, 1)),)
    times = dict(zip(table.solvers, np.exp(table.log_time[0].astype(float)), strict=True))
    assert times["A"] == pytest.approx(1.0)
    assert times["B"] == pytest.approx(4.0)
    assert np.isnan(times["C"])
    assert table.notes == (
        "d: 3 rows without a time above 0 are left out",
        "d: 1 problems whose key is not understood are left out, the first is 'nonsense'",
        "d: 1 problems with fewer than two measured solvers are left out",
    )


def test_training_learns_the_rule_and_errors_stand_in_the_card(model, folder):
    found = evaluate(model, folder, seed=0, progress=_silent)
    (row,) = found.rows
    table = read_solvers(folder / "gfx1.parquet")
    assert (row.group, row.n) == ("gfx1", len(table.keys))
    assert row.regret < 0.03
    assert row.top1 > 0.9
    assert row.mape < 0.3
    assert row.tau > 0.9
    held = model.card["errors"]["held back, by problem"]
    assert 0 < held["n"] < 60
    assert model.card["device"] == "gfx1"
    assert "within 5 % of the best" in found.notes[0]


def test_the_same_seed_gives_the_same_model(model, folder):
    again = train(folder, seed=3, progress=_silent, settings=SMALL)
    other = train(folder, seed=4, progress=_silent, settings=SMALL)
    assert model.arrays.keys() == again.arrays.keys()
    for name, array in model.arrays.items():
        np.testing.assert_array_equal(array, again.arrays[name])
    assert (model.arrays["w0_1"] != other.arrays["w0_1"]).any()


def test_a_stored_model_says_the_same(model, folder, tmp_path):
    write_model(model, tmp_path / "m")
    stored = read_model(tmp_path / "m", kind="solvers")
    before, after = (evaluate(m, folder, seed=0, progress=_silent).rows for m in (model, stored))
    assert before == after
    assert stored.arrays["w0_0"].dtype == np.float16


def test_a_choice_is_made_among_the_applicable(model):
    solver = SolverModel.from_model(model)
    assert solver.choose(parse_conv_problem(_key(64, 190)), ["Winograd", "Gemm", "Naive"]) == "Gemm"
    assert solver.choose(parse_conv_problem(_key(64, 10)), ["Winograd", "Gemm", "Naive"]) == "Winograd"
    assert solver.choose(parse_conv_problem(_key(64, 190)), ["Winograd", "Naive"]) == "Winograd"
    assert solver.choose(parse_conv_problem(_key(64, 190)), ["Unheard"]) is None


def test_solvers_that_the_model_does_not_know_are_said(model, tmp_path):
    rows = [
        *[(_key(64, 10), name, time) for name, time in (("New", 0.05), ("Winograd", 0.1), ("Naive", 15.0))],
        *[(_key(64, 20), name, time) for name, time in (("New", 0.05), ("Newer", 0.1))],
    ]
    table = read_solvers(_write(tmp_path / "gfx1.parquet", rows))
    row, notes = evaluate_table(SolverModel.from_model(model), table)
    assert row.n == 1
    assert row.regret == pytest.approx(1.0)  # the best is new: Winograd is taken
    assert row.top1 == 0.0
    assert notes[0] == "gfx1: solvers that the model does not know are never chosen: New, Newer"
    assert notes[1] == "gfx1: 1 problems of which it knows no measured solver are left out"


def test_other_devices_are_left_out_with_a_note(model, folder, tmp_path):
    _write(tmp_path / "gfx1.parquet", _measured(20))
    _write(tmp_path / "gfx2.parquet", _measured(20))
    found = evaluate(model, tmp_path, seed=0, progress=_silent)
    assert [row.group for row in found.rows] == ["gfx1"]
    assert "gfx2: left out, the model is of gfx1" in found.notes
    (tmp_path / "gfx1.parquet").unlink()
    with pytest.raises(ModelError, match="gfx2: left out, the model is of gfx1"):
        evaluate(model, tmp_path, seed=0, progress=_silent)


def test_the_shipped_models_are_taken_by_device(monkeypatch, model, folder, tmp_path):
    monkeypatch.setattr(solvers, "builtin_models", lambda: ("conv-solvers-gfx1",))
    monkeypatch.setattr(solvers, "read_model", lambda path, kind: model)
    assert [row.group for row in evaluate(None, folder, seed=0, progress=_silent).rows] == ["gfx1"]
    _write(tmp_path / "gfx9.parquet", _measured(20))
    with pytest.raises(ModelError, match="gfx9: left out, no model of that device came with the package"):
        evaluate(None, tmp_path, seed=0, progress=_silent)


def test_tau_is_that_of_each_problem():
    random = np.random.default_rng(0)
    predicted, measured = random.integers(0, 5, (40, 6)).astype(float), random.integers(0, 5, (40, 6)).astype(float)
    absent = random.random((40, 6)) < 0.3
    predicted[absent] = measured[absent] = np.nan
    each = [kendall_tau(p[~np.isnan(p)], m[~np.isnan(m)]) for p, m in zip(predicted, measured, strict=True)]
    assert mean_tau(predicted, measured) == pytest.approx(np.mean([tau for tau in each if tau is not None]))
    assert mean_tau(np.full((2, 3), np.nan), np.full((2, 3), np.nan)) is None


def test_shapes_are_the_same_but_for_batch_type_and_direction():
    forward = parse_conv_problem("64-55-55-3x3-128-28-28-16-1x1-2x2-1x1-0-NCHW-FP32-F")
    like = parse_conv_problem("128-28-28-3x3-64-55-55-2-1x1-2x2-1x1-0-NCHW-BF16-W")
    unlike = parse_conv_problem("128-28-28-3x3-64-55-55-2-1x1-2x2-1x1-0-NCHW-BF16-W_g2")
    assert shapes_seen([like, unlike], [forward]).tolist() == [True, False]


def test_bad_input_is_refused_with_what_was_expected(tmp_path, folder):
    with pytest.raises(ModelError, match="holds no parquet file"):
        train(tmp_path, seed=0, progress=_silent)
    pq.write_table(pa.table({"problem": ["x"], "time_ms": [1.0]}), tmp_path / "a.parquet")
    with pytest.raises(ModelError, match="has no column solver; expected problem, solver, time_ms"):
        train(tmp_path, seed=0, progress=_silent)
    (tmp_path / "a.parquet").write_text("no parquet")
    with pytest.raises(ModelError, match="cannot be read as parquet"):
        train(tmp_path, seed=0, progress=_silent)
    pq.write_table(pa.table({"ordinary": ["x"]}), tmp_path / "a.parquet")
    damaged = (tmp_path / "a.parquet").read_bytes().replace(b"ordinary", b"ord\x8anary")
    (tmp_path / "a.parquet").write_bytes(damaged)
    with pytest.raises(ModelError, match="cannot be read as parquet"):
        train(tmp_path, seed=0, progress=_silent)
    _write(tmp_path / "a.parquet", [])
    with pytest.raises(ModelError, match="no problem with two measured solvers; it is empty"):
        train(tmp_path, seed=0, progress=_silent)
    pq.write_table(pa.table({"problem": ["x"], "solver": ["s"], "time_ms": ["fast"]}), tmp_path / "a.parquet")
    with pytest.raises(ModelError, match="time_ms holds no numbers"):
        train(tmp_path, seed=0, progress=_silent)
    _write(tmp_path / "b.parquet", _measured(5))
    with pytest.raises(ModelError, match=r"several devices \(a, b\)"):
        train(tmp_path, seed=0, progress=_silent)
    with pytest.raises(ModelError, match=r"no file of 'c'; there are a, b"):
        train(tmp_path, seed=0, progress=_silent, device="c")
    with pytest.raises(ModelError, match="of kind 'kernels'"):
        evaluate(StoredModel("m", "kernels", {}, {"device": "gfx1"}), folder, seed=0, progress=_silent)
