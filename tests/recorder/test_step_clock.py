import itertools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from recorder_fakes import MS, FakeClock

from phasepoint.recorder.clock.step_clock import NOT_KNOWN, StepClock


def rows_of(clock):
    rows = clock.take_rows()
    fields = (rows.step, rows.start_ns, rows.got_ns, rows.end_ns, rows.compile_ns, rows.kind, rows.captured)
    return list(zip(*(field.tolist() for field in fields), strict=True))


@pytest.fixture
def time_():
    return FakeClock()


@pytest.fixture
def clock(time_):
    return StepClock(now_ns=time_.now_ns, capacity=8)


def step(clock, time_, *, wait=1, work=2):
    clock.ask()
    time_.tick(wait)
    clock.got()
    time_.tick(work)


def test_steps_tile_the_loop_and_the_last_ends_where_the_loader_is_asked_in_vain(clock, time_):
    start = time_.ns
    time_.tick(10)
    step(clock, time_, wait=1, work=2)
    step(clock, time_, wait=3, work=4)
    clock.ask()
    time_.tick(5)  # the loader finds out that it is empty
    clock.end_loop()
    time_.tick(7)
    clock.finish()
    at = start + 10 * MS
    assert rows_of(clock) == [
        (0, at, at + 1 * MS, at + 3 * MS, 0, -1, 0),
        (1, at + 3 * MS, at + 6 * MS, at + 10 * MS, 0, -1, 0),
    ]
    assert clock.take_outside() == [(start, at), (at + 10 * MS, at + 22 * MS)]


def test_no_steps_is_one_gap(clock, time_):
    start = time_.ns
    clock.ask()
    time_.tick(1)
    clock.end_loop()
    time_.tick(1)
    clock.finish()
    assert rows_of(clock) == []
    assert clock.take_outside() == [(start, start + 2 * MS)]


