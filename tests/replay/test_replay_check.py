"""`phasepoint replay check` on a terminal and as JSON: verdict, figures, notes, exit codes."""

import json
import shutil

import pytest
from fidelity_runs import ORIGINAL, REPLAY, record, written

from phasepoint.cli.main import run
from phasepoint.replay.folder import write_replay


@pytest.fixture
def check(tmp_path, capsys, monkeypatch):
    """Runs the command on an original and on a replay that is changed in some things; exit code, stdout, stderr."""
    monkeypatch.setenv("COLUMNS", "120")

    def call(*options, asked=None, **changes):
        original, replay = str(tmp_path / "original"), str(tmp_path / "replay")
        written(original, ORIGINAL)
        written(replay, REPLAY, **changes)
        if asked is not None:
            write_replay(replay, record(original=original, **asked))
        code = run(["replay", "check", original, replay, *options])
        return (code, *capsys.readouterr())

    return call


def test_a_faithful_replay(check):
    code, out, err = check("--strict", asked={})
    assert code == 0
    assert out.startswith("Faithful: the replay of phase train, steps 20–24, did what the original did.\n")
    assert "cosine 1.0000 (1.0000 of the means) over 5 steps, against the same steps of the original" in out
    assert "equal bit for bit in all 15 values" in out
    assert "1 the same by fingerprint" in out
    assert "ckpt/10" in out
    assert "note: environment variables" in err


def test_a_replay_that_differs_is_told_and_ends_well(check):
    code, out, _ = check(asked={}, fingerprint="b" * 32, loss=dict.fromkeys(range(30), 0.5))
    assert code == 0
    assert out.startswith("Not faithful: the replay of phase train, steps 20–24, differs.\n  program: other programs")
    assert "another program, other data or state" in out
    assert "values differ" in out


def test_strict_makes_it_an_exit_code(check):
    code, out, err = check("--strict", asked={}, devices=("gpu:0 H200",))
    assert code == 17
    assert "other devices: gpu:0 H200, not cpu:0 cpu" in out
    assert "differs: device; expected a faithful replay (--strict)" in err


@pytest.mark.parametrize("which", ["original", "replay"])
def test_strict_cannot_judge_a_run_without_steps(tmp_path, check, capsys, which):
    check(asked={})
    for steps in (tmp_path / which).glob("host=*/steps"):
        shutil.rmtree(steps)
    code = run(["replay", "check", str(tmp_path / "original"), str(tmp_path / "replay"), "--strict"])
    err = capsys.readouterr().err
    assert code == 19
    assert f"error: --strict: cannot be judged: {tmp_path / which}: no training step was recorded" in err


def test_json(check):
    code, out, _ = check("--json", asked={})
    document = json.loads(out)
    assert code == 0
    assert (document["version"], document["kind"], document["verdict"]) == (1, "replay check", "faithful")
    assert document["ops"]["cosine"] == pytest.approx(1)
    assert document["scalars"][0] | {"name": "loss", "values": 15, "equal": 15} == document["scalars"][0]
    assert document["setting"]["checkpoint"] == "ckpt/10"


def test_a_run_that_is_no_replay(check):
    code, out, err = check()
    assert (code, out) == (9, "")
    assert "is no replay: replay.json is missing" in err
    assert "`phasepoint diff`" in err


def test_a_replay_of_another_run(check):
    code, _, err = check(asked={"target_first": 900, "target_last": 904, "last_step": 904})
    assert code == 9
    assert "has no step 900–904, which the replay was made for; give the run that was replayed" in err


def test_no_run(tmp_path, capsys):
    assert run(["replay", "check", str(tmp_path / "none"), str(tmp_path / "none")]) == 4
    assert "no such directory" in capsys.readouterr().err


def test_names_of_a_trace_are_text(check):
    code, out, _ = check(asked={"phase": "[red]\x1b[31mtrain"})
    assert code == 0
    assert "[red]\\x1b[31mtrain" in out
