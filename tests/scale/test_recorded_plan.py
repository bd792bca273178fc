"""A recorded job on more devices: waits for the slowest against draws, sums against their formula, a real recording."""

import json
import subprocess
import sys

import numpy as np
import pytest

from phasepoint.core.errors import NoDataError, UsageError
from phasepoint.core.tables import table_from_rows
from phasepoint.devices.cpu_peaks import cpu_identity
from phasepoint.hlo.module import parse_module_proto
from phasepoint.scale.plan.recorded import (
    RecordedStep,
    expected_slowest,
    parse_devices,
    plan_recorded,
    recorded_step,
    state_gradient_bytes,
)
from phasepoint.scale.pod.torus import axes_of, reduce_s
from phasepoint.store import create_run, open_run, open_shard
from phasepoint.summary.analysis import analyse_run

GPU = "NVIDIA H100 80GB HBM3"


def step(device="TPU v5p", **facts):
    known = {"busy_cores": 1.2, "gradient_bytes": 400_000_000, "ratios": np.array([0.9, 1.0, 1.1]), "input_ps": 10**9}
    return RecordedStep("train", 300, device, 10**11, **{**known, **facts})


@pytest.mark.parametrize("hosts", [1, 2, 16, 300])
def test_the_slowest_of_hosts_is_the_largest_of_as_many_draws(hosts):
    draw = np.random.default_rng(3)
    ratios = np.sort(draw.gamma(20.0, 1 / 20, 400))
    drawn = draw.choice(ratios, (20_000, hosts)).max(axis=1)
    assert expected_slowest(ratios, hosts) == pytest.approx(drawn.mean(), rel=0.01)


def test_a_slice_adds_up_gradients_and_waits_for_its_slowest_host():
    devices = parse_devices("tpu-v5p:4x4x4")
    (row,), notes = plan_recorded(step(), devices)
    assert (row.devices, row.hosts, notes) == (64, 16, [])
    sending_ps = reduce_s(4e8, axes_of(devices.topology)) * 1e12
    assert row.parts_ps["compute"] == 10**11
    assert row.parts_ps["input"] == 10**9
    assert row.parts_ps["gradients"] == pytest.approx(sending_ps / 2, rel=1e-6)
    assert row.parts_ps["slowest host"] == pytest.approx(10**11 * (expected_slowest(step().ratios, 16) - 1))
    assert row.high_ps - row.low_ps == pytest.approx(sending_ps, rel=1e-6)
    assert row.step_ps == sum(row.parts_ps.values())
    assert row.speedup == pytest.approx(64 * 101e9 / row.step_ps)


def test_devices_that_divide_a_batch_compute_a_part_of_it():
    whole, divided = (
        plan_recorded(step(GPU), parse_devices("16*H100 SXM5"), is_divided=way)[0] for way in (False, True)
    )
    assert [row.devices for row in divided] == [1, 2, 4, 8, 16]
    assert [row.hosts for row in divided] == [1, 1, 1, 1, 2]
    assert [round(10**11 / row.parts_ps["compute"]) for row in divided] == [1, 2, 4, 8, 16]
    assert all(row.parts_ps["compute"] == 10**11 for row in whole)


def test_host_devices_share_the_cores_of_the_machine():
    cores = cpu_identity().cpus
    rows, notes = plan_recorded(step("cpu", busy_cores=0.75 * cores, gradient_bytes=0), parse_devices("4*cpu"))
    assert [row.parts_ps["compute"] / 10**11 for row in rows] == pytest.approx([1.0, 1.5, 3.0])
    assert "share the" in notes[0]
    with pytest.raises(UsageError, match="does not say how many cores it used"):
        plan_recorded(step("cpu", busy_cores=None), parse_devices("2*cpu"))


def test_what_the_reader_must_know_is_said():
    _, notes = plan_recorded(step("", gradient_bytes=None), parse_devices("v5p:16x16x16"))
    assert [note.partition(" ")[0] for note in notes] == ["the", "the", "1,024"]
    assert "--gradients 100MB" in notes[1]
    with pytest.raises(UsageError, match="recorded on TPU v5p; what its steps take on H100"):
        plan_recorded(step(), parse_devices("8*H100 SXM5"))


