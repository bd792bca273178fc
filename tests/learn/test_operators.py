import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phasepoint.core.errors import ModelError
from phasepoint.devices import device_spec, device_specs
from phasepoint.learn.models.model_file import StoredModel, read_model, write_model
from phasepoint.learn.operators.fit import calibrate, fit_operators, nested_coverage, widened
from phasepoint.learn.operators.task import Operator, OperatorModel, evaluate, operator_class

TRAINED_ON = ("Tesla T4", "Tesla V100-PCIE-32GB", "NVIDIA A100-PCIE-40GB", "Tesla P100-PCIE-16GB")
NEW = ("NVIDIA H100 80GB HBM3", "NVIDIA_L4")
GPUS = [spec for spec in device_specs() if spec.chip is not None]


def relu_s(spec, elements):
    """The law of the test: 80 % of the bandwidth after 6 µs, behind a dispatch of 25 µs."""
    return np.maximum(25e-6, 6e-6 + 8 * elements / (0.8 * spec.memory_bytes_per_s.value))


def linear_s(spec, m, n, k):
    """Half of the peak, behind a dispatch of 40 µs."""
    return np.maximum(40e-6, 2.0 * m * n * k / (0.5 * spec.flop_per_s["f32"].value))


def write_folder(folder, devices, *, rows=150, seed=0):
    random = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    relu, linear = [], []
    for name in devices:
        spec = device_spec(name)
        b, h = (np.exp(random.uniform(np.log(64), np.log(16384), rows)).astype(int) for _ in range(2))
        dims = {"B": b, "H": h, "latency_ms": 1e3 * relu_s(spec, b * h)}
        relu.append(pa.table({"device": [name] * rows, "op": ["relu"] * rows, **dims}))
        m, n, k = (128 * random.integers(4, 40, rows) for _ in range(3))
        dims = {"B": [1] * rows, "M": m, "N": n, "K": k, "latency_ms": 1e3 * linear_s(spec, m, n, k)}
        linear.append(pa.table({"device": [name] * rows, "op": ["linear"] * rows, **dims}))
    pq.write_table(pa.concat_tables(relu), folder / "relu.parquet")
    pq.write_table(pa.concat_tables(linear), folder / "linear.parquet")
    return folder


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = write_folder(tmp_path_factory.mktemp("gpu_ops"), TRAINED_ON)
    return fit_operators(folder, seed=0, steps=400)


def rows_of(evaluation):
    return {row.group: row for row in evaluation.rows}


def test_a_known_law_is_found_on_devices_that_were_not_seen(trained, tmp_path):
    rows = rows_of(evaluate(trained, write_folder(tmp_path / "new", NEW, seed=1)))
    assert list(rows) == [
        *("linear", "element-wise"),
        *(f"{kind} / {name}" for kind in ("linear", "element-wise") for name in sorted(NEW)),
    ]
    assert rows["element-wise"].n == 300
    for name in NEW:
        assert rows[f"element-wise / {name}"].mape < 0.06
    assert rows["linear / NVIDIA H100 80GB HBM3"].mape < 0.25


def test_the_error_that_is_reported_is_that_of_the_predictions(trained, tmp_path):
    """An independent loop over the file's rows."""
    folder = write_folder(tmp_path / "new", NEW[:1], seed=2)
    (folder / "linear.parquet").unlink()
    model, spec = OperatorModel.from_model(trained), device_spec(NEW[0])
    errors = []
    for row in pq.read_table(folder / "relu.parquet").to_pylist():
        guess = model.predict([Operator("relu", {"B": row["B"], "H": row["H"]})], spec).time_ps[0]
        errors.append(abs(guess / 1e9 - row["latency_ms"]) / row["latency_ms"])
    (whole, one) = evaluate(trained, folder).rows
    assert whole.mape == pytest.approx(np.mean(errors), rel=1e-9)
    assert (one.group, one.mape) == (f"element-wise / {NEW[0]}", whole.mape)


