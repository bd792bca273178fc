"""`phasepoint stack measure` on real scripts: what is measured, not how long it takes."""

import json
import sys

import pytest

SCRIPT = """
import sys
import torch
import phasepoint.stack

print("the script's own words", sys.argv[1:])
net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
for _ in range(2):
    with phasepoint.stack.region("forward"):
        net(torch.ones(2, 8))
"""


@pytest.mark.torch
def test_a_script_with_a_region(phasepoint, tmp_path):
    pytest.importorskip("torch")
    script = tmp_path / "infer.py"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), "--repeats", "7"]
    done = phasepoint("stack", "measure", "--levels", "M,L", "--repeats", "1", "--json", "--", *command)
    assert done.code == 0
    document = json.loads(done.out)
    assert (document["version"], document["kind"], document["command"]) == (1, "stack measure", command)
    (region,) = document["regions"]
    found = region["measurement"]
    assert (region["region"], found["framework"], found["devices"]) == ("forward", "torch", ["cpu:0"])
    assert [one["level"] for one in found["levels"]] == ["M", "L"]
    layers = {(one["layer"], one["direction"], one["kind"]) for one in found["layers"]}
    assert layers == {
        ("Sequential", "forward", "Sequential"),
        ("Sequential/0", "forward", "Linear"),
        ("Sequential/1", "forward", "ReLU"),
    }
    assert sum(one["latency_ps"] for one in found["layers"]) + found["unattributed_ps"] == found["model_ps"]


def test_a_script_without_work_is_told_what_to_add(phasepoint):
    done = phasepoint("stack", "measure", "--levels", "M", "--repeats", "1", "--", sys.executable, "-c", "pass")
    assert (done.code, done.out) == (9, "")
    assert "with phasepoint.stack.region():" in done.err


def test_a_wrong_level_is_refused_before_anything_runs(phasepoint):
    done = phasepoint("stack", "measure", "--levels", "M,X", "--", "no-such-program")
    assert done.code == 2
    assert "no level 'X'" in done.err


UNMARKED = """
import torch

net = torch.nn.Sequential(torch.nn.Linear(8, 8))
for _ in range(4):
    net(torch.ones(2, 8))
"""


@pytest.mark.torch
def test_a_script_without_a_line_of_ours(phasepoint, tmp_path):
    pytest.importorskip("torch")
    script = tmp_path / "infer.py"
    script.write_text(UNMARKED)
    options = ["--levels", "M,L", "--repeats", "1", "--json"]
    done = phasepoint("stack", "measure", *options, "--", sys.executable, str(script))
    assert done.code == 0
    (region,) = json.loads(done.out)["regions"]
    assert region["region"] == "forward (found)"
    assert {one["layer"]: one["calls"] for one in region["measurement"]["layers"]} == {
        "Sequential": 1,
        "Sequential/0": 1,
    }
