"""`run.log`: the values, their steps, and that nothing of it reaches the job."""

import numpy as np
import pytest
from recorder_fakes import FakeClock, FakeSession, StillFlusher, fake_record

from phasepoint.recorder.clock import scalars
from phasepoint.recorder.clock.scalars import ScalarLog
from phasepoint.recorder.recording import record
from phasepoint.store import open_run


def logged(values, *, final=True):
    log = ScalarLog()
    for step, value in enumerate(values):
        log.add(step, {"loss": value})
    return [row["value"] for row in log.take_rows(final=final)]


@pytest.mark.usefixtures("still")
def test_values_get_the_step_in_progress(tmp_path):
    clock = FakeClock()
    with fake_record(tmp_path / "run", clock, FakeSession(clock), budget=0) as run:
        run.log(seed=7)
        for batch in run.steps(range(3)):
            clock.tick(1)
            run.log(loss=1 / (batch + 1), epoch=0)
        run.log(accuracy=True)
    rows = open_run(tmp_path / "run").table("scalars").to_pylist()
    assert sorted(((row["step"], row["name"], row["value"]) for row in rows), key=str) == sorted(
        [
            *((step, name, value) for step in range(3) for name, value in (("loss", 1 / (step + 1)), ("epoch", 0.0))),
            (None, "seed", 7.0),
            (None, "accuracy", 1.0),
        ],
        key=str,
    )


@pytest.mark.usefixtures("still")
def test_values_are_written_while_the_job_runs(tmp_path):
    clock = FakeClock()
    with fake_record(tmp_path / "run", clock, FakeSession(clock), budget=0, flush_s=0.001) as run:
        for batch in run.steps(range(3)):
            clock.tick(10)
            run.log(loss=batch)
            StillFlusher.made.round()
        clock.tick(10)
        StillFlusher.made.round()
        assert open_run(tmp_path / "run").table("scalars")["value"].to_pylist() == [0.0, 1.0, 2.0]


def test_a_recorder_that_is_off_takes_values_and_keeps_none(tmp_path, monkeypatch):
    monkeypatch.setenv("PHASEPOINT_OFF", "1")
    with record(tmp_path / "run") as run:
        run.log(loss=1.0)
    assert list(tmp_path.iterdir()) == []


def test_numbers_are_kept_exactly():
    assert logged([0.1, 3, True, np.float32(0.1), np.float64(0.1), np.array(2.5), np.array([4]), np.int64(7)]) == [
        *(0.1, 3.0, 1.0),
        *(float(np.float32(0.1)), 0.1, 2.5, 4.0, 7.0),
    ]
    assert np.isnan(logged([float("nan")])).all()


def test_what_is_no_number_is_null():
    assert logged([None, "text", [1, 2], np.zeros(3), object(), 10**400]) == [None] * 4 + [None, None]


def test_a_numpy_array_that_changes_later_is_read_before():
    log, value = ScalarLog(), np.array(1.5)
    log.add(0, {"loss": value})
    value += 1
    assert log.take_rows(final=True) == [{"step": 0, "name": "loss", "value": 1.5}]


def test_values_wait_for_a_round_and_keep_their_order():
    log = ScalarLog()
    log.add(0, {"a": 1.0})
    assert log.take_rows(final=False) == []
    log.add(1, {"a": 2.0})
    assert [row["step"] for row in log.take_rows(final=False)] == [0]
    assert [row["step"] for row in log.take_rows(final=True)] == [1]


def test_values_beyond_the_bound_are_null_or_lost(monkeypatch):
    monkeypatch.setattr(scalars, "MOST_HELD", 2)
    assert logged([np.array(1.0), 2.0, np.array(3.0), 4.0]) == [1.0, 2.0, None, 4.0]
    monkeypatch.setattr(scalars, "MOST_WAITING", 3)
    assert logged([1.0, 2.0, 3.0, 4.0]) == [1.0, 2.0, 3.0]


def test_tensors_are_read_as_they_were():
    torch = pytest.importorskip("torch")
    log = ScalarLog()
    value = torch.tensor(1.5, requires_grad=True)
    product = value * 2
    log.add(0, {"loss": product})
    with torch.no_grad():
        product += 1
    log.add(1, {"loss": torch.zeros(2)})
    log.add(2, {"loss": torch.tensor([0.1], dtype=torch.float32)})
    expected = [3.0, None, float(np.float32(0.1))]
    assert [row["value"] for row in log.take_rows(final=True)] == expected


def test_arrays_of_jax_are_held_and_donated_ones_are_null():
    jax = pytest.importorskip("jax")
    log, kept, donated = ScalarLog(), jax.numpy.float32(0.1), jax.numpy.float32(5)
    log.add(0, {"loss": kept})
    log.add(1, {"loss": donated})
    log.add(2, {"loss": jax.numpy.ones(2)})
    jax.block_until_ready(jax.jit(lambda x: x + 1, donate_argnums=0)(donated))
    assert donated.is_deleted()
    assert [row["value"] for row in log.take_rows(final=True)] == [float(np.float32(0.1)), None, None]


def test_a_value_inside_of_a_traced_function_is_null():
    jax = pytest.importorskip("jax")
    log = ScalarLog()

    @jax.jit
    def step(x):
        log.add(0, {"loss": x})
        return x

    step(1.0)
    assert log.take_rows(final=True) == [{"step": 0, "name": "loss", "value": None}]
