"""GC-PAUSE: planted pauses, long and short, exposed and hidden, and runs that hardly collect."""

import numpy as np
import pytest
from planted_runs import MS, capture, check_finding, counter, noisy_steps, steps_of, view_of, within

from phasepoint.core.tables import CATEGORIES
from phasepoint.findings.finding import Unavailable
from phasepoint.findings.rules.host.gc_pause import find

N = 900
FLUSH_PS = 3_000 * MS


def samples(steps, begins, *, short_share=0.0):
    """Counters as the recorder writes them, from (start, length) of each long pause and the short ones' share."""
    end_ps = int(steps["start_ps"][-1] + steps["dur_ps"][-1])
    rows = [counter("gc.pause.long", at_ps, ps) for at_ps, ps in begins]
    for until_ps in range(FLUSH_PS, end_ps + FLUSH_PS, FLUSH_PS):
        long_ps = sum(ps for at_ps, ps in begins if until_ps - FLUSH_PS < at_ps + ps <= until_ps)
        lasted_ps = min(until_ps, end_ps) - (until_ps - FLUSH_PS)
        rows.append(counter("gc.pause", min(until_ps, end_ps), long_ps + short_share * lasted_ps))
    return {"counters": rows}


def planted(share, *, every=25, exposed=1.0, noise=0.04, seed=0):
    """Steps with a long pause every so many, of which so much lengthens the step."""
    dur_ps = noisy_steps(N, noise=noise, seed=seed)
    hit = np.arange(every - 1, N, every)
    pause_ps = int(dur_ps.sum() * share / (1 - share) / len(hit))
    dur_ps[hit] += int(exposed * pause_ps)
    steps = steps_of(dur_ps)
    ends = steps["start_ps"] + dur_ps
    begins = [(int(ends[i]) - pause_ps if exposed == 1 else int(steps["start_ps"][i]), pause_ps) for i in hit]
    return steps, begins, int(exposed * pause_ps) * len(hit)


@pytest.mark.parametrize("share", [0.05, 0.15, 0.4])
def test_long_pauses_are_found_with_what_they_cost(tmp_path, share):
    steps, begins, planted_ps = planted(share)
    view = view_of(tmp_path, (steps, samples(steps, begins)))
    (found,) = find(view)
    check_finding(view, found)
    assert within(found.claim.total_ps, planted_ps, 0.15)
    assert found.low_ps <= planted_ps <= found.high_ps
    assert found.confidence == "high"


@pytest.mark.parametrize("exposed", [0.0, 0.3, 0.6])
def test_what_the_device_works_through_is_not_claimed(tmp_path, exposed):
    steps, begins, planted_ps = planted(0.3, exposed=exposed, noise=0.02)
    found = find(view_of(tmp_path, (steps, samples(steps, begins))))
    if not exposed:
        assert found == []
    else:
        assert within(found[0].claim.total_ps, planted_ps)


def test_short_pauses_count_as_summed(tmp_path):
    steps = steps_of(noisy_steps(N))
    view = view_of(tmp_path, (steps, samples(steps, [], short_share=0.08)))
    (found,) = find(view)
    check_finding(view, found)
    assert within(found.claim.total_ps, 0.08 * steps["dur_ps"].sum(), 0.01)
    assert (found.confidence, found.high_ps) == ("medium", found.claim.total_ps)


def test_a_pause_in_every_step_counts_up_to_what_the_device_left_free(tmp_path):
    dur_ps = noisy_steps(N) + 20 * MS
    steps = steps_of(dur_ps)
    begins = [(int(at_ps), 20 * MS) for at_ps in steps["start_ps"]]
    busy = dict.fromkeys(CATEGORIES, 0.0) | {"compute": 0.85, "idle": 0.0}
    del busy["idle"]
    rows = samples(steps, begins) | capture(steps, lambda i: busy)
    view = view_of(tmp_path, (steps, rows))
    (found,) = find(view)
    check_finding(view, found)
    assert within(found.claim.total_ps, 0.15 * dur_ps.sum(), 0.02)


def test_a_pause_that_a_sample_falls_into_is_counted_once(tmp_path):
    dur_ps = noisy_steps(N)
    dur_ps[np.searchsorted(np.cumsum(dur_ps), 2_900 * MS)] += 1_000 * MS
    steps = steps_of(dur_ps)
    rows = [counter("gc.pause.long", 2_900 * MS, 1_000 * MS)]
    rows += [counter("gc.pause", at * MS, ps * MS) for at, ps in ((3_000, 0), (6_000, 1_000), (9_000, 0))]
    (found,) = find(view_of(tmp_path, (steps, {"counters": rows})))
    assert found.claim.total_ps <= 1_000 * MS


def test_pauses_between_steps_are_claimed_there(tmp_path):
    dur_ps = noisy_steps(N)
    steps = steps_of(dur_ps, start_ps=10_000 * MS)
    view = view_of(tmp_path, (steps, samples(steps, [(5_000 * MS, 2_000 * MS)])))
    (found,) = find(view)
    assert found.claim.outside_ps == 2_000 * MS
    assert found.claim.by_step.sum() == 0


@pytest.mark.parametrize("seed", range(5))
def test_few_collections_are_no_finding(tmp_path, seed):
    steps, begins, _ = planted(0.004, noise=0.1, seed=seed)
    assert find(view_of(tmp_path, (steps, samples(steps, begins, short_share=0.002)))) == []


def test_a_run_without_the_counter_says_what_it_lacks(tmp_path):
    with pytest.raises(Unavailable, match="record it again"):
        find(view_of(tmp_path, (steps_of(noisy_steps(N)), {})))
