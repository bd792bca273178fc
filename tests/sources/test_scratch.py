"""Memory that one reading stage leaves to the next."""

import numpy as np

from phasepoint.sources.xplane.decode import Scratch


def test_arrays_stand_apart_and_keep_what_is_written():
    scratch = Scratch(4096)
    taken = [scratch.take(5, np.int16), scratch.take(7, np.int64), scratch.take(3, np.bool_)]
    for value, array in enumerate(taken):
        array[:] = value
    assert [array.tolist() for array in taken] == [[0] * 5, [1] * 7, [True] * 3]
    assert [array.dtype for array in taken] == [np.int16, np.int64, np.bool_]


def test_after_a_reset_the_same_memory_is_given_out():
    scratch = Scratch(1024)
    first = scratch.take(16, np.int64)
    first[:] = 7
    scratch.reset()
    again = scratch.take(16, np.int64)
    assert np.shares_memory(first, again)


def test_where_there_is_no_room_arrays_get_memory_of_their_own():
    scratch = Scratch(100)
    small, large = scratch.take(8, np.int64), scratch.take(8, np.int64)
    assert not np.shares_memory(small, large)
    large[:] = 1
    small[:] = 2
    assert large.tolist() == [1] * 8


def test_nothing_is_taken_by_empty_arrays():
    assert Scratch(0).take(0, np.int32).tolist() == []
