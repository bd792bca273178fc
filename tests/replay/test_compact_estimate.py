"""What chosen steps say of the run: from them and from counts alone, closing, exact where all is chosen."""

from dataclasses import replace

import numpy as np
import pytest
from compact_runs import MS, PARTS, host_steps, oracle, series
from hypothesis import given, settings
from hypothesis import strategies as st

from phasepoint.estimates.captured import Captured
from phasepoint.replay.compact.estimate import estimate_run

SEEDS = st.integers(0, 10**6)
CAPTURED = st.sampled_from(["all", "some", "none"])


def made(seed, captured, n=400):
    return host_steps(n, np.random.default_rng(seed), captured=captured)


@given(SEEDS, CAPTURED, st.integers(2, 400))
@settings(max_examples=60)
def test_parts_and_phases_add_up_and_weights_count_every_step(seed, captured, sample):
    steps = made(seed, captured)
    seen = steps.seen(steps.choose(sample, seed))
    assert len(seen.phase) == sample
    found = estimate_run(seen)
    assert sum(part.estimate_ps for part in found.phases.values()) == found.total.estimate_ps
    if len(seen.captured.row):
        assert sum(part.estimate_ps for part in found.parts.values()) == found.total.estimate_ps
    else:
        assert found.parts == {}
    assert seen.weight.sum() == pytest.approx(400)
    assert (seen.weight @ seen.steps.dur_ps) == pytest.approx(found.total.estimate_ps, rel=1e-9)
    for one in (found.total, *found.parts.values(), *found.phases.values()):
        assert one.low_ps <= one.estimate_ps
        assert one.high_ps is None or one.high_ps >= one.estimate_ps


@given(SEEDS, CAPTURED)
@settings(max_examples=30)
def test_with_every_step_chosen_time_is_exact(seed, captured):
    steps = made(seed, captured)
    found = estimate_run(steps.seen(steps.choose(400, seed)))
    actual_ps = int(steps.series.dur_ps.sum())
    assert (found.total.low_ps, found.total.estimate_ps, found.total.high_ps) == (actual_ps,) * 3
    for phase, part in found.phases.items():
        mine_ps = int(steps.series.dur_ps[steps.phase == phase].sum())
        assert (part.low_ps, part.estimate_ps, part.high_ps) == (mine_ps,) * 3
    if captured == "all":
        for name, actual_ps in zip(PARTS, steps.captured.parts_ps.sum(axis=0).tolist(), strict=True):
            part = found.parts[name]
            assert (part.low_ps, part.estimate_ps, part.high_ps) == (actual_ps,) * 3


@given(SEEDS, CAPTURED, st.integers(2, 200))
@settings(max_examples=30)
def test_what_unchosen_steps_lasted_is_nothing_to_the_estimate(seed, captured, sample):
    steps = made(seed, captured)
    choice = steps.choose(sample, seed)
    rng = np.random.default_rng(seed + 1)
    chosen = np.zeros(400, bool)
    chosen[choice.index] = True

    def other(values):
        return np.where(chosen, values, rng.integers(0, 10**12, 400))

    known = steps.series
    others = series(other(known.dur_ps), other(known.input_ps), other(known.compile_ps))
    mine, keep = steps.captured, chosen[steps.captured.row]
    parts = np.where(keep[:, None], mine.parts_ps, rng.integers(0, 10**12, mine.parts_ps.shape))
    changed = replace(steps, series=others, captured=Captured(mine.row, mine.window, mine.weight, parts))
    assert estimate_run(changed.seen(choice)) == estimate_run(steps.seen(choice))


