"""DRIFT: steps that grow, at several strengths and for several reasons; and jumps, wandering and falling times."""

import numpy as np
import pytest
from planted_runs import MS, capture, check_finding, noisy_steps, steps_of, view_of, within

from phasepoint.findings.finding import Unavailable
from phasepoint.findings.rules.run.drift import find

N = 1600


def growing(share, *, seed=0, noise=0.03, shape=lambda x: x):
    """Durations that grow so that it costs this share of the run; returns them and what was added."""
    dur_ps = noisy_steps(N, noise=noise, seed=seed)
    growth = np.array([shape(x) for x in np.linspace(0, 1, N)])
    added_ps = np.asarray(growth / growth.sum() * dur_ps.sum() * share / (1 - share), np.int64)
    return dur_ps + added_ps, added_ps


def ops_of(rows, self_ps):
    """Rows of ops for the captured steps: `self_ps(step) -> {op: (self_ps, count)}`."""
    found = []
    for row in rows["windows"]:
        for step in range(row["first_step"], row["last_step"] + 1):
            for op, (ps, count) in self_ps(step).items():
                found.append(
                    {
                        **{"window": row["window"], "step": step, "device": "cpu:0", "op": op, "level": "op"},
                        **{"category": "compute", "count": count, "total_ps": int(ps), "self_ps": int(ps)},
                    }
                )
    return rows | {"ops": found}


SHAPES = {
    "linear": lambda x: x,
    "faster": lambda x: x**2,
    "ramp": lambda x: min(max(x - 0.3, 0) / 0.3, 1),
    "level reached": lambda x: min(2 * x, 1),
}


@pytest.mark.parametrize(
    ("name", "share"),
    # A rise of 7 % to a level that it keeps is no more than the level wanders by here: it is left out on purpose.
    [(name, share) for name in SHAPES for share in (0.05, 0.15, 0.4) if (name, share) != ("level reached", 0.05)],
)
def test_growth_is_found_with_what_it_costs(tmp_path, name, share):
    dur_ps, added_ps = growing(share, shape=SHAPES[name])
    view = view_of(tmp_path, (steps_of(dur_ps), {}))
    (found,) = find(view)
    check_finding(view, found)
    assert within(found.claim.total_ps, added_ps.sum())
    assert found.low_ps <= added_ps.sum() * 1.1
    assert found.high_ps >= added_ps.sum() * 0.9


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("noise", [0.02, 0.1, 0.2])
def test_wandering_alone_is_no_finding(tmp_path, noise, seed):
    assert find(view_of(tmp_path, (steps_of(noisy_steps(N, noise=noise, seed=seed)), {}))) == []


@pytest.mark.parametrize(
    "shape", [lambda x: x > 0.5, lambda x: 1 - x, lambda x: 0.4 < x < 0.6], ids=["jump", "falls", "for a time"]
)
def test_jumps_and_falling_times_are_no_finding(tmp_path, shape):
    dur_ps, _ = growing(0.2, shape=shape)
    assert find(view_of(tmp_path, (steps_of(dur_ps), {}))) == []


def cause_of(tmp_path, shares, ops=None, **more):
    dur_ps, added_ps = growing(0.25)
    steps = steps_of(dur_ps, **{name: of(added_ps) for name, of in more.items()})
    rows = capture(steps, lambda i: shares(dur_ps[i] - added_ps[i], added_ps[i], dur_ps[i]))
    if ops is not None:
        rows = ops_of(rows, lambda i: ops(dur_ps[i] - added_ps[i], added_ps[i]))
    view = view_of(tmp_path, (steps, rows))
    (found,) = find(view)
    check_finding(view, found)
    return found


def test_growth_of_the_hosts_part(tmp_path):
    found = cause_of(tmp_path, lambda own, added, dur: {"compute": 0.8 * own / dur, "host": 0.9 * added / dur})
    assert "the host's part of a step grows" in found.title


def test_growth_of_the_wait_for_input(tmp_path):
    found = cause_of(
        tmp_path, lambda own, added, dur: {"compute": 0.8 * own / dur}, input_ps=lambda added: added + 2 * MS
    )
    assert "waiting for input grows" in found.title
    assert found.claim.part == "input"


def compute_grows(own, added, dur):
    return {"compute": (0.8 * own + added) / dur}


def test_a_device_that_gets_slower(tmp_path):
    found = cause_of(
        tmp_path,
        compute_grows,
        lambda own, added: {
            op: (share * (own + added), 4) for op, share in (("dot", 0.5), ("add", 0.2), ("tanh", 0.1))
        },
    )
    assert "the device gets slower" in found.title
    assert "nvidia-smi" in found.remedy


