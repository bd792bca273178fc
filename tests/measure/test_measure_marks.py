from hypothesis import given
from hypothesis import strategies as st

from phasepoint.measure.marks import OUTSIDE, LayerMarks, MarkCost, charge_marks


class FakeClock:
    def __init__(self):
        self.now = 0

    def __call__(self):
        return self.now


def taken(run):
    clock = FakeClock()
    marks = LayerMarks(clock)
    run(clock, marks)
    result = marks.take()
    return result, list(result.times)


def test_a_layer_has_its_time_less_its_sub_layers():
    def run(clock, marks):
        clock.now = 10
        marks.enter(0)
        clock.now = 15
        marks.enter(2)
        clock.now = 22
        marks.leave()
        clock.now = 30
        marks.leave()

    charged = charge_marks(*taken(run), MarkCost())
    assert charged.self_ps == {0: 13, 2: 7}
    assert charged.calls == {0: 1, 2: 1}


def test_backward_marks_replace_each_other_until_the_pass_ends():
    def run(clock, marks):
        assert marks.backward(1)
        clock.now = 4
        assert not marks.backward(3)
        clock.now = 9
        marks.end_backward()
        clock.now = 20
        marks.enter(4)
        clock.now = 21
        marks.leave()

    charged = charge_marks(*taken(run), MarkCost())
    assert charged.self_ps == {1: 4, 3: 5, OUTSIDE: 11, 4: 1}


def test_a_forward_pass_recomputed_inside_the_backward_pass_is_its_own_layer():
    def run(clock, marks):
        marks.backward(1)
        clock.now = 2
        marks.enter(0)
        clock.now = 5
        assert marks.backward(3)  # a backward pass inside: checkpointed code
        clock.now = 6
        marks.end_backward()
        marks.leave()
        clock.now = 8
        marks.end_backward()

    charged = charge_marks(*taken(run), MarkCost())
    assert charged.self_ps == {1: 4, 0: 3, 3: 1}


def test_what_hooks_take_goes_to_the_layer_and_its_caller():
    def run(clock, marks):
        for key in (0, 2, 2):
            marks.enter(key)
        for _ in range(3):
            marks.leave()
        marks.backward(3)

    charged = charge_marks(*taken(run), MarkCost(inside_ps=3, caller_ps=50, backward_ps=700))
    assert charged.cost_ps == {OUTSIDE: 50 + 700, 0: 3 + 50, 2: 6 + 50}


@given(st.lists(st.tuples(st.sampled_from(["enter", "leave", "backward", "end"]), st.integers(0, 3)), max_size=60))
def test_every_picosecond_between_the_first_mark_and_the_last_is_charged_once(events):
    def run(clock, marks):
        depth = 0
        for what, key in events:
            clock.now += 1 + key
            if what == "enter":
                marks.enter(2 * key)
                depth += 1
            elif what == "backward":
                marks.backward(2 * key + 1)
            elif what == "leave" and depth:
                marks.leave()
                depth -= 1
            elif what == "end":
                marks.end_backward()

    marks, times = taken(run)
    charged = charge_marks(marks, times, MarkCost())
    assert sum(charged.self_ps.values()) == (times[-1] - times[0] if times else 0)
    assert all(time >= 0 for time in charged.self_ps.values())
