"""Whole-run estimates: closure, exactness, honest intervals, and an oracle in plain Python."""

from statistics import mean

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from run_tables import MS, captured_tables, noisy_run, steps_table

from phasepoint.core.tables import CATEGORIES
from phasepoint.estimates.captured import PARTS
from phasepoint.estimates.estimates import estimate_totals
from phasepoint.phases.clock.breakdown import ESTIMATED, FEW, MEASURED


def parts_of(breakdown):
    return {part.name: part.total_ps for part in breakdown.parts}


def intervals_of(breakdown):
    return {part.name: (part.low_ps, part.high_ps) for part in breakdown.parts}


def random_windows(n, count, rng):
    starts = np.sort(rng.choice(n // 5, count, replace=False)) * 5
    return [(i, int(start), 5) for i, start in enumerate(starts)]


def test_full_capture_is_exact_with_nil_intervals():
    dur, parts, labels = noisy_run(200, np.random.default_rng(0))
    windows, breakdowns = captured_tables(parts, [(i, 5 * i, 5) for i in range(40)])
    found = estimate_totals(steps_table(dur), windows, breakdowns, labels)
    truth = dict(zip(CATEGORIES, parts.sum(axis=0).tolist(), strict=True))
    assert {k: v for k, v in parts_of(found.categories).items() if k in truth} == truth
    assert all(low == high for low, high in intervals_of(found.categories).values())
    assert found.categories.captured_steps == 200
    assert found.categories.windows == 40


def test_homogeneous_steps_agree_with_an_oracle_in_plain_python():
    """With one kind of step and no long ones, the estimate is Σ part / Σ time of the captured × time of the others."""
    rng = np.random.default_rng(3)
    n = 400
    dur = rng.integers(95, 105, n) * 10**7
    compute = (dur * rng.uniform(0.5, 0.7, n)).astype(np.int64)
    parts = np.column_stack([compute, *np.zeros((3, n), np.int64), dur - compute])
    chosen = random_windows(n, 10, rng)
    found = estimate_totals(steps_table(dur), *captured_tables(parts, chosen), np.zeros(n, np.int64))
    seen = [step for _, first, steps in chosen for step in range(first, first + steps)]
    seen_ps = sum(int(dur[step]) for step in seen)
    share = sum(int(compute[step]) for step in seen) / seen_ps
    rest_ps = sum(int(dur[step]) for step in range(n) if step not in set(seen))
    expected = sum(int(compute[step]) for step in seen) + share * rest_ps
    assert parts_of(found.categories)["compute"] == pytest.approx(expected, rel=1e-9)
    errors = [sum(int(compute[s]) - share * int(dur[s]) for s in range(f, f + 5)) for _, f, _ in chosen]
    spread = (mean(e * e for e in errors) * 10 / 9) ** 0.5 * rest_ps / seen_ps * 10**0.5
    low, high = intervals_of(found.categories)["compute"]
    assert (high - low) / 2 / (2.1 * spread) == pytest.approx(1, rel=0.25)


def test_input_wait_is_named_once_and_bounded_by_the_clock():
    """All wait was exposed: idle in it is called input. Elsewhere some may be hidden, but no more can be exposed."""
    n = 100
    dur, input_ps = np.full(n, 10 * MS), np.full(n, 2 * MS)
    input_ps[50:60], dur[50:60] = 8 * MS, 16 * MS
    compute = np.full(n, 6 * MS)
    parts = np.column_stack([compute, *np.zeros((3, n), np.int64), dur - compute])
    windows = captured_tables(parts, [(0, 10, 5), (1, 30, 5), (2, 52, 5), (3, 80, 5)])
    found = estimate_totals(steps_table(dur, input_ps=input_ps), *windows, np.zeros(n, np.int64))
    assert parts_of(found.categories)["input"] == int(input_ps.sum())
    low, high = intervals_of(found.categories)["input"]
    assert high == int(input_ps.sum())
    assert (
        int(input_ps[list(range(10, 15)) + list(range(30, 35)) + list(range(52, 57)) + list(range(80, 85))].sum())
        <= low
    )
    assert 0.6 * high < low < 0.95 * high
    assert parts_of(found.categories)["idle"] == 2 * MS * n
    assert sum(parts_of(found.categories).values()) == int(dur.sum())


def test_wait_hidden_behind_work_stays_with_the_work():
    n = 40
    dur, parts = np.full(n, 10 * MS), np.tile([10 * MS, 0, 0, 0, 0], (n, 1))
    windows = captured_tables(parts, [(0, 0, 5), (1, 20, 5)])
    found = estimate_totals(steps_table(dur, input_ps=np.full(n, 4 * MS)), *windows, np.zeros(n, np.int64))
    assert parts_of(found.categories)["input"] == 0
    assert parts_of(found.categories)["compute"] == 10 * MS * n


def test_compilation_is_measured_not_sampled():
    n = 100
    dur, compile_ps = np.full(n, 10 * MS), np.zeros(n, np.int64)
    dur[0], compile_ps[0] = 2010 * MS, 2000 * MS
    parts = np.column_stack([np.full(n, 8 * MS), *np.zeros((3, n), np.int64), dur - 8 * MS])
    windows = captured_tables(parts, [(0, 20, 5), (1, 60, 5), (2, 80, 5)])
    found = estimate_totals(steps_table(dur, compile_ps=compile_ps), *windows, np.zeros(n, np.int64))
    assert parts_of(found.categories)["compiling"] == 2000 * MS
    assert parts_of(found.categories)["compute"] == 8 * MS * n


def test_nothing_captured_is_unattributed():
    none = captured_tables([], [])
    found = estimate_totals(steps_table([5, 7]), *none, np.zeros(2, np.int64))
    assert parts_of(found.categories) == {**dict.fromkeys(PARTS, 0), "unattributed": 12}
    assert found.ops == ()
    assert not found.captured.any()


def test_a_phase_without_windows_is_borrowed_wider_and_said_so():
    n = 200
    labels = np.where(np.arange(n) < 180, 0, 1)
    dur = np.where(labels == 0, 10 * MS, 12 * MS)
    compute = (dur * 0.6).astype(np.int64)
    parts = np.column_stack([compute, *np.zeros((3, n), np.int64), dur - compute])
    windows = captured_tables(parts, [(i, 30 * i, 5) for i in range(5)])
    found = estimate_totals(steps_table(dur), *windows, labels, names={0: "train", 1: "odd"})
    low, high = intervals_of(found.phases[1])["compute"]
    assert high - low > 0.2 * found.phases[1].total_ps
    low, high = intervals_of(found.phases[0])["compute"]
    assert high - low <= 2
    assert found.categories.notes == (
        "odd (12 % of the time) had too few windows of their own: estimated from the most similar phase, "
        "with wider intervals",
    )


def test_windows_by_choice_do_not_bend_the_shares():
    """Chosen windows sit on the steps without compute; chance alone says what the others are like."""
    n = 400
    compute = np.full(n, 6 * MS)
    compute[200:240] = 0
    dur = np.full(n, 10 * MS)
    parts = np.column_stack([compute, *np.zeros((3, n), np.int64), dur - compute])
    windows = [(i, 40 * i, 5) for i in range(5)] + [(5 + i, 200 + 5 * i, 5) for i in range(8)]
    tables = captured_tables(parts, windows, probability=[0.01] * 5 + [None] * 8)
    found = estimate_totals(steps_table(dur), *tables, np.zeros(n, np.int64))
    assert parts_of(found.categories)["compute"] == int(compute.sum())


def test_ops_are_estimated_with_their_counts_and_close_with_other():
    n = 100
    dur = np.full(n, 10 * MS)
    parts = np.tile([8 * MS, 0, 0, 0, 2 * MS], (n, 1))
    chosen = [(0, 10, 5), (1, 40, 5), (2, 70, 5), (3, 90, 5)]
    rows = [(w, s, f"op{o:02}", (o + 1) * 10**7) for w, f, c in chosen for s in range(f, f + c) for o in range(15)]
    ops = pa.table(
        {
            "window": [r[0] for r in rows],
            "step": [r[1] for r in rows],
            "op": [r[2] for r in rows],
            "category": ["compute"] * len(rows),
            "count": [2] * len(rows),
            "self_ps": [r[3] for r in rows],
        }
    )
    found = estimate_totals(steps_table(dur), *captured_tables(parts, chosen), np.zeros(n, np.int64), ops=ops)
    assert [op.op for op in found.ops] == [f"op{o:02}" for o in range(14, 4, -1)] + ["other"]
    assert found.ops[0].self_ps == 15 * 10**7 * n
    assert found.ops[0].count == 2 * n
    assert sum(op.self_ps for op in found.ops) == sum((o + 1) * 10**7 for o in range(15)) * n
    assert sum(op.share for op in found.ops) == pytest.approx(1)
    assert found.ops == found.phase_ops[0]


def ops_of_windows(chosen):
    """One op that takes 6 of 10 ms of each captured step."""
    steps = [(w, s) for w, first, n in chosen for s in range(first, first + n)]
    window, step = (list(column) for column in zip(*steps, strict=True))
    n = len(steps)
    columns = {"window": window, "step": step, "op": ["dot"] * n, "category": ["compute"] * n, "count": [2] * n}
    return pa.table({**columns, "self_ps": [6 * MS] * n})


@pytest.mark.parametrize(
    ("windows", "probability", "basis", "count"),
    [
        (2, 0.01, FEW, 20),  # ten captured steps, two executions each
        (3, 0.01, ESTIMATED, 200),
        (8, None, FEW, 80),  # all by choice
        (8, [0.01] * 3 + [None] * 5, ESTIMATED, 200),
        (12, None, ESTIMATED, 200),  # by choice, but more than half of the time
        (20, None, MEASURED, 200),
    ],
)
def test_few_windows_by_chance_tell_of_their_own_steps_alone(windows, probability, basis, count):
    n = 100
    parts = np.tile([8 * MS, 0, 0, 0, 2 * MS], (n, 1))
    chosen = [(i, 5 * i, 5) for i in range(windows)]
    tables = captured_tables(parts, chosen, probability=probability)
    found = estimate_totals(
        steps_table(np.full(n, 10 * MS)), *tables, np.zeros(n, np.int64), ops=ops_of_windows(chosen)
    )
    (op,) = found.ops
    assert found.categories.basis == found.phases[0].basis == basis
    assert (op.count, op.self_ps) == (count, count // 2 * 6 * MS)
    assert {part.basis for part in found.categories.parts} <= {
        "unattributed",
        "measured" if basis == MEASURED else ESTIMATED,
    }
    if basis != ESTIMATED:
        assert op.low_ps == op.self_ps == op.high_ps


def test_an_op_takes_no_more_than_there_is():
    """Three windows that differ as much as they can: the interval ends at what the other steps lasted."""
    n = 30
    parts = np.tile([8 * MS, 0, 0, 0, 2 * MS], (n, 1))
    chosen = [(0, 0, 1), (1, 10, 1), (2, 20, 1)]
    ops = pa.table(
        {"window": [0, 1, 2], "step": [0, 10, 20], "op": ["a", "b", "b"], "category": ["compute"] * 3, "count": [1] * 3,
         "self_ps": [8 * MS] * 3}
    )  # fmt: skip
    found = estimate_totals(
        steps_table(np.full(n, 10 * MS)), *captured_tables(parts, chosen), np.zeros(n, int), ops=ops
    )
    for op in found.ops:
        seen_ps = 8 * MS * (1 if op.op == "a" else 2)
        assert 0 <= op.low_ps <= op.self_ps <= op.high_ps <= seen_ps + 27 * 10 * MS


def test_hosts_are_added():
    n = 60
    parts = np.tile([6 * MS, 0, 0, 0, 4 * MS], (n, 1))
    slow = np.tile([6 * MS, 0, 0, 0, 14 * MS], (n, 1))
    one, two = (captured_tables(p, [(i, 12 * i, 5) for i in range(5)], host=h) for h, p in ((0, parts), (1, slow)))
    steps = pa.concat_tables([steps_table(np.full(n, 10 * MS)), steps_table(np.full(n, 20 * MS), host=1)])
    tables = [pa.concat_tables(pair) for pair in zip(one, two, strict=True)]
    found = estimate_totals(steps, *tables, np.zeros(2 * n, np.int64))
    assert parts_of(found.categories)["compute"] == 2 * n * 6 * MS
    assert parts_of(found.categories)["idle"] == n * 4 * MS + n * 14 * MS
    assert found.categories.windows == 10


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.integers(0, 12), st.integers(1, 50))
def test_everything_closes_and_scales(seed, count, factor):
    rng = np.random.default_rng(seed)
    dur, parts, labels = noisy_run(150, rng, noise=0.2)
    input_ps = (dur * rng.uniform(0, 0.3, 150)).astype(np.int64)
    tables = captured_tables(parts, random_windows(150, count, rng))
    found = estimate_totals(steps_table(dur, input_ps=input_ps), *tables, labels)
    for breakdown in (found.categories, *found.phases.values()):
        assert sum(part.total_ps for part in breakdown.parts) == breakdown.total_ps
        assert all(0 <= part.low_ps <= part.total_ps <= part.high_ps <= breakdown.total_ps for part in breakdown.parts)
    assert found.categories.total_ps == int(dur.sum())
    for name in PARTS:
        assert parts_of(found.categories)[name] == sum(parts_of(b)[name] for b in found.phases.values())
    breakdowns = tables[1].set_column(6, "wall_ps", pa.array(tables[1].column("wall_ps").to_numpy() * factor))
    scaled = estimate_totals(steps_table(dur * factor, input_ps=input_ps * factor), tables[0], breakdowns, labels)
    for name, time_ps in parts_of(found.categories).items():
        assert parts_of(scaled.categories)[name] == pytest.approx(time_ps * factor, rel=1e-6, abs=8 * factor)


@settings(max_examples=15)
@given(st.integers(0, 2**32 - 1))
def test_order_of_rows_does_not_matter_and_inputs_stay_as_they_are(seed):
    rng = np.random.default_rng(seed)
    dur, parts, labels = noisy_run(100, rng)
    steps = steps_table(dur)
    windows, breakdowns = captured_tables(parts, random_windows(100, 6, rng))
    found = estimate_totals(steps, windows, breakdowns, labels)
    before = breakdowns.to_pydict()
    order = rng.permutation(breakdowns.num_rows)
    again = estimate_totals(steps, windows, breakdowns.take(pa.array(order)), labels)
    assert again.categories == found.categories
    assert breakdowns.to_pydict() == before


def test_intervals_cover_in_replays_of_a_run_with_lasting_noise():
    rng = np.random.default_rng(11)
    dur, parts, labels = noisy_run(4000, rng, noise=0.1)
    truth = dict(zip(CATEGORIES, parts.sum(axis=0).tolist(), strict=True))
    steps, covered, worst = steps_table(dur), [], 0.0
    for _ in range(60):
        found = estimate_totals(steps, *captured_tables(parts, random_windows(4000, 24, rng)), labels)
        for name in ("compute", "host", "idle"):
            low, high = intervals_of(found.categories)[name]
            covered.append(low <= truth[name] <= high)
            worst = max(worst, abs(parts_of(found.categories)[name] - truth[name]) / int(dur.sum()))
    assert 0.90 <= mean(covered) <= 0.995
    assert worst < 0.08


@pytest.mark.parametrize("one_in", [100, 500])
def test_intervals_hold_where_rare_steps_last_long_for_another_reason(one_in):
    """One step in `one_in` lasts five times as long, all of it idle; many a replay captures none of them."""
    rng = np.random.default_rng(one_in)
    n = 3000
    dur, parts, _ = noisy_run(n, rng)
    long = (rng.random(n) < 1 / one_in) * 4 * int(np.median(dur))
    parts[:, CATEGORIES.index("idle")] += long
    steps, labels, covered = steps_table(dur + long), np.zeros(n, np.int64), []
    truth = dict(zip(CATEGORIES, parts.sum(axis=0).tolist(), strict=True))
    for _ in range(40):
        found = estimate_totals(steps, *captured_tables(parts, random_windows(n, 30, rng)), labels)
        low, high = intervals_of(found.categories)["idle"]
        covered.append(low <= truth["idle"] <= high)
    assert mean(covered) >= 0.9


def test_labels_must_fit():
    with pytest.raises(ValueError, match="1 labels for 2 steps"):
        estimate_totals(steps_table([1, 2]), *captured_tables([], []), np.zeros(1, np.int64))


def test_an_unknown_category_is_refused():
    windows, breakdowns = captured_tables(np.full((5, 5), 2), [(0, 0, 5)])
    broken = breakdowns.set_column(5, "category", pa.array(["magic"] * breakdowns.num_rows))
    with pytest.raises(ValueError, match="magic"):
        estimate_totals(steps_table([10] * 5), windows, broken, np.zeros(5, np.int64))


def hosts_half_width(compute_of_host, *, together):
    """Half the interval of compute as a share of it, of hosts whose steps last equally long.

    Args:
        compute_of_host: `[hosts, steps]`, ratio of a step that computes.
        together: whether all hosts capture the same steps.
    """
    n_hosts, n = compute_of_host.shape
    dur, steps, windows, breakdowns = np.full(n, 10 * MS), [], [], []
    for host, share in enumerate(compute_of_host):
        compute = (share * dur).astype(np.int64)
        parts = np.column_stack([compute, *np.zeros((3, n), np.int64), dur - compute])
        chosen = random_windows(n, 24, np.random.default_rng(0 if together else host))
        steps.append(steps_table(dur, host=host))
        for table, into in zip(captured_tables(parts, chosen, host=host), (windows, breakdowns), strict=True):
            into.append(table)
    tables = [pa.concat_tables(some) for some in (steps, windows, breakdowns)]
    found = estimate_totals(*tables, np.zeros(n_hosts * n, np.int64)).categories
    low, high = intervals_of(found)["compute"]
    return (high - low) / 2 / parts_of(found)["compute"]


def test_hosts_that_saw_the_same_steps_vary_alike_prove_no_more_than_one():
    share = 0.5 + 0.2 * np.random.default_rng(7).standard_normal(2000).clip(-2, 2)
    alone = hosts_half_width(share[None], together=True)
    assert 0.85 < hosts_half_width(np.tile(share, (8, 1)), together=True) / alone < 1.2


def test_hosts_whose_steps_vary_apart_prove_more_than_one():
    share = 0.5 + 0.2 * np.random.default_rng(7).standard_normal((8, 2000)).clip(-2, 2)
    alone = hosts_half_width(share[:1], together=True)
    assert hosts_half_width(share, together=True) / alone < 0.6
    assert hosts_half_width(share, together=False) / alone < 0.5


def test_damaged_times_beyond_64_bits_together_still_close():
    """Found by fuzzing run directories: three parts of 2^62 ps each added up to less than nothing."""
    dur, parts, labels = noisy_run(50, np.random.default_rng(0))
    windows, breakdowns = captured_tables(parts, [(i, 5 * i, 5) for i in range(6)])
    wall = breakdowns.column("wall_ps").to_numpy().copy()
    wall[:3] = 2**62
    index = breakdowns.schema.get_field_index("wall_ps")
    damaged = breakdowns.set_column(index, "wall_ps", pa.array(wall))
    found = estimate_totals(steps_table(dur), windows, damaged, labels)
    assert sum(parts_of(found.categories).values()) == int(dur.sum())
    assert all(time_ps >= 0 for time_ps in parts_of(found.categories).values())
