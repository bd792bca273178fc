"""What a suite says of its pairs, and of two suites: on times that were drawn, so that the truth is known."""

import numpy as np
import pytest

from phasepoint.bench.suite.compare import compare_suites
from phasepoint.bench.suite.result import Conditions, ModelFacts, Pair, PairResult, SustainedWindow
from phasepoint.bench.suite.summary import process_scatter, summarize_suite, what_is_unsteady
from phasepoint.bench.suite.sustained import judge_sustained
from phasepoint.core.errors import NoDataError

FACTS = ModelFacts("classification", "torchvision", 10, 2_000_000, 40)
CALM = Conditions("CPU", 1, 0.0, 0.0, 0.0, 0, 1, 1, None, None, {})


def drawn(times, *, seed, rounds=3, samples=40, between=0.02, within=0.01, factor=None):
    """Rounds of models whose times are given in ms: processes scatter by `between`, latencies by `within`."""
    chance = np.random.default_rng(seed)
    results = []
    for name, time_ms in times.items():
        true = time_ms * (factor or {}).get(name, 1.0) * 1e9
        for number in range(rounds):
            middle = true * np.exp(between * chance.standard_normal())
            latencies = middle * np.exp(within * chance.standard_normal(samples))
            results.append(
                PairResult(
                    pair=Pair(name, "cpu:1", "eager", "f32"),
                    round=number,
                    status="measured",
                    model=FACTS,
                    latencies_ps=tuple(int(one) for one in latencies),
                    conditions=CALM,
                )
            )
    return results


TIMES = {f"m{number:02}": 1.15**number for number in range(40)}


def test_intervals_hold_the_time_of_a_model_over_all_processes():
    """Not that of the processes that happened to run: nineteen of twenty, over 60 suites of 40 models."""
    held = []
    for seed in range(60):
        for one in summarize_suite(drawn(TIMES, seed=seed)):
            held.append(one.low_ps <= TIMES[one.pair.model] * 1e9 <= one.high_ps)
    assert 0.92 <= np.mean(held) <= 0.99


def test_the_scatter_between_processes_is_found():
    found = [process_scatter(by_model(drawn(TIMES, seed=seed))) for seed in range(30)]
    assert np.mean([spread for spread, _ in found]) == pytest.approx(0.02, rel=0.12)
    assert {freedom for _, freedom in found} == {80.0}
    assert process_scatter(by_model(drawn(TIMES, seed=0, rounds=1))) is None


def by_model(results):
    return [[one for one in results if one.pair.model == name] for name in TIMES]


def test_a_single_process_tells_its_own_scatter():
    (one,) = summarize_suite(drawn({"a": 1.0}, seed=1, rounds=1, samples=400))
    assert one.low_ps < one.latency_ps < one.high_ps
    assert one.high_ps / one.low_ps - 1 < 0.01


@pytest.mark.parametrize(("samples", "has_p90", "has_p99"), [(20, False, False), (22, True, False), (221, True, True)])
def test_percentiles_want_enough_samples(samples, has_p90, has_p99):
    """64 and 662 of them, all rounds together."""
    results = drawn({"a": 1.0}, seed=2, samples=samples)
    (one,) = summarize_suite(results)
    assert (one.p90_ps is not None, one.p99_ps is not None) == (has_p90, has_p99)
    every = sorted(time for result in results for time in result.latencies_ps)
    if has_p90:
        assert one.p90_ps == every[int(np.ceil(0.9 * len(every))) - 1]
    assert one.macs_per_s == pytest.approx(2e6 / (one.latency_ps / 1e12))


def test_two_suites_of_one_device_are_rarely_called_different():
    """At most one of twenty comparisons, whatever the number of models; chance allows a few more of 200."""
    called = swapped = 0
    for seed in range(200):
        first, second = (summarize_suite(drawn(TIMES, seed=2 * seed + which)) for which in (0, 1))
        comparison = compare_suites(first, second)
        called += any(one.differs for one in comparison.ratios)
        swapped += bool(comparison.swaps)
    assert called <= 16
    assert swapped <= 10


def test_one_model_that_is_slower_is_found():
    """By 10 %, where processes scatter by 2 %: in nine of ten comparisons, and no other with it."""
    found = 0
    for seed in range(60):
        first = summarize_suite(drawn(TIMES, seed=2 * seed))
        second = summarize_suite(drawn(TIMES, seed=2 * seed + 1, factor={"m07": 1.10}))
        comparison = compare_suites(first, second)
        found += "m07" in [one.pair.model for one in comparison.ratios if one.differs]
        assert comparison.ratios[0].ratio == max(one.ratio for one in comparison.ratios)
    assert found >= 54


def test_another_order_is_found():
    times = {"a": 1.0, "b": 1.3, "c": 2.0}
    first = summarize_suite(drawn(times, seed=1))
    second = summarize_suite(drawn(times, seed=2, factor={"b": 2.0}))
    comparison = compare_suites(first, second)
    assert comparison.swaps == (("b", "c"),)
    assert [one.pair.model for one in comparison.ratios if one.differs] == ["b"]


def test_suites_must_share_a_model():
    with pytest.raises(NoDataError, match="share no model"):
        compare_suites(summarize_suite(drawn({"a": 1.0}, seed=1)), summarize_suite(drawn({"b": 1.0}, seed=1)))


def result_of(latencies, **conditions):
    told = Conditions(**({name: getattr(CALM, name) for name in CALM.__struct_fields__} | conditions))
    pair = Pair("a", "cpu:1", "eager", "f32")
    return PairResult(pair=pair, round=0, status="measured", latencies_ps=tuple(latencies), conditions=told)


def test_what_is_unsteady_is_said():
    assert what_is_unsteady(result_of([100] * 20)) == ""
    assert what_is_unsteady(result_of([100] * 10 + [106] * 10)) == "slower as it went on"
    assert what_is_unsteady(result_of([106] * 10 + [100] * 10)) == "faster as it went on"
    assert what_is_unsteady(result_of([100] * 20, others_ratio=0.2)) == "beside other programs"


def windows_of(speeds):
    return [SustainedWindow(number * 10**12, 10**12, int(speed)) for number, speed in enumerate(speeds)]


def test_a_device_that_slows_down_is_seen_where_it_does():
    """Seconds scatter by 2 %; it is a tenth slower from the 70th on."""
    chance = np.random.default_rng(3)
    for seconds in (90, 180):
        speeds = 200 * np.exp(0.02 * chance.standard_normal(seconds))
        speeds[70:] *= 0.9
        found = judge_sustained(windows_of(speeds))
        assert abs(found.change_s - 70) <= 2
        assert found.last_per_s / found.first_per_s == pytest.approx(0.9, rel=0.02)


def test_a_device_that_does_not_is_not_said_to():
    """Of 300 runs of three minutes none, though they drift by 3 % and have a slow stretch of five seconds."""
    chance = np.random.default_rng(4)
    for _ in range(300):
        speeds = 200 * np.exp(0.02 * chance.standard_normal(180) - np.linspace(0, 0.03, 180))
        begin = chance.integers(0, 170)
        speeds[begin : begin + 5] *= 0.7
        assert judge_sustained(windows_of(speeds)).change_s is None
    assert judge_sustained(windows_of([100] * 19)) is None