def test_same_seed_same_arrays_and_another_seed_others(tmp_path):
    folder = write_folder(tmp_path, TRAINED_ON[:2], rows=40)
    (folder / "linear.parquet").unlink()
    first, again, other = (fit_operators(folder, seed=seed, steps=20) for seed in (3, 3, 4))
    assert all(np.array_equal(first.arrays[name], again.arrays[name]) for name in first.arrays)
    assert not np.array_equal(first.arrays["element-wise/w1"], other.arrays["element-wise/w1"])


def test_half_of_the_members_of_products_do_not_see_the_generation_and_unseen_terms_are_off(trained):
    weights = trained.arrays["linear/w1"][:, -2:]
    assert len(weights) == 4 * (1 + len(TRAINED_ON))
    assert (weights[1::2] == 0).all()
    assert (np.abs(weights[0::2]).max(axis=(1, 2)) > 0).all()
    assert (trained.arrays["linear/large"] < -9).all()  # only P4's kind has it
    names = [TRAINED_ON[i] for i in np.argsort([device_spec(name).name for name in TRAINED_ON])]
    place = 1 + names.index("Tesla P100-PCIE-16GB")
    off = trained.arrays["linear/rows"] < -9
    assert list(np.flatnonzero(off)) == list(range(4 * place, 4 * place + 4))


DIM = st.integers(1, 9000)


@given(st.tuples(DIM, DIM, DIM, DIM), st.sampled_from(GPUS), st.booleans())
@settings(max_examples=150)
def test_no_prediction_lies_below_the_physical_bound(trained, dims, spec, dispatch):
    model = OperatorModel.from_model(trained)
    b, m, n, k = dims
    operators = [
        Operator("linear", {"B": b, "M": m, "N": n, "K": k}),
        Operator("relu", {"B": b, "H": m}),
        Operator("fusion", {"bytes_read": 4 * m * n, "bytes_written": 4 * m, "flop": m * n * k}),
    ]
    said = model.predict(operators, spec, dispatch=dispatch)
    peak, bandwidth = spec.flop_per_s["f32"].value, spec.memory_bytes_per_s.value
    flop = np.array([2.0 * b * m * n * k, b * m, m * n * k])
    moved = 4.0 * np.array([b * m * k + n * k + b * m * n, 2 * b * m, m * n + m])
    np.testing.assert_allclose(said.bound_ps, 1e12 * np.maximum(flop / peak, moved / bandwidth), rtol=1e-12)
    assert (said.time_ps >= said.bound_ps).all()
    assert (said.low_ps >= said.bound_ps * (1 - 1e-12)).all()
    assert (said.low_ps <= said.time_ps).all()
    assert (said.high_ps >= said.time_ps * (1 - 1e-12)).all()
    assert (said.distance >= 0).all()
    assert np.isfinite(said.high_ps).all()


def test_answers_do_not_hang_on_what_else_is_asked(trained):
    model, spec = OperatorModel.from_model(trained), device_spec("NVIDIA L4")
    operators = [
        Operator("relu", {"B": 1000, "H": 1000}),
        Operator("linear", {"B": 1, "M": 512, "N": 512, "K": 512}),
        Operator("tanh", {"B": 7, "H": 9}),  # in no file: its class is known
        Operator("linear", {"B": 2, "M": 256, "N": 512, "K": 512}),
    ]
    together = model.predict(operators, spec)
    alone = [model.predict([operator], spec).time_ps[0] for operator in operators]
    np.testing.assert_allclose(together.time_ps, alone, rtol=1e-12)
    assert together.time_ps[1] == together.time_ps[3]  # one matrix of weights: rows are rows


def test_a_compiled_program_does_not_pay_for_dispatch(trained):
    model, spec = OperatorModel.from_model(trained), device_spec("NVIDIA L4")
    tiny = [Operator("relu", {"B": 1, "H": 1})]
    assert model.predict(tiny, spec).time_ps[0] == pytest.approx(25e6, rel=0.1)
    assert model.predict(tiny, spec, dispatch=False).time_ps[0] < 5e6


