"""Ranking of findings: order, and no picosecond counted twice."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from phasepoint.findings.finding import Claim, Evidence, Finding
from phasepoint.findings.judge import allow_for_saved, rank_findings, set_late_apart


def finding(code, part, by_step, *, outside_ps=0, spread=0.1):
    claim = Claim(part, np.asarray(by_step, np.int64), outside_ps)
    total = claim.total_ps
    evidence = (Evidence("rows", "steps", "select step from steps"),)
    low, high = int(total * (1 - spread)), int(total * (1 + spread))
    return Finding(code, code.lower(), claim, low, high, "do", evidence, "high", "never")


def test_the_same_time_counts_once_and_the_larger_claim_first():
    dur = np.full(4, 100, np.int64)
    found = rank_findings([finding("A", "input", [30, 30, 0, 0]), finding("B", "input", [50, 10, 0, 0])], dur, 500)
    assert [(f.code, f.saved_ps, f.alone_ps) for f in found] == [("A", 60, 60), ("B", 20, 60)]
    assert found[1].low_ps == 18
    assert found[1].high_ps == 22
    assert found[0].share == 60 / 500


def test_different_parts_of_a_step_add_up_to_no_more_than_the_step():
    dur = np.array([100], np.int64)
    found = rank_findings([finding("A", "input", [80]), finding("B", "compiling", [60])], dur, 100)
    assert [f.saved_ps for f in found] == [80, 20]


def test_time_between_steps_is_shared_out_too():
    dur = np.array([100], np.int64)
    claims = [finding("A", "checkpoint", [0], outside_ps=70), finding("B", "outside", [0], outside_ps=60)]
    assert [f.saved_ps for f in rank_findings(claims, dur, 200)] == [70, 30]


def test_what_may_win_nothing_comes_last():
    dur = np.full(4, 100, np.int64)
    vague, sure = finding("A", "idle", [90] * 4, spread=1.0), finding("B", "input", [5] * 4)
    found = rank_findings([vague, sure], dur, 400)
    assert [(f.code, f.saved_ps, f.low_ps) for f in found] == [("B", 20, 18), ("A", 360, 0)]


def test_no_interval_goes_beyond_the_steps_that_are_claimed():
    dur = np.full(4, 100, np.int64)
    (found,) = rank_findings([finding("A", "idle", [90, 0, 0, 0], spread=2.0)], dur, 500)
    assert (found.low_ps, found.saved_ps, found.high_ps) == (0, 90, 100)
    (between,) = rank_findings([finding("B", "outside", [0] * 4, outside_ps=60, spread=2.0)], dur, 500)
    assert (between.low_ps, between.high_ps) == (0, 100)  # 500 of the run less 400 of its steps


def test_nothing_to_rank():
    assert rank_findings([], np.array([1], np.int64), 1) == ()
    assert rank_findings([finding("A", "input", [0])], np.array([0], np.int64), 0)[0].share == 0


@given(
    st.lists(
        st.tuples(st.sampled_from(["input", "host", "idle"]), st.lists(st.integers(0, 120), min_size=5, max_size=5)),
        max_size=6,
    ),
    st.lists(st.integers(0, 100), min_size=5, max_size=5),
    st.integers(0, 50),
)
def test_all_findings_together_win_no_more_than_the_run(claims, durations, outside_ps):
    dur = np.array(durations, np.int64)
    wall = int(dur.sum()) + outside_ps
    made = [
        finding(f"R{i}", part, np.minimum(values, dur), outside_ps=7 * i) for i, (part, values) in enumerate(claims)
    ]
    found = rank_findings(made, dur, wall)
    saved = [f.saved_ps for f in found]
    assert len(found) == len(made)
    assert sum(saved) <= wall
    sure = {made_one.code: made_one.low_ps > 0 or not made_one.claim.total_ps for made_one in made}
    order = [(sure[f.code], f.saved_ps) for f in found]
    assert order == sorted(order, reverse=True)
    assert all(0 <= f.low_ps <= f.saved_ps <= f.high_ps and f.saved_ps <= f.alone_ps for f in found)
    for part in ("input", "host", "idle"):
        most = np.max([m.claim.by_step for m in made if m.claim.part == part] or [np.zeros(5)], axis=0).sum()
        outside = sum(m.claim.outside_ps for m in made if m.claim.part == part)
        codes = {m.code for m in made if m.claim.part == part}
        assert sum(f.saved_ps for f in found if f.code in codes) <= most + outside


def test_an_interval_allows_for_what_the_remedy_saves_of_the_claim():
    claim = finding("A", "input", [1000], spread=0.3)
    same = allow_for_saved(claim, None)
    assert (same.low_ps, same.high_ps) == (700, 1300)
    wider = allow_for_saved(claim, (0.6, 1.4))
    assert (wider.low_ps, wider.high_ps) == (500, 1500)  # 3, 4, 5
    exact = allow_for_saved(finding("A", "input", [1000], spread=0.0), (0.8, 2.0))
    assert (exact.low_ps, exact.high_ps) == (800, 2000)
    assert allow_for_saved(finding("A", "input", [0]), (0.5, 2.0)).high_ps == 0


def test_the_interval_of_a_rule_that_saves_less_than_it_claims_begins_at_nothing():
    assert allow_for_saved(finding("A", "input", [1000], spread=0.9), (0.1, 1.0)).low_ps == 0


def test_what_hosts_wait_for_a_late_one_is_no_communication():
    dur = np.full(3, 100, np.int64)
    claims = [finding("EXCHANGE", "communication", [60, 60, 20]), finding("LATE", "late", [30, 30, 30])]
    found = {f.code: f.saved_ps for f in rank_findings(set_late_apart(claims), dur, 300)}
    assert found == {"LATE": 90, "EXCHANGE": 60}
    (exchange,) = [f for f in set_late_apart(claims) if f.code == "EXCHANGE"]
    assert exchange.claim.by_step.tolist() == [30, 30, 0]
    assert exchange.low_ps == int(0.9 * 140 * 60 / 140)
    assert set_late_apart(claims[:1]) == claims[:1]
