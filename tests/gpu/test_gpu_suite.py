"""The suite for machines with a GPU, on this one: all rows that can run do, at a test's sizes; others say why not."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import msgspec
import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.gpu import bundle, jobs, machine, part1, part2, part3, part4, suite, truth  # noqa: E402
from benchmarks.gpu.__main__ import PARTS  # noqa: E402
from benchmarks.gpu.child import call  # noqa: E402
from benchmarks.gpu.suite import Document, Figure, Measured, Outcome, Row, Setting  # noqa: E402

NEED_A_GPU = {1: 2, 2: 6, 3: 2, 4: 1}
"""Rows that CUDA alone can run."""


@pytest.mark.jax
@pytest.mark.torch
@pytest.mark.parametrize("part", PARTS)
def test_every_part_runs_without_a_gpu(part, tmp_path):
    """In a process of its own: it compiles, makes a process group and sets PyTorch's flags."""
    command = [sys.executable, "-m", "benchmarks.gpu", "--part", str(part), "--device", "cpu", "--out", str(tmp_path)]
    environ = os.environ | {"JAX_PLATFORMS": "cpu"}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    text = (tmp_path / f"part-{part}.json").read_bytes()
    document = msgspec.json.decode(text, type=Document, strict=True)
    assert json.loads(msgspec.json.encode(document)) == json.loads(text)  # no field that the schema does not know
    assert (document.part, document.device, document.is_small) == (part, "cpu", True)
    assert {"torch", "jax", "Python", "phasepoint"} <= document.versions.keys()
    statuses = [row.status for row in document.rows]
    assert {row.name: row.why for row in document.rows if row.status not in ("measured", "not here")} == {}
    assert statuses.count("measured") == document.counts["measured"] > 0
    missing = [row for row in document.rows if "CUDA" in row.why]
    assert len(missing) == NEED_A_GPU[part]
    for row in document.rows:
        assert bool(row.figures) == (row.status == "measured"), row.name
        assert all(np.isfinite(figure.value) for figure in row.figures), row.name
        assert row.holds is not False, row
    table = suite.table_of(json.loads(text))
    assert done.stdout.endswith(f"{table}\n")
    assert all(f"| {row.name} |" in table for row in document.rows)
    assert "Sizes of a test" in table


def row_of(measure, *, seconds=1.0, needs=(), name="a row"):
    return Row(name, "a claim", measure, seconds, needs)


def setting_of(row, left_s):
    return Setting("cpu", Path(), left_s, True, Path())


def nothing(setting):
    return Measured((Figure("found", "s", 1.0),), True)


def test_a_row_begins_only_where_it_can_end_in_time():
    now = [0.0]

    def slow(setting):
        now[0] += 6
        return nothing(setting)

    rows = [row_of(slow, seconds=5.0, name=str(i)) for i in range(3)]
    found = list(suite.run_rows(rows, setting_of, missing=lambda needs: "", limit_s=11.0, clock=lambda: now[0]))
    assert [row.status for row in found] == ["measured", "measured", "no time"]
    assert found[2].why == "5 s planned, 0 s left of the part's 11"
    assert found[0].seconds == 6
    assert suite.counts_of(found) == {
        **{"measured": 2, "not here": 0, "failed": 0, "no time": 1},
        **{"holds": 2, "falls short": 0},
    }


def test_a_row_that_fails_leaves_the_others(capsys):
    def fail(setting):
        raise ValueError("no such kernel")

    found = list(suite.run_rows([row_of(fail), row_of(nothing)], setting_of, missing=lambda needs: ""))
    assert [(row.status, row.why) for row in found] == [("failed", "ValueError: no such kernel"), ("measured", "")]
    assert "no such kernel" in capsys.readouterr().err


def test_what_is_not_here_is_told():
    rows = [row_of(nothing, needs=("torch", "cuda"))]
    (found,) = suite.run_rows(rows, setting_of, missing=lambda needs: f"no {needs[1]}")
    assert (found.status, found.why, found.holds) == ("not here", "no cuda", None)


def test_every_need_of_a_row_is_known():
    rows = [row for part in (part1, part2, part3, part4) for row in part.ROWS]
    assert len({row.name for row in rows}) == len(rows)
    assert {need for row in rows for need in row.needs} <= machine.MISSING.keys()
    for part in (part1, part2, part3, part4):
        assert sum(row.seconds for row in part.ROWS) <= suite.LIMIT_S, part.__name__


def test_a_table_shows_medians_their_spread_and_what_falls_short():
    rows = (
        Outcome("a", "at most 1 %", "measured", holds=False, said="too | dear\nby far", figures=(
            suite.figure_of("wall", "ratio", [0.03, 0.01, 0.02]), Figure("equal", "yes", 1.0), Figure("n", "", 4)
        )),
        Outcome("b", "", "failed", why="Error: no"),
    )  # fmt: skip
    about = ("2026-01-01", "cuda", False, {"card": "X"}, {}, 61.0)
    document = Document(1, 2, "truth", *about, suite.counts_of(rows), rows)
    lines = suite.table_of(msgspec.to_builtins(document)).splitlines()
    assert lines[2] == "2026-01-01, card X. 61 s; rows: 1 measured, 1 failed, 1 falls short."
    assert lines[-2:] == [
        "| a | at most 1 % | **no** | wall 2.00% (1.00% to 3.00%, 3 ×); equal yes; n 4 | too / dear by far |",
        "| b |  | failed |  | Error: no |",
    ]


