"""Choosing tiles: features by hand, choices by hand, and data that were made by a rule."""

import numpy as np
import pytest
from tpu_made import PRODUCT, SUM, sums, tuning_data

from phasepoint.core.errors import ModelError, SourceError
from phasepoint.learn.choosing.tile_cost import COEFFICIENT_NAMES, TileTimes, fit_tile_cost, tile_time_s
from phasepoint.learn.choosing.tpu_tiles import (
    choices_of,
    default_choices,
    evaluate,
    rank_tiles,
    read_tile_kernels,
    train,
)
from phasepoint.learn.hlo_graph.tiles import TILE_FEATURE_NAMES
from phasepoint.learn.models.model_file import StoredModel


def silent(_done, _total):
    pass


def written(tmp_path, modules):
    (tmp_path / "op_tuning_data.pb").write_bytes(tuning_data(modules))
    return tmp_path


def features(kernel, tile=0):
    return dict(zip(TILE_FEATURE_NAMES, kernel.config_features[tile].tolist(), strict=True))


def test_a_tile_of_an_element_wise_kernel(tmp_path):
    runs = [((), (3, 8), 100, True), ((), (8, 2), 90, False), ((), (9, 8), 80, False)]
    (kernel,) = read_tile_kernels(written(tmp_path, [(SUM.format(m=64, n=1024), runs)]))
    assert kernel.time_ps.tolist() == [100_000, 90_000, 80_000]
    assert kernel.is_default.tolist() == [True, False, False]
    first = features(kernel)  # 8 × 8 registers in rows of 3: 3 tiles, 9 / 8 of the work
    register = 8 * 128 * 4
    assert (first["iterations"], first["overhang"], first["runs"]) == (3, 9 / 8, 3)
    assert first["moved_bytes"] == 3 * (3 * 3 * 8 * register)  # three arrays
    assert first["tile_bytes"] == 3 * 3 * 8 * register
    assert (first["transfers"], first["flop"], first["is_product"]) == (9, 64 * 1024 * 9 / 8, 0)
    second = features(kernel, 1)  # columns are cut: 8 rows of registers, each a run of its own
    assert (second["iterations"], second["overhang"], second["runs"]) == (4, 1, 4 * 8)
    assert (second["whole_dims"], second["volume_ratio"], second["output_1"]) == (1, 0.25, 2)
    assert features(kernel, 2)["bounds_known"] == 0  # nine of eight rows fit nothing


def test_an_array_of_one_dimension_is_counted_in_tiles_of_its_layout(tmp_path):
    text = SUM.format(m=64, n=1024).replace("f32[64,1024]{1,0:T(8,128)}", "f32[4096]{0:T(1024)}")
    (kernel,) = read_tile_kernels(written(tmp_path, [(text, [((), (4,), 100, True), ((), (1,), 200, False)])]))
    names = ("iterations", "runs", "volume_ratio", "moved_bytes")
    assert [features(kernel, 0)[name] for name in names] == [1, 1, 1, 3 * 4096 * 4]
    assert [features(kernel, 1)[name] for name in names] == [4, 4, 0.25, 3 * 4096 * 4]


def test_a_tile_of_a_product(tmp_path):
    text = PRODUCT.format(m=64, k=256, n=512)
    runs = [((16, 4), (4, 4), 100, False), ((32, 1), (8, 1), 90, True)]
    (kernel,) = read_tile_kernels(written(tmp_path, [(text, runs)]))
    first = features(kernel)  # half of the sum at a time, half of the rows: 2 tiles, 2 passes
    assert (first["iterations"], first["passes"], first["is_product"]) == (4, 2, 1)
    assert first["flop"] == 2 * 64 * 256 * 512
    read, held, own = 32 * 128 * 4, 128 * 512 * 4, 32 * 512 * 4
    assert first["tile_bytes"] == read + held + own
    assert first["moved_bytes"] == 4 * (read + held) + 2 * own
    assert first["accumulated_bytes"] == 2 * own
    second = features(kernel, 1)  # all rows and all of the sum: the input is loaded once, the kernel a column at a time
    assert (second["iterations"], second["passes"], second["accumulated_bytes"]) == (4, 1, 0)
    assert second["moved_bytes"] == 64 * 256 * 4 + 256 * 512 * 4 + 64 * 512 * 4


def test_the_cost_of_a_tile_by_hand():
    row = dict.fromkeys(TILE_FEATURE_NAMES, 0.0) | {
        "iterations": 4,
        "tile_bytes": 100,
        "moved_bytes": 400,
        "accumulated_bytes": 50,
        "runs": 8,
        "flop": 1000,
        "transfers": 12,
        "bounds_known": 1,
    }
    coefficients = dict.fromkeys(COEFFICIENT_NAMES, 1.0) | {"s_per_other_flop": 0.1, "exposed_ratio": 2.0}
    cost = tile_time_s([list(row.values())], np.array(list(coefficients.values())))
    assert cost.tolist() == [2 * 100 + max(0.1 * 1000, 12 + 400 + 8) + 4 + 50]
    row["flop"], row["is_product"] = 5000, 1
    assert tile_time_s([list(row.values())], np.array(list(coefficients.values()))).tolist() == [200 + 5000 + 4 + 50]
    row["bounds_known"] = 0
    assert np.isnan(tile_time_s([list(row.values())], np.array(list(coefficients.values()))))[0]


