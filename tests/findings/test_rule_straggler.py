"""STRAGGLER: one of several hosts is late, as the windows show; and hosts that only scatter."""

import re

import numpy as np
import pytest
from planted_runs import MS, capture, check_finding, noisy_steps, steps_of, view_of, within

from phasepoint.findings.finding import Unavailable
from phasepoint.findings.rules.host.straggler import find

N = 600
SECOND = 1000 * MS


def job(late_ms, *, hosts=3, noise=0.04, part="host", marked=False, scatter_ms=0.5, seed=7):
    """Hosts that meet in a collective every step; the second has `late_ms` more to do. Returns hosts and the cost."""
    rng = np.random.default_rng(seed)
    own = np.stack(
        [noisy_steps(N, noise=noise, seed=5) + (rng.exponential(scatter_ms, N) * MS).astype(np.int64)] * hosts
    )
    own = np.stack([row + (rng.exponential(scatter_ms, N) * MS).astype(np.int64) for row in own])
    others_ps = own.max(axis=0)
    own[1] += int(late_ms * MS)
    dur_ps = own.max(axis=0) + MS  # the collective itself
    made = []
    for host in range(hosts):
        wait_ps = dur_ps - own[host]
        more_ps = int(late_ms * MS) if host == 1 else 0
        steps = steps_of(dur_ps)
        rows = capture(steps, lambda i, wait=wait_ps, more=more_ps: _shares(dur_ps[i], wait[i], more, part, marked))
        if marked:
            rows["ops"] = [
                {
                    **{
                        "window": row["window"],
                        "step": step,
                        "device": "cpu:0",
                        "op": "gloo:all_reduce",
                        "level": "op",
                    },
                    **{"category": "host", "count": 1, "total_ps": int(wait_ps[step]), "self_ps": int(wait_ps[step])},
                }
                for row in rows["windows"]
                for step in range(row["first_step"], row["last_step"] + 1)
            ]
        made.append((steps, rows))
    return made, hosts * int((dur_ps - others_ps - MS).sum())


def _shares(dur_ps, wait_ps, more_ps, part, marked):
    own_ps = dur_ps - wait_ps - more_ps
    shares = {"compute": 0.9 * own_ps / dur_ps, "host": 0.0, "host" if marked else "communication": wait_ps / dur_ps}
    shares[part] = shares.get(part, 0) + more_ps / dur_ps
    return shares


@pytest.mark.parametrize("late_ms", [2.5, 6, 20])
def test_a_late_host_is_named_with_what_it_costs_all(tmp_path, late_ms):
    hosts, cost_ps = job(late_ms)
    view = view_of(tmp_path, *hosts)
    (found,) = find(view)
    check_finding(view, found)
    assert found.title.startswith("host 1 is late")
    assert within(found.claim.total_ps, cost_ps)
    assert (found.claim.by_step > 0).all()


def test_collectives_that_the_framework_marks_are_waits(tmp_path):
    hosts, cost_ps = job(8, marked=True)
    (found,) = find(view_of(tmp_path, *hosts))
    assert found.title.startswith("host 1 is late")
    assert within(found.claim.total_ps, cost_ps)


@pytest.mark.parametrize(
    ("part", "remedy"), [("compute", "its device takes longer"), ("host", "its host does something")]
)
def test_what_it_does_more_is_told(tmp_path, part, remedy):
    hosts, _ = job(8, part=part)
    (found,) = find(view_of(tmp_path, *hosts))
    assert f"most of it {part}" in found.title
    assert found.remedy.startswith(remedy)


@pytest.mark.parametrize("seed", range(4))
def test_a_part_tells_where_work_scatters_too_much(tmp_path, seed):
    """Every host's work lasts 8 ms longer or shorter by chance; one is late by 4 ms of its host's work."""
    hosts, _ = job(4, scatter_ms=8, seed=seed)
    view = view_of(tmp_path, *hosts)
    (found,) = find(view)
    check_finding(view, found)
    assert found.title.startswith("host 1 is late")
    assert found.evidence[0].text.startswith("of a step 4.00 ms are host, 4.00 ms more than elsewhere")
    assert within(found.claim.total_ps / view.clock.n_steps, 4 * MS, 0.4)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("scatter_ms", [3, 12])
