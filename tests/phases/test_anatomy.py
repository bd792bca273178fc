"""What the steps' time served, over the run: values, closure, intervals, hosts, waits of the clock."""

import numpy as np
import pyarrow as pa
import pytest
from run_tables import MS, captured_tables, steps_table

from phasepoint.core.tables import CATEGORIES, STAGES
from phasepoint.estimates.anatomy import estimate_anatomy, read_stages
from phasepoint.estimates.estimates import estimate_totals

SHARES = {
    ("compute", "forward"): 30,
    ("compute", "backward"): 40,
    ("compute", None): 2,
    ("data_movement", "to_device"): 5,
    ("data_movement", "forward"): 1,
    ("communication", "backward"): 4,
    ("host", "optimizer"): 3,
    ("host", "input"): 2,
    ("host", None): 1,
    ("idle", "forward"): 6,
    ("idle", None): 6,
}
"""Of a step of 100 ms, ms."""


def stages_table(steps, windows, shares=SHARES, *, host=0, devices=1):
    """Rows of `stages` of the captured steps, `windows` as `captured_tables` takes them."""
    keys = [
        (window, step, f"gpu:{device}", category, stage, ms * steps[step] // 100)
        for window, first, n in windows
        for step in range(first, first + n)
        for device in range(devices)
        for (category, stage), ms in shares.items()
    ]
    names = ("window", "step", "device", "category", "stage", "wall_ps")
    columns = dict(zip(names, map(list, zip(*keys, strict=True)), strict=True))
    return pa.table({"host": [host] * len(keys), "attempt": [0] * len(keys), **columns})


def run_of(n=1000, every=50, **more):
    """A run of `n` equal steps with windows of five, and its anatomy."""
    dur = np.full(n, 100 * MS)
    windows = [(i, first, 5) for i, first in enumerate(range(0, n, every))]
    parts = [[sum(ms * MS for (of, _), ms in SHARES.items() if of == category) for category in CATEGORIES]] * n
    steps = steps_table(dur, **more)
    found = estimate_totals(steps, *captured_tables(parts, windows), np.zeros(n, np.int64))
    return found, estimate_anatomy(found.sampled, stages_table(dur.tolist(), windows))


def shares_of(anatomy):
    return {part.name: round(100 * part.share, 6) for part in anatomy.parts if part.total_ps}


EXPECTED = {
    "input": 2,
    "to_device": 5,
    "forward": 31,
    "backward": 40,
    "other work": 2,
    "communication": 4,
    "host": 4,
    "idle": 12,
}


def test_every_step_captured_is_exact():
    found, anatomies = run_of(n=10, every=5)
    assert shares_of(anatomies.run) == EXPECTED
    assert all(part.low_ps == part.total_ps == part.high_ps for part in anatomies.run.parts)
    within = {part.name: part.within_ps for part in anatomies.run.parts if part.within_ps}
    assert within == {"forward": 60 * MS, "backward": 40 * MS, "optimizer": 30 * MS}
    assert anatomies.run.total_ps == found.categories.total_ps == sum(part.total_ps for part in anatomies.run.parts)
    assert anatomies.phases[0] == anatomies.hosts[0] == anatomies.run


def test_equal_windows_tell_of_all_steps():
    _, anatomies = run_of()
    assert shares_of(anatomies.run) == pytest.approx(EXPECTED)
    assert sum(part.total_ps for part in anatomies.run.parts) == 1000 * 100 * MS
    assert (anatomies.run.windows, anatomies.run.captured_steps) == (20, 100)
    assert all(part.low_ps <= part.total_ps <= part.high_ps for part in anatomies.run.parts)


def test_the_clocks_wait_for_input_is_not_told_twice():
    found, anatomies = run_of(n=10, every=5, input_ps=[10 * MS] * 10)
    shares = shares_of(anatomies.run)
    waiting = next(part for part in found.categories.parts if part.name == "input")
    assert waiting.total_ps == 100 * MS  # of 12 ms idle a step, all 10 of the wait
    assert shares == EXPECTED | {"input": 12, "idle": 2}
    within = {part.name: part.within_ps for part in anatomies.run.parts}
    assert within["forward"] == 20 * MS  # first the 6 ms idle of no stage go, then 4 of forward's


def test_several_devices_are_their_mean():
    dur, windows = [100 * MS] * 5, [(0, 0, 5)]
    parts = [[sum(ms * MS for (of, _), ms in SHARES.items() if of == category) for category in CATEGORIES]] * 5
    sampled = estimate_totals(steps_table(dur), *captured_tables(parts, windows), np.zeros(5, np.int64)).sampled
    one, two = (estimate_anatomy(sampled, stages_table(dur, windows, devices=n)) for n in (1, 2))
    assert one.run == two.run


def test_a_run_without_stages_has_no_anatomy():
    found, _ = run_of(n=10, every=5)
    none = stages_table([100 * MS] * 5, [(0, 0, 5)])[:0]
    empty = estimate_anatomy(found.sampled, none)
    assert empty.run is None
    assert not empty.phases
    nothing = estimate_totals(steps_table([5, 7]), *captured_tables([], []), np.zeros(2, np.int64)).sampled
    assert estimate_anatomy(nothing, none).run is None


def test_stages_of_a_step_close_on_its_categories():
    found, _ = run_of(n=10, every=5, input_ps=[17 * MS + 1] * 10)
    captured = found.sampled.captured
    staged = read_stages(found.sampled.steps, captured, stages_table([100 * MS] * 10, [(0, 0, 5), (1, 5, 5)]))
    assert (staged >= 0).all()
    assert staged.shape == (10, 4 * (len(STAGES) + 1))
    groups = staged.reshape(10, 4, -1).sum(axis=2)
    compute, communication, movement, host, idle = captured.parts_ps[:, :5].T
    assert (groups == np.column_stack([compute + movement, communication, host, idle])).all()
