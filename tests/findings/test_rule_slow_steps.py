"""SLOW-STEPS: planted outliers at several strengths, their causes, and runs that only scatter."""

import numpy as np
import pytest
from planted_runs import MS, check_finding, counter, noisy_steps, steps_of, view_of, within

from phasepoint.findings.finding import Unavailable
from phasepoint.findings.rules.run.slow_steps import find

N = 1200


def plant(dur_ps, share, *, hit, seed=1):
    """Lengthen the steps `hit` so that they cost this share of the run; returns what they cost, ps."""
    extra_ps = int(dur_ps.sum() * share / (1 - share) / len(hit))
    dur_ps[hit] += extra_ps
    return extra_ps * len(hit)


def random_hit(n=N, share=0.02, seed=1):
    return np.flatnonzero(np.random.default_rng(seed).random(n) < share)


@pytest.mark.parametrize("share", [0.05, 0.15, 0.4])
@pytest.mark.parametrize("noise", [0.02, 0.08])
def test_planted_outliers_are_found_with_what_they_cost(tmp_path, share, noise):
    dur_ps = noisy_steps(N, noise=noise)
    planted_ps = plant(dur_ps, share, hit=random_hit())
    view = view_of(tmp_path, (steps_of(dur_ps), {}))
    (found,) = find(view)
    check_finding(view, found)
    assert within(found.claim.total_ps, planted_ps)
    assert found.low_ps <= planted_ps <= found.high_ps
    assert found.claim.part == "excess"


def test_short_steps_between_waits_are_not_what_a_step_takes(tmp_path):
    """A host that runs ahead hands 23 steps to the device and waits for them in the 24th."""
    dur_ps = noisy_steps(N, noise=0.05)
    plant(dur_ps, 0.9, hit=np.arange(23, N, 24))
    with pytest.raises(Unavailable, match=r"^5. long steps took 90\..* the short ones between them are not what"):
        find(view_of(tmp_path, (steps_of(dur_ps), {})))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("noise", [0.02, 0.1, 0.2])
def test_scatter_alone_is_no_finding(tmp_path, noise, seed):
    assert find(view_of(tmp_path, (steps_of(noisy_steps(N, noise=noise, seed=seed)), {}))) == []


def test_regular_outliers_are_told_with_their_period(tmp_path):
    dur_ps = noisy_steps(N, noise=0.03)
    planted_ps = plant(dur_ps, 0.1, hit=np.arange(39, N, 40))
    view = view_of(tmp_path, (steps_of(dur_ps), {}))
    (found,) = find(view)
    check_finding(view, found)
    assert within(found.claim.total_ps, planted_ps)
    assert "every 40 steps" in found.title
    assert "every 40 steps" in found.remedy


def test_the_period_of_the_slowest_is_told_beside_others_that_lose_little(tmp_path):
    dur_ps = noisy_steps(N, noise=0.03)
    plant(dur_ps, 0.3, hit=np.arange(39, N, 40))
    plant(dur_ps, 0.01, hit=np.random.default_rng(1).choice(N, 12, replace=False))
    (found,) = find(view_of(tmp_path, (steps_of(dur_ps), {})))
    assert found.title.endswith(" of the run, most of it in one every 40 steps")
    assert found.remedy.startswith("look for what the loop does every 40 steps (an evaluation, saving, logging)")


def test_the_step_that_catches_up_is_taken_off(tmp_path):
    dur_ps = noisy_steps(N, noise=0.02)
    hit = random_hit()[:-1]
    hit = hit[np.diff(hit, append=N) > 1]
    planted_ps = plant(dur_ps, 0.2, hit=hit)
    dur_ps[hit + 1] -= 20 * MS  # the device worked on while the host was held up
    view = view_of(tmp_path, (steps_of(dur_ps), {}))
    (found,) = find(view)
    assert within(found.claim.total_ps, planted_ps - 20 * MS * len(hit), 0.1)


def test_what_has_a_known_cause_is_left_to_its_rule(tmp_path):
    for cause in ("input", "gc", "checkpoint", "compile"):
        dur_ps = noisy_steps(N, noise=0.03)
        hit = random_hit()
        before_ps = dur_ps.copy()
        plant(dur_ps, 0.15, hit=hit)
        extra_ps = dur_ps - before_ps
        more = {"input_ps": extra_ps} if cause == "input" else {"compile_ps": extra_ps} if cause == "compile" else {}
        steps, rows = steps_of(dur_ps, **more), {}
        begins = [(int(steps["start_ps"][i]), int(extra_ps[i]), int(i)) for i in hit]
        if cause == "gc":
            rows["counters"] = [counter("gc.pause.long", at_ps, ps) for at_ps, ps, _ in begins]
        if cause == "checkpoint":
            rows["checkpoints"] = [
                {"step": i, "path": f"c/{i}", "start_ps": at_ps, "dur_ps": ps, "framework": "user"}
                for at_ps, ps, i in begins
            ]
        assert find(view_of(tmp_path / cause, (steps, rows))) == [], cause


def test_other_causes_are_named_beside_the_unknown_ones(tmp_path):
    dur_ps = noisy_steps(N, noise=0.03)
    hit = random_hit()
    plant(dur_ps, 0.2, hit=hit)
    steps = steps_of(dur_ps)
    pauses = [counter("gc.pause.long", steps["start_ps"][i], dur_ps[i] - 30 * MS) for i in hit[:6]]
    view = view_of(tmp_path, (steps, {"counters": pauses}))
    (found,) = find(view)
    check_finding(view, found)
    assert found.claim.by_step[hit[:6]].sum() == 0
    assert "6 to garbage collection" in found.evidence[1].text


def test_steps_of_a_pattern_are_no_outliers(tmp_path):
    dur_ps = noisy_steps(N, noise=0.03)
    dur_ps[3::4] *= 3  # gradients are applied every fourth step
    assert find(view_of(tmp_path, (steps_of(dur_ps), {}))) == []


def test_too_few_steps(tmp_path):
    with pytest.raises(Unavailable, match="at least 20"):
        find(view_of(tmp_path, (steps_of(noisy_steps(10)), {})))
