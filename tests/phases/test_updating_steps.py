"""Steps of which the recorder says that each updates the parameters hold no evaluation."""

import numpy as np
import pytest

from phasepoint.core.tables import table_from_columns
from phasepoint.recorder.autosteps.evidence import Rank
from phasepoint.recorder.autosteps.sources.jax.clock import _TEXTS
from phasepoint.recorder.autosteps.sources.jax.optax import OPTAX_UPDATE
from phasepoint.recorder.autosteps.sources.lightning import LIGHTNING_LOOP
from phasepoint.recorder.autosteps.sources.torch.clock import OPTIMIZER_STEP
from phasepoint.recorder.autosteps.sources.torch.profiler import PROFILER_STEP
from phasepoint.recorder.autosteps.sources.torch.updates import PARAMETER_UPDATE
from phasepoint.recorder.autosteps.sources.transformers import TRANSFORMERS_LOOP
from phasepoint.store import create_run, open_run, open_shard
from phasepoint.summary import analysis

UPDATE_PROGRAM, GRADIENT_PROGRAM = (
    _TEXTS[rank].format(name="train_step") for rank in (Rank.UPDATE_PROGRAM, Rank.GRADIENT_PROGRAM)
)
OPTIMIZER = OPTIMIZER_STEP.text


@pytest.mark.parametrize(
    ("steps_from", "expected"),
    [
        *((one.text, True) for one in (OPTIMIZER_STEP, PARAMETER_UPDATE, OPTAX_UPDATE)),
        *((one.text, True) for one in (LIGHTNING_LOOP, TRANSFORMERS_LOOP)),
        (UPDATE_PROGRAM, True),
        (GRADIENT_PROGRAM, False),
        (PROFILER_STEP.text, False),
        (f"{PARAMETER_UPDATE.text}; then {OPTIMIZER}", True),
        (f"{GRADIENT_PROGRAM}; then {OPTIMIZER}", False),
        (None, False),
    ],
)
def test_what_the_steps_are_says_whether_each_updates(tmp_path, monkeypatch, steps_from, expected):
    asked = []
    detect = analysis.detect_phases
    monkeypatch.setattr(
        analysis, "detect_phases", lambda *args, known, **kwargs: asked.append(known.updates) or detect(*args, **kwargs)
    )
    path = create_run(tmp_path / "run", command=["python", "train.py"])
    shard = open_shard(path, 0, epoch_unix_ns=1, notes={} if steps_from is None else {"steps_from": steps_from})
    steps = {"step": np.arange(3), "start_ps": np.arange(3) * 10, "dur_ps": np.full(3, 10)}
    shard.append("steps", table_from_columns("steps", steps))
    shard.close()
    analysis.analyse_run(open_run(path))
    assert asked == [expected]
