"""Fingerprints of devices: what ten models say of the rest, where the truth is known, and what a file must hold."""

import numpy as np

from made_models import made_models, write_made
from phasepoint.bench.fingerprint.prediction import (
    START,
    KnownModels,
    choose_models,
    covariance,
    family_of,
    fit_widths,
    own_widths,
    predict_times,
)
from phasepoint.bench.fingerprint.validation import inversions, validate_devices


def test_ten_models_say_what_the_rest_takes(tmp_path):
    write_made(tmp_path)
    answers = validate_devices(tmp_path)
    assert [answer.device for answer in answers] == ["A", "B", "C", "D"]
    for answer in answers:
        assert answer.models == 110
        assert len(set(answer.probes)) == 10
        assert answer.median_ape < 0.1
        assert answer.median_ape < min(answer.baselines.values())
        assert 0.75 <= answer.coverage90 <= 1
        assert answer.inversions < 0.1


def known_of(count=60, seed=0):
    macs, acts, params, families, times = made_models(count, seed)
    sizes = np.log([macs, acts, params]).T
    log_times = np.log([times[name] for name in "ABC"]).T
    return KnownModels(log_times, (sizes - sizes.mean(0)) / sizes.std(0), families, list("ABC")), np.log(times["D"])


def test_the_posterior_is_that_of_all_models_together():
    """Oracle: conditioning the joint normal distribution by inverting its whole covariance."""
    known, true = known_of()
    widths = fit_widths(known)
    probes = np.array([3, 8, 21, 40])
    said = predict_times(known, widths, probes, true[probes])
    mean = known.log_times.mean(1)

    def conditioned(values):
        noise = values[-1] ** 2
        joint = covariance(known, known, values)
        inverse = np.linalg.inv(joint[np.ix_(probes, probes)] + noise * np.eye(4))
        wanted = mean + joint[:, probes] @ inverse @ (true - mean)[probes]
        return wanted, np.diag(joint - joint[:, probes] @ inverse @ joint[probes]) + noise, noise

    wanted, _, _ = conditioned(own_widths(known, widths.values, probes, true[probes]))
    _, variance, noise = conditioned(widths.values)
    assert np.allclose(said.log_time, wanted)
    assert np.allclose(said.high - said.log_time, widths.reach * np.sqrt(np.maximum(variance, noise)))


def test_own_widths_are_the_likeliest_near_those_of_the_others():
    """Oracle: the density of the measured times and of the widths, by determinant and inverse, around what is found."""
    known, true = known_of()
    base, probes = fit_widths(known).values, np.arange(0, 60, 6)
    away = (true - known.log_times.mean(1))[probes]

    def density(values):
        joint = covariance(known.rows(probes), known.rows(probes), values) + values[-1] ** 2 * np.eye(10)
        likely = -0.5 * away @ np.linalg.inv(joint) @ away - 0.5 * np.linalg.slogdet(joint)[1]
        return likely - (np.log(np.array(values) / base) ** 2).sum() / 2

    own = own_widths(known, base, probes, true[probes])
    assert density(own) > density(base)
    for place in range(6):
        for factor in (0.9, 1.1):
            moved = [value * (factor if at == place else 1) for at, value in enumerate(own)]
            assert density(own) >= density(moved) - 1e-3


def test_the_first_model_that_is_chosen_tells_most():
    """Oracle: the unknown that is left, added up for every choice."""
    known, _ = known_of(25)
    joint, noise = covariance(known, known, START), START[-1] ** 2
    left = [np.trace(joint - np.outer(joint[:, at], joint[at]) / (joint[at, at] + noise)) for at in range(25)]
    assert choose_models(known, START, 1)[0] == int(np.argmin(left))
    assert len(set(choose_models(known, START, 10).tolist())) == 10


def test_one_device_is_told_by_another_alone():
    known, true = known_of()
    alone = KnownModels(known.log_times[:, :1], known.sizes, known.families, ["A"])
    widths = fit_widths(alone)
    assert widths.values == START
    probes = choose_models(alone, widths.values)
    assert np.median(np.abs(predict_times(alone, widths, probes, true[probes]).log_time - true)) < 0.4


def test_pairs_that_are_far_apart_or_equal_are_not_near():
    assert inversions(np.array([1.0, 0.0]), np.array([0.0, 1.0])) == 0
    assert inversions(np.array([1.0, 0.0]), np.array([0.0, 0.0])) == 0
    assert inversions(np.array([1.0, 0.0]), np.array([0.0, 0.5])) == 1


def test_families_are_what_names_begin_with():
    assert family_of("42net") == "42net"
    assert family_of("swin_base") == "swin"
