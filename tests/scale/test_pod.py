"""Programs on a slice: the torus's closed forms against an oracle that moves bytes, and parts of a run that add up."""

import math

import pytest

from phasepoint.core.errors import ModelError, UsageError
from phasepoint.learn.predict.tpu import compile as tpu_compile
from phasepoint.learn.predict.tpu.compile import Function
from phasepoint.learn.predict.tpu.topology import parse_topology
from phasepoint.scale.plan.program import batches_between, plan_program
from phasepoint.scale.plan.whole import HOST_FAILS_S, Hazards, RunAsked, best_interval_s, whole_run
from phasepoint.scale.pod.torus import COLLECTIVE_S, HOP_S, Axis, axes_of, exchange_s, gather_s, reduce_s


def ring_gather_s(volume, chips, bytes_per_s):
    """Slow: every chip passes on what it got last, half of each part one way and half the other way."""
    part, seconds = volume / chips, 0.0
    have = {chip: {chip} for chip in range(chips)}
    while any(len(parts) < chips for parts in have.values()):
        have = {chip: have[chip] | have[(chip - 1) % chips] for chip in range(chips)}
        seconds += part / 2 / (bytes_per_s / 2)  # each way has half the links, and half of each part goes it
    return seconds


@pytest.mark.parametrize("chips", [2, 3, 8, 32])
def test_gathering_on_a_ring_takes_what_passing_on_takes(chips):
    slow = ring_gather_s(1e9, chips, 2e11)
    found = gather_s(1e9, [Axis(chips, True, 2e11)])
    assert found - HOP_S * (chips // 2) == pytest.approx(slow)


def test_two_axes_carry_twice_as_much_and_open_ends_half():
    ring, line = Axis(16, True, 1e11), Axis(16, False, 1e11)
    assert gather_s(1e12, [ring, ring]) == pytest.approx(1e12 * 255 / 256 / 2e11, rel=1e-4)
    assert gather_s(1e12, [line]) == pytest.approx(2 * gather_s(1e12, [ring]), rel=1e-4)
    assert reduce_s(1e9, [ring]) == 2 * gather_s(1e9, [ring])


def test_small_collectives_cost_their_hops():
    axes = axes_of(parse_topology("tpu-v3:32x32"))
    assert reduce_s(4, axes) == pytest.approx(2 * 32 * HOP_S, rel=1e-3)


def test_an_exchange_takes_a_quarter_of_a_gathering():
    axes = [Axis(8, True, 1e11)]
    assert exchange_s(8e9, axes) == pytest.approx(8e9 / 4 / 1e11, rel=1e-2)


def test_one_chip_sends_nothing():
    assert axes_of(parse_topology("v3")) == ()
    assert all(seconds(1e9, ()) == 0 for seconds in COLLECTIVE_S.values())


@pytest.mark.parametrize(
    ("text", "rings"),
    [
        ("v3:32x32", [True, True]),
        ("v3:16x32", [False, True]),
        ("v4:4x4x8", [True, True, True]),
        ("v5p:2x2x4", [False, False, True]),
        ("v5e:16x16", [True, True]),
        ("v5e:4x4", [False, False]),
    ],
)
def test_ends_are_joined_where_a_slice_is_whole(text, rings):
    assert [axis.is_ring for axis in axes_of(parse_topology(text))] == rings


def test_all_links_of_a_chip_are_those_of_its_axes():
    (first, *others) = axes_of(parse_topology("v5p:4x4x4"))
    assert len(others) == 2
    assert first.bytes_per_s * 3 * 2 == pytest.approx(1200e9, rel=0.01)  # "4,800 Gbit/s a chip", both ways counted


def test_parts_of_a_run_add_up():
    run = whole_run(1e6, hazards=Hazards(30, 600, HOST_FAILS_S, 256), starting_s=300, evaluation_s=5e4)
    assert run.wall == run.starting + run.steps + run.evaluation + run.saving + run.lost
    assert (run.starting, run.scored) == (300, 1.05e6)
    assert 0 < run.saving < 0.05 * run.steps
    assert 0 < run.lost < 0.05 * run.steps


@pytest.mark.parametrize("hosts", [1, 100, 10_000])
def test_no_other_interval_is_better(hosts):
    hazards = Hazards(30, 300, HOST_FAILS_S, hosts)
    best = best_interval_s(hazards)
    walls = [whole_run(1e6, hazards=hazards, interval_s=best * factor).wall for factor in (0.5, 0.8, 1, 1.25, 2)]
    assert min(walls) >= walls[2] * (1 - 2e-3)  # Young's is of first order


def test_a_run_with_failures_takes_what_it_takes_when_it_is_played():
    """Slow: a job that is thrown back, many times over."""
    import random

    hazards, work_s, interval_s = Hazards(20, 100, 40_000.0, 4), 200_000.0, 900.0
    chance, walls = random.Random(0), []
    for _ in range(300):
        clock, done, fails_at = 0.0, 0.0, chance.expovariate(1 / hazards.system_fails_s)
        while done < work_s:
            stretch = min(interval_s, work_s - done)
            need = stretch + hazards.save_s
            if clock + need <= fails_at:
                clock, done = clock + need, done + stretch
            else:
                clock = fails_at + hazards.restart_s
                fails_at = clock + chance.expovariate(1 / hazards.system_fails_s)
        walls.append(clock)
    found = whole_run(work_s, hazards=hazards, interval_s=interval_s)
    assert found.wall == pytest.approx(sum(walls) / len(walls), rel=0.01)


def test_a_job_that_never_ends_is_said():
    with pytest.raises(UsageError, match="such a job never ends"):
        whole_run(1e6, hazards=Hazards(3600, 3600, HOST_FAILS_S, 100_000))


def test_nothing_is_saved_where_nothing_fails():
    run = whole_run(100.0, hazards=Hazards(save_s=30))
    assert (run.wall, run.saving, run.lost) == (100, 0, 0)


def test_a_run_of_a_hundred_thousand_chips_is_a_closed_form():
    asked = RunAsked(1e12, 600, Hazards(10, 300, HOST_FAILS_S), price=2.0)
    parts = asked.with_steps(5.0, 1 << 20, 25_000)
    assert parts.steps == 5.0 * math.ceil(1e12 / (1 << 20))
    assert asked.cost(parts, 100_000) == pytest.approx(2.0 * 100_000 * parts.wall / 3600)


@pytest.mark.parametrize("text", ["", "a", "4..2", "0", "1..", "2,x"])
def test_batches_that_are_none(text):
    with pytest.raises(UsageError, match="--batch"):
        batches_between(text)


def test_batches_between():
    assert batches_between("4096..10000") == [4096, 8192, 10_000]
    assert batches_between("64,96") == [64, 96]
    assert batches_between("64..64") == [64]


STEP = """
import jax, jax.numpy as jnp
def step(w, x):
    loss = lambda w: jnp.tanh(x @ w).sum()
    return w - 0.1 * jax.grad(loss)(w)
args = (jax.ShapeDtypeStruct((256, 256), jnp.float32), jax.ShapeDtypeStruct((64, 256), jnp.float32))
"""


def test_without_the_tpus_compiler_a_plan_is_the_analytic_models(tmp_path, monkeypatch):
    monkeypatch.delenv("TPU_LIBRARY_PATH", raising=False)
    monkeypatch.setattr(tpu_compile, "find_spec", lambda name: None)
    path = tmp_path / "train.py"
    path.write_text(STEP)
    asked, topology = Function(path, "step", None, "args"), parse_topology("v3:4x4")
    hazards = Hazards(10, 60, HOST_FAILS_S)
    small, large, most = plan_program(asked, topology, [4096, 8192, 1 << 31], run=RunAsked(1e6, 60, hazards, 2.0))
    assert (small.batch, small.devices, large.batch) == (4096, 32, 8192)
    assert [one.bytes for one in small.collectives] == [256 * 256 * 4]
    assert small.step_ps == small.compute_ps + small.exposed_ps
    assert small.exposed_ps == round(reduce_s(256 * 256 * 4, axes_of(topology)) * 1e12)
    assert small.compute_ps < large.compute_ps
    assert (small.fits, most.fits, most.run) == (True, False, None)
    assert most.memory_bytes > most.limit_bytes
    assert small.run.wall > small.run.steps == pytest.approx(math.ceil(1e6 / 4096) * small.step_ps / 1e12)
    assert any("pip install 'phasepoint[tpu]'" in note for note in small.notes)


def test_a_step_that_raises_is_told_by_its_name(tmp_path, monkeypatch):
    """As steps for `jax.pmap` do, which name its axis."""
    monkeypatch.delenv("TPU_LIBRARY_PATH", raising=False)
    monkeypatch.setattr(tpu_compile, "find_spec", lambda name: None)
    path = tmp_path / "train.py"
    path.write_text(STEP.replace("return w", "return jax.lax.pmean(w, 'batch')"))
    told = "train.py:step raised while it was traced with 2 arguments: NameError: .*axis name.*batch"
    with pytest.raises(ModelError, match=told):
        plan_program(Function(path, "step", None, "args"), parse_topology("v3:4x4"), [4096])