def test_distance_grows_outside_and_the_interval_with_it(trained):
    model = OperatorModel.from_model(trained)
    inside = [Operator("relu", {"B": 2048, "H": 1024})]
    outside = [Operator("relu", {"B": 2**20, "H": 2**14})]
    known, new = device_spec("Tesla T4"), device_spec("NVIDIA B200")
    assert model.predict(inside, known).distance[0] == 0
    assert model.predict(outside, known).distance[0] > 3
    assert model.predict(inside, new).distance[0] > 0
    other_maker = model.predict(inside, device_spec("AMD Instinct MI210")).distance[0]
    assert other_maker > 1
    wide = [
        np.log(said.high_ps[0] / said.low_ps[0])
        for said in (model.predict(inside, known), model.predict(outside, known))
    ]
    assert wide[1] > wide[0]


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        ("bmm", "bmm"),
        ("linear", "linear"),
        ("powu", "element-wise"),
        ("fusion", "element-wise"),
        ("softmax", "softmax"),
    ],
)
def test_classes(op, expected):
    assert operator_class(op) == expected


def test_bad_operators(trained):
    model, spec = OperatorModel.from_model(trained), device_spec("NVIDIA L4")
    with pytest.raises(ModelError, match="no operator 'frobnicate'"):
        operator_class("frobnicate")
    with pytest.raises(ModelError, match="linear has no K"):
        model.predict([Operator("linear", {"B": 1, "M": 1, "N": 1})], spec)
    with pytest.raises(ModelError, match="H must be at least 1, found 0"):
        model.predict([Operator("relu", {"B": 1, "H": 0})], spec)
    with pytest.raises(ModelError, match="element type 'c64'"):
        model.predict([Operator("relu", {"B": 1, "H": 1}, "c64")], spec)
    with pytest.raises(ModelError, match="has seen no softmax"):
        model.predict([Operator("softmax", {"B": 1, "H": 1})], spec)
    with pytest.raises(ModelError, match="TPU v4: multiprocessors"):
        model.predict([Operator("relu", {"B": 1, "H": 1})], device_spec("TPU v4"))
    with pytest.raises(ModelError, match="kind 'solvers'"):
        OperatorModel.from_model(StoredModel("x", "solvers", {}))
    with pytest.raises(ModelError, match="damaged"):
        OperatorModel.from_model(StoredModel("x", "operators", {}, trained.card))


def test_a_model_survives_its_folder(trained, tmp_path):
    write_model(trained, tmp_path / "model")
    back = read_model(tmp_path / "model", kind="operators")
    assert sum(file.stat().st_size for file in (tmp_path / "model").iterdir()) < 700_000
    asked, spec = [Operator("relu", {"B": 300, "H": 300})], device_spec("NVIDIA L4")
    first, second = (OperatorModel.from_model(model).predict(asked, spec) for model in (trained, back))
    assert first.time_ps[0] == second.time_ps[0]


def write_rows(folder, **columns):
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), folder / "some.parquet")
    return folder


def test_unknown_devices_operators_and_rows_are_left_out_and_said(trained, tmp_path):
    folder = write_folder(tmp_path, NEW[:1], rows=30)
    write_rows(
        folder,
        device=["GPU of tomorrow", NEW[0], NEW[0], NEW[0]],
        op=["relu", "sort", "relu", "relu"],
        latency_ms=[1.0, 1.0, 0.0, 0.5],
        B=[10, 10, 10, 10],
        H=[10, 10, 10, 0],
    )
    evaluation = evaluate(trained, folder)
    assert rows_of(evaluation)["element-wise"].n == 30
    left = [note for note in evaluation.notes if "left out" in note]
    assert len(left) == 3
    assert any("'GPU of tomorrow'" in note and "1 measurements" in note for note in left)
    assert any("'sort'" in note for note in left)
    assert any("2 measurements" in note for note in left)
    assert not any("trained on" in note for note in evaluation.notes)


