"""The analytic model: rooflines by hand, and coefficients that are found again."""

import numpy as np
import pytest

from phasepoint.core.errors import ModelError
from phasepoint.devices import device_spec
from phasepoint.learn.hlo_graph.graphs import KERNEL_FEATURE_NAMES, NODE_FEATURES, KernelGraph
from phasepoint.learn.models.analytic import (
    AnalyticModel,
    Coefficients,
    analytic_arrays,
    analytic_from_arrays,
    analytic_of_device,
    fit_analytic,
    predict_analytic,
)


def graph(kind="loop-fusion", **features):
    row = np.zeros(len(KERNEL_FEATURE_NAMES), np.float32)
    for name, value in features.items():
        row[KERNEL_FEATURE_NAMES.index(name)] = value
    nodes = np.zeros((1, NODE_FEATURES), np.float32)
    return KernelGraph("f", kind, np.zeros(1, np.int32), nodes, np.zeros((0, 2), np.int32), row)


def test_a_roofline_by_hand():
    model = AnalyticModel("by hand", Coefficients(1e-9, 1e-8, 1e-10, 1e-6))
    graphs = [
        graph(flop=2000, transcendentals=100, bytes_read=500, bytes_written=500),
        graph(bytes_read=30000, bytes_written=20000),
        graph(flop=10),
    ]
    time_ps, bound = predict_analytic(model, graphs)
    np.testing.assert_allclose(time_ps, [4e6, 6e6, 1.01e6])
    assert bound == ("compute", "memory", "latency")


def test_a_device_is_its_peaks():
    spec = device_spec("NVIDIA H100 80GB HBM3")
    model = analytic_of_device(spec)
    graphs = [
        graph("dot", flop=1e9, matrix_flop=1e9, is_narrow=1),
        graph("dot", flop=1e9, matrix_flop=1e9),
        graph(bytes_read=1e6),
        graph(transcendentals=1e6),
    ]
    time_ps, bound = predict_analytic(model, graphs)
    peak = {name: rate.value for name, rate in spec.flop_per_s.items()}
    expected = [1e9 / peak["bf16"], 1e9 / peak["tf32"], 1e6 / spec.memory_bytes_per_s.value, 16e6 / peak["f32"]]
    np.testing.assert_allclose(time_ps, np.array(expected) * 1e12, rtol=1e-6)
    assert bound == ("compute", "compute", "memory", "compute")


def test_no_kernels_have_no_times():
    time_ps, bound = predict_analytic(AnalyticModel("x", Coefficients(1, 1, 1, 1)), [])
    assert (time_ps.shape, bound) == ((0,), ())


def made_corpus(seed=0, n=60):
    drawn = np.random.default_rng(seed)
    graphs = [
        graph(
            kind,
            flop=float(10 ** drawn.uniform(3, 8)),
            transcendentals=float(10 ** drawn.uniform(1, 6)),
            bytes_read=float(10 ** drawn.uniform(3, 8)),
        )
        for kind in ("dot", "loop-fusion")
        for _ in range(n)
    ]
    truth = AnalyticModel(
        "truth",
        Coefficients(0, 0, 0, 0),
        {"dot": Coefficients(1e-11, 2e-9, 1e-10, 2e-7), "loop-fusion": Coefficients(1e-10, 5e-9, 3e-10, 1e-7)},
    )
    return graphs, truth


def test_coefficients_are_found_again():
    graphs, truth = made_corpus()
    time_ps, _ = predict_analytic(truth, graphs)
    fitted = fit_analytic(graphs, time_ps)
    found, _ = predict_analytic(fitted, graphs)
    assert np.mean(np.abs(found - time_ps) / time_ps) < 0.01
    for kind, coefficients in truth.kinds.items():
        assert fitted.kinds[kind].s_per_byte == pytest.approx(coefficients.s_per_byte, rel=0.02)
        assert fitted.kinds[kind].launch_s == pytest.approx(coefficients.launch_s, rel=0.1)


def test_rare_kinds_take_the_coefficients_of_all():
    graphs, truth = made_corpus()
    rare = [*graphs, graph("sort", bytes_read=1e6)]
    time_ps = np.append(predict_analytic(truth, graphs)[0], 1e8)
    fitted = fit_analytic(rare, time_ps)
    assert "sort" not in fitted.kinds
    assert predict_analytic(fitted, rare[-1:])[0][0] > 0
    assert min(min(vars(one).values()) for one in (fitted.default, *fitted.kinds.values())) >= 0


def test_fitting_is_refused_where_it_cannot_be():
    graphs, _ = made_corpus(n=4)
    with pytest.raises(ModelError, match="at least 8 kernels, not 3"):
        fit_analytic(graphs[:3], [1, 1, 1])
    with pytest.raises(ModelError, match="one measured time above 0"):
        fit_analytic(graphs, [0] * len(graphs))


def test_a_model_is_stored_as_arrays():
    graphs, truth = made_corpus()
    again = analytic_from_arrays(analytic_arrays(truth), source="stored")
    np.testing.assert_array_equal(predict_analytic(again, graphs)[0], predict_analytic(truth, graphs)[0])
    with pytest.raises(ModelError, match="no analytic baseline"):
        analytic_from_arrays({}, source="stored")
