"""MEMORY-GROWTH: leaks at several strengths, and memory that grows in jumps, levels off, or stays."""

import numpy as np
import pytest
from planted_runs import check_finding, counter, noisy_steps, steps_of, view_of

from phasepoint.core.units import PS_PER_S
from phasepoint.findings.finding import Unavailable
from phasepoint.findings.judge import judge_analysis
from phasepoint.findings.rules.run.memory_growth import find

N = 1500
MIB = 2**20


def sampled(grow, *, n=N, seed=0, column="host_rss_bytes", noise_mib=1.0):
    """Steps of 30 ms with a memory sample a second: 500 MiB and `grow(x)` MiB, x from 0 to 1 over the run."""
    steps = steps_of(noisy_steps(n, noise=0.03, seed=seed))
    rng = np.random.default_rng(seed)
    seconds = steps["start_ps"] // PS_PER_S
    has_sample = np.diff(seconds, prepend=-1) > 0
    x = steps["start_ps"] / steps["start_ps"][-1]
    values = (500 + np.array([grow(v) for v in x]) + noise_mib * rng.normal(size=n)) * MIB
    steps[column] = [int(v) if sample else None for v, sample in zip(values, has_sample, strict=True)]
    return steps


def ramp_and_jumps(x, leak_mib):
    """A leak on top of what allocators do: a steep beginning, small jumps."""
    return leak_mib * x + 150 * min(x / 0.1, 1) + 4 * (int(7 * x) % 2)


@pytest.mark.parametrize("leak_mib", [80, 300, 3000])
def test_a_leak_is_found_with_its_rate_and_its_end(tmp_path, leak_mib):
    steps = sampled(lambda x: ramp_and_jumps(x, leak_mib))
    lasted_s = (steps["start_ps"][-1] + steps["dur_ps"][-1]) / PS_PER_S
    limit = counter("memory.limit", 0, 8 * 2**30, "bytes")
    view = view_of(tmp_path, (steps, {"counters": [limit]}))
    (found,) = find(view)
    check_finding(view, found)
    assert found.claim.total_ps == found.high_ps == 0
    rate, unit = found.title.split("grows by ")[1].split(" a minute")[0].split()
    per_s = float(rate) * {"MiB": 1, "GiB": 1024}[unit] / 60
    assert per_s == pytest.approx(leak_mib / lasted_s, rel=0.1)
    left_s = (8 * 1024 - 650 - leak_mib) / (leak_mib / lasted_s)
    assert "8.00 GiB are full" in found.title
    if left_s < 120:
        soon, late = found.title.split("are full ")[1].split(" after")[0].replace(" s", "").split(" to ")
        assert float(soon) < left_s < float(late)


def test_it_is_told_although_it_claims_no_time(tmp_path):
    told = judge_analysis(view_of(tmp_path, (sampled(lambda x: 500 * x), {})).analysis).findings
    assert [f.saved_ps for f in told if f.code == "MEMORY-GROWTH"] == [0]


def test_memory_of_the_device_is_told_apart(tmp_path):
    (found,) = find(view_of(tmp_path, (sampled(lambda x: 400 * x, column="device_memory_bytes"), {})))
    assert found.title.startswith("device memory grows by")
    assert "full" not in found.title


def test_the_host_that_grows_fastest_is_named(tmp_path):
    hosts = [(sampled(lambda x: 100 * x), {}), (sampled(lambda x: 500 * x), {}), (sampled(lambda x: 0), {})]
    view = view_of(tmp_path, *hosts)
    (found,) = find(view)
    check_finding(view, found)
    assert found.title.startswith("host memory on host 1 grows by")


@pytest.mark.parametrize(
    "grow",
    [
        lambda x: 0,
        lambda x: 300 * min(x / 0.2, 1),
        lambda x: 200 * (1 - np.exp(-6 * x)),
        lambda x: 60 * int(3 * x),
        lambda x: 20 * x,
        lambda x: 100 * np.sin(9 * x) ** 2,
        lambda x: -200 * x,
    ],
    ids=["flat", "warm-up", "levels off", "jumps", "little", "up and down", "falls"],
)
@pytest.mark.parametrize("seed", range(3))
def test_what_is_no_leak_is_no_finding(tmp_path, grow, seed):
    assert find(view_of(tmp_path, (sampled(grow, seed=seed, noise_mib=3), {}))) == []


def test_without_samples_it_says_what_is_needed(tmp_path):
    with pytest.raises(Unavailable, match="sampled 0 times"):
        find(view_of(tmp_path / "a", (steps_of(noisy_steps(N)), {})))
    with pytest.raises(Unavailable, match="record for longer"):
        find(view_of(tmp_path / "b", (sampled(lambda x: 500 * x, n=220), {})))