@given(SEEDS, CAPTURED, st.integers(2, 200))
@settings(max_examples=30)
def test_the_order_of_the_chosen_steps_is_nothing(seed, captured, sample):
    steps = made(seed, captured)
    seen = steps.seen(steps.choose(sample, seed))
    order = np.random.default_rng(seed).permutation(len(seen.phase))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    row = place[seen.captured.row]
    by_row = np.argsort(row)
    mine = seen.captured
    mixed = replace(
        seen,
        stratum=seen.stratum[order],
        phase=seen.phase[order],
        steps=seen.steps.take(order),
        captured=Captured(row[by_row], mine.window[by_row], mine.weight[by_row], mine.parts_ps[by_row]),
    )
    a, b = estimate_run(seen), estimate_run(mixed)
    assert a.total == b.total
    assert a.phases == b.phases
    for name in a.parts:
        assert a.parts[name].estimate_ps == pytest.approx(b.parts[name].estimate_ps, rel=1e-9, abs=10)


@given(SEEDS, st.integers(2, 100))
@settings(max_examples=30)
def test_a_run_captured_in_full_is_estimated_as_the_oracle_does(seed, sample):
    steps = made(seed, "all")
    seen = steps.seen(steps.choose(sample, seed))
    found = estimate_run(seen)
    stratum, size = seen.stratum.tolist(), seen.size.tolist()
    total, variance, _ = oracle(stratum, seen.steps.dur_ps.tolist(), size)
    assert abs(found.total.estimate_ps - total) <= 1
    assert found.total.high_ps - found.total.estimate_ps >= 1.9 * variance**0.5
    for index, name in enumerate(PARTS):
        part, _, _ = oracle(stratum, seen.captured.parts_ps[:, index].tolist(), size)
        assert abs(found.parts[name].estimate_ps - part) <= 1


def test_parts_of_steps_that_no_window_saw_follow_the_windows():
    """Phases with shares of their own that never vary, and no step far longer: the parts are known to a rounding."""
    n = 1000
    steps = made(3, "some", n)
    dur_ps = (1 + steps.phase) * MS + np.arange(n) % 7 * MS // 50
    shares = np.array([[0.7, 0, 0.1, 0.1, 0.1], [0.2, 0, 0.3, 0.4, 0.1], [0.5, 0, 0.1, 0.2, 0.2]])[steps.phase]
    parts = np.zeros((n, len(PARTS)), np.int64)
    parts[:, :5] = np.floor(shares * dur_ps[:, None])
    parts[:, 0] += dur_ps - parts.sum(axis=1)
    row = steps.captured.row
    zeros = np.zeros(n, np.int64)
    steps = replace(
        steps,
        series=series(dur_ps, zeros, zeros),
        captured=Captured(row, steps.captured.window, steps.captured.weight, parts[row]),
    )
    found = estimate_run(steps.seen(steps.choose(n, 0)))
    for name, actual_ps in zip(PARTS, parts.sum(axis=0).tolist(), strict=True):
        part = found.parts[name]
        assert part.estimate_ps == pytest.approx(actual_ps, rel=1e-6)
        assert part.low_ps * (1 - 1e-6) <= actual_ps <= part.high_ps * (1 + 1e-6)


@pytest.mark.parametrize(("captured", "sample"), [("all", 20), ("all", 60), ("none", 20), ("some", 60)])
def test_the_interval_covers_in_19_of_20_choices(captured, sample):
    steps = made(11, captured, n=1000)
    actual_ps = int(steps.series.dur_ps.sum())
    chosen = (steps.seen(steps.choose(sample, seed)) for seed in range(300))
    # Time is estimated from the clock alone; what went into it costs the most, and is left out here.
    nothing = Captured(*(column[:0] for column in vars(steps.captured).values()))
    found = [estimate_run(replace(seen, captured=nothing)).total for seen in chosen]
    covered = sum(one.low_ps <= actual_ps <= one.high_ps for one in found)
    assert 0.915 * 300 <= covered <= 0.995 * 300
    off = [one.estimate_ps / actual_ps - 1 for one in found]
    assert abs(float(np.mean(off))) < 4 * float(np.std(off)) / 300**0.5  # no bias
