"""What the job calls its phases and stretches never enters what was measured: only names differ."""

import numpy as np
import pytest
from run_tables import MS
from test_summary import S, steps_of, write_shard

from phasepoint.findings import judge_run
from phasepoint.findings.judge import summarize_run
from phasepoint.store import create_run, open_run

MEASURED = ("checkpoint", "compiling", "input stall", "input wait", "recording", "outside steps")
"""Names of measured parts and of the phases that detection finds by measuring."""
PLAIN = "stage"
"""A name that nothing measured has."""


def recorded(path, name):
    """A run in which nothing was measured but step times; the job names half of its steps and a stretch outside."""
    create_run(path)
    dur_ps = np.where(np.arange(400) // 100 % 2, 20 * MS, 10 * MS)
    columns = steps_of(dur_ps, input_ps=np.zeros(400, np.int64), compile_ps=np.zeros(400, np.int64))
    columns["kind"] = [name if index // 100 % 2 else None for index in range(400)]
    columns["start_ps"] = columns["start_ps"] + np.where(np.arange(400) >= 200, S, 0)
    start_ps = int(columns["start_ps"][200]) - S
    hint = {"name": name, "start_ps": start_ps, "dur_ps": S // 2, "first_step": None, "last_step": None}
    write_shard(path, steps=columns, rows={"hints": [hint]}, close_after_s=8)
    return open_run(path)


@pytest.mark.parametrize("name", MEASURED)
def test_a_phase_and_a_stretch_by_the_name_of_a_measured_part(tmp_path, name):
    run, plain = recorded(tmp_path / "run", name), recorded(tmp_path / "plain", PLAIN)
    summary, expected = summarize_run(run), summarize_run(plain)
    assert summary.wall_ps == expected.wall_ps
    parts = {(part.kind, part.phase): part.total_ps for part in summary.account.parts}
    assert parts == {(part.kind, part.phase): part.total_ps for part in expected.account.parts}
    assert parts[("named", None)] == S // 2
    assert {kind for kind, _ in parts} == {"phase", "named", "outside steps"}, "nothing was measured as such"
    assert [phase.kind for phase in summary.phases] == [phase.kind for phase in expected.phases]
    assert {phase.kind for phase in summary.phases} == {"train", "named"}
    assert [(e.kind, e.first_step) for e in summary.events] == [(e.kind, e.first_step) for e in expected.events]
    names = [part.name for part in summary.account.parts]
    assert len(set(names)) == len(names), "the reader can tell the parts from each other"
    assert summary.time_went == expected.time_went.replace(f"{PLAIN} steps", f"{name} steps").replace(
        f"{PLAIN}, outside", f"{name}, outside"
    )


@pytest.mark.parametrize("name", MEASURED)
def test_no_finding_takes_a_name_for_a_measurement(tmp_path, name):
    found, expected = judge_run(recorded(tmp_path / "run", name)), judge_run(recorded(tmp_path / "plain", PLAIN))
    assert found.clear == expected.clear
    assert [one.code for one in found.unavailable] == [one.code for one in expected.unavailable]
    assert [(one.code, one.saved_ps, one.low_ps, one.high_ps) for one in found.findings] == [
        (one.code, one.saved_ps, one.low_ps, one.high_ps) for one in expected.findings
    ]