def test_choices_cost_what_they_cost(tmp_path):
    runs = [((), (8, 8), 100, False), ((), (4, 8), 80, True), ((), (2, 8), 120, False)]
    other = [((), (8, 8), 1000, True), ((), (4, 8), 1500, False)]
    texts = [SUM.format(m=64, n=1024), SUM.format(m=64, n=1152)]
    kernels = read_tile_kernels(written(tmp_path, list(zip(texts, [runs, other], strict=True))))
    ranked = [np.array([0, 1, 2]), np.array([1, 0])]
    choices = choices_of(kernels, ranked)
    assert (choices.chosen_ps / 1000).tolist() == [100, 1500]
    assert choices.tile_size_error == pytest.approx((20 + 500) / 1080)
    assert choices_of(kernels, ranked, first=2).tile_size_error == 0
    assert default_choices(kernels).tile_size_error == 0


def test_tiles_that_cannot_be_told_apart_fall_to_the_compiler(tmp_path):
    runs = [((), (), 100, False), ((), (), 80, False), ((), (), 120, True)]
    (kernel,) = read_tile_kernels(written(tmp_path, [(SUM.format(m=64, n=1024), runs)]))
    assert kernel.notes == ("sum1024: the file does not say what its 3 tiles are",)
    assert rank_tiles(kernel, np.ones(len(COEFFICIENT_NAMES))).tolist() == [2, 0, 1]


def test_a_rule_is_learned_from_the_other_kernels(tmp_path):
    folder = written(tmp_path, sums())
    model = train(folder, seed=0, progress=silent)
    found = evaluate(model, folder, seed=0, progress=silent)
    rows = {row.group: row for row in found.rows}
    assert rows["all: tile-size error"].regret < 0.01
    assert rows["default: tile-size error"].regret > 0.3
    assert rows["sum1024"].n == 15
    assert rows["sum1024"].tau > 0.8
    assert "4 kernels that the model was fitted to were each ranked by a fit to the others" in found.notes
    assert model.card["errors"]["tile_size_error"] == rows["all: tile-size error"].regret
    again = train(folder, seed=0, progress=silent)
    np.testing.assert_array_equal(again.arrays["coefficients"], model.arrays["coefficients"])


def test_kernels_that_were_never_seen_are_ranked_by_the_model_itself(tmp_path):
    model = train(written(tmp_path, sums()), seed=0, progress=silent)
    (tmp_path / "new").mkdir()
    text, runs = sums(1)[0]
    folder = written(tmp_path / "new", [(text.replace("f32[64,", "f32[63,"), runs)])
    found = evaluate(model, folder, seed=0, progress=silent)
    assert not any("fitted to" in note for note in found.notes)
    assert found.rows[0].regret < 0.05


def test_bad_input_is_said(tmp_path):
    with pytest.raises(SourceError, match="cannot be read"):
        read_tile_kernels(tmp_path)
    file = tmp_path / "op_tuning_data.pb"
    whole = tuning_data(sums(1))
    file.write_bytes(whole[:-7])
    with pytest.raises(SourceError, match="cut off"):
        read_tile_kernels(tmp_path)
    file.write_bytes(b"")
    with pytest.raises(SourceError, match="no tuned module"):
        read_tile_kernels(file)
    text, runs = sums(1)[0]
    file.write_bytes(tuning_data([(text, [])]))
    with pytest.raises(SourceError, match=r"module 0 \(sum1024\): it has no measured configurations"):
        read_tile_kernels(file)
    file.write_bytes(tuning_data([(text, [((), (1, 1), None, True)])]))
    with pytest.raises(ModelError, match="no tile of sum1024 has a measured time"):
        read_tile_kernels(file)
    file.write_bytes(tuning_data([("HloModule e\nENTRY m { ROOT x = f32[3] parameter(0) }\n", runs)]))
    with pytest.raises(ModelError, match="module e starts 0 kernels"):
        read_tile_kernels(file)
    file.write_bytes(tuning_data(sums(1)))
    with pytest.raises(ModelError, match="at least 3 kernels with known tiles, not 1"):
        train(tmp_path, seed=0, progress=silent)


def test_a_model_of_another_kind_is_refused(tmp_path):
    folder = written(tmp_path, sums(1))
    with pytest.raises(ModelError, match="of kind 'kernels', not 'tpu-tiles'"):
        evaluate(StoredModel("m", "kernels", {}), folder, seed=0, progress=silent)
    with pytest.raises(ModelError, match="no usable coefficients"):
        evaluate(StoredModel("m", "tpu-tiles", {}), folder, seed=0, progress=silent)


def test_no_module_is_said(tmp_path):
    from phasepoint.hlo.schema import load_schema

    data = load_schema("tpu_graphs")["TuningData"]()
    data.modules.add().runs.add()
    (tmp_path / "op_tuning_data.pb").write_bytes(data.SerializeToString())
    with pytest.raises(SourceError, match="module 0: there is no HLO in it"):
        read_tile_kernels(tmp_path)
    data.modules[0].module = b"\x12\x03abc"
    (tmp_path / "op_tuning_data.pb").write_bytes(data.SerializeToString())
    with pytest.raises(SourceError, match="module 0: no HLO module"):
        read_tile_kernels(tmp_path)


def test_coefficients_of_made_times_are_found(tmp_path):
    kernels = read_tile_kernels(written(tmp_path, sums(3)))
    truth = np.array([1e-14, 1e-12, 3e-12, 1e-7, 2e-9, 1.0, 1e-12, 1e-6])
    made = [
        TileTimes(one.config_features, 3.0 * tile_time_s(one.config_features, truth)) for one in kernels
    ]  # a factor of the kernel does not matter
    found = fit_tile_cost(made)
    for one, times in zip(kernels, made, strict=True):
        ratio = tile_time_s(one.config_features, found) / times.time_s
        np.testing.assert_allclose(ratio / ratio.mean(), 1, rtol=0.05)
