"""Device time of real traces against what their files say, from the folder that PHASEPOINT_DATA names."""

import contextlib
import io
import json
import os
from pathlib import Path

import pytest
from trace_oracle import kineto_executions, nsys_executions, rocprof_executions, totals, xplane_executions

FOLDER = Path(os.environ.get("PHASEPOINT_DATA", "/nonexistent")) / "traces"

pytestmark = [
    pytest.mark.data,
    pytest.mark.skipif(not FOLDER.is_dir(), reason="PHASEPOINT_DATA does not name a folder with traces"),
]

ORACLES = {
    "kineto": kineto_executions,
    "xplane": xplane_executions,
    "nsys": nsys_executions,
    "rocprof": rocprof_executions,
}

FILES = sorted(str(path.relative_to(FOLDER)) for form in ORACLES for path in FOLDER.glob(f"{form}/*"))


def phasepoint(*words):
    """What a command prints."""
    from phasepoint.cli.main import run

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run([str(word) for word in words])
    if code:
        raise RuntimeError(f"phasepoint {words[0]} ended with {code}: {err.getvalue()}")
    return out.getvalue()


@pytest.fixture(scope="module", params=FILES)
def trace(request, tmp_path_factory):
    """A file's format, its oracle, what `phasepoint stack` says of it, and a way to ask for other analyses."""
    path, run = FOLDER / request.param, tmp_path_factory.mktemp("imported") / "run"
    form = request.param.split("/")[0]
    phasepoint("import", path, "--out", run)

    def analyse(name):
        return json.loads(phasepoint("stack", run, "--analysis", name, "--json"))

    return form, ORACLES[form](path), analyse("device-time"), analyse


def test_device_time_is_that_of_the_file_to_the_picosecond(trace):
    form, executions, document, _ = trace
    keys = ("span_ps", "busy_ps", "events")
    if form in ("kineto", "xplane"):
        found = {row["device"]: {key: row[key] for key in keys} for row in document["rows"]}
        assert found == {device: _some(totals(one), keys) for device, one in executions.items()}
    else:  # how a device is numbered is the reader's choice
        found = sorted([row[key] for key in keys] for row in document["rows"])
        assert found == sorted([totals(one)[key] for key in keys] for one in executions.values())


def test_executions_without_a_launch_in_the_file_are_told_apart(trace):
    _, executions, document, _ = trace
    found = sorted((row["orphan_ps"], row["orphan_events"]) for row in document["rows"])
    assert found == sorted((one["orphan_ps"], one["orphan_events"]) for one in map(totals, executions.values()))


def test_device_time_closes(trace):
    _, _, document, _ = trace
    assert document["version"] == 1
    for row in document["rows"]:
        parts = ("compute_ps", "exposed_communication_ps", "memory_ps")
        assert row["busy_ps"] == sum(row[part] for part in parts)
        assert row["span_ps"] == row["busy_ps"] + row["idle_ps"]
        assert 0 <= row["exposed_communication_ps"] <= row["communication_ps"] <= row["busy_ps"]
        assert row["host"] == 0


def test_causes_of_idle_time_add_up_to_it(trace):
    _, _, document, analyse = trace
    found = dict.fromkeys((row["device"] for row in document["rows"]), 0)
    for row in analyse("idle-causes")["rows"]:
        found[row["device"]] += row["idle_ps"]
    assert found == {row["device"]: row["idle_ps"] for row in document["rows"]}


def test_the_critical_path_of_each_step_adds_up_to_its_span(trace):
    analyse = trace[-1]
    spans, parts = {}, {}
    for row in analyse("critical-path")["rows"]:
        spans[row["step"]] = row["span_ps"]
        parts[row["step"]] = parts.get(row["step"], 0) + row["time_ps"]
    assert parts == spans


def test_launches_are_those_of_device_time(trace):
    _, _, document, analyse = trace
    found = {row["device"]: row for row in analyse("launch-statistics")["rows"] if row["name"] is None}
    for row in document["rows"]:
        assert found[row["device"]]["events"] == row["events"]
        if not row["device"].startswith("cpu"):
            assert row["events"] - found[row["device"]]["launched"] == row["orphan_events"]


def _some(row, keys):
    return {key: row[key] for key in keys}
