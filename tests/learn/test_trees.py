"""Packed trees against scikit-learn's own predictions."""

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor

from phasepoint.learn.models import trees
from phasepoint.learn.models.trees import PACKED, pack_trees, predict_trees


def _data(n=600, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 5))
    x[:, 3] = rng.integers(0, 4, n)
    x[rng.random(x.shape) < 0.1] = np.nan
    y = 100 + np.nan_to_num(x[:, 0]) * 3 + np.where(np.isnan(x[:, 1]), 5, 0) + rng.normal(size=n)
    return x, y


@pytest.mark.parametrize("loss", ["squared_error", "absolute_error"])
@pytest.mark.parametrize("compiled", [False, True])
def test_packed_trees_say_what_scikit_learn_says(monkeypatch, loss, compiled):
    x, y = _data()
    fitted = HistGradientBoostingRegressor(loss=loss, max_iter=30, max_leaf_nodes=21, random_state=0).fit(x, y)
    arrays = pack_trees(fitted)
    monkeypatch.setattr(trees, "_COMPILE_FROM", 0 if compiled else 1 << 60)
    fresh, _ = _data(seed=1)
    np.testing.assert_allclose(predict_trees(arrays, fresh), fitted.predict(fresh), rtol=1e-6)
    np.testing.assert_allclose(predict_trees(arrays, x), fitted.predict(x), rtol=1e-6)


def test_values_on_a_threshold_go_left_as_in_scikit_learn():
    x = np.repeat(np.arange(8.0), 20)[:, None]
    y = np.where(x[:, 0] <= 3, 1.0, 2.0)
    fitted = HistGradientBoostingRegressor(max_iter=5, random_state=0).fit(x, y)
    arrays = pack_trees(fitted)
    exact = np.concatenate([arrays["edges"], np.nextafter(arrays["edges"], 9), np.nextafter(arrays["edges"], -9)])
    np.testing.assert_allclose(predict_trees(arrays, exact[:, None]), fitted.predict(exact[:, None]), rtol=1e-6)


def test_arrays_are_compact_and_named():
    fitted = HistGradientBoostingRegressor(max_iter=3, random_state=0).fit(*_data())
    arrays = pack_trees(fitted)
    assert tuple(arrays) == PACKED
    per_node = sum(arrays[name].itemsize for name in ("feature", "threshold", "right", "value"))
    assert per_node == 9
    assert arrays["starts"][-1] == len(arrays["feature"])


def test_blocks_of_rows_do_not_change_the_sum():
    x, y = _data(3000)
    fitted = HistGradientBoostingRegressor(max_iter=1000, max_leaf_nodes=4, early_stopping=False).fit(x, y)
    np.testing.assert_allclose(predict_trees(pack_trees(fitted), x), fitted.predict(x), rtol=1e-6)


def test_no_rows_and_no_splits():
    fitted = HistGradientBoostingRegressor(max_iter=2).fit(np.zeros((50, 2)), np.full(50, 7.0))
    assert predict_trees(pack_trees(fitted), np.empty((0, 2))).shape == (0,)
    np.testing.assert_allclose(predict_trees(pack_trees(fitted), np.ones((3, 2))), 7.0)


def test_what_is_not_packed_is_refused():
    x, y = _data()
    with pytest.raises(ValueError, match="identity link"):
        pack_trees(HistGradientBoostingRegressor(loss="poisson", max_iter=2).fit(x, y))
    with pytest.raises(ValueError, match="identity link"):
        pack_trees(HistGradientBoostingRegressor(categorical_features=[3], max_iter=2).fit(x, y))
    arrays = pack_trees(HistGradientBoostingRegressor(max_iter=2).fit(x, y))
    with pytest.raises(ValueError, match="rows of 5 features"):
        predict_trees(arrays, np.zeros((2, 4)))
