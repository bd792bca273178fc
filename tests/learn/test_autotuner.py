"""Searches of spaces whose optimum is known, and how their measurements are counted."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phasepoint.learn.choosing.autotuner import METHODS, Space, make_space, mean_without_priors, tune
from phasepoint.learn.choosing.sweep_table import config_features, odd_sides, threads_of

SPACE = make_space({"block_size_x": (16, 32, 64, 128, 256), "tile_size_x": (1, 2, 4, 8), "flag": (0, 1)})
BEST = {"block_size_x": 64, "tile_size_x": 4, "flag": 1}


def _time_ps(config):
    """A bowl over the logarithms; without the flag everything is half as fast again; the largest do not run."""
    if config["block_size_x"] * config["tile_size_x"] > 1024:
        return None
    away = np.log2(config["block_size_x"] / 64) ** 2 + np.log2(config["tile_size_x"] / 4) ** 2
    return round(1_000_000 * (1 + 0.2 * away) * (1.5 - 0.5 * config["flag"]))


class _Counted:
    def __init__(self):
        self.configs = []

    def __call__(self, config):
        self.configs.append(tuple(config.values()))
        return _time_ps(config)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_finds_the_optimum_of_a_whole_space(method):
    measure = _Counted()
    found = tune(SPACE, measure, method=method, budget=1000, seed=1)
    assert found.best.config == BEST
    assert found.best.time_ps == 1_000_000
    assert len(found.trials) == found.configs == len(SPACE.configs) == 40
    assert len(set(measure.configs)) == len(measure.configs) == 40  # none twice
    assert [tuple(trial.config.values()) for trial in found.trials] == measure.configs


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("budget", [1, 2, 7, 40])
def test_a_budget_is_used_up_and_no_more(method, budget):
    measure = _Counted()
    found = tune(SPACE, measure, method=method, budget=budget, seed=3)
    assert len(found.trials) == len(measure.configs) == budget


@pytest.mark.parametrize("method", METHODS)
def test_the_same_seed_asks_the_same(method):
    runs = [tune(SPACE, _time_ps, method=method, budget=15, seed=seed).trials for seed in (5, 5)]
    assert runs[0] == runs[1]


def test_the_model_needs_fewer_measurements_than_chance():
    model = tune(SPACE, _time_ps, budget=40)
    chance = [tune(SPACE, _time_ps, method="random", budget=40, seed=seed).needed(1_000_000) for seed in range(21)]
    assert model.needed(1_000_000) <= 12 < np.median(chance)


def test_a_good_prior_is_measured_first_and_a_shifted_one_is_corrected():
    truth = np.array([_time_ps(SPACE.config(row)) or 20_000_000 for row in range(len(SPACE.configs))], float)
    found = tune(SPACE, _time_ps, budget=1, priors=[np.log(truth) - 7.0])  # only differences count
    assert found.best.config == BEST
    shifted = Space(SPACE.names, SPACE.configs * np.array([2, 1, 1]))  # the other device likes blocks of half the size
    wrong = np.array(
        [_time_ps(dict(zip(SPACE.names, row, strict=True))) or 20_000_000 for row in shifted.configs.tolist()], float
    )
    assert tune(SPACE, _time_ps, budget=6, priors=[np.log(wrong)]).best.config == BEST


def test_configurations_that_do_not_run_count():
    found = tune(SPACE, lambda _config: None, budget=9)
    assert (len(found.trials), found.best, found.needed(1e30)) == (9, None, None)
    half = tune(SPACE, lambda config: 10 if config["flag"] else None, method="exhaustive", budget=4)
    assert [trial.time_ps for trial in half.trials] == [None, 10, None, 10]
    assert half.needed(10) == 2


def test_measurements_needed_are_counted_from_one():
    found = tune(SPACE, _time_ps, method="exhaustive", budget=40)
    times = [trial.time_ps for trial in found.trials]
    first = next(place for place, time in enumerate(times) if time is not None and time <= 1_050_000)
    assert found.needed(1_050_000) == first + 1
    assert found.needed(999_999) is None


def test_a_space_of_one_configuration():
    one = make_space({"x": (4,)})
    for method in METHODS:
        assert tune(one, lambda _config: 5, method=method, budget=10).best.time_ps == 5


@settings(max_examples=25)
@given(
    st.lists(st.lists(st.integers(0, 64), min_size=1, max_size=5, unique=True), min_size=1, max_size=4),
    st.sampled_from(METHODS),
    st.integers(1, 30),
    st.integers(0, 9),
)
def test_any_space_is_searched_without_repeats(values, method, budget, seed):
    space = make_space({f"p{place}": of for place, of in enumerate(values)})
    asked = []

    def measure(config):
        asked.append(tuple(config.values()))
        return None if sum(config.values()) % 5 == 0 else 1 + sum(config.values())

    found = tune(space, measure, method=method, budget=budget, seed=seed)
    assert len(asked) == len(set(asked)) == min(budget, len(space.configs)) == len(found.trials)
    ran = [trial.time_ps for trial in found.trials if trial.time_ps is not None]
    assert (found.best.time_ps if found.best else None) == (min(ran) if ran else None)


def test_spaces_hold_what_is_allowed():
    space = make_space({"a": (1, 2), "b": (1, 2, 3)}, allowed=lambda config: config["a"] < config["b"])
    assert space.configs.tolist() == [[1, 2], [1, 3], [2, 3]]
    assert space.config(2) == {"a": 2, "b": 3}


def test_what_cannot_be_searched_is_refused():
    with pytest.raises(ValueError, match="no combination"):
        make_space({"a": (1, 2)}, allowed=lambda _config: False)
    with pytest.raises(ValueError, match="more than 5000000"):
        make_space({name: range(100) for name in "abcd"})
    with pytest.raises(ValueError, match="no method 'guess'; there are model, annealing, random, exhaustive"):
        tune(SPACE, _time_ps, method="guess")
    with pytest.raises(ValueError, match="budget of 0"):
        tune(SPACE, _time_ps, budget=0)
    for prior in (np.zeros(3), np.full(40, np.nan)):
        with pytest.raises(ValueError, match="one finite value per configuration, 40"):
            tune(SPACE, _time_ps, priors=[prior])


def test_features_of_configurations():
    names = ("block_size_x", "block_size_y", "tile_size_x", "tile_size_y", "flag")
    configs = np.array([[32, 4, 2, 1, 0], [16, 1, 1, 1, 1]])
    features, columns = config_features(names, configs)
    first = dict(zip(columns, features[0], strict=True))
    assert first == {
        "block_size_x": 5,
        "block_size_y": 2,
        "tile_size_x": 1,
        "tile_size_y": 0,
        "flag": -1,
        "threads of all": 7,
        "tile of all": 1,
        "work of a block": 8,
    }
    assert threads_of(names, configs).tolist() == [128, 16]
    assert threads_of(("MWG",), configs[:, :1]) is None
    expected = [0.03 * np.log2(threads / 160) ** 2 for threads in (128, 16)]
    assert mean_without_priors(names, configs).tolist() == pytest.approx(expected)


def test_blocks_whose_sides_are_no_powers_of_two_are_thought_slower():
    names = ("block_size_x", "block_size_y", "tile_size_x")
    configs = np.array([[48, 4, 3], [48, 3, 1], [64, 1, 3], [0, 2, 1]])
    assert odd_sides(names, configs).tolist() == [1, 2, 0, 0]
    assert odd_sides(("tile_size_x",), configs[:, 2:]).tolist() == [0, 0, 0, 0]
    above = mean_without_priors(names, configs) - [0.03 * np.log2(t / 160) ** 2 for t in (192, 144, 64, 2)]
    assert above.tolist() == pytest.approx([0.1, 0.2, 0.0, 0.0])
