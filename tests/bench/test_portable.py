"""A packed benchmark where only Python, NumPy and ONNX Runtime are: it measures, goes on, and is read here."""

import json
import os
import subprocess
import sys
import venv
from importlib.util import find_spec
from pathlib import Path

import pytest

from bench.test_runtimes import write_graph
from phasepoint.bench.portable.pack import write_pack
from phasepoint.bench.suite.ask import ask_suite
from phasepoint.bench.suite.result import read_suite
from phasepoint.bench.suite.summary import summarize_suite
from phasepoint.core.errors import OutputExistsError, StoreError, UsageError

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

THERE = ("numpy", "numpy.libs", "onnxruntime", "google", "flatbuffers", "packaging")
"""What the board has."""


@pytest.fixture
def board(tmp_path, monkeypatch):
    """A Python without Phasepoint, and a folder with graphs."""
    monkeypatch.chdir(tmp_path)
    venv.EnvBuilder(with_pip=False, symlinks=True).create("board")
    (there,) = Path("board/lib").glob("python3*/site-packages")
    here = Path(find_spec("numpy").origin).parent.parent
    for name in THERE:
        if (here / name).exists():
            (there / name).symlink_to(here / name)
    write_graph(tmp_path / "made.onnx")
    return tmp_path / "board/bin/python"


def run_pack(board, *words):
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run([board, "board.pyz", *words], capture_output=True, text=True, env=environ, check=False)


def phasepoint(*words):
    return subprocess.run(
        [sys.executable, "-m", "phasepoint", "bench", *words], capture_output=True, text=True, check=False
    )


def test_a_board_measures_and_is_read_here(board):
    ended = phasepoint("pack", "--model", "made.onnx", "--rounds", "2", "--seconds", "0.1", "--out", "board.pyz")
    assert ended.returncode == 0, ended.stderr
    assert "wrote board.pyz: 1 pair" in ended.stdout
    ended = run_pack(board, "--out", "board.json")
    assert ended.returncode == 0, ended.stderr
    assert "2 of 2 measured" in ended.stderr
    request, results = read_suite(Path("board.json"))
    assert [one.round for one in results] == [0, 1]
    (summary,) = summarize_suite(results)
    assert summary.pair == request.pairs[0]
    assert (summary.pair.device, summary.rounds) == ("cpu", 2)
    assert summary.model.macs == 256 * 64 + 64 * 32
    assert [speed.batch for speed in results[0].throughput if speed.samples_per_s] == [1, 4, 16]
    assert results[0].conditions.versions.keys() == {"onnxruntime", "python"}
    ended = phasepoint("report", "board.json", "--json")
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)["written"][0]["path"] == "board.html"
    assert "made.onnx" in Path("board.html").read_text()
    before = Path("board.json").read_bytes()
    assert run_pack(board, "--out", "board.json").returncode == 0  # all is there already
    assert Path("board.json").read_bytes() == before
    cut = json.loads(before)
    cut["results"].pop()
    Path("board.json").write_text(json.dumps(cut))
    assert run_pack(board, "--out", "board.json").returncode == 0
    again = read_suite(Path("board.json"))[1]
    assert again[0] == results[0]
    assert len(again) == 2


def test_what_a_board_cannot_run_is_a_row(board):
    pytest.importorskip("ai_edge_litert")
    from zoo.tiny_tflite import write_tiny

    write_tiny(Path("tiny.tflite"))
    asked = ask_suite(
        ["tiny.tflite", "made.onnx"], devices=["cpu:1", "cuda:0"], precisions=["f32"], rounds=1, seconds=0.1,
        is_elsewhere=True,
    )  # fmt: skip
    write_pack(Path("board.pyz"), asked)
    ended = run_pack(board, "--out", "board.json")
    assert ended.returncode == 0, ended.stderr
    found = {(one.pair.model, one.pair.device): one for one in read_suite(Path("board.json"))[1]}
    assert found["made.onnx", "cpu:1"].status == "measured"
    assert found["made.onnx", "cpu:1"].conditions.threads == 1
    assert found["made.onnx", "cuda:0"].status == "not here"
    assert found["made.onnx", "cuda:0"].reason.startswith("this onnxruntime has ")
    assert found["tiny.tflite", "cpu:1"].reason == "ai_edge_litert is not installed"
    Path("board.json").write_text("something else")
    ended = run_pack(board, "--out", "board.json")
    assert ended.returncode == 1
    assert ended.stderr == "board.json: is no file of this benchmark; give another --out\n"
    assert Path("board.json").read_text() == "something else"


def test_what_cannot_be_packed_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_graph(tmp_path / "made.onnx")
    (tmp_path / "broken.onnx").write_bytes(b"\xff" * 64)

    def pack(name, **options):
        return write_pack(tmp_path / "board.pyz", ask_suite([name], is_elsewhere=True), **options)

    with pytest.raises(UsageError, match=r"mine:build is no graph; a pack holds graphs: packaged ones, FILE.onnx"):
        pack("mine:build")
    with pytest.raises(StoreError, match=r"broken.onnx: cannot be packed: broken.onnx is no ONNX file"):
        pack("broken.onnx")
    assert not (tmp_path / "board.pyz").exists()
    size_bytes = pack("made.onnx")
    assert size_bytes == (tmp_path / "board.pyz").stat().st_size
    with pytest.raises(OutputExistsError, match=r"board.pyz is there already; give --force"):
        pack("made.onnx")
    pack("made.onnx", force=True)


def test_a_file_that_is_no_result_is_told(tmp_path):
    (tmp_path / "other.json").write_text('{"request": 1}')
    with pytest.raises(StoreError, match=r"other\.json: cannot be read: "):
        read_suite(tmp_path / "other.json")
    ended = phasepoint("report", str(tmp_path / "other.json"))
    assert ended.returncode == 3, ended
    assert ended.stderr.endswith("give the file that a pack wrote\n")
