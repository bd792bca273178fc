"""What every command gives for a run whose content is known."""

import csv
import io
import json
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest
from made_run import EVAL, EVIL, N_STEPS, OPS, STALL, WINDOW_STEPS, WINDOWS, step_rows

from phasepoint.cli.opening import local_folder
from phasepoint.core.units import PS_PER_MS
from phasepoint.report.export.csv_tables import CSV_TABLES


def _json(done, kind):
    assert done.code == 0, done.err
    document = json.loads(done.out)
    assert (document["version"], document["kind"]) == (1, kind)
    return document


def _rows(path):
    return list(csv.DictReader(io.StringIO(path.read_text(), newline="")))


def test_summary_json(phasepoint, run_path):
    document = _json(phasepoint("summary", run_path, "--json"), "summary")
    inside_ps = sum(row["dur_ps"] for row in step_rows())
    assert document["steps"] == N_STEPS
    assert document["inside_ps"] == inside_ps
    assert document["input_wait_ps"] == (len(STALL) * 150 + (N_STEPS - len(STALL)) * 2) * PS_PER_MS
    assert sum(part["total_ps"] for part in document["account"]["parts"]) == document["wall_ps"]
    assert sum(phase["total_ps"] for phase in document["phases"]) == inside_ps
    assert document["not_seen"]["captured_steps"] == WINDOW_STEPS * len(WINDOWS)
    assert [c["path"] for c in document["checkpoints"]] == [f"ckpt/{EVIL}", "ckpt/170"]


def test_summary_begins_with_the_verdict(phasepoint, run_path):
    verdict = _json(phasepoint("summary", run_path, "--json"), "summary")["verdict"]
    done = phasepoint("summary", run_path)
    assert done.code == 0
    first = " ".join(done.out.partition("\n\n")[0].split())
    assert first.startswith(verdict)
    assert "\x1b" not in done.out
    assert max(map(len, done.out.splitlines())) <= 120


