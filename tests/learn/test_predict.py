"""Predictions of whole programs: sums, bounds, what is not known and what that does to the interval."""

import gzip

import numpy as np
import pytest
from hlo_texts import LOOPS, module_of_text, proto_of_text, wrap_module

from phasepoint.core.errors import ModelError, NoDataError, SourceError, UsageError
from phasepoint.devices import device_spec
from phasepoint.learn.hlo_graph.graphs import graph_of_kernel
from phasepoint.learn.hlo_graph.kernels import kernels_of_module
from phasepoint.learn.models.analytic import analytic_of_device, predict_analytic
from phasepoint.learn.models.model_file import StoredModel
from phasepoint.learn.predict.answers import UNKNOWN_OPCODE_FACTOR, UNKNOWN_WORK_FACTOR
from phasepoint.learn.predict.methods import CALIBRATIONS
from phasepoint.learn.predict.predict import predict_kernel_times

DENSE = """HloModule dense
fused { p = f32[256,512]{1,0} parameter(0)
  ROOT t = f32[256,512]{1,0} tanh(p) }
ENTRY main { x = f32[256,1024]{1,0} parameter(0)
  w = f32[1024,512]{1,0} parameter(1)
  y = f32[256,512]{1,0} dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT act = f32[256,512]{1,0} fusion(y), kind=kLoop, calls=fused }
"""

WITH_A_CALL = """HloModule calls
fused { p = f32[64] parameter(0)
  ROOT n = f32[64] negate(p) }
ENTRY main { x = f32[64] parameter(0)
  f = f32[64] fusion(x), kind=kLoop, calls=fused
  ROOT c = f32[64] custom-call(f), custom_call_target="my_library_sort" }
"""

DYNAMIC = """HloModule dynamic
fused { p = f32[<=1000] parameter(0)
  ROOT n = f32[<=1000] exponential(p) }
ENTRY main { x = f32[<=1000] parameter(0)
  ROOT f = f32[<=1000] fusion(x), kind=kLoop, calls=fused }
"""

EMPTY = """HloModule empty, is_scheduled=true
ENTRY main { ROOT x = f32[64] parameter(0) }
"""

KNOWN_TRIPS = ',\n    backend_config={"known_trip_count":{"n":"5"}}'


def predicted(text, device="TPU v4", **options):
    (found,) = predict_kernel_times([module_of_text(text)], device, **options)
    return found


def test_time_is_the_sum_over_kernels_and_executions():
    found = predicted(DENSE, "TPU v3")
    assert [(one.kernel, one.opcode, one.executions) for one in found.kernels] == [
        ("y", "dot", 1),
        ("act", "fusion", 1),
    ]
    assert found.time_ps == sum(one.time_ps for one in found.kernels)
    assert found.analytic_ps == pytest.approx(sum(one.analytic_ps for one in found.kernels), abs=2)
    # by hand: flop at 61.5 Tflop/s (bf16), both factors and the result at 450 GB/s
    dot = 1e12 * max(2 * 256 * 512 * 1024 / 61.5e12, (768 * 1024 * 4 + 256 * 512 * 4) / 450e9)
    assert found.kernels[0].analytic_ps == pytest.approx(dot, rel=1e-6)
    launch, above = CALIBRATIONS["tpu"].launch_us[0] * 1e6, CALIBRATIONS["tpu"].default.factor
    assert found.kernels[0].time_ps == pytest.approx(launch + above * dot, rel=1e-6)


def test_every_number_has_an_interval_around_it():
    for device in ("TPU v4", "NVIDIA H200", "MI300X"):
        found = predicted(DENSE, device)
        for one in (found, *found.kernels):
            assert 0 < one.low_ps < one.time_ps < one.high_ps
        independent = sum((one.high_ps - one.time_ps) ** 2 for one in found.kernels) ** 0.5
        common = sum(one.high_ps - one.time_ps for one in found.kernels)
        assert independent < found.high_ps - found.time_ps < common


@pytest.mark.parametrize("device", ["TPU v4", "NVIDIA H200", "T4"])
def test_nothing_lies_below_what_physics_allows(device):
    module = module_of_text(DENSE)
    spec = device_spec(device)
    (found,) = predict_kernel_times([module], device)
    fastest = max(rate.value for rate in spec.flop_per_s.values())
    flop = 2 * 256 * 512 * 1024
    assert found.kernels[0].low_ps >= 1e12 * flop / fastest
    graphs = [graph_of_kernel(kernel) for kernel in kernels_of_module(module).kernels]
    baseline, _ = predict_analytic(analytic_of_device(spec), graphs)
    for one, least in zip(found.kernels, baseline, strict=True):
        assert one.time_ps > least
    moved = sum(graph.feature("bytes_read") + graph.feature("bytes_written") for graph in graphs)
    assert found.low_ps >= 1e12 * moved / spec.memory_bytes_per_s.value - 2


def test_loops_run_as_often_as_they_say_and_the_longer_branch_is_in_the_interval():
    found = predicted(LOOPS)
    times = {one.kernel: one for one in found.kernels}
    mean = (times["l"].time_ps + times["r"].time_ps) / 2
    whole = (
        5 * (times["next"].time_ps + times["y"].time_ps) + 6 * times["less"].time_ps + times["copied"].time_ps + mean
    )
    assert found.time_ps == pytest.approx(whole, abs=20)
    assert any(note.startswith("which branch of a conditional runs is not known") for note in found.notes)


