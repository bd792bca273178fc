"""The command line of `record` in its plain form is read as Typer reads it; what was recorded is counted cheaply."""

import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from phasepoint.cli.commands import build_group
from phasepoint.cli.record import record_run
from phasepoint.cli.record.record_run import RecordWords, read_plain
from phasepoint.report.words.recorded_line import Tally
from phasepoint.store import create_run, open_shard

PLAIN = [
    ["--out", "run", "--", "python", "train.py"],
    ["--out=run", "--", "python", "train.py", "--", "--out", "x"],
    ["--budget", "none", "--window-steps", "7", "--force", "--json", "--out", "run", "--", "true"],
    ["--budget=0.02", "--out", "a b", "--", "./job", "--help"],
]
FOR_TYPER = [
    [],
    ["--help"],
    ["--out", "run", "python", "train.py"],
    ["--out", "run", "--"],
    ["--", "true"],
    ["--out", "--", "true"],
    ["--out", "run", "--window-steps", "0", "--", "true"],
    ["--out", "run", "--window-steps", "five", "--", "true"],
    ["--out", "run", "--no-such", "--", "true"],
    ["--out", "run", "--out", "other", "--", "true"],
    ["--out", "run", "--force=yes", "--", "true"],
    ["--out", "--force", "--", "true"],
    ["word", "--out", "run", "--", "true"],
]


@pytest.mark.parametrize("words", PLAIN, ids=" ".join)
def test_a_plain_line_is_read_as_typer_reads_it(monkeypatch, words):
    seen = []
    monkeypatch.setattr(record_run, "record_command", lambda read: seen.append(read) or 0)
    build_group().main(["record", *words], prog_name="phasepoint", standalone_mode=False)
    assert seen == [read_plain(words)]


def test_its_values():
    words = read_plain(PLAIN[2])
    assert words == RecordWords("run", ("true",), "none", 7, force=True, quiet=False, as_json=True)


@pytest.mark.parametrize("words", FOR_TYPER, ids=" ".join)
def test_all_others_are_left_to_typer(words):
    assert read_plain(words) is None


TALLY = {"steps": 30, "windows": 2, "wall_ps": 10**12, "cost_ps": 10**10, "outside_ps": 0, "losses": 0}


def write_shard(path, host, *, close=True, **tally):
    create_run(path)
    shard = open_shard(path, host, epoch_unix_ns=0, notes={"budget": "0.01"})
    if close:
        shard.close(tally={**TALLY, **tally})


def test_closed_sessions_say_what_they_came_to(tmp_path):
    for host in (0, 1):
        write_shard(tmp_path / "run", host, steps=30 + host)
    assert record_run.read_tally(str(tmp_path / "run")) == Tally(61, 4, 2, 1, 0.01, 0.01)


@pytest.mark.parametrize("tally", [{"steps": 19}, {"losses": 1}, {"outside_ps": 6 * 10**11}], ids=str)
def test_a_run_that_tells_too_little_is_looked_at(tmp_path, tally):
    write_shard(tmp_path / "run", 0, **tally)
    assert record_run.read_tally(str(tmp_path / "run")) is None


def test_a_run_that_was_not_closed_is_looked_at(tmp_path):
    write_shard(tmp_path / "run", 0, close=False)
    assert record_run.read_tally(str(tmp_path / "run")) is None
    (tmp_path / "run" / "host=00000" / "session.json").write_text("[1")
    assert record_run.read_tally(str(tmp_path / "run")) is None
    assert record_run.read_tally(str(tmp_path / "none")) is None
    assert record_run.read_tally("s3://bucket/run") is None


def test_the_launcher_imports_no_pyarrow_and_no_typer(tmp_path):
    """For a job that made steps: what it does after the job is in the way of whoever waits for it."""
    job = (
        "from phasepoint.recorder import record\n"
        f"with record({str(tmp_path / 'run')!r}, budget=0) as run:\n"
        "    for _ in run.steps(range(200)):\n        sum(range(100_000))"
    )
    code = (
        "import sys\nfrom phasepoint.cli.main import run\n"
        f"code = run(['record', '--out', {str(tmp_path / 'run')!r}, '--', sys.executable, '-c', {job!r}])\n"
        "print(code, [name for name in ('numpy', 'pyarrow', 'typer', 'pydantic', 'msgspec') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "0 []\n", done.stderr
    assert done.stderr.startswith("recorded: 200 steps, 0 windows, cost ")
    parts = Path(tmp_path / "run").glob("host=*/steps/*.parquet")  # one, or two where the machine is busy
    assert sum(pq.read_metadata(part).num_rows for part in parts) == 200
