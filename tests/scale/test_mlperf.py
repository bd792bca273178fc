"""MLPerf pairs: what is read, constants that are found again, intervals that cover, and plans."""

import math
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from made_results import TRUTH, made_results, write_results
from phasepoint.core.errors import SourceError, UsageError
from phasepoint.scale.mlperf.convergence import fit_convergence
from phasepoint.scale.mlperf.pairs import (
    bands_of,
    fit_scaling,
    fit_spread,
    predict_left_out,
    predict_pairs,
    scaling_document,
    scaling_of_document,
    with_spread,
)
from phasepoint.scale.mlperf.records import POINTS, RESULTS, Point, pairs_of, read_points, read_results
from phasepoint.scale.plan.benchmark import MeasuredSystem, plan_benchmark, sizes
from phasepoint.scale.validate.mlperf import shipped_scaling


@pytest.fixture(scope="module")
def results():
    return made_results()


@pytest.fixture(scope="module")
def fitted(results):
    return fit_scaling(results, [], pairs_of(results))


# Reading


def test_results_are_read_as_they_were_written(tmp_path, results):
    write_results(tmp_path, results)
    assert read_results(tmp_path / RESULTS) == results


def test_rows_without_chips_or_time_are_left_out_and_sentences_become_tokens(tmp_path, results):
    odd = [
        replace(results[0], chips=0.0),
        replace(results[0], time_min=float("nan")),
        replace(results[0], benchmark="transformer", batch=512.0, series=("v", "s", "transformer", "a")),
        replace(results[0], batch=None, nodes=None, samples=None),
    ]
    write_results(tmp_path, odd)
    sentences, bare = read_results(tmp_path / RESULTS)
    assert sentences.batch == 512 * 30
    assert (bare.batch, bare.samples, bare.hosts) == (None, None, 1)


def test_a_column_that_is_missing_is_named(tmp_path):
    pq.write_table(pa.table({"version": ["v1"]}), tmp_path / RESULTS)
    with pytest.raises(SourceError, match="has no column submitter, benchmark"):
        read_results(tmp_path / RESULTS)
    (tmp_path / RESULTS).write_bytes(b"PAR1 no")
    with pytest.raises(SourceError, match="no Parquet file that can be read"):
        read_results(tmp_path / RESULTS)


def test_reference_points_take_the_names_of_results(tmp_path):
    rows = {
        "ruleset": ["training_1.1.0", "training_3.0.0", "training_4.0.0", "training_4.0.0"],
        "benchmark": ["ssd", "ssd", "gnn", "bert"],
        "global_batch_size": ["1024", "256", "4096", ""],
        "mean_to_converge": ["50", "4", "0.8", "1"],
    }
    pq.write_table(pa.table(rows), tmp_path / POINTS)
    assert read_points(tmp_path / POINTS) == [
        Point("ssd", 1024, 50), Point("retinanet", 256, 4), Point("rgat", 4096, 0.8),
    ]  # fmt: skip


def test_pairs_go_from_smaller_to_larger_systems_of_one_series(results):
    pairs = pairs_of(results)
    assert len(pairs) == 12 * 10
    assert all(a.series == b.series and a.chips < b.chips for a, b in pairs)
    assert bands_of(pairs)[:4] == ["to 4×", "to 16×", "to 64×", "above 64×"]


# Fitting


def test_the_curve_of_convergence_is_found_again():
    points = [Point("net", batch, 10 * (1 + batch / 1000)) for batch in (64, 128, 512, 1024, 2048, 8192)]
    curve = fit_convergence(points, [])["net"]
    for batch in (100, 1000, 4000):
        ratio = math.exp(curve.log_samples(batch) - curve.log_samples(64))
        assert ratio == pytest.approx((1 + batch / 1000) / 1.064, rel=0.06)


def test_constants_that_made_the_results_predict_them(results, fitted):
    pairs = pairs_of(results)
    said = predict_pairs(fitted, pairs)
    error = [abs(one.time_min / b.time_min - 1) for one, (_, b) in zip(said, pairs, strict=True)]
    assert np.mean(error) < 0.03
    exact = predict_pairs(TRUTH, pairs)
    assert [one.time_min for one in exact] == pytest.approx([b.time_min for _, b in pairs])


def test_factors_make_up_the_time(results):
    a, b = pairs_of(results)[0]
    said = predict_pairs(TRUTH, [(a, b)])[0]
    product = said.samples_ratio * said.overhead_ratio * said.wait_ratio * a.chips / b.chips
    assert said.time_min == pytest.approx(a.time_min * product)
    true = predict_pairs(TRUTH, [(a, b)], true_samples=True)[0]
    assert true.samples_ratio == pytest.approx(b.samples / a.samples)


def test_intervals_of_series_left_out_cover_nine_of_ten(results):
    random = np.random.default_rng(0)
    noisy = [replace(row, time_min=row.time_min * math.exp(random.normal(0, 0.05))) for row in results]
    pairs, minutes = predict_left_out(noisy, [])
    spread = fit_spread(pairs, minutes)
    scaling = with_spread(fit_scaling(noisy, [], pairs), spread)
    said = predict_pairs(scaling, pairs)
    covered = [one.low_min <= b.time_min <= one.high_min for one, (_, b) in zip(said, pairs, strict=True)]
    assert 0.85 <= np.mean(covered) <= 0.99
    assert scaling_of_document(scaling_document(scaling)) == scaling


def test_a_benchmark_that_is_not_known_is_predicted_as_the_median(results):
    a, b = pairs_of(results)[0]
    other = replace(a, benchmark="new"), replace(b, benchmark="new")
    assert predict_pairs(TRUTH, [other])[0].samples_ratio == 1


# Plans


def test_sizes_double():
    assert sizes(16, 1024) == [32, 64, 128, 256, 512, 1024]
    assert sizes(3, 4) == [4]


def test_a_plan_says_what_larger_systems_take():
    start, rows = plan_benchmark(shipped_scaling(), MeasuredSystem("resnet", "tpu-v3", 16, 42.2, 4096), 1024)
    assert [row.chips for row in rows] == [32, 64, 128, 256, 512, 1024]
    times = [row.prediction.time_min for row in rows]
    assert times == sorted(times, reverse=True)
    assert all(row.prediction.low_min < row.prediction.time_min < row.prediction.high_min for row in rows)
    assert all(0.1 < row.efficiency < 1.05 for row in rows)
    assert rows[-1].batch > start.batch


def test_batches_that_are_given_are_kept_to():
    _, rows = plan_benchmark(shipped_scaling(), MeasuredSystem("bert", "H100", 8, 20.0, 512), 64, batches=[1024.0])
    assert {row.batch for row in rows} == {1024.0}


@pytest.mark.parametrize(
    ("start", "to", "message"),
    [
        (MeasuredSystem("chess", "H100", 8, 1.0), 16, "benchmark 'chess' is not known; there are bert"),
        (MeasuredSystem("bert", "H100", 8, 1.0), 8, "goes from a measured system to a larger one"),
        (MeasuredSystem("bert", "H100", 8, 0.0), 16, "from 8 chips in 0 min to 16"),
    ],
)
def test_plans_that_cannot_be(start, to, message):
    with pytest.raises(UsageError, match=message):
        plan_benchmark(shipped_scaling(), start, to)