def test_folders_that_cannot_be_used(trained, tmp_path):
    with pytest.raises(ModelError, match="holds no measurements"):
        evaluate(trained, tmp_path)
    with pytest.raises(ModelError, match="no column latency_ms"):
        evaluate(trained, write_rows(tmp_path / "a", device=["T4"], op=["relu"], B=[1], H=[1]))
    with pytest.raises(ModelError, match="relu needs the columns H"):
        evaluate(trained, write_rows(tmp_path / "b", device=["T4"], op=["relu"], latency_ms=[1.0], B=[1]))
    with pytest.raises(ModelError, match="no measurement can be used"):
        evaluate(trained, write_rows(tmp_path / "c", device=["?"], op=["relu"], latency_ms=[1.0], B=[1], H=[1]))
    with pytest.raises(ModelError, match="column B holds no numbers"):
        evaluate(trained, write_rows(tmp_path / "d", device=["T4"], op=["relu"], latency_ms=[1.0], B=["x"], H=[1]))
    with pytest.raises(ModelError, match="has seen none of its classes"):
        evaluate(trained, write_rows(tmp_path / "e", device=["T4"], op=["ln"], latency_ms=[1.0], B=[1], H=[1]))
    (tmp_path / "f").mkdir()
    (tmp_path / "f" / "x.parquet").write_bytes(b"PAR1 not")
    with pytest.raises(ModelError, match="cannot be read as parquet"):
        evaluate(trained, tmp_path / "f")
    damaged = write_rows(tmp_path / "g", ordinary=["T4"])
    for file in damaged.iterdir():
        file.write_bytes(file.read_bytes().replace(b"ordinary", b"ord\x8anary"))
    with pytest.raises(ModelError, match="cannot be read as parquet"):
        evaluate(trained, damaged)


def test_one_device_alone_can_be_trained_on(tmp_path):
    folder = write_folder(tmp_path, TRAINED_ON[:1], rows=40)
    (folder / "linear.parquet").unlink()
    model = fit_operators(folder, steps=20)
    assert model.arrays["element-wise/start"].shape == (1,)
    assert model.card["errors"]["element-wise"]["coverage_of_a_left_out_device"] == 0.0


def test_intervals_hold_a_device_that_was_left_out():
    """Devices that are off as a whole: quantiles of the others are too narrow by themselves, and are stretched."""
    random = np.random.default_rng(0)
    errors = [random.normal(shift, 0.1, 2000) for shift in (-0.3, -0.1, 0.0, 0.1, 0.3)]
    shares = [np.full(2000, 2.0)] * 5
    plain = nested_coverage(errors, shares, 1.0)
    quantiles, coverage = calibrate(errors, shares)
    assert plain < 0.85
    assert coverage >= 0.9
    low, high = widened(quantiles, np.array([2.0, 2.0]), np.array([0.0, 2.0]))
    assert low[1] == 2 * low[0] < 0
    assert high[1] == 2 * high[0] > 0


DATA = os.environ.get("PHASEPOINT_DATA")


@pytest.mark.data
@pytest.mark.skipif(not DATA, reason="PHASEPOINT_DATA names no folder with learn/gpu_ops")
def test_real_operators_on_a_device_left_out(tmp_path):
    source = Path(DATA) / "learn" / "gpu_ops"
    for op in ("relu", "ln"):
        table = pq.read_table(source / f"{op}.parquet")
        table = table.take(np.random.default_rng(0).permutation(table.num_rows)[:3000])
        for name, wanted in (("known", False), ("new", True)):
            (tmp_path / name).mkdir(exist_ok=True)
            chosen = np.array([device == "NVIDIA A100-PCIE-40GB" for device in table["device"].to_pylist()]) == wanted
            pq.write_table(table.filter(pa.array(chosen)), tmp_path / name / f"{op}.parquet")
    model = fit_operators(tmp_path / "known", steps=300)
    evaluation = evaluate(model, tmp_path / "new")
    rows = rows_of(evaluation)
    assert rows["element-wise"].mape < 0.193  # NeuSight's published errors on new GPUs
    assert rows["layer norm"].mape < 0.25
    assert not any("below the physical bound" in note for note in evaluation.notes)
