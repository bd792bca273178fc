"""`phasepoint replay RUN`: the checkpoints, what is left of them, where they lead."""

import json
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "replay"))  # replay_runs.py
from replay_runs import write_run

N = 300
DUR_MS = [25 if step in range(150, 250) else 10 for step in range(N)]
WINDOWS = (20, 60, 100, 170, 200, 230, 270)


@pytest.fixture
def made(tmp_path):
    def make(*, steps=(49, 149), windows=WINDOWS):
        rows = []
        for step in steps:
            (tmp_path / f"ckpt-{step}").write_bytes(b"state")
            rows.append({"step": step, "path": str(tmp_path / f"ckpt-{step}")})
        write_run(tmp_path / "run", DUR_MS, windows=windows, checkpoints=rows)
        return tmp_path / "run"

    return make


def text(done):
    return " ".join(done.out.split())


def test_the_list_names_state_and_phases(phasepoint, made, tmp_path):
    path = made()
    (tmp_path / "ckpt-49").unlink()
    done = phasepoint("replay", path)
    assert done.code == 0
    assert done.out.splitlines()[0] == "2 checkpoints: 1 missing, 1 not to be judged from here"
    assert f"49 {tmp_path}/ckpt-49" in text(done)
    assert "it is not there any more" in text(done)
    assert "it is there, in a format that cannot be checked" in text(done)
    assert f"in full: phasepoint replay plan {path} --phase NAME" in text(done)


def test_json_has_every_field_of_the_index(phasepoint, made, tmp_path):
    document = json.loads(phasepoint("replay", made(), "--json").out)
    assert (document["version"], document["kind"]) == (1, "replay")
    first, second = document["checkpoints"]
    assert (first["step"], first["path"], first["size_bytes"], first["state"]) == (
        49,
        str(tmp_path / "ckpt-49"),
        5,
        "unknown",
    )
    assert set(first) >= {"host", "attempt", "phase", "framework", "start_ps", "dur_ps", "asynchronous", "problem"}
    assert first["has_model"] is None
    plans = json.loads(phasepoint("replay", "plan", tmp_path / "run", "--json").out)["plans"]
    expected = {(one["plan"]["checkpoint"], one["phase"]) for one in plans if one["plan"] and one["plan"]["checkpoint"]}
    assert expected
    assert {(one["path"], phase) for one in (first, second) for phase in one["leads_to"]} == expected


def test_a_run_without_checkpoints_says_which_lines_would_make_some(phasepoint, made):
    done = phasepoint("replay", made(steps=()))
    assert done.code == 0
    assert done.out.startswith("No checkpoint was noted in this run")
    assert "run.checkpoint(path)" in done.out
    assert json.loads(phasepoint("replay", made(steps=()), "--json").out)["checkpoints"] == []


def test_a_run_without_windows_lists_them_all_the_same(phasepoint, made):
    done = phasepoint("replay", made(windows=()))
    assert done.code == 0
    assert done.out.startswith("2 checkpoints")


def test_a_missing_run(phasepoint, tmp_path):
    done = phasepoint("replay", tmp_path / "nothing")
    assert done.code == 4
    assert "no such directory" in done.err
