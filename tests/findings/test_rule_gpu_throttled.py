"""GPU-THROTTLED: clocks held down by power or heat, planted; cool devices; runs that do not know."""

import numpy as np
import pytest
from planted_runs import MS, check_finding, noisy_steps, steps_of, view_of, within

from phasepoint.findings.finding import Unavailable
from phasepoint.findings.judge import judge_analysis
from phasepoint.findings.rules.device.throttled import find

N = 1200
FREE, SLOW = 1980.0, 1485.0
"""MHz: three quarters."""


def samples(dur_ps, is_held, *, why="heat", device="gpu:0", held_mhz=SLOW):
    """A sample a second; held where most of the second's steps are."""
    ends = np.cumsum(dur_ps)
    rows = []
    for at in range(500 * MS, int(ends[-1]), 1000 * MS):
        held = bool(is_held[min(int(np.searchsorted(ends, at)), N - 1)])
        told = {
            "gpu.clock": held_mhz if held else FREE,
            "gpu.clock.most": FREE,
            "gpu.busy": 0.98,
            **{f"gpu.slowed.{one}": float(held and one == why) for one in ("power", "heat", "hardware")},
        }
        units = {"gpu.clock": "MHz", "gpu.clock.most": "MHz", "gpu.busy": "ratio"}
        rows += [
            {"name": name, "unit": units.get(name, "yes"), "device": device, "time_ps": at, "value": value}
            for name, value in told.items()
        ]
    return rows


def held_for(ratio):
    """Steps of which the second part lasts a third longer, as three quarters of the clock make them."""
    dur_ps = noisy_steps(N, noise=0.02)
    is_held = np.arange(N) >= (1 - ratio) * N
    planted_ps = int((dur_ps[is_held] / 3).sum())
    return np.where(is_held, dur_ps * 4 // 3, dur_ps), is_held, planted_ps


@pytest.mark.parametrize(("why", "remedy"), [("heat", "cool the device"), ("power", "raise the board's limit")])
def test_what_a_slower_clock_costs_is_found(tmp_path, why, remedy):
    dur_ps, is_held, planted_ps = held_for(0.5)
    view = view_of(tmp_path, (steps_of(dur_ps), {"counters": samples(dur_ps, is_held, why=why)}))
    (found,) = find(view)
    check_finding(view, found)
    assert within(found.claim.total_ps, planted_ps)
    assert found.title.startswith(f"{why} held the GPU's clock down in ")
    assert found.title.endswith("1,485 instead of 1,980 MHz")
    assert found.remedy.startswith(remedy)
    assert found.claim.by_step[~is_held].sum() < 0.05 * found.claim.total_ps


def test_the_slowest_of_several_devices_counts(tmp_path):
    dur_ps, is_held, planted_ps = held_for(0.5)
    rows = samples(dur_ps, np.zeros(N, bool)) + samples(dur_ps, is_held, device="gpu:1")
    view = view_of(tmp_path, (steps_of(dur_ps), {"counters": sorted(rows, key=lambda row: row["time_ps"])}))
    (found,) = find(view)
    assert within(found.claim.total_ps, planted_ps)


def test_held_from_begin_to_end_the_most_clock_is_compared_with_and_nothing_is_sure(tmp_path):
    dur_ps = noisy_steps(N, noise=0.02)
    view = view_of(tmp_path, (steps_of(dur_ps), {"counters": samples(dur_ps, np.ones(N, bool), why="power")}))
    (found,) = find(view)
    check_finding(view, found)
    assert within(found.claim.total_ps, int(dur_ps.sum() / 4))
    assert found.low_ps == 0
    assert not judge_analysis(view.analysis).verdict.text.startswith("SLOW MACHINE")


def test_a_brake_that_costs_no_clock_is_no_finding(tmp_path):
    dur_ps = noisy_steps(N, noise=0.02)
    rows = samples(dur_ps, np.ones(N, bool), held_mhz=FREE)
    assert find(view_of(tmp_path, (steps_of(dur_ps), {"counters": rows}))) == []


def test_without_clocks_it_says_what_it_lacks(tmp_path):
    with pytest.raises(Unavailable, match=r"phasepoint\[gpu\]"):
        find(view_of(tmp_path, (steps_of(noisy_steps(N)), {})))
