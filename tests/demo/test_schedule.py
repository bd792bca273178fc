import pytest

from phasepoint.demo.planted import TruthLog, read_truth, stretches
from phasepoint.demo.schedule import CYCLES, SHAPE_CHANGE_CYCLE, SLOW_INPUT_CYCLES, plan_schedule


@pytest.mark.parametrize("seconds", [10, 60, 600])
def test_every_planted_event_is_in_the_schedule(seconds):
    truth = TruthLog()
    for block in plan_schedule(seconds):
        truth.add_block(block)
    labels = truth.labels
    assert len(stretches(labels, "eval")) == CYCLES
    # Program compiled at the start, for the evaluation, and for the larger batch.
    assert len(stretches(labels, "compile")) == 3
    assert len(stretches(labels, "checkpoint")) == CYCLES // 2
    assert len(stretches(labels, "input-stall")) == len(SLOW_INPUT_CYCLES)
    assert len(stretches(labels, "train-large-batch")) == CYCLES - SHAPE_CHANGE_CYCLE


def test_longer_demos_have_more_steps_in_proportion():
    steps = [sum(block.steps for block in plan_schedule(seconds)) for seconds in (60, 600)]
    assert steps[1] / steps[0] == pytest.approx(10, rel=0.02)


def test_too_short_a_demo_is_refused():
    with pytest.raises(ValueError, match="at least 10 seconds for its events, got 5"):
        plan_schedule(5)


def test_stretches():
    assert stretches(["a", "b", "b", "a", "b"], "b") == [(1, 2), (4, 4)]
    assert stretches([], "b") == []


def test_truth_survives_its_file(tmp_path):
    truth = TruthLog(labels=["compile", "train"], final_loss=0.5, wall_s=2.0)
    truth.write(str(tmp_path))
    assert read_truth(str(tmp_path)) == truth