def test_summary_in_a_narrow_terminal(phasepoint, run_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    done = phasepoint("summary", run_path)
    assert max(map(len, done.out.splitlines())) <= 80


@pytest.mark.parametrize("method", ["recurrent", "ols", "kmeans", "dbscan"])
def test_phases_json_partitions_the_steps(phasepoint, run_path, method):
    document = _json(phasepoint("phases", run_path, "--method", method, "--json"), "phases")
    assert document["method"] == method
    assert sum(phase["steps"] for phase in document["phases"]) == N_STEPS
    strip = document["strip"]
    assert all(a["start_ps"] + a["dur_ps"] == b["start_ps"] for a, b in pairwise(strip))


def test_phases_finds_the_stall_and_the_evaluation(phasepoint, run_path):
    document = _json(phasepoint("phases", run_path, "--json"), "phases")
    stretches = {(s["first_step"], s["last_step"]) for s in document["strip"]}
    assert (STALL[0], STALL[-1]) in stretches
    assert (EVAL[0], EVAL[-1]) in stretches


def test_sql_json_keeps_large_integers_exact(phasepoint, run_path):
    query = "select count(*) as n, sum(dur_ps) * 1000000 as attoseconds from steps"
    document = _json(phasepoint("sql", run_path, query, "--json"), "sql")
    total = sum(row["dur_ps"] for row in step_rows())
    assert document["rows"] == [[N_STEPS, total * 1_000_000]]
    assert [column["name"] for column in document["columns"]] == ["n", "attoseconds"]


def test_sql_text_shows_names_as_text(phasepoint, run_path):
    done = phasepoint("sql", run_path, "select op, sum(self_ps) as self_ps from ops group by op order by 2 desc")
    assert done.out.splitlines()[0].split() == ["op", "self_ps"]
    assert "[red]\\x1b[31m" in done.out
    assert "\x1b" not in done.out


def test_sql_csv_is_read_back(phasepoint, run_path):
    done = phasepoint("sql", run_path, "select distinct op, category from ops order by op", "--csv")
    rows = list(csv.reader(io.StringIO(done.out)))
    expected = sorted([(name, category) for name, category, _ in OPS] + [("eval_fusion.9", "compute")])
    assert rows == [["op", "category"], *map(list, expected)]


def test_sql_says_how_many_rows_it_leaves_out(phasepoint, run_path):
    done = phasepoint("sql", run_path, "select * from range(1500)")
    assert "500 more of 1,500 rows" in done.out


def test_export_csv(phasepoint, run_path, tmp_path):
    document = _json(phasepoint("export", run_path, "-f", "csv", "-o", str(tmp_path / "t"), "--json"), "export")
    assert {Path(file["path"]).name for file in document["written"]} == {f"{name}.csv" for name in CSV_TABLES}
    assert all(Path(file["path"]).stat().st_size == file["bytes"] for file in document["written"])
    rows = _rows(tmp_path / "t" / "run_ops.csv")
    n_train = sum(step not in EVAL for first in WINDOWS for step in range(first, first + WINDOW_STEPS))
    expected = {name: self_ms * PS_PER_MS * n_train for name, _, self_ms in OPS}
    found = {row["op"]: int(row["self_ps"]) for row in rows}
    n_eval = WINDOW_STEPS * len(WINDOWS) - n_train
    assert found == {**expected, "eval_fusion.9": 90 * PS_PER_MS * n_eval}
    assert sum(float(row["self_share"]) for row in rows) == pytest.approx(1.0)


def test_export_csv_segments_partition_the_steps(phasepoint, run_path, tmp_path):
    assert phasepoint("export", run_path, "-f", "csv", "-o", str(tmp_path)).code == 0
    rows = _rows(tmp_path / "segments.csv")
    steps = [s for row in rows for s in range(int(row["first_step"]), int(row["last_step"]) + 1)]
    assert steps == list(range(N_STEPS))


@pytest.mark.parametrize("format_name", ["chrome", "perfetto"])
def test_export_trace_is_json(phasepoint, run_path, tmp_path, format_name):
    target = tmp_path / "deep" / "trace.json"
    done = phasepoint("export", run_path, "--format", format_name, "--output", str(target))
    assert done.out == f"wrote {target} ({_size(target)})\n"
    assert json.loads(target.read_text())["traceEvents"]


def _size(path):
    from phasepoint.core.units import format_bytes

    return format_bytes(path.stat().st_size)


def test_report_is_written_into_the_run(phasepoint, fresh_run):
    document = _json(phasepoint("report", str(fresh_run), "--json"), "report")
    page = fresh_run / "report.html"
    assert document["written"] == [{"path": str(page), "bytes": page.stat().st_size}]
    assert page.read_text().startswith("<!doctype html>")


def test_compact_and_convert_say_what_they_did(phasepoint, fresh_run):
    before = phasepoint("sql", str(fresh_run), "select count(*), sum(dur_ps) from steps", "--json").out
    compacted = _json(phasepoint("compact", str(fresh_run), "--json"), "compact")
    assert compacted["parts_after"] <= compacted["parts_before"]
    assert phasepoint("sql", str(fresh_run), "select count(*), sum(dur_ps) from steps", "--json").out == before
    converted = _json(phasepoint("convert", str(fresh_run), "--json"), "convert")
    assert (converted["converted"], converted["failed"], converted["written"]) == (0, 0, True)
    assert phasepoint("compact", str(fresh_run)).out.startswith(f"compacted {fresh_run}: ")
    assert phasepoint("convert", str(fresh_run)).out == f"converted 0 windows of {fresh_run}\n"


def test_piped_output_ends_quietly(python_m, run_path):
    head = subprocess.Popen(["true"], stdin=subprocess.PIPE)
    head.wait(timeout=10)
    query = "select * from steps, range(2000)"
    done = subprocess.run(
        [*python_m, "sql", run_path, query, "--csv"],
        stdout=head.stdin,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    head.stdin.close()
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize(
    ("path", "folder"),
    [("runs/a", "runs/a"), ("file:///runs/a", "/runs/a"), ("s3://bucket/a", "."), ("gs://bucket/a", ".")],
)
def test_where_files_of_a_run_go(path, folder):
    assert local_folder(path) == Path(folder)