@pytest.mark.parametrize("text", ["0*cpu", "9999*cpu", "2*tpu-v5e:4x4", "8*Abacus", "H100 SXM5 * 8"])
def test_devices_that_cannot_be(text):
    with pytest.raises(UsageError, match="--to"):
        parse_devices(text)


def test_gradients_are_as_large_as_the_weights_that_a_step_gives_back():
    jax = pytest.importorskip("jax")
    optax = pytest.importorskip("optax")
    jnp, adam = jax.numpy, optax.adam(1e-3)

    def train(weights, state, x):
        slopes = jax.grad(lambda w: jnp.tanh(x @ w["a"] @ w["b"]).sum())(weights)
        updates, state = adam.update(slopes, state)
        return optax.apply_updates(weights, updates), state

    weights = {"a": jnp.zeros((32, 48)), "b": jnp.zeros((48, 7))}
    compiled = jax.jit(train, donate_argnums=(0, 1)).lower(weights, adam.init(weights), jnp.zeros((5, 32))).compile()
    module = compiled.runtime_executable().hlo_modules()[0].as_serialized_hlo_module_proto()
    assert state_gradient_bytes(parse_module_proto(module)) == 4 * (32 * 48 + 48 * 7)


@pytest.mark.parametrize(("steps", "is_planned"), [(40, True), (10, False)])
def test_a_step_that_compiles_is_not_planned_for(tmp_path, steps, is_planned):
    create_run(tmp_path / "run", command=(), frameworks={}, devices=("cpu:0 cpu",))
    writer = open_shard(tmp_path / "run", 0, epoch_unix_ns=1, clock=lambda: 10**12)
    times_ps = [10**14, *[10**11] * steps]  # the first takes longer than all others together
    starts = np.cumsum([0, *times_ps])
    facts = {"input_ps": 0, "compile_ps": 0}
    rows = [
        {"step": step, "start_ps": int(starts[step]), "dur_ps": time_ps, **facts}
        for step, time_ps in enumerate(times_ps)
    ]
    writer.append("steps", table_from_rows("steps", rows))
    writer.close()
    analysis = analyse_run(open_run(tmp_path / "run"))
    if is_planned:
        assert recorded_step(analysis).compute_ps == 10**11
    else:
        with pytest.raises(NoDataError, match="a plan needs 20"):
            recorded_step(analysis)


JOB = """
import sys, jax, jax.numpy as jnp, phasepoint as pp
loss = lambda w, x: jnp.square(jnp.tanh(x @ w) @ w.T).mean()
step = jax.jit(lambda w, x: (w - 0.01 * jax.grad(loss)(w, x), 0.0), donate_argnums=0)
w, x = jnp.ones((512, 512)) / 512, jnp.ones((256, 512))
with pp.record(sys.argv[1], budget=0.2) as run:  # a second of job: too short for a window at 1 %
    for number in run.steps(range(200)):
        w, _ = step(w, x)
        w.block_until_ready()
"""


def test_a_recorded_job_is_planned(tmp_path):
    pytest.importorskip("jax")
    heard = {"capture_output": True, "text": True, "timeout": 120}
    run, command = str(tmp_path / "run"), [sys.executable, "-m", "phasepoint", "scale", "plan"]
    subprocess.run([sys.executable, "-c", JOB, run], check=True, timeout=120)
    done = subprocess.run([*command, run, "--to", "2*cpu", "--json"], check=False, **heard)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["kind"], found["devices"]) == ("scale plan", "2*cpu")
    assert found["step"]["gradient_bytes"] == 4 * 512 * 512
    assert 0 < found["step"]["busy_cores"] < 2 * cpu_identity().cpus
    one, two = found["rows"]
    assert one["step_ps"] == found["step"]["compute_ps"] + found["step"]["input_ps"]
    assert two["step_ps"] == sum(two["parts_ps"].values()) > one["step_ps"] / 2
    shown = subprocess.run([*command, run, "--to", "2*cpu"], check=False, **heard)
    assert "the samples of one device" in shown.stdout
    refused = subprocess.run([*command, run, "--to", "8*H100 SXM5"], check=False, **heard)
    assert refused.returncode == 2
    assert "record it there" in refused.stderr
