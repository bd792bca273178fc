"""`phasepoint replay plan`: what it prints, and the exit code for each wrong input."""

import json
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "replay"))  # replay_runs.py
from replay_runs import write_run

DUR_MS = [25 if 150 <= step < 250 else 10 for step in range(300)]
WINDOWS = (20, 60, 100, 170, 210, 270)


@pytest.fixture
def planned(tmp_path):
    rows = []
    for step in (49, 149):
        path = tmp_path / f"ckpt {step}"
        path.write_bytes(b"state")
        rows.append({"step": step, "path": str(path)})
    return write_run(tmp_path / "run", DUR_MS, windows=WINDOWS, checkpoints=rows)


def test_one_phase_in_full_ends_with_the_command(phasepoint, planned):
    done = phasepoint("replay", "plan", planned, "--phase", "train-2")
    assert done.code == 0
    lines = done.out.splitlines()
    assert lines[0].startswith("train-2: ")
    assert "from the checkpoint after step 149" in lines[0]
    assert lines[-1] == f"phasepoint replay run {planned} --phase train-2 -- python train.py --lr 0.1"
    by_id = phasepoint("replay", "plan", planned, "--phase", "1")
    assert by_id.out == done.out


def test_every_phase_in_a_line(phasepoint, planned):
    done = phasepoint("replay", "plan", planned)
    assert done.code == 0
    assert [line.split()[0] for line in done.out.splitlines()[1:3]] == ["train-2", "train-1"]


def test_json(phasepoint, planned):
    one = json.loads(phasepoint("replay", "plan", planned, "--phase", "train-2", "--json").out)
    assert (one["version"], one["kind"], one["phase"], one["first_step"]) == (1, "replay plan", "train-2", 150)
    parts = ("startup_ps", "compile_ps", "restore_ps", "skip_ps", "forward_ps", "outside_ps")
    assert one["cost_ps"] == sum(one[part] for part in parts)
    document = json.loads(phasepoint("replay", "plan", planned, "--json").out)
    assert document["kind"] == "replay plan"
    assert {row["phase"]: row["plan"] for row in document["plans"]}["train-2"] == {
        name: value for name, value in one.items() if name not in {"version", "kind"}
    }


def test_more_steps_are_run_where_they_are_asked_for(phasepoint, planned):
    def run(*options):
        return json.loads(phasepoint("replay", "plan", planned, "--phase", "train-2", "--json", *options).out)

    few, many = run("--steps", "0"), run("--steps", "60")
    assert few["last_step"] == few["target_last"]
    assert many["compared_steps"] == 60
    assert many["last_step"] > few["last_step"]


def test_from_the_start(phasepoint, planned):
    done = phasepoint("replay", "plan", planned, "--phase", "train-1", "--from-start")
    assert "from the start of the job" in done.out.splitlines()[0]
    assert done.out.splitlines()[-1].endswith("--phase train-1 --from-start -- python train.py --lr 0.1")


def test_wrong_input(phasepoint, planned, tmp_path):
    for arguments, code, said in (
        ((planned, "--phase", "nothing"), 2, "no phase 'nothing'; its phases (with their ids) are train-1 (0)"),
        ((planned, "--steps", "-1"), 2, "'--steps'"),
        ((tmp_path / "no-run",), 4, "no-run"),
        ((write_run(tmp_path / "empty", []), "--phase", "x"), 9, "no steps were recorded"),
        ((write_run(tmp_path / "unseen", DUR_MS), "--phase", "0"), 9, "no step was captured"),
        (
            (write_run(tmp_path / "bare", DUR_MS, windows=WINDOWS), "--phase", "1"),
            9,
            "no checkpoint was written before",
        ),
    ):
        done = phasepoint("replay", "plan", *arguments)
        assert (done.code, done.out) == (code, "")
        assert said in done.err
    Path(tmp_path / "ckpt 49").unlink()
    Path(tmp_path / "ckpt 149").unlink()
    gone = phasepoint("replay", "plan", planned, "--phase", "train-2")
    assert gone.code == 17
    assert "none of the 2 checkpoints before it can be used (2 missing)" in gone.err