def test_without_a_gpu_the_command_says_what_to_do():
    command = [sys.executable, "-m", "benchmarks.gpu", "--part", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "error: PyTorch sees no CUDA device; give --device cpu to see whether everything runs\n"


def test_a_row_of_a_gpu_is_measured_in_a_process_of_its_own(tmp_path):
    setting = Setting("cpu", tmp_path, 60.0, False, tmp_path)
    assert call(setting, machine.where_am_i)["pid"] != os.getpid()
    with pytest.raises(RuntimeError, match=r"(?s)benchmarks.gpu.child .*: exit code 1: .*no such device"):
        call(setting, machine.where_am_i, fails=True)
    with pytest.raises(RuntimeError, match="not done after 0 s"):
        call(Setting("cpu", tmp_path, 0.01, False, tmp_path), machine.where_am_i)


def test_times_covered_are_counted_apart():
    rng = np.random.default_rng(3)
    for _ in range(200):
        begin = rng.integers(0, 300, rng.integers(1, 12))
        end = begin + rng.integers(0, 60, len(begin))
        covered = np.zeros(400, bool)
        for a, b in zip(begin, end, strict=True):
            covered[a:b] = True
        assert truth.union_ps(zip(begin.tolist(), end.tolist(), strict=True)) == covered.sum()
    assert truth.union_ps([]) == 0


def test_kinetos_bytes_are_read_to_the_picosecond():
    events = [
        {"cat": "kernel", "ts": 1700000000123456.789, "dur": 2.001, "args": {"device": 1}},
        {"cat": "cpu_op", "ts": 1, "dur": 2},
        {"cat": "gpu_memcpy", "ts": 10, "dur": 0.5, "args": {"device": 0}},
    ]
    data = json.dumps({"traceEvents": events}).replace("1700000000123456.8", "1700000000123456.789").encode()
    assert list(truth.kineto_stretches(data)) == [
        ("gpu:1", 1700000000123456789000, 1700000000123458790000),
        ("gpu:0", 10_000_000, 10_500_000),
    ]


def test_xplanes_bytes_are_read_by_its_schema(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "sources"))
    from xplane_schema.messages import XSpace

    space = XSpace()
    plane = space.planes.add(name="/device:GPU:1")
    stream = plane.lines.add(name="Stream #7(Compute)", timestamp_ns=1_700_000_000_000_000_000)
    stream.events.add(metadata_id=300, offset_ps=1_000_001, duration_ps=5)
    stream.events.add(metadata_id=1, duration_ps=2**40)
    plane.lines.add(name="XLA Ops").events.add(metadata_id=1, offset_ps=1, duration_ps=1)
    space.planes.add(name="/host:CPU").lines.add(name="Stream").events.add(offset_ps=1, duration_ps=1)
    base = 1_700_000_000_000_000_000_000
    assert list(truth.xplane_stretches(space.SerializeToString())) == [
        ("gpu:1", base + 1_000_001, base + 1_000_006),
        ("gpu:1", base, base + 2**40),
    ]


@pytest.fixture
def flags():
    """PyTorch's flags that a job sets, put back."""
    torch = pytest.importorskip("torch")
    places = (torch.backends.cuda.matmul, torch.backends.cudnn)
    before = [place.allow_tf32 for place in places]
    yield
    torch.use_deterministic_algorithms(False)
    for place, value in zip(places, before, strict=True):
        place.allow_tf32 = value


@pytest.mark.torch
@pytest.mark.parametrize("net", sorted(jobs.TORCH_NETS))
def test_a_job_can_be_put_back(net, flags):
    job = jobs.make_job("torch", net, small=True)
    before = job.state()
    trained = []
    for _ in range(2):
        job.reset()
        assert job.state() == before
        losses = [float(job.step(index)) for index in range(3)]
        trained.append((losses, job.state()))
    assert trained[0] == trained[1]
    assert trained[0][1] != before


def test_the_bundle_starts_with_no_index_in_reach(tmp_path):
    """A wheel made by hand stands for those of the index."""
    with zipfile.ZipFile(tmp_path / "answer-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("answer.py", "VALUE = 42\n")
        wheel.writestr("answer-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: answer\nVersion: 1.0\n")
        wheel.writestr("answer-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("answer-1.0.dist-info/RECORD", "answer.py,,\n")
    (tmp_path / "start.sh").write_text(bundle.START)
    script = f'. {tmp_path}/start.sh && python3 -c "import answer; print(answer.VALUE)"'
    environ = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PIP_INDEX_URL": "http://127.0.0.1:9"}
    done = subprocess.run(["bash", "-c", script], env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "42\n"), done.stderr


def test_too_large_a_bundle_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(bundle, "MOST_BYTES", 10)
    wheel = tmp_path / "b" / "x.whl"
    monkeypatch.setattr(bundle.subprocess, "run", lambda command, check: wheel.write_bytes(b"1" * 9))
    with pytest.raises(ValueError, match=r"holds .* MB; at most 0 MB may be carried"):
        bundle.build_bundle(tmp_path / "b")
