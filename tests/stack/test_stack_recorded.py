"""All fifteen on recordings made here, and on real traces of GPUs."""

import os
from pathlib import Path

import pytest

from phasepoint.recorder import record
from phasepoint.sources.ingest.convert import convert_windows
from phasepoint.sources.ingest.import_run import import_file
from phasepoint.stack import ANALYSES, analyse
from phasepoint.stack.shard.layers import STAND_IN_NOTE
from phasepoint.store import open_run

FOLDER = Path(os.environ.get("PHASEPOINT_DATA", "/nonexistent")) / "traces"
FIFTEEN = [one.name for one in ANALYSES if one.code]
TRACES = [
    "kineto/h100_bert_small.json.gz",
    "kineto/h100_vit.json.gz",
    "kineto/a100_alexnet.json.gz",
    "kineto/mi250_toy.json.gz",
    "kineto/b200_eager.json.gz",
    "kineto/torch_compile_triton.json.gz",
    "xplane/gpu_jax_te_attention.xplane.pb",
    "xplane/mi300_jax_conv.xplane.pb",
]


def assert_closes(run):
    """Every table is there, and the kernels' times are the same in all that add them up."""
    tables = {name: analyse(run, name) for name in FIFTEEN}
    rows = {name: table.rows.to_pylist() for name, table in tables.items()}
    for name in FIFTEEN:
        assert rows[name] or tables[name].notes, name
    whole = {row["device"]: row for row in rows["kernels-by-model"]}
    assert whole
    for device, model in whole.items():
        for name, time in (
            ("kernel-information", "time_ps"),
            ("kernels-by-name", "device_ps"),
            ("layer-kernels", "device_ps"),
            ("layer-metrics", "device_ps"),
        ):
            mine = [row for row in rows[name] if row["device"] == device]
            assert sum(row[time] for row in mine) == model["device_ps"], name
        layers = [row for row in rows["layer-kernels"] if row["device"] == device]
        assert sum(r["device_ps"] for r in layers if r["layer"] is None) == model["unattributed_ps"]
        for quantity in ("flop", "bytes", "read_bytes", "write_bytes"):
            for name in ("kernel-information", "kernels-by-name", "layer-kernels"):
                mine = [row[quantity] for row in rows[name] if row["device"] == device]
                assert sum(value or 0 for value in mine) == (model[quantity] or 0), (name, quantity)
    for row in rows["device-share"]:
        assert row["latency_ps"] == row["device_ps"] + row["non_device_ps"]
        assert 0 <= row["device_ps"] <= row["latency_ps"]
    return rows, tables


@pytest.mark.torch
def test_a_recording_of_pytorch(tmp_path):
    torch = pytest.importorskip("torch")
    net = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with record(tmp_path / "run", budget=None, window_steps=3, framework="torch") as run:
        for x in run.steps([torch.ones(4, 16)] * 12):
            optimizer.zero_grad()
            net(x).sum().backward()
            optimizer.step()
    convert_windows(tmp_path / "run")
    rows, tables = assert_closes(open_run(tmp_path / "run"))
    types = {row["layer"]: row["type"] for row in rows["layer-information"]}
    if all(layer.startswith("aten::") for layer in types):  # operations stand for layers
        pytest.skip("another test of this process used torch.compile, after which layers are not marked")
    assert types == {
        "Sequential": "Sequential",
        "Sequential/0": "Linear",
        "Sequential/1": "ReLU",
        "Sequential/2": "Linear",
    }
    ways = {(row["layer"], row["direction"]) for row in rows["device-share"]}
    assert {("Sequential/0", "forward"), ("Sequential/0", "backward"), (None, "optimizer")} <= ways
    assert any("record_shapes=True" in note for note in tables["layer-kernels"].notes)
    assert any("profile_memory=True" in note for note in tables["layer-memory"].notes)


@pytest.mark.jax
def test_a_recording_of_jax(tmp_path):
    jax = pytest.importorskip("jax")

    @jax.jit
    def step(w, x):
        def loss(w):
            with jax.named_scope("Net"), jax.named_scope("dense_0"):
                return (x @ w).sum()

        return w - jax.grad(loss)(w)

    w, x = jax.numpy.ones((32, 16)), jax.numpy.ones((8, 32))
    with record(tmp_path / "run", budget=None, window_steps=3, framework="jax") as run:
        for batch in run.steps([x] * 12):
            w = step(w, batch)
            w.block_until_ready()
    convert_windows(tmp_path / "run")
    rows, _ = assert_closes(open_run(tmp_path / "run"))
    found = {row["layer"]: row for row in rows["layer-kernels"]}
    assert found["Net/dense_0"]["type"] == "dense"
    assert found["Net/dense_0"]["flop_source"] == "compiler"
    assert ("Net/dense_0", "backward") in {(row["layer"], row["direction"]) for row in rows["device-share"]}


@pytest.mark.data
@pytest.mark.parametrize("name", TRACES)
def test_real_traces(name, tmp_path):
    if not FOLDER.is_dir():
        pytest.skip("PHASEPOINT_DATA does not name a folder with traces")
    import_file(FOLDER / name, name.partition("/")[0], tmp_path / "run", 0)
    rows, tables = assert_closes(open_run(tmp_path / "run"))
    sources = {row["source"] for row in rows["layer-information"]}
    if "h100" in name or "b200" in name:
        assert sources == {"module"}
    else:
        assert sources == {"op"}
        assert STAND_IN_NOTE in tables["layer-information"].notes
