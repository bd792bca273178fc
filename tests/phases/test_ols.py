"""The online linear scan: the published similarity, and its published blind spots."""

import pyarrow as pa
import pytest

from phasepoint.phases import detect_phases
from phasepoint.phases.detection.methods.ols import OnlineScan, similarity


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("abcd", "abcd", 1.0),
        ("abcd", "ab", 1.0),
        ("abcdefghij", "abcdefgxyz", 0.7),
        ("abc", "xyz", 0.0),
        ("", "", 1.0),
        ("a", "", 0.0),
    ],
)
def test_similarity_is_shared_over_smaller(a, b, expected):
    assert similarity(frozenset(map(ord, a)), frozenset(map(ord, b))) == pytest.approx(expected)


def test_scan_streams_and_cuts_below_the_threshold():
    scan = OnlineScan()
    sets = ["abcdefghij", "abcdefgxyz", "abcdefghij", "abcdefxxyy"]
    assert [scan.push(frozenset(map(ord, s))) for s in sets] == [0, 0, 0, 0]
    # the first shares 1 of 4 with its neighbour; the last comes back to the first's ops and is a new phase all the same
    scan = OnlineScan()
    assert [scan.push(frozenset(map(ord, s))) for s in ("abcd", "axyz", "abcd")] == [0, 1, 2]


def ops(sets):
    rows = [{"step": step, "op": op, "count": 1, "self_ps": 10} for step, names in sets.items() for op in names]
    return pa.Table.from_pylist(rows)


def steps(n):
    return pa.table({"step": range(n), "dur_ps": [1000] * n})


def test_uncaptured_steps_inherit_the_phase_before_them():
    result = detect_phases(steps(8), ops({2: "abcd", 5: "wxyz"}), method="ols")
    assert result.labels.tolist() == [0, 0, 0, 0, 0, 1, 1, 1]
    assert "6 steps were not captured" in result.notes[0]


def test_subset_is_invisible_to_it():
    result = detect_phases(steps(4), ops({0: "abcd", 1: "abcd", 2: "ab", 3: "ab"}), method="ols")
    assert result.labels.tolist() == [0, 0, 0, 0]


def test_without_ops_the_run_is_one_phase_and_says_why():
    result = detect_phases(steps(5), method="ols")
    assert len(result.phases) == 1
    assert "op sets are unknown" in result.notes[0]
