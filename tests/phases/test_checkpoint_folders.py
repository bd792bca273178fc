"""Files that were saved into one folder in one step are one checkpoint; whatever else lies together is not."""

import pyarrow as pa
import pytest

from phasepoint.core.tables import table_from_rows
from phasepoint.phases.clock.checkpoint_folders import join_folders

MS = 10**9


def table_of(*rows):
    """Rows of (path, step, start ms, dur ms, more)."""
    made = []
    for path, step, start_ms, dur_ms, *more in rows:
        row = {"path": path, "step": step, "start_ps": start_ms * MS, "dur_ps": dur_ms * MS, "bytes": 10}
        made.append({**row, "framework": "torch", "host": 0, "attempt": 0, **(more[0] if more else {})})
    plain = [{key: value for key, value in row.items() if key not in ("host", "attempt")} for row in made]
    table = table_from_rows("checkpoints", plain)
    for name in ("host", "attempt"):
        table = table.append_column(name, pa.array([row[name] for row in made], pa.int64()))
    return table


def test_the_files_of_a_step_are_its_folder():
    table = table_of(
        ("/c/step_5/model.pt", 5, 10, 2, {"loop_place": "a"}),
        ("/c/step_5/optim.pt", 5, 13, 4, {"has_iterator": True, "iterator_state": "{}", "loop_place": "b"}),
        ("/c/other.pt", 6, 20, 1),
        ("/c/step_7/model.safetensors", 7, 30, 2, {"framework": "safetensors", "bytes": None}),
        ("/c/step_7/state.pt", 7, 33, 1),
    )
    joined = join_folders(table)
    assert joined.schema == table.schema
    rows = joined.select(["path", "step", "start_ps", "dur_ps", "bytes", "framework", "has_iterator"]).to_pylist()
    assert [tuple(row.values()) for row in rows] == [
        ("/c/step_5", 5, 10 * MS, 7 * MS, 20, "torch", True),
        ("/c/other.pt", 6, 20 * MS, 1 * MS, 10, "torch", None),
        ("/c/step_7", 7, 30 * MS, 4 * MS, None, "torch", None),
    ]
    assert joined.column("iterator_state").to_pylist() == ["{}", None, None]
    assert joined.column("loop_place").to_pylist() == ["b", None, None]
    assert join_folders(joined).equals(joined)


def test_a_file_written_twice_counts_once():
    joined = join_folders(table_of(("/c/1/a.pt", 1, 0, 1), ("/c/1/b.pt", 1, 2, 1), ("/c/1/a.pt", 1, 4, 1)))
    assert joined.select(["path", "dur_ps", "bytes"]).to_pylist() == [{"path": "/c/1", "dur_ps": 5 * MS, "bytes": 20}]


def test_ranks_and_attempts_have_a_row_each():
    rows = [
        (f"/c/step_5/{name}.pt", 5, start, 1, {"host": host, "attempt": attempt})
        for start, (host, attempt, name) in enumerate(
            (host, attempt, name) for host, attempt in ((0, 0), (1, 0), (0, 1)) for name in ("a", "b")
        )
    ]
    joined = join_folders(table_of(*rows))
    assert joined.select(["host", "attempt", "path"]).to_pylist() == [
        {"host": host, "attempt": attempt, "path": "/c/step_5"} for host, attempt in ((0, 0), (1, 0), (0, 1))
    ]


@pytest.mark.parametrize(
    "rows",
    [
        [("/out/model.pt", 5, 0, 1), ("/out/optim.pt", 5, 2, 1)],  # no number: a folder of anything
        [("/c1/a.pt", 5, 0, 1), ("/c1/b.pt", 6, 2, 1)],  # of two steps
        [("/c1/a.pt", 5, 0, 1), ("/c1/b.pt", 5, 2, 1), ("/c1/c.pt", 6, 4, 1)],
        [("/c1/a.pt", None, 0, 1), ("/c1/b.pt", None, 2, 1)],  # outside of every step
        [("/c1/a.pt", 5, 0, 1), ("/c1/a.pt", 5, 2, 1)],  # one file, written again
        [("/c1/a", 5, 0, 1, {"framework": "orbax"}), ("/c1/b", 5, 2, 1, {"framework": "orbax"})],
        [("a1.pt", 5, 0, 1), ("b1.pt", 5, 2, 1)],  # of no folder
        [("/c1/a.pt", 5, 0, 1)],
        [],
    ],
)
def test_what_is_not_joined(rows):
    table = table_of(*rows)
    assert join_folders(table).equals(table)
