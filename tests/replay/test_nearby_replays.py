"""The replays beside a run: which they are, and what a report says of them."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from replay_runs import analysed, write_run

from phasepoint.cli.main import run as command_line
from phasepoint.replay.fast_forward import MOST_REPLAYS, find_replays, hold_against
from phasepoint.replay.folder import RECORD_NAME, ReplayRecord, write_replay
from phasepoint.store import open_run

DUR_MS = [25 if 80 <= step < 160 else 10 for step in range(240)]
WINDOWS = (20, 50, 100, 130, 180, 210)


def _record(run: Path, **changes) -> ReplayRecord:
    usual = ReplayRecord(
        original=str(run),
        phase="train-2",
        phase_id=1,
        checkpoint=None,
        first_step=0,
        target_first=100,
        target_last=104,
        last_step=159,
        command=("/venv/bin/python3", "train.py", "--lr", "0.1"),
        status="done",
    )
    return replace(usual, **changes)


def _replay(path: Path, record: ReplayRecord, *, at: int, dur_ms=DUR_MS[:160]) -> None:
    write_run(path, dur_ms, windows=(100,))
    write_replay(path, record)
    os.utime(path / RECORD_NAME, (at, at))


@pytest.fixture
def run(tmp_path):
    return Path(write_run(tmp_path / "job [1]", DUR_MS, windows=WINDOWS))


def test_the_newest_of_this_run_are_found(run):
    for i in range(MOST_REPLAYS + 2):
        _replay(run.with_name(f"{run.name}-replay-{i}"), _record(run), at=1_000 - i)
    _replay(run.with_name(f"{run.name}-replay-other"), _record(run.with_name("elsewhere-run")), at=2_000)
    _replay(run.with_name("job 1-replay-0"), _record(run), at=3_000)
    (run.with_name(f"{run.name}-replay-broken")).mkdir()
    (run.with_name(f"{run.name}-replay-broken") / RECORD_NAME).write_text("{")
    found, problems = find_replays(run)
    assert [one.path.rpartition("-")[2] for one in found] == ["5", "4", "3", "2", "1", "0"]
    assert len(problems) == 1
    assert "broken record of a replay" in problems[0]
    assert find_replays("gs://bucket/run") == ((), ())


def test_each_is_held_against_the_run(run):
    same, slow, ended = (run.with_name(f"{run.name}-replay-{name}") for name in ("same", "slow", "ended"))
    _replay(same, _record(run), at=1)
    _replay(
        slow,
        _record(run, command=("python", "other.py")),
        at=2,
        dur_ms=[2 * ms if 80 <= s < 160 else ms for s, ms in enumerate(DUR_MS[:160])],
    )
    _replay(ended, _record(run, status="ended-early", reason="the loop ended at step 7"), at=3)
    analysis = analysed(run.with_name("again"), DUR_MS, windows=WINDOWS)
    found, _ = find_replays(run)
    one, two, three = hold_against(analysis, [(each, open_run(each.path)) for each in found])
    assert one.fidelity.times.ratio == pytest.approx(1)
    assert one.fidelity.faithful
    assert one.estimate is None
    assert two.estimate.exchanges[0].baselines == (one.path,)
    assert two.fidelity.times.ratio == pytest.approx(2)
    # 80 steps of 25 ms take twice as long: 2 s more.
    assert two.estimate.after.value_ps - two.estimate.before_ps == pytest.approx(2 * 10**12, rel=1e-3)
    assert (three.fidelity, three.estimate, three.problem) == (None, None, "the loop ended at step 7")


def test_the_report_lists_them(run, capsys):
    _replay(run.with_name(f"{run.name}-replay-same"), _record(run), at=1)
    _replay(run.with_name(f"{run.name}-replay-no"), _record(run, status="ignored", reason="it went on"), at=2)
    target = run.with_name("r.html")
    assert command_line(["report", str(run), "-o", str(target), "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["fast_forward"]["replays"]
    assert [one["record"]["status"] for one in listed] == ["done", "ignored"]
    html = target.read_text(encoding="utf-8")
    assert "Replays of this run" in html
    assert "× 1.000" in html
    assert "it went on" in html
