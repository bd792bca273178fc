import subprocess
import sys

import numpy as np
import pytest
from made_kernels import made_kernel, made_kernels

from phasepoint.core.errors import ModelError
from phasepoint.learn.kernels.fit import FitSettings, fit_kernel_model
from phasepoint.learn.kernels.model import KernelModel, mean_nearest
from phasepoint.learn.models.model_file import StoredModel, read_model, write_model
from phasepoint.learn.models.network_training import TrainingSettings

SMALL = FitSettings(
    members=2,
    hidden=16,
    layers=1,
    tree_rounds=60,
    training=TrainingSettings(epochs=25, average=0.9, learning_rate=1e-2),
)
TRAIN, CALIBRATE = np.arange(500), np.arange(500, 700)


@pytest.fixture(scope="module")
def made():
    return made_kernels(900)


@pytest.fixture(scope="module")
def fitted(made):
    pytest.importorskip("optax", reason="training needs JAX and optax")
    return fit_kernel_model(*made, (TRAIN, CALIBRATE), seed=0, settings=SMALL)


def stored(fitted):
    return StoredModel("made", "kernels", fitted.arrays, fitted.card)


@pytest.mark.jax
def test_training_finds_the_law_again(made, fitted):
    graphs, time_ps = made
    told = fitted.predict(graphs[700:]).time_ps
    assert np.mean(np.abs(told / time_ps[700:] - 1)) < 0.04


@pytest.mark.jax
def test_networks_and_trees_each_beat_the_analytic_model(made, fitted):
    graphs, time_ps = made
    said, truth = fitted.log_times(graphs[700:]), np.log(time_ps[700:])
    network, trees, analytic = (
        np.mean(np.abs(np.expm1(part - truth))) for part in (said.networks, said.trees, said.analytic)
    )
    assert network < analytic / 2
    assert trees < analytic / 1.5


@pytest.mark.jax
def test_nine_of_ten_lie_in_the_interval(made, fitted):
    graphs, time_ps = made
    said = fitted.predict(graphs[700:])
    inside = (said.low_ps <= time_ps[700:]) & (time_ps[700:] <= said.high_ps)
    assert 0.84 <= inside.mean() <= 0.96
    assert (said.low_ps < said.time_ps).all()
    assert (said.time_ps < said.high_ps).all()


@pytest.mark.jax
def test_distance_tells_inside_from_outside(made, fitted):
    draw = np.random.default_rng(5)
    inside = fitted.predict(made[0][500:700])
    assert np.mean(inside.distance <= 1.0) == pytest.approx(0.95, abs=0.01)
    strange, _ = made_kernel(draw, 1, kind="convolution")
    like, _ = made_kernel(draw, 1)
    far = fitted.predict([strange, like])
    assert far.distance[0] >= 2.0 > far.distance[1]
    width = np.log(far.high_ps / far.low_ps)
    assert width[0] > 2 * width[1]


@pytest.mark.jax
def test_same_seed_same_arrays_other_seed_others(made):
    training = TrainingSettings(epochs=2)
    few = FitSettings(members=1, hidden=8, layers=1, reduction="columns", tree_rounds=5, training=training)
    first, again, other = (
        fit_kernel_model(made[0][:200], made[1][:200], (np.arange(150), np.arange(150, 200)), seed=seed, settings=few)
        for seed in (3, 3, 4)
    )
    assert first.arrays.keys() == again.arrays.keys()
    for name, array in first.arrays.items():
        np.testing.assert_array_equal(array, again.arrays[name], err_msg=name)
    assert (first.arrays["network0/node0/w"] != other.arrays["network0/node0/w"]).any()


@pytest.mark.jax
def test_a_stored_model_says_the_same_without_jax(tmp_path, made, fitted):
    write_model(stored(fitted), tmp_path / "model")
    again = KernelModel.from_model(read_model(tmp_path / "model"))
    graphs = made[0][700:720]
    np.testing.assert_array_equal(again.predict(graphs).time_ps, fitted.predict(graphs).time_ps)
    code = (
        "import sys; from phasepoint.learn.kernels.model import KernelModel;"
        "from phasepoint.learn.models.model_file import read_model;"
        f"KernelModel.from_model(read_model({str(tmp_path / 'model')!r})).predict([]);"
        "assert not {'jax', 'sklearn', 'optax'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.jax
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kind": "solvers"}, "kind 'solvers'"),
        ({"card": {}}, "features of version None"),
        ({"arrays": {}}, "quantile"),
    ],
)
def test_models_that_are_refused(fitted, change, said):
    values = {"name": "made", "kind": "kernels", "arrays": fitted.arrays, "card": fitted.card} | change
    with pytest.raises(ModelError, match=said):
        KernelModel.from_model(StoredModel(**values))


def test_trees_alone_and_nearest_points():
    graphs, time_ps = made_kernels(300)
    alone = FitSettings(members=0, tree_rounds=10)
    model = fit_kernel_model(graphs, time_ps, (np.arange(250), np.arange(250, 300)), seed=0, settings=alone)
    said = model.log_times(graphs[250:])
    np.testing.assert_array_equal(said.networks, said.trees)
    points = np.array([[0.0], [1.0], [2.0], [10.0]])
    np.testing.assert_allclose(mean_nearest(np.array([[0.0], [10.0]]), points), [1.0, (0 + 8 + 9) / 3])