def test_an_inner_loop_ends_the_outer_step_where_it_begins(clock, time_):
    step(clock, time_, wait=1, work=2)  # outer step, then an evaluation inside its body
    step(clock, time_, wait=1, work=1)
    step(clock, time_, wait=1, work=1)
    clock.ask()
    clock.end_loop()
    time_.tick(5)  # the rest of the outer body
    step(clock, time_)
    clock.finish()
    durations = [(row[3] - row[1]) // MS for row in rows_of(clock)]
    assert durations == [3, 2, 2, 3]
    assert [(b - a) // MS for a, b in clock.take_outside()] == [5]


def test_a_loader_wrapped_twice_counts_each_batch_once(clock, time_):
    for _ in range(2):
        clock.ask()
        clock.ask()
        time_.tick(1)
        clock.got()
        clock.got()
        time_.tick(1)
    clock.finish()
    assert [row[0] for row in rows_of(clock)] == [0, 1]


def test_compile_time_is_the_union_of_what_nests(clock, time_):
    clock.ask()
    clock.got()
    time_.tick(10)
    clock.add_compile(4 * MS)  # inner trace: 6..10
    time_.tick(2)
    clock.add_compile(9 * MS)  # the trace around it: 3..12
    time_.tick(5)
    clock.add_compile(3 * MS)  # 14..17
    clock.finish()
    assert rows_of(clock)[0][4] == 12 * MS


def test_compile_before_the_step_is_not_its_own(clock, time_):
    time_.tick(100)
    clock.ask()
    clock.got()
    time_.tick(1)
    clock.add_compile(50 * MS)
    clock.finish()
    assert rows_of(clock)[0][4] == 1 * MS


def test_kind_is_the_hint_in_force_for_the_longest_part(clock, time_):
    before = clock.enter_kind("train")
    step(clock, time_)
    clock.ask()
    clock.got()
    time_.tick(1)
    inner = clock.enter_kind("eval")
    time_.tick(5)
    clock.leave_kind(inner)
    time_.tick(1)
    step(clock, time_)
    clock.leave_kind(before)
    clock.ask()
    assert [clock.kinds[row[5]] for row in rows_of(clock)] == ["train", "eval", "train"]


def test_a_clock_that_goes_back_stands_still(clock, time_):
    step(clock, time_)
    time_.tick(-50)
    clock.ask()
    time_.tick(1)
    clock.got()
    time_.tick(60)
    clock.ask()
    rows = rows_of(clock)
    assert all(start <= got <= end for _, start, got, end, *_ in rows)
    assert len(clock.backward) == 1
    assert clock.backward[0][1] == 50 * MS - 2 * MS  # read first by `ask`, 2 ms after `got` was


def test_a_full_ring_counts_what_it_cannot_keep(clock, time_):
    for _ in range(11):
        step(clock, time_)
    clock.finish()
    assert clock.lost == 3
    assert clock.take_lost_ranges() == [(8, 10)]
    assert clock.take_lost_ranges() == []
    assert [row[0] for row in rows_of(clock)] == list(range(8))
    step(clock, time_)
    clock.finish()
    assert [row[0] for row in rows_of(clock)] == [11]


def test_typical_step_leaves_out_captured_steps_and_other_kinds(clock, time_):
    step(clock, time_, work=1)
    clock.ask()
    clock.captured = 1
    step(clock, time_, work=9)
    clock.ask()
    assert clock.typical_ns(None) == 2 * MS
    assert clock.typical_ns(0) is None
    assert clock.captured_ns() == [10 * MS]


def test_a_dropped_step_is_outside(clock, time_):
    step(clock, time_)
    step(clock, time_, wait=1, work=4)
    clock.drop()
    clock.end_loop()
    time_.tick(2)
    clock.finish()
    assert [row[0] for row in rows_of(clock)] == [0]
    assert [(b - a) // MS for a, b in clock.take_outside()] == [7]


def test_replayed_steps_come_before_the_live_ones(time_):
    clock = StepClock(now_ns=time_.now_ns)
    start = time_.ns
    clock.replay(start, start + 1 * MS, start + 3 * MS)
    clock.replay(start + 4 * MS, start + 4 * MS, start + 6 * MS)
    time_.tick(6)
    step(clock, time_)
    clock.finish()
    assert [(row[0], (row[3] - row[1]) // MS) for row in rows_of(clock)] == [(0, 3), (1, 2), (2, 3)]
    assert [(b - a) // MS for a, b in clock.take_outside()] == [1]


@given(
    st.lists(
        st.tuples(st.sampled_from(["ask", "got", "end_loop"]), st.integers(min_value=0, max_value=10**9)), max_size=60
    )
)
def test_steps_and_gaps_tile_the_recording_whatever_the_loops_do(calls):
    time_ = FakeClock()
    begin = time_.ns
    clock = StepClock(now_ns=time_.now_ns)
    for name, wait_ns in calls:
        getattr(clock, name)()
        time_.ns += wait_ns
    end = clock.finish()
    rows = clock.take_rows()
    pieces = sorted(
        [
            *((a, b) for a, b in zip(rows.start_ns.tolist(), rows.end_ns.tolist(), strict=True) if b > a),
            *clock.take_outside(),
        ]
    )
    assert sum(b - a for a, b in pieces) == end - begin
    assert all(b == a for (_, b), (a, _) in itertools.pairwise(pieces))


class Driver:
    """Drives a clock as the recorder does: through `marks` where there is room, else call by call."""

    def __init__(self, clock, time_, *, allowed):
        self.clock, self.time, self.allowed = clock, time_, allowed

    def ask(self):
        clock = self.clock
        if len(clock.marks) < clock.room and not len(clock.marks) % 2:
            clock.marks.append(self.time.now_ns())
        else:
            clock.ask()

    def got(self, *, waited):
        clock = self.clock
        if len(clock.marks) % 2:
            clock.marks.append(self.time.now_ns() if waited else NOT_KNOWN)
        else:
            clock.got(waited=waited)
            clock.allow_marks(self.allowed)


ACTIONS = ["step", "step", "step", "marked", "ask", "got", "end", "drop", "kind", "compile", "captured", "back", "take"]


@given(st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(1, 5)), max_size=60), st.integers(1, 9))
@example([("step", 1), ("step", 1), ("back", 2), ("compile", 1)], 1)
def test_times_left_in_haste_become_the_same_rows(actions, allowed):
    taken = []
    for room in (0, allowed):
        time_ = FakeClock()
        clock = StepClock(now_ns=time_.now_ns, capacity=96)
        driver = Driver(clock, time_, allowed=room)
        rows, numbers, kind = [], [], None
        for action, ms in actions:
            time_.tick(ms)
            if action in ("step", "marked"):
                driver.ask()
                if action == "step":
                    time_.tick(1)
                driver.got(waited=action == "step")
            elif action in ("ask", "got"):
                driver.ask() if action == "ask" else driver.got(waited=True)
            elif action == "end":
                clock.end_loop()
            elif action == "drop":
                clock.drop()
            elif action == "kind":
                kind = clock.enter_kind("eval") if kind is None else clock.leave_kind(kind)
            elif action == "compile" and clock.is_open:
                clock.add_compile(ms * MS // 2)
            elif action == "captured":
                clock.settle()
                clock.captured = 1 - clock.captured
            elif action == "back":
                time_.ns -= 2 * ms * MS
            elif action == "take":
                rows += rows_of(clock)
            numbers.append((clock.step, clock.is_open))
        clock.finish()
        taken.append((rows + rows_of(clock), numbers, clock.take_outside(), clock.outside_ns, clock.lost))
    assert taken[0] == taken[1]


def test_marks_that_find_the_ring_full_or_at_its_end_are_kept_or_told_lost():
    time_ = FakeClock()
    clock = StepClock(now_ns=time_.now_ns, capacity=32)
    driver = Driver(clock, time_, allowed=100)
    for _ in range(41):
        time_.tick(1)
        driver.ask()
        driver.got(waited=False)
    clock.finish()
    assert [row[0] for row in rows_of(clock)] == list(range(32))
    assert clock.take_lost_ranges() == [(32, 40)]
    assert clock.step == 41
