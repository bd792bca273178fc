import json
import os
from pathlib import Path

import msgspec
import numpy as np
import pytest

from phasepoint.devices.cpu_peaks import (
    METHOD,
    CpuIdentity,
    CpuPeaks,
    cpu_identity,
    default_cache_folder,
    measure_cpu_peaks,
    measured_cpu_spec,
)

ELEMENTS = 40_000


class _Benchmark:
    """Stands for the benchmark: counts its calls, each of which finds the CPU a little faster."""

    def __init__(self):
        self.calls = 0

    def __call__(self, identity):
        self.calls += 1
        return CpuPeaks(1, identity, "2026-03-01", METHOD, 5, {"f32": 2e11 * self.calls, "f64": 1e11}, 4e10, 1.0)


@pytest.fixture
def benchmark():
    return _Benchmark()


def test_rates_are_the_work_divided_by_the_best_time():
    # Each measurement of three takes 4, 2, 3 s on this clock, in the order f32, f64, triad of every repeat.
    times = [0.0]
    for repeat_s in (4.0, 2.0, 3.0):
        for _ in range(3):
            times += [times[-1], times[-1] + repeat_s]
    clock, cpu_clock = iter(times[1:]), iter(range(100))  # 1 s of CPU time each
    identity = CpuIdentity("a CPU", 4, 2**33, np.__version__, {"OMP_NUM_THREADS": "2"})
    peaks = measure_cpu_peaks(
        identity,
        matrix=32,
        repeats=3,
        array_bytes=8 * ELEMENTS,
        clock=lambda: next(clock),
        cpu_clock=lambda: next(cpu_clock),
    )
    assert peaks.flop_per_s == {"f32": 2 * 32**3 / 2.0, "f64": 2 * 32**3 / 2.0}
    assert peaks.bytes_per_s == 24 * ELEMENTS / 2.0
    assert peaks.repeats == 3
    assert peaks.cpu_ratio == 1 / 2.0 / 2  # 1 s in 2 s on the two threads that the environment allows


def test_a_real_measurement_of_this_machine_is_plausible():
    peaks = measure_cpu_peaks(cpu_identity(), matrix=256, repeats=2, array_bytes=2**20)
    assert set(peaks.flop_per_s) == {"f32", "f64"}
    assert all(1e8 < rate < 1e15 for rate in peaks.flop_per_s.values())
    assert 1e8 < peaks.bytes_per_s < 1e14


def test_measured_once_then_read(tmp_path, benchmark):
    said = []
    first = measured_cpu_spec(cache_folder=tmp_path, say=said.append, measure=benchmark)
    assert said == ["measuring the peak rates of this CPU, once (about 2 s)"]
    again = measured_cpu_spec(cache_folder=tmp_path, say=said.append, measure=benchmark)
    assert benchmark.calls == 1
    assert len(said) == 1
    assert again == first
    assert first.flop_per_s["f32"].value == 2e11
    assert first.flop_per_s["f32"].published == "0.2 TFLOP/s"
    assert first.memory_bytes_per_s.value == 4e10
    assert first.memory_bytes.value == cpu_identity().memory_bytes
    assert first.flop_per_s["f64"].source.title == f"measured on this machine, 2026-03-01: {METHOD}"
    assert str(cpu_identity().cpus) in first.name


def test_the_cache_says_date_method_and_repeats(tmp_path, benchmark):
    measured_cpu_spec(cache_folder=tmp_path, measure=benchmark)
    (path,) = tmp_path.iterdir()
    assert path.name.startswith("cpu-")
    held = json.loads(path.read_text(encoding="utf-8"))
    assert (held["date"], held["method"], held["repeats"]) == ("2026-03-01", METHOD, 5)
    assert held["identity"]["numpy"] == np.__version__


def _with(path, **changed):
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | changed), encoding="utf-8")


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda path: path.write_bytes(b""), "holds no measurement ("),
        (lambda path: path.write_bytes(b"\xff\xfe{"), "holds no measurement ("),
        (lambda path: path.write_bytes(path.read_bytes()[:-20]), "holds no measurement ("),
        (lambda path: _with(path, version=2), "holds no measurement of this CPU"),
        (lambda path: _with(path, bytes_per_s=0), "holds no measurement of this CPU"),
        (lambda path: _with(path, bytes_per_s="fast"), "holds no measurement ("),
        (lambda path: _with(path, flop_per_s={"f32": -1.0}), "holds no measurement of this CPU"),
    ],
)
def test_a_spoilt_cache_is_measured_again(tmp_path, benchmark, spoil, words):
    measured_cpu_spec(cache_folder=tmp_path, measure=benchmark)
    (path,) = tmp_path.iterdir()
    spoil(path)
    said = []
    spec = measured_cpu_spec(cache_folder=tmp_path, say=said.append, measure=benchmark)
    assert benchmark.calls == 2
    assert spec.flop_per_s["f32"].value == 4e11
    assert words in said[0]
    assert str(path) in said[0]
    measured_cpu_spec(cache_folder=tmp_path, measure=benchmark)
    assert benchmark.calls == 2, "what was measured again is kept"


def test_another_cpu_does_not_take_this_ones_measurement(tmp_path, benchmark):
    measured_cpu_spec(cache_folder=tmp_path, measure=benchmark)
    (path,) = tmp_path.iterdir()
    other = msgspec.structs.replace(cpu_identity(), model="another CPU")
    path.write_bytes(msgspec.json.encode(_Benchmark()(other)))
    measured_cpu_spec(cache_folder=tmp_path, measure=benchmark)
    assert benchmark.calls == 2


def test_fewer_threads_are_another_measurement(tmp_path, benchmark, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    measured_cpu_spec(cache_folder=tmp_path, measure=benchmark)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    measured_cpu_spec(cache_folder=tmp_path, measure=benchmark)
    assert benchmark.calls == 2
    assert len(list(tmp_path.iterdir())) == 2


def test_a_cache_that_cannot_be_written_is_said(tmp_path, benchmark):
    blocked = tmp_path / "file"
    blocked.write_bytes(b"")
    said = []
    spec = measured_cpu_spec(cache_folder=blocked, say=said.append, measure=benchmark)
    assert spec.memory_bytes_per_s.value == 4e10
    assert any("cannot be written" in text for text in said)
    assert blocked.read_bytes() == b""


def test_what_a_busy_machine_gives_is_used_but_not_kept(tmp_path):
    said = []

    def busy(identity):
        return msgspec.structs.replace(_Benchmark()(identity), cpu_ratio=0.55)

    spec = measured_cpu_spec(cache_folder=tmp_path, say=said.append, measure=busy)
    assert spec.flop_per_s["f32"].value == 2e11
    assert said[1] == "other work had 45% of the CPUs meanwhile: the peaks are too low, and not kept"
    assert not list(tmp_path.iterdir())


def test_the_cache_is_where_the_user_keeps_caches(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere/cache")
    assert default_cache_folder() == Path("/somewhere/cache/phasepoint")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert default_cache_folder() == Path.home() / ".cache" / "phasepoint"


def test_the_identity_counts_the_cpus_that_may_be_used():
    identity = cpu_identity()
    assert isinstance(identity, CpuIdentity)
    assert 1 <= identity.cpus <= (os.cpu_count() or 1)
    assert identity.memory_bytes > 2**28
