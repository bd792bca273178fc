"""`phasepoint diff`: the answer, the JSON contract, the gate, bad input."""

import csv
import io
import json
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "stack"))  # diff_runs.py
from diff_runs import Job, Machine, recorded, written

STILL = Machine(speed=0, place=0, drift=0, step=0, preempted=0)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A base, the same again, and one whose third block takes 50 % longer: 4.9 % of its step."""
    folder = tmp_path_factory.mktemp("diff")
    slow = Job(slower={"Net/Block_3": 1.5})
    written(folder / "base", recorded(0, machine=STILL, windows=8))
    written(folder / "same", recorded(1, machine=STILL, windows=8), numbered=50)
    written(folder / "slow", recorded(2, slow, machine=STILL, windows=8), numbered=50)
    written(folder / "short", recorded(3, machine=STILL, windows=1, window_steps=1))
    return folder


def test_the_answer_comes_first(phasepoint, runs):
    done = phasepoint("diff", runs / "base", runs / "slow")
    assert done.code == 0
    first = " ".join(done.out.split())
    assert first.startswith("Net/Block_3 takes 50.0 % longer than before, the rest of the step allowed for")
    assert "310 µs more per step (+5.8 % of the step)" in first
    same = phasepoint("diff", runs / "base", runs / "same")
    assert same.out.startswith("No change beyond noise.")


def test_json_keeps_the_contract(phasepoint, runs):
    document = json.loads(phasepoint("diff", runs / "base", runs / "slow", "--json").out)
    assert (document["version"], document["kind"], document["verdict"]) == (1, "diff", "changed")
    assert document["named"] == ["Net/Block_3"]
    assert document["grown_ratio"] == pytest.approx(310 / 5350)
    names = {column["name"] for column in document["columns"]}
    assert all(set(row) == names for row in document["rows"])
    layer = next(row for row in document["rows"] if row["level"] == "layer" and row["name"] == "Net/Block_3")
    assert (layer["base_ps"], layer["run_ps"], layer["verdict"]) == (620_000_000, 930_000_000, "changed")


def test_csv_holds_every_row(phasepoint, runs):
    done = phasepoint("diff", runs / "base", runs / "slow", "--csv")
    rows = list(csv.DictReader(io.StringIO(done.out)))
    parts = [row for row in rows if row["level"] == "part"]
    assert [row["name"] for row in parts] == ["everything alike", "Net/Block_3", "unattributed"]
    assert sum(int(row["change_ps"]) for row in parts) == int(rows[0]["change_ps"])


def test_the_gate_fails_where_the_step_grew_and_names_the_layer(phasepoint, runs):
    done = phasepoint("diff", runs / "base", runs / "slow", "--fail-over", "3%")
    assert done.code == 15
    assert "error: the step grew by 5.8 % beyond noise, in Net/Block_3; --fail-over allows 3%" in done.err
    assert "Net/Block_3" in done.out
    assert phasepoint("diff", runs / "base", runs / "slow", "--fail-over", "6%").code == 0
    assert phasepoint("diff", runs / "base", runs / "same", "--fail-over", "0%").code == 0
    assert phasepoint("diff", runs / "slow", runs / "base", "--fail-over", "0%").code == 0


def test_repeats_are_read(phasepoint, runs):
    repeats = ("--base-repeat", runs / "same", "--run-repeat", runs / "slow")
    document = json.loads(phasepoint("diff", runs / "base", runs / "slow", *repeats, "--json").out)
    assert [Path(path).name for path in document["base"]] == ["base", "same"]
    assert [Path(path).name for path in document["run"]] == ["slow", "slow"]


def test_a_gate_that_cannot_be_judged_does_not_pass(phasepoint, runs):
    done = phasepoint("diff", runs / "base", runs / "short", "--fail-over", "3%")
    assert done.code == 19
    assert "--fail-over 3%: cannot be judged: noise cannot be told from 1 step of" in done.err
    assert phasepoint("diff", runs / "base", runs / "short").code == 0


@pytest.mark.parametrize("wrong", ["layer", "-1%", "nan", "inf", "", "6"])
def test_a_wrong_limit_is_refused(phasepoint, runs, wrong):
    done = phasepoint("diff", runs / "base", runs / "slow", f"--fail-over={wrong}")
    assert done.code == 2
    assert "expected a share such as 1% or 0.01" in done.err


def test_bad_input(phasepoint, runs, tmp_path):
    assert phasepoint("diff", runs / "base", tmp_path).code == 4
    assert phasepoint("diff", runs / "base").code == 2
    both = phasepoint("diff", runs / "base", runs / "slow", "--json", "--csv")
    assert both.code == 2
    assert "--json and --csv exclude each other" in both.err


def test_a_run_without_captured_steps_is_refused(phasepoint, runs, run_path, tmp_path):
    from phasepoint.core.tables import table_from_rows
    from phasepoint.store import create_run, open_shard

    for name, steps in (("empty", []), ("clock", [{"step": 0, "start_ps": 0, "dur_ps": 5}])):
        create_run(tmp_path / name, command=("python",))
        writer = open_shard(tmp_path / name, 0, epoch_unix_ns=1)
        writer.append("steps", table_from_rows("steps", steps))
        writer.close()
    empty = phasepoint("diff", runs / "base", tmp_path / "empty")
    assert empty.code == 9
    assert "empty: holds no steps to compare" in empty.err
    clock = phasepoint("diff", tmp_path / "clock", runs / "base")
    assert clock.code == 9
    assert "clock: no step was captured with its ops" in clock.err
