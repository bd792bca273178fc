"""What both tests of exactness share: an example recorded and replayed, and the steps held against each other."""

import json
import os
import subprocess
import sys
from pathlib import Path

from phasepoint.replay.fidelity.fidelity import compare_replay
from phasepoint.replay.folder import ReplayRecord
from phasepoint.sources.ingest.convert import convert_windows
from phasepoint.store import open_run
from phasepoint.summary.analysis import analyse_run

JOBS = Path(__file__).with_name("exact_jobs.py")
PARTS = ("params", "optimizer", "random", "loss")


def replayed(example, folder):
    """Folder with the example's run and its replays, `record` and `replay` as `exact_jobs.py` wrote them."""
    for what in ("record", "replay"):
        command = [sys.executable, str(JOBS), example, str(folder), what]
        # One thread: PyTorch's others spin while they wait, which takes as much processor time again.
        environ = {**os.environ, "JAX_PLATFORMS": "cpu", "OMP_NUM_THREADS": "1"}
        subprocess.run(command, check=True, env=environ, timeout=300)
    return folder, *(json.loads((folder / f"{what}.json").read_text()) for what in ("record", "replay"))


def equal_parts(original, replay):
    """By part of the state, the steps of the replay in which it equals the original's."""
    steps = [step for step in replay["steps"] if step in original["steps"]]
    return {part: [s for s in steps if replay["steps"][s][part] == original["steps"][s][part]] for part in PARTS}


def fidelity(folder, name, replays):
    """The replay of that name compared with its original."""
    for path in (folder / "run", folder / name):
        convert_windows(path)
    original = analyse_run(open_run(folder / "run"))
    step = replays[name]["checkpoint_step"]
    row = int((original.clock.step == step + 3).argmax())
    phase_id = int(original.labels[row])
    checkpoint = next(c["path"] for c in original.tables["checkpoints"].to_pylist() if c["step"] == step)
    steps = {"first_step": step + 1, "target_first": step + 3, "target_last": step + 5}
    record = ReplayRecord(
        version=1,
        original=str(folder / "run"),
        phase=original.names[phase_id],
        phase_id=phase_id,
        checkpoint=checkpoint,
        **steps,
        last_step=int(original.clock.step.max()),
        command=(),
        status="done",
    )
    return compare_replay(original, open_run(folder / name), record)