def test_hosts_whose_work_scatters_are_no_finding(tmp_path, scatter_ms, seed):
    hosts, _ = job(0, scatter_ms=scatter_ms, seed=seed)
    assert find(view_of(tmp_path, *hosts)) == []


def test_a_wait_that_was_not_recognised_accuses_nobody(tmp_path):
    """Two hosts meet in every step; what the early one waits shows as idle time of its device."""
    rng = np.random.default_rng(0)
    dur_ps, hosts = noisy_steps(N), []
    for idle in (0.3, 0.1):
        steps = steps_of(dur_ps + rng.integers(0, MS // 10, N))
        hosts.append((steps, capture(steps, lambda i, idle=idle: {"compute": 0.95 - idle})))
    assert find(view_of(tmp_path / "a", *hosts)) == []
    assert find(view_of(tmp_path / "b", *hosts[::-1])) == []


def test_hosts_that_do_not_wait_lose_only_the_late_ones_time(tmp_path):
    hosts = []
    for host in range(3):
        dur_ps = noisy_steps(N, noise=0.03, seed=host) + (10 * MS if host == 1 else 0)
        steps = steps_of(dur_ps)
        hosts.append((steps, capture(steps, lambda i: {"compute": 0.9})))
    view = view_of(tmp_path, *hosts)
    (found,) = find(view)
    check_finding(view, found)
    assert found.claim.part == "excess"
    assert found.claim.by_step[view.clock.host != 1].sum() == 0
    assert within(found.claim.total_ps, 10 * MS * N)


def test_a_host_that_nobody_waits_for_is_not_late_by_its_middle_step_alone(tmp_path):
    """Two hosts do as many steps in the same time: one evenly, one in short and long ones of which more are long."""
    rng = np.random.default_rng(3)
    even, uneven = noisy_steps(N, seed=1), noisy_steps(N, seed=2)
    uneven = (uneven * np.where(rng.random(N) < 0.6, 1.3, 0.55)).astype(np.int64)
    uneven = (uneven * (even.sum() / uneven.sum())).astype(np.int64)
    hosts = [(steps, capture(steps, lambda i: {"compute": 0.9})) for steps in map(steps_of, (even, uneven))]
    assert find(view_of(tmp_path, *hosts)) == []


@pytest.mark.parametrize("noise", [0.03, 0.15])
def test_hosts_that_only_scatter_are_no_finding(tmp_path, noise):
    hosts, _ = job(0, noise=noise, scatter_ms=2)
    assert find(view_of(tmp_path, *hosts)) == []


def test_one_host_cannot_be_compared(tmp_path):
    with pytest.raises(Unavailable, match="every rank records into the same run"):
        find(view_of(tmp_path, (steps_of(noisy_steps(N)), {})))


def test_hosts_without_windows_say_what_they_lack(tmp_path):
    hosts = [(steps_of(noisy_steps(N)), {})] * 2
    with pytest.raises(Unavailable, match="of 2 hosts, the wait for the others is known of 0"):
        find(view_of(tmp_path, *hosts))


def looks(steps, waits, *, ran=0.3, queued=0.1, seed=0):
    """Rows of `machine`, two a second over the steps: ratios of the time, `waits(s)` and so on at second `s`."""
    rng, rows = np.random.default_rng(seed), []
    end_ps = int(steps["start_ps"][-1] + steps["dur_ps"][-1])
    for start_ps in range(0, end_ps - SECOND // 2, SECOND // 2):
        ratios = [part(start_ps / SECOND) if callable(part) else part for part in (waits, ran, queued)]
        ratios = [min(max(ratio + 0.03 * rng.standard_normal(), 0), 1) for ratio in ratios]
        sync_ps, run_ps, wait_ps = (int(ratio * SECOND / 2) for ratio in ratios)
        row = {"start_ps": start_ps, "dur_ps": SECOND // 2, "sync_ps": sync_ps, "run_ps": run_ps, "wait_ps": wait_ps}
        rows.append(row | {"others_ps": 0})
    return {"machine": rows}


def clocked(tmp_path, *ranks, n=2000, **more):
    """A run without windows: of each rank how much it waits, or arguments of `looks`."""
    dur_ps = noisy_steps(n, step_ms=20, noise=0.02)
    steps = steps_of(dur_ps, **more)
    ranks = [rank if isinstance(rank, dict) else {"waits": rank} for rank in ranks]
    return view_of(tmp_path, *((steps, looks(steps, seed=i, **rank)) for i, rank in enumerate(ranks)))


def test_the_rank_that_waits_least_is_late(tmp_path):
    view = clocked(tmp_path, 0.8, 0.8, 0.5, 0.8)
    (found,) = find(view)
    check_finding(view, found)
    assert found.title.startswith("host 2 is late: 5.")
    assert "in its own code" in found.title
    assert within(found.claim.total_ps, 0.3 * view.clock.dur_ps.sum(), 0.1)
    text = r"the others stand in calls that wait for (79|80)\.\d % of the time, host 2 for (49|50)\.\d %"
    assert re.fullmatch(text, found.evidence[0].text)


def test_a_rank_that_is_late_from_some_step_on_costs_only_from_there(tmp_path):
    view = clocked(tmp_path, 0.7, lambda second: 0.7 if second < 24 else 0.4)
    (found,) = find(view)
    check_finding(view, found)
    late = found.claim.by_step > 0
    first = int(view.clock.step[late].min())
    assert abs(view.clock.start_ps[first] - 24 * SECOND) <= SECOND
    assert f"a step from step {first} on, " in found.title
    assert within(found.claim.total_ps, 0.3 * view.clock.dur_ps[late].sum(), 0.1)


def test_a_rank_that_was_late_until_some_step(tmp_path):
    (found,) = find(clocked(tmp_path, lambda second: 0.4 if second < 20 else 0.8, 0.8))
    assert found.title.startswith("host 0 is late")
    assert " a step until step " in found.title


@pytest.mark.parametrize(
    ("late", "words"),
    [
        ({"waits": 0.9, "ran": 0.5, "queued": 0.16}, "its threads run longer"),
        ({"waits": 0.9, "queued": 0.4}, "its threads wait longer for a core"),
        ({"waits": 0.6}, "in its own code"),
    ],
)
def test_what_the_late_rank_does_meanwhile(tmp_path, late, words):
    (found,) = find(clocked(tmp_path, 0.9, late))
    assert found.title.startswith("host 1 is late")
    assert words in found.title


def test_a_late_rank_that_waits_for_its_input(tmp_path):
    dur_ps = noisy_steps(2000, step_ms=20, noise=0.02)
    hosts = []
    for waits, input_ratio in ((0.8, 0.01), (0.5, 0.3)):
        steps = steps_of(dur_ps, input_ps=(input_ratio * dur_ps).astype(np.int64))
        hosts.append((steps, looks(steps, waits)))
    (found,) = find(view_of(tmp_path, *hosts))
    assert "waiting for input" in found.title
    assert found.remedy.startswith("its loader is slower")


@pytest.mark.parametrize("seed", range(6))
def test_ranks_that_wait_alike_are_no_finding(tmp_path, seed):
    """They scatter second by second, and what both do changes in the middle."""
    rng = np.random.default_rng(seed)

    def waits(second):
        return (0.8 if second < 15 else 0.5) + 0.1 * rng.standard_normal()

    assert find(clocked(tmp_path, waits, waits, waits)) == []


def test_one_long_wait_is_no_straggler(tmp_path):
    """The first rank writes a checkpoint for three seconds."""
    assert find(clocked(tmp_path, lambda second: 0.0 if 10 <= second < 13 else 0.8, 0.8)) == []


def test_ranks_that_do_not_wait_for_each_other_accuse_nobody(tmp_path):
    """Their steps are not of one length."""
    hosts = []
    for step_ms, waits in ((20, 0.8), (30, 0.4)):
        steps = steps_of(noisy_steps(40_000 // step_ms, step_ms=step_ms, noise=0.02))
        hosts.append((steps, looks(steps, waits)))
    assert find(view_of(tmp_path, *hosts)) == []


def test_a_beginning_in_which_all_wait_alike_hides_no_straggler(tmp_path):
    """Five seconds of loading and compiling: less than a level needs, and enough to be left out."""
    view = clocked(
        tmp_path, lambda second: 0.9 if second < 5 else 0.4, lambda second: 0.9 if second < 5 else 0.7, n=1300
    )
    (found,) = find(view)
    assert found.title.startswith("host 0 is late")
    assert abs(int(view.clock.start_ps[found.claim.by_step > 0].min()) - 5 * SECOND) <= SECOND
