"""The Python API converts captures that wait, as the command line does."""

from pathlib import Path

import pytest
from unconverted_run import unconverted_run

import phasepoint
from phasepoint.core.errors import StoreError
from phasepoint.sources.ingest import convert


def test_a_summary_in_python_sees_what_waited_to_be_converted(tmp_path):
    path = unconverted_run(tmp_path / "run", only=True)
    as_it_is = phasepoint.summarize_run(phasepoint.open_run(path, convert=False))
    assert (as_it_is.not_seen.pending_windows, as_it_is.not_seen.captured_steps) == (1, 0)
    assert as_it_is.notes[0].startswith("1 window waits to be converted")
    assert not any("nothing was captured" in note for note in as_it_is.notes)
    summary = phasepoint.summarize_run(phasepoint.open_run(path))
    assert (summary.not_seen.pending_windows, summary.not_seen.captured_steps) == (0, 5)
    assert [op.op for op in summary.top_ops] == ["aten::mm"]
    assert not list((Path(path) / "host=00000" / "raw").iterdir())


def test_a_run_that_cannot_be_written_is_converted_in_memory(tmp_path, monkeypatch):
    path = unconverted_run(tmp_path / "run")

    def refuse(*_):
        raise StoreError("read-only file system")

    monkeypatch.setattr(convert, "write_part", refuse)
    run = phasepoint.open_run(path)
    assert phasepoint.summarize_run(run).not_seen.captured_steps == 35
    assert phasepoint.open_run(path, convert=False).table("conversions").num_rows == 6


def test_a_run_that_is_converted_is_not_converted_again(tmp_path, run_path, monkeypatch):
    def unexpected(*_):
        raise AssertionError("nothing waits")

    monkeypatch.setattr(convert, "convert_windows", unexpected)
    assert phasepoint.open_run(run_path).table("steps").num_rows == 200
    with pytest.raises(StoreError):
        phasepoint.open_run(tmp_path / "none")