def test_an_operation_whose_work_grows(tmp_path):
    found = cause_of(
        tmp_path, compute_grows, lambda own, added: {"dot": (0.7 * own, 4), "concatenate": (0.1 * own + added, 1)}
    )
    assert "the operation concatenate takes longer" in found.title
    assert found.layers == ("concatenate",)


def test_more_operations(tmp_path):
    found = cause_of(
        tmp_path, compute_grows, lambda own, added: {"dot": (0.8 * own + added, round(20 * (own + added) / own))}
    )
    assert "a step runs more operations" in found.title


def disturbed(dur_ps, added_ps, executions, *, slow=1.3):
    """A run with slow stretches at both ends, whose steps execute `executions(i)` small products besides one large."""
    x = np.linspace(0, 1, N)
    dur_ps = np.asarray(np.where((x < 0.3) | (x > 0.85), slow, 1.0) * dur_ps, np.int64)
    rows = capture(steps_of(dur_ps), lambda i: {"compute": 0.9})
    own_ps = dur_ps - added_ps
    return steps_of(dur_ps), ops_of(
        rows, lambda i: {"dot": (0.7 * own_ps[i], 4), "small": (added_ps[i] + 1, executions(i))}
    )


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("share", [0.06, 0.15, 0.4])
def test_growing_work_is_found_on_a_machine_that_others_slow_down(tmp_path, share, seed):
    dur_ps, added_ps = growing(share, seed=seed)
    view = view_of(tmp_path, disturbed(dur_ps, added_ps, lambda i: i // 8))
    (found,) = find(view)
    check_finding(view, found)
    assert "a step runs more operations" in found.title
    assert within(found.claim.total_ps, added_ps.sum(), 0.3)


EXECUTIONS = {
    "constant": lambda i: 20,
    "one exchange": lambda i: 20 + 20 * (i > 800),
    "two exchanges": lambda i: 20 + 20 * (i > 500) + 20 * (i > 1100),
    "by chance": lambda i: 10 + i * 7919 % 31,
    "fewer": lambda i: 200 - i // 8,
    "up and down": lambda i: 100 - abs(i - 800) // 8,
}


@pytest.mark.parametrize("name", EXECUTIONS)
@pytest.mark.parametrize("seed", range(3))
def test_executions_that_do_not_grow_are_no_finding(tmp_path, name, seed):
    dur_ps, _ = growing(0.0, seed=seed)
    added_ps = np.array([EXECUTIONS[name](i) for i in range(N)]) * MS // 10
    assert find(view_of(tmp_path, disturbed(dur_ps + added_ps, added_ps, EXECUTIONS[name]))) == []


def test_growing_work_that_the_steps_do_not_show_is_no_finding(tmp_path):
    dur_ps, added_ps = growing(0.2)
    assert find(view_of(tmp_path, disturbed(dur_ps - added_ps, added_ps, lambda i: i // 8))) == []


def test_without_windows_the_cause_is_not_guessed(tmp_path):
    dur_ps, _ = growing(0.25)
    (found,) = find(view_of(tmp_path, (steps_of(dur_ps), {})))
    assert "was not seen" in found.title
    assert found.confidence == "medium"


def test_evaluation_between_is_left_out(tmp_path):
    dur_ps, added_ps = growing(0.2)
    kind = np.where(np.arange(N) // 20 % 10 == 9, "eval", "train")
    dur_ps = np.where(kind == "eval", 5 * MS, dur_ps)
    view = view_of(tmp_path, (steps_of(dur_ps, kind=kind.tolist()), {}))
    (found,) = find(view)
    check_finding(view, found)
    assert found.claim.by_step[kind == "eval"].sum() == 0
    assert within(found.claim.total_ps, added_ps[kind == "train"].sum())


def test_too_few_steps(tmp_path):
    with pytest.raises(Unavailable, match="at least 200"):
        find(view_of(tmp_path, (steps_of(noisy_steps(150)), {})))


def test_checkpoints_that_grow_are_none(tmp_path):
    """A file system that gets slower under a save in every step: the saves have it, and their finding claims it."""
    own_ps = noisy_steps(N, noise=0.03)
    saved_ps = np.linspace(2, 12, N).astype(np.int64) * MS
    steps = steps_of(own_ps + saved_ps)
    saves = [
        {"step": n, "path": f"s{n}", "start_ps": int(begin + own), "dur_ps": int(save), "framework": "torch"}
        | {"asynchronous": False, "has_iterator": False}
        for n, (begin, own, save) in enumerate(zip(steps["start_ps"], own_ps, saved_ps, strict=True))
    ]
    assert find(view_of(tmp_path / "told", (steps, {"checkpoints": saves}))) == []
    (found,) = find(view_of(tmp_path / "untold", (steps, {})))
    assert found.claim.total_ps > 0
