"""Executions and branches, against programs that are written out."""

import pytest
from hlo_texts import module_of_text

from phasepoint.learn.predict.estimate import branch_spread_ps, weigh_computations
from phasepoint.learn.predict.predict import predict_kernel_times

NESTED = """HloModule nested
work { a = f32[64] parameter(0)
  ROOT e = f32[64] exponential(a) }
inner { p = (s32[], f32[64]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[64] get-tuple-element(p), index=1
  y = f32[64] call(x), to_apply=work
  ROOT r = (s32[], f32[64]) tuple(i, y) }
inner_cond { p = (s32[], f32[64]) parameter(0)
  ROOT t = pred[] constant(true) }
left { a = f32[64] parameter(0)
  ROOT l = f32[64] negate(a) }
right { a = f32[64] parameter(0)
  l = f32[64] tanh(a)
  ROOT r = f32[64] exponential(l) }
outer { p = (s32[], f32[64]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[64] get-tuple-element(p), index=1
  t = (s32[], f32[64]) tuple(i, x)
  w = (s32[], f32[64]) while(t), condition=inner_cond, body=inner
  ROOT r = (s32[], f32[64]) tuple(i, x) }
outer_cond { p = (s32[], f32[64]) parameter(0)
  ROOT t = pred[] constant(true) }
ENTRY main { x = f32[64] parameter(0)
  b = pred[] constant(true)
  zero = s32[] constant(0)
  c = f32[64] conditional(b, x, x), true_computation=left, false_computation=right
  d = f32[64] conditional(b, c, c), true_computation=left, false_computation=right
  t = (s32[], f32[64]) tuple(zero, d)
  w = (s32[], f32[64]) while(t), condition=outer_cond, body=outer, backend_config={"known_trip_count":{"n":"3"}}
  ROOT y = f32[64] get-tuple-element(w), index=1 }
"""


def by_name(module, weights):
    return {one.name: (weights.once.get(one, 0.0), weights.looped.get(one, 0.0)) for one in module.computations}


def test_executions_of_nested_loops_and_shared_branches():
    module = module_of_text(NESTED)
    found = by_name(module, weigh_computations(module))
    assert found["main"] == (1, 0)
    assert (found["outer"], found["outer_cond"]) == ((3, 0), (4, 0))
    assert (found["inner"], found["inner_cond"]) == ((0, 3), (0, 6))
    assert found["work"] == (0, 3)
    assert found["left"] == found["right"] == (1, 0)  # half of each of two conditionals
    given = by_name(module, weigh_computations(module, trip_counts=10))
    assert (given["inner"], given["inner_cond"], given["work"]) == ((0, 30), (0, 33), (0, 30))


def test_the_interval_reaches_from_the_shortest_branches_to_the_longest():
    module = module_of_text(NESTED)
    own = {one: {"left": 10.0, "right": 40.0}.get(one.name, 0.0) for one in module.computations}
    assert branch_spread_ps(module, weigh_computations(module), own) == (30.0, 30.0)


def test_what_follows_from_a_given_count_is_the_time_of_that_many_iterations():
    module = module_of_text(NESTED)
    times = [predict_kernel_times([module], "TPU v4", trip_count=count)[0].time_ps for count in (0, 1, 2)]
    assert times[2] - times[1] == pytest.approx(times[1] - times[0], abs=2)
    (open_one,) = predict_kernel_times([module], "TPU v4")
    assert open_one.time_ps is None
    assert open_one.iteration_ps == pytest.approx(times[1] - times[0], abs=2)
    with pytest.raises(ValueError, match="trip_count is -1; expected 0 to"):
        predict_kernel_times([module], "TPU v4", trip_count=-1)
