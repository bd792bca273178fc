"""Predictions by a trained model of kernels: its times, its distance, what lies between kernels, whose CPU it is."""

import numpy as np
import pytest
from hlo_texts import module_of_text
from made_kernels import made_kernels

from phasepoint.learn.hlo_graph.graphs import graph_of_kernel
from phasepoint.learn.hlo_graph.kernels import kernels_of_module
from phasepoint.learn.kernels.fit import FitSettings, fit_kernel_model
from phasepoint.learn.kernels.model import KernelModel
from phasepoint.learn.models.analytic import predict_analytic
from phasepoint.learn.models.model_file import StoredModel
from phasepoint.learn.predict.predict import predict_kernel_times

TEXT = """HloModule two
fused { p = f32[256,512]{1,0} parameter(0)
  ROOT t = f32[256,512]{1,0} tanh(p) }
less { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT l = pred[] compare(a, b), direction=LT }
ENTRY main { x = f32[256,512]{1,0} parameter(0)
  act = f32[256,512]{1,0} fusion(x), kind=kLoop, calls=fused
  ROOT s = f32[256,512]{1,0} sort(act), dimensions={1}, to_apply=less }
"""


@pytest.fixture(scope="module")
def trained():
    graphs, time_ps = made_kernels(300)
    parts = np.arange(250), np.arange(250, 300)
    fitted = fit_kernel_model(graphs, time_ps, parts, seed=0, settings=FitSettings(members=0, tree_rounds=40))
    device = {"name": "Abacus 9000, 1 core", "kind": "cpu", "cores": 1}
    overhead = {"launch_ps": 1000.0, "program_ps": 70000.0}
    return StoredModel("made", "kernels", fitted.arrays, {**fitted.card, "device": device, "overhead": overhead})


def test_times_are_the_models_and_the_sum_holds_what_lies_between(trained):
    module = module_of_text(TEXT)
    (found,) = predict_kernel_times([module], "cpu", model=trained)
    graphs = [graph_of_kernel(kernel) for kernel in kernels_of_module(module).kernels]
    said = KernelModel.from_model(trained).predict(graphs)
    assert [one.time_ps for one in found.kernels] == np.round(said.time_ps).tolist()
    assert [one.low_ps for one in found.kernels] == np.round(said.low_ps).tolist()
    assert [one.distance for one in found.kernels] == said.distance.tolist()
    assert {one.method for one in found.kernels} == {"network"}
    assert found.time_ps == pytest.approx(said.time_ps.sum() + 2 * 1000 + 70000, abs=2)
    assert found.low_ps < found.time_ps < found.high_ps


def test_the_baseline_is_the_analytic_model_of_the_same_corpus(trained):
    module = module_of_text(TEXT)
    (found,) = predict_kernel_times([module], "cpu", model=trained)
    graphs = [graph_of_kernel(kernel) for kernel in kernels_of_module(module).kernels]
    baseline, bound = predict_analytic(KernelModel.from_model(trained).analytic, graphs)
    assert [one.analytic_ps for one in found.kernels] == np.round(baseline).tolist()
    assert tuple(one.bound for one in found.kernels) == bound


def test_what_was_not_learned_is_outside_and_said(trained):
    (found,) = predict_kernel_times([module_of_text(TEXT)], "cpu", model=trained)
    sort = found.kernels[1]
    assert sort.distance > 1
    assert not sort.in_range
    times = np.array([one.time_ps for one in found.kernels])
    inside = np.array([one.in_range for one in found.kernels])
    assert found.in_range_ratio == pytest.approx(times[inside].sum() / times.sum(), abs=1e-6)
    assert any("outside the range" in note for note in found.notes)


def test_the_device_is_named_and_told_from_this_one(trained):
    (found,) = predict_kernel_times([module_of_text(TEXT)], "cpu", model=trained)
    assert found.device == "Abacus 9000, 1 core"
    assert any("times are those of Abacus 9000, 1 core; this machine's CPU is another" in note for note in found.notes)