def test_an_unknown_trip_count_leaves_the_time_open_and_gives_that_of_an_iteration():
    text = LOOPS.replace(KNOWN_TRIPS, "")
    found = predicted(text)
    assert (found.time_ps, found.low_ps, found.high_ps, found.analytic_ps) == (None, None, None, None)
    times = {one.kernel: one for one in found.kernels}
    assert times["y"].executions is None
    # the condition runs once more than the body
    inside = times["next"].time_ps + times["y"].time_ps + 2 * times["less"].time_ps
    assert found.iteration_ps == pytest.approx(inside, abs=10)
    assert found.once_ps == pytest.approx(
        times["copied"].time_ps + (times["l"].time_ps + times["r"].time_ps) / 2, abs=10
    )
    for value, (low, high) in (
        (found.once_ps, found.once_interval_ps),
        (found.iteration_ps, found.iteration_interval_ps),
    ):
        assert low < value < high
    assert any("--trip-count N" in note for note in found.notes)
    counted, known = predicted(text, trip_count=5), predicted(LOOPS)
    assert (counted.time_ps, counted.low_ps, counted.high_ps) == (known.time_ps, known.low_ps, known.high_ps)
    assert any("taken to run 5 times" in note for note in counted.notes)


def test_a_custom_call_may_take_much_longer():
    found = predicted(WITH_A_CALL)
    call = found.kernels[1]
    assert call.notes == (
        f"arithmetic of custom call 'my_library_sort' is not known: it may take up to {UNKNOWN_WORK_FACTOR:g} times "
        "its bytes' time",
    )
    alike = found.kernels[0]
    assert call.high_ps / call.time_ps > UNKNOWN_WORK_FACTOR > alike.high_ps / alike.time_ps
    assert call.notes[0] in found.notes


def test_dynamic_shapes_reach_down_to_nothing_but_physics():
    found = predicted(DYNAMIC)
    (one,) = found.kernels
    assert one.low_ps <= 1e12 * 8000 / device_spec("TPU v4").memory_bytes_per_s.value + 1
    assert one.notes == ("dynamic shapes: the largest sizes are predicted, so it may take any less time",)


def test_an_unknown_opcode_widens_the_interval_both_ways():
    from hlo_by_hand import fused_module

    known, unknown = (predict_kernel_times([fused_module(opcode)], "TPU v4")[0] for opcode in ("negate", "frobnicate"))
    assert unknown.kernels[0].notes[0].startswith("opcode frobnicate is not known")
    assert unknown.kernels[0].low_ps == pytest.approx(known.kernels[0].low_ps / UNKNOWN_OPCODE_FACTOR, rel=1e-3)
    assert unknown.kernels[0].high_ps == pytest.approx(known.kernels[0].high_ps * UNKNOWN_OPCODE_FACTOR, rel=1e-3)


def test_bytes_paths_and_modules_are_one(tmp_path):
    wire = proto_of_text(DENSE)
    packed = tmp_path / "dense.pb.gz"
    packed.write_bytes(gzip.compress(wrap_module(wire)))
    text = tmp_path / "dense.txt"
    text.write_text(DENSE)
    given = [module_of_text(DENSE), wire, wrap_module(wire), packed, str(text)]
    found = predict_kernel_times(given, "TPU v4")
    assert len(found) == 5
    assert all(one == found[0] for one in found)


def test_equal_kernels_are_asked_once_and_answered_alike():
    both = predict_kernel_times([module_of_text(DENSE), module_of_text(DENSE)], "TPU v4")
    assert both[0] == both[1] == predicted(DENSE)
    assert predict_kernel_times([], "TPU v4") == ()


def test_an_empty_program_is_refused():
    with pytest.raises(NoDataError, match="only hands its inputs on"):
        predict_kernel_times([module_of_text(EMPTY)], "TPU v4")


@pytest.mark.parametrize("data", [b"\x00\x01nothing", b"import os\nprint(1)\n", b"\x1f\x8bbroken", b"HloModule x {"])
def test_what_is_no_hlo_is_said_to_be_none(data):
    with pytest.raises(SourceError):
        predict_kernel_times([data], "TPU v4")


def test_a_missing_file_is_said():
    with pytest.raises(UsageError, match=r"nowhere\.pb: no such file; expected HLO"):
        predict_kernel_times(["nowhere.pb"], "TPU v4")


def test_a_model_of_other_features_is_refused():
    old = StoredModel("old", "kernels", {"a": np.zeros(1)}, {"featuriser": 0, "device": {"name": "some CPU"}})
    with pytest.raises(ModelError, match="features of version 0, this release computes version 1; train it anew"):
        predict_kernel_times([module_of_text(DENSE)], "cpu", model=old)


def test_a_model_of_one_cpu_does_not_answer_for_another_device():
    other = StoredModel("mine", "kernels", {"a": np.zeros(1)}, {"featuriser": 1, "device": {"name": "some CPU"}})
    with pytest.raises(ModelError, match="was trained on 'some CPU' and knows no other device"):
        predict_kernel_times([module_of_text(DENSE)], "TPU v4", model=other)


def test_a_model_that_is_not_for_programs_is_refused():
    tiles = StoredModel("tiles", "tile_sweeps", {"a": np.zeros(1)}, {})
    with pytest.raises(ModelError, match=r"kind 'tile_sweeps'.*kernels or operators"):
        predict_kernel_times([module_of_text(DENSE)], "TPU v4", model=tiles)


def test_inputs_are_not_changed():
    module = module_of_text(LOOPS)
    before = [one.proto.SerializeToString() for computation in module.computations for one in computation.instructions]
    predict_kernel_times([module], "TPU v4")
    after = [one.proto.SerializeToString() for computation in module.computations for one in computation.instructions]
    assert before == after
