"""Counts of loops that their counters show, against what the compiler wrote down and against running them."""

import pytest

from phasepoint.hlo.loops import counted_trips, write_trip_counts
from phasepoint.hlo.module import decode_module, parse_module_proto
from phasepoint.hlo.work import backend_config, trip_count

jax = pytest.importorskip("jax")


def loops_of(function, *args):
    lowered = jax.jit(function).lower(*args)
    data = lowered.compiler_ir("hlo").as_serialized_hlo_module_proto()
    module = parse_module_proto(data)
    return data, [one for part in module.computations for one in part.instructions if one.opcode == "while"]


def repeat(first, last, step, compare):
    def function(x):
        def body(state):
            count, x = state
            return count + step, jax.numpy.sin(x)

        return jax.lax.while_loop(lambda state: compare(state[0], last), body, (jax.numpy.int32(first), x))

    return function


def slowly(first, last, step, compare):
    count = 0
    while compare(first, last):
        first, count = first + step, count + 1
    return count


@pytest.mark.parametrize(
    ("first", "last", "step"),
    [(0, 32, 1), (3, 32, 7), (0, 0, 1), (9, 2, 1), (-5, 6, 4), (40, 8, -3), (8, 40, -3), (5, 5, -1)],
)
@pytest.mark.parametrize("sign", ["<", "<=", ">", ">=", "!="])
def test_a_loop_runs_as_often_as_its_counter_shows(first, last, step, sign):
    def compare(a, b):
        return {"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b, "!=": a != b}[sign]

    _, (loop,) = loops_of(repeat(first, last, step, compare), jax.numpy.zeros(4))
    found = counted_trips(loop)
    distance = last - first
    ends = {"<": step > 0 or first >= last, "<=": step > 0 or first > last, ">": step < 0 or first <= last}
    ends |= {">=": step < 0 or first < last, "!=": distance % step == 0 and distance // step >= 0}
    assert found == (slowly(first, last, step, compare) if ends[sign] else None)


def test_a_scan_and_its_gradient_are_counted():
    def function(x):
        return jax.lax.scan(lambda state, _: (jax.numpy.tanh(state @ state), None), x, None, length=17)[0].sum()

    _, loops = loops_of(jax.grad(function), jax.numpy.zeros((3, 3)))
    assert [counted_trips(loop) for loop in loops] == [17, 17]


def test_a_loop_that_depends_on_data_is_not_counted():
    _, (loop,) = loops_of(lambda x: jax.lax.while_loop(lambda x: x.sum() < 9, lambda x: x + 1, x), jax.numpy.zeros(3))
    assert counted_trips(loop) is None
    _, (loop,) = loops_of(lambda n: jax.lax.fori_loop(0, n, lambda _, x: x * 2, 1.0), 5)
    assert counted_trips(loop) is None


def test_counts_are_written_where_there_are_none():
    data, (loop,) = loops_of(repeat(0, 12, 5, lambda a, b: a < b), jax.numpy.zeros(4))
    assert trip_count(loop) is None
    module = parse_module_proto(write_trip_counts(data))
    (loop,) = [one for part in module.computations for one in part.instructions if one.opcode == "while"]
    assert trip_count(loop) == 3
    assert write_trip_counts(write_trip_counts(data)) == write_trip_counts(data)


@pytest.mark.parametrize(("said", "count"), [(b'{"memory":[1]}', 3), (b"packed by another compiler", None)])
def test_what_else_is_said_of_a_loop_stays(said, count):
    """As the compiler does for TPU7x, of memory that a loop's body uses."""
    data, _ = loops_of(repeat(0, 12, 5, lambda a, b: a < b), jax.numpy.zeros(4))
    proto = decode_module(data, "HloModuleProto")
    (loop,) = [one for part in proto.computations for one in part.instructions if one.opcode == "while"]
    loop.backend_config = said
    module = parse_module_proto(write_trip_counts(proto.SerializeToString()))
    (loop,) = [one for part in module.computations for one in part.instructions if one.opcode == "while"]
    assert trip_count(loop) == count
    assert backend_config(loop).get("memory") == ([1] if count else None)
    assert count or loop.proto.backend_config == said
