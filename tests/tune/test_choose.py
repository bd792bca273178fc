"""What is proposed: the cheapest of the fastest, within what was learnt, and nothing where nothing should be won."""

import pytest

from phasepoint.tune.choose import list_settings, propose
from phasepoint.tune.knobs import Effect, Knob, allowed_knobs
from phasepoint.tune.pipeline import PipelineTimes, Width

KNOBS = (Knob("num_workers", tuple(range(9))), Knob("prefetch_factor", (2, 4)))
MS = 1_000_000


def width(setting):
    return Width(setting["num_workers"], setting["num_workers"] * setting["prefetch_factor"])


def proposals(body_ms, batch_ms, measured, *, workers=0, corrections=None, cpus=16, cpu_ms=0.0, written=0):
    times = PipelineTimes([int(body_ms * MS)], cpu_ms * MS, [int(batch_ms * MS)], cpu_ms * MS, 0.0, cpus)
    current = {"num_workers": workers, "prefetch_factor": 2}
    return propose(
        times,
        current,
        list_settings(KNOBS, current),
        width=width,
        measured_steps_per_s=measured,
        corrections=corrections or {},
        written_workers=written,
    )


def test_the_cheapest_of_the_fastest_comes_first():
    best = proposals(10, 30, measured=25)[0]
    assert best.setting == {"num_workers": 4, "prefetch_factor": 2}
    assert best.gain == pytest.approx(3.0, rel=0.01)


def test_nothing_is_proposed_where_nothing_should_be_won():
    assert proposals(10, 9, measured=99, workers=1) == []


def test_what_a_trial_has_shown_is_believed():
    """Two workers gave 60 % of what was forecast: then three should give no more than 60 % of theirs."""
    free = proposals(10, 30, measured=25, workers=1)[0]
    learnt = proposals(10, 30, measured=25, workers=1, corrections={2: 0.6, 3: 0.6, 4: 0.6, 8: 0.6})[0]
    assert learnt.gain < free.gain


def test_too_many_workers_on_few_cores_may_be_worse_than_none():
    """Without waits for a core a step would take 20 ms in the loop's own thread; with six workers it takes 25."""
    best = proposals(10, 10, measured=40, workers=6, cpus=1, cpu_ms=10)[0]
    assert best.setting["num_workers"] == 0
    assert best.gain == pytest.approx(0.25, rel=0.01)


def test_fewer_workers_than_written_are_tried_where_they_win_more():
    """Two would do where four are written: what is as fast with four comes first; on one core fewer win."""
    assert proposals(10, 15, measured=50, workers=1)[0].setting["num_workers"] == 2
    assert proposals(10, 15, measured=50, workers=1, written=4)[0].setting["num_workers"] >= 4
    crowded = proposals(10, 10, measured=40, workers=6, cpus=1, cpu_ms=10, written=6)
    assert crowded[0].setting["num_workers"] < 6


def test_only_what_changes_nothing_is_turned_unasked():
    knobs = (*KNOBS, Knob("cache", (False, True), Effect.CACHE), Knob("threads", (1, 2), Effect.NUMERICS))
    assert allowed_knobs(knobs, []) == KNOBS
    assert [knob.name for knob in allowed_knobs(knobs, ["cache"])] == ["num_workers", "prefetch_factor", "cache"]
    with pytest.raises(ValueError, match="has no values"):
        Knob("empty", ())
