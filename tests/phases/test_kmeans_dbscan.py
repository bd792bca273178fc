"""Clustering methods: what they find when every step is captured and kinds are far apart."""

import numpy as np
import pyarrow as pa
import pytest

from phasepoint.phases import detect_phases
from phasepoint.phases.detection.methods.kmeans import find_elbow
from phasepoint.phases.detection.methods.step_space import MOST_POINTS, spread_labels, step_space
from phasepoint.phases.detection.vectors import read_ops, read_steps


def two_kinds(n, every):
    rng = np.random.default_rng(0)
    kind = (np.arange(n) // 25) % 2
    dur = np.where(kind == 0, 1.0, 3.0) * (1 + 0.01 * rng.standard_normal(n))
    steps = pa.table({"step": np.arange(n), "dur_ps": (dur * 10**10).astype(np.int64)})
    rows = []
    for step in range(0, n, every):
        names = ("dot", "copy") if kind[step] == 0 else ("sort", "gather", "copy")
        rows += [{"step": step, "op": name, "count": 2, "self_ps": int(dur[step] * 10**9)} for name in names]
    return steps, pa.Table.from_pylist(rows), kind


@pytest.mark.parametrize("method", ["kmeans", "dbscan"])
@pytest.mark.parametrize("every", [1, 4])
def test_two_far_kinds_are_two_phases(method, every):
    steps, ops, kind = two_kinds(400, every)
    result = detect_phases(steps, ops, method=method)
    assert np.array_equal(result.labels, kind)


def test_kmeans_says_which_k_it_took():
    steps, ops, _ = two_kinds(400, 1)
    assert any(note.startswith("k = 2 (elbow 2") for note in detect_phases(steps, ops, method="kmeans").notes)


def test_dbscan_needs_points():
    steps, ops, _ = two_kinds(100, 20)
    result = detect_phases(steps, ops, method="dbscan")
    assert len(result.phases) == 1
    assert "too few" in result.notes[0]


def test_large_runs_are_sampled_and_say_so():
    n = MOST_POINTS + 1000
    steps = pa.table({"step": np.arange(n), "dur_ps": np.where(np.arange(n) < n // 2, 10**9, 3 * 10**9)})
    result = detect_phases(steps, method="kmeans")
    assert len(result.phases) == 2
    assert any("evenly spaced" in note for note in result.notes)


@pytest.mark.parametrize(
    ("values", "at"), [([10, 9, 1, 0.9, 0.8], 2), ([10, 1, 0.9, 0.8], 1), ([5, 5, 5], 0), ([4, 1], 1), ([4], 0)]
)
def test_elbow_is_furthest_below_the_line(values, at):
    assert find_elbow(np.array(values, float)) == at


def test_uncaptured_step_takes_the_neighbour_of_like_duration():
    steps = pa.table({"step": range(6), "dur_ps": [100, 110, 290, 300, 105, 310]})
    ops = pa.table({"step": [0, 3], "op": ["a", "b"], "count": [1, 1], "self_ps": [1, 1]})
    series = read_steps(steps)
    space = step_space(series, read_ops(ops, series))
    assert spread_labels(series, space, np.array([0, 1])).tolist() == [0, 0, 1, 1, 1, 1]
