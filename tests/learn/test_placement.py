"""Where a TPU's kernel has its arrays: features by hand from HLO text, and models that read them."""

from dataclasses import replace

import numpy as np
import pytest
from hlo_texts import SOFTMAX, module_of_text
from made_kernels import made_kernels
from tpu_made import PRODUCT

from phasepoint.learn.hlo_graph.graphs import graph_of_kernel
from phasepoint.learn.hlo_graph.kernels import kernels_of_module
from phasepoint.learn.hlo_graph.placement import PLACEMENT_NAMES
from phasepoint.learn.kernels.fit import FitSettings, fit_kernel_model
from phasepoint.learn.kernels.model import KernelModel
from phasepoint.learn.models.model_file import StoredModel

MIXED = """HloModule mixed
fused { a = f32[100,200]{1,0:T(8,128)} parameter(0)
  b = bf16[200]{0:T(256)(128)(2,1)} parameter(1)
  c = f32[200]{0:T(256)} convert(b)
  d = f32[100,200]{1,0:T(8,128)} broadcast(c), dimensions={1}
  ROOT e = f32[100,200]{1,0:T(8,128)} divide(a, d) }
ENTRY main { a = f32[100,200]{1,0:T(8,128)S(1)} parameter(0)
  b = bf16[200]{0:T(256)(128)(2,1)} parameter(1)
  ROOT f = f32[100,200]{1,0:T(8,128)} fusion(a, b), kind=kLoop, calls=fused, backend_config={CONFIG} }
"""
CONFIG = (
    '{"window_config":{"kernel_window_bounds":[],"output_window_bounds":["7","2"],"input_window_bounds":[],'
    '"iteration_bounds":["2","1"],"estimated_cycles":"2500"},"megacore_config":{"megacore_split_dim":"0"}}'
)


def placement(text):
    (kernel,) = kernels_of_module(module_of_text(text)).kernels
    return dict(zip(PLACEMENT_NAMES, graph_of_kernel(kernel).placement.tolist(), strict=True))


def mixed(config=CONFIG):
    return MIXED.replace("CONFIG", config[1:-1])


def test_bytes_are_those_of_whole_tiles_in_the_memory_that_the_layout_names():
    found = placement(mixed())
    assert found["read_vector_bytes"] == 104 * 256 * 4
    assert found["read_main_bytes"] == 256 * 2
    assert found["written_main_bytes"] == 104 * 256 * 4
    assert (found["read_main_arrays"], found["read_main_lines"], found["written_main_arrays"]) == (0, 1, 1)
    assert (found["read_arrays"], found["written_arrays"]) == (2, 1)


def test_registers_are_counted_by_the_work_that_fills_them():
    found = placement(mixed())
    assert found["output_registers"] == found["most_registers"] == found["division_registers"] == 26
    assert found["broadcast_registers"] == 26
    assert found["conversion_registers"] == 256 / 1024
    assert found["registers"] == 52 + 256 / 1024
    assert found["output_fill"] == pytest.approx(100 * 200 / (104 * 256))
    assert found["minor_rest"] == 72 / 128
    assert found["second_minor_rest"] == 4 / 8


def test_the_tile_is_the_one_that_the_compiler_took():
    found = placement(mixed())
    assert found["is_split"] == 1
    assert found["tile_bounds_known"] == 1
    assert found["tile_iterations"] == 2


@pytest.mark.parametrize("config", ['{"window_config":5}', '{"window_config":{"output_window_bounds":["x",[]]}}', "{}"])
def test_a_configuration_of_another_form_has_no_tile(config):
    found = placement(mixed(config))
    assert found["tile_iterations"] == found["is_split"] == 0
    assert found["registers"] > 0


def test_a_product_is_counted_in_passes_of_the_matrix_unit():
    found = placement(PRODUCT.format(m=20, k=130, n=256))
    assert found["product_passes"] == 3 * 2 * 2
    assert (found["product_rows"], found["product_summed"], found["product_columns"]) == (20, 130, 256)
    assert found["product_fill"] == pytest.approx(20 * 130 * 256 / (12 * 8 * 128 * 128))
    assert found["left_main_bytes"] == 24 * 256 * 4
    assert found["right_main_bytes"] == 136 * 256 * 4


def test_kernels_of_other_devices_have_no_placement():
    (kernel,) = kernels_of_module(module_of_text(SOFTMAX)).kernels
    assert graph_of_kernel(kernel).placement is None


def placed_kernels(count):
    """Kernels that take 1.2 µs, and so much more as their placement alone says."""
    draw = np.random.default_rng(3)
    graphs, _ = made_kernels(count)
    column = PLACEMENT_NAMES.index("read_main_bytes")
    placed, time_ps = [], []
    for graph in graphs:
        row = np.zeros(len(PLACEMENT_NAMES), np.float32)
        row[column] = np.round(np.exp(draw.uniform(6, 14)))
        placed.append(replace(graph, placement=row))
        time_ps.append(1.2e6 + float(row[column]))
    return tuple(placed), np.array(time_ps)


def test_a_model_of_compiled_kernels_learns_what_they_take_above_the_floor_of_all():
    graphs, time_ps = placed_kernels(600)
    settings = FitSettings(members=0, tree_rounds=200)
    parts = np.arange(400), np.arange(400, 500)
    fitted = fit_kernel_model(graphs, time_ps, parts, seed=0, exact=True, settings=settings)
    assert 1.1e6 < fitted.floor_ps < 1.21e6
    fresh = slice(500, 600)
    model = KernelModel.from_model(StoredModel("made", "kernels", fitted.arrays, fitted.card))
    said = model.predict(graphs[fresh])
    off = np.mean(np.abs(said.time_ps / time_ps[fresh] - 1))
    assert np.mean((said.low_ps <= time_ps[fresh]) & (time_ps[fresh] <= said.high_ps)) >= 0.8
    assert said.time_ps.min() >= fitted.floor_ps
    blind = fit_kernel_model(
        [replace(graph, placement=None) for graph in graphs], time_ps, parts, seed=0, exact=True, settings=settings
    )
    assert blind.floor_ps == 0
    told = blind.predict([replace(graph, placement=None) for graph in graphs[fresh]]).time_ps
    assert off < np.mean(np.abs(told / time_ps[fresh] - 1)) / 4
