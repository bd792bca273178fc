"""A fingerprint from suites: on made-up devices, whose truth is known, and what it needs."""

import numpy as np
import pytest

from made_models import made_models
from phasepoint.bench.fingerprint.fingerprint import choose_for, known_suites, predict_rest
from phasepoint.bench.suite.result import ModelFacts, Pair, PairResult, SuiteRequest, result_path, write_file
from phasepoint.bench.suite.summary import summarize_suite
from phasepoint.core.errors import NoDataError


def made_suite(folder, device, *, count=80, keep=None, scale=1e-3):
    """A suite of made-up models on one of the four made-up devices; times in seconds are `scale` times theirs."""
    macs, _, params, families, times = made_models(count)
    results = []
    for place, family in enumerate(families):
        name = f"{family}{place}"
        if keep is None or name in keep:
            latency_ps = int(times[device][place] * scale * 1e12)
            facts = ModelFacts("classification", "made", int(params[place] * 1e6), int(macs[place] * 1e9), 4)
            pair = Pair(name, "cpu:1", "eager", "f32")
            results.append(
                PairResult(pair=pair, round=0, status="measured", model=facts, latencies_ps=(latency_ps,) * 10)
            )
    request = SuiteRequest(tuple(one.pair for one in results), 1, 1.0, (1,), 60.0, 0)
    write_file(folder / "suite.json", request)
    for one in results:
        write_file(result_path(folder, one.pair, 0), one)
    return {one.pair.model: one.latencies_ps[0] for one in results}


@pytest.fixture
def known(tmp_path):
    for device in "ABC":
        made_suite(tmp_path / device, device)
    return [tmp_path / device for device in "ABC"]


def test_ten_measured_models_say_what_the_others_take(known, tmp_path):
    suites = known_suites(known)
    assert len(suites.names) == 80
    assert suites.labels == tuple(f"{device}: cpu:1, eager, f32" for device in "ABC")
    names, seconds = choose_for(suites, 30.0)
    assert len(set(names)) == 10
    assert seconds == (180 - 12) / 2
    true = made_suite(tmp_path / "D", "D")
    made_suite(tmp_path / "new", "D", keep=names)
    from phasepoint.bench.suite.result import read_suite

    rows = predict_rest(suites, summarize_suite(read_suite(tmp_path / "new")[1]))
    assert [row.latency_ps for row in rows] == sorted(row.latency_ps for row in rows)
    assert {row.model for row in rows if row.is_measured} == set(names)
    assert all(row.latency_ps == true[row.model] for row in rows if row.is_measured)
    said = [row for row in rows if not row.is_measured]
    errors = [abs(row.latency_ps / true[row.model] - 1) for row in said]
    assert len(said) == 70
    assert np.median(errors) < 0.1
    assert 0.75 <= np.mean([row.low_ps <= true[row.model] <= row.high_ps for row in said]) <= 1


def test_models_that_take_too_long_are_not_chosen(known):
    """In 2.1 minutes a model has 0.6 seconds, into which 40 runs must fit."""
    suites = known_suites(known)
    names, seconds = choose_for(suites, 2.1)
    assert seconds == pytest.approx(0.3)
    slowest_s = dict(zip(suites.names, np.exp(suites.known.log_times.max(1)), strict=True))
    assert all(40 * slowest_s[name] <= 0.6 for name in names)
    assert not all(40 * slowest <= 0.6 for slowest in slowest_s.values())
    with pytest.raises(NoDataError, match=r"ten models do not fit into 1 minutes; expected --minutes \d+ or more"):
        choose_for(suites, 1.0)


def test_what_it_needs_is_said(known, tmp_path):
    with pytest.raises(NoDataError, match="suites of two other devices or more"):
        known_suites(known[:1])
    made_suite(tmp_path / "few", "D", count=12)
    with pytest.raises(NoDataError, match=r"the suites share \d+ models; expected 20 or more"):
        known_suites([*known, tmp_path / "few"])
    with pytest.raises(NoDataError, match="none of the models that were chosen"):
        predict_rest(known_suites(known), [])
