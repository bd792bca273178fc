"""Records an example, and runs it again from every checkpoint of the run to its last step.

    python exact_jobs.py jax_orbax_grain FOLDER record
    python exact_jobs.py jax_orbax_grain FOLDER replay

Writes FOLDER/record.json and FOLDER/replay.json: a hash per training step of everything that the step leaves behind.
The second process stands for as many as there are checkpoints. It also replays with a part of the state not restored.
"""

import hashlib
import importlib
import json
import os
import sys
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from unittest.mock import patch

import numpy as np

from phasepoint.recorder.resume.request import VARIABLE, ReplayRequest
from phasepoint.store import open_run

EXAMPLES = Path(__file__).parents[2] / "examples"
STEPS, CHECKPOINT_EVERY = 25, 5


def digest(leaves):
    """Hash of the bytes, shapes and types of some arrays."""
    found = hashlib.sha256()
    for leaf in leaves:
        array = np.asarray(leaf)
        found.update(f"{array.dtype}{array.shape}".encode())
        found.update(array.tobytes())
    return found.hexdigest()


class JaxState:
    """What the JAX example leaves behind after each step."""

    def __init__(self, example):
        self.example, self.steps = example, {}
        train_step = example.train_step

        def noted(state, batch):
            state, loss = train_step(state, batch)
            self.steps[int(state.step)] = {**self.of(state), "loss": digest([loss])}
            return state, loss

        example.train_step = noted

    def of(self, state):
        import jax

        parts = {"params": state.params, "optimizer": state.opt_state, "random": jax.random.key_data(state.key)}
        return {name: digest(jax.tree.leaves(part)) for name, part in parts.items()}

    def forgetting(self, part):
        import grain

        restore = self.example.restore

        def without_iterator(path, state, batches):
            return restore(path, state, iter(grain.MapDataset.range(9).repeat()))

        def without_random(path, state, batches):
            return restore(path, state, batches).replace(key=state.key)

        return patch.object(self.example, "restore", without_iterator if part == "iterator" else without_random)


class TorchState:
    """What the PyTorch example leaves behind after each step."""

    def __init__(self, example):
        self.example, self.steps = example, {}
        train_step = example.Training.train_step

        def noted(training, images, labels):
            loss = train_step(training, images, labels)
            self.steps[training.step] = {**self.of(training), "loss": digest([loss])}
            return loss

        example.Training.train_step = noted

    def of(self, training):
        import torch

        optimizer = training.optimizer.state_dict()["state"]
        moments = [optimizer[key][name] for key in sorted(optimizer) for name in sorted(optimizer[key])]
        rate = np.array(training.schedule.get_last_lr())
        parameters = [value.numpy() for value in training.model.state_dict().values()]
        random = [torch.get_rng_state().numpy()]
        return {"params": digest(parameters), "optimizer": digest([*moments, rate]), "random": digest(random)}

    def forgetting(self, part):
        import torch

        restore, load_data = self.example.Training.restore, self.example.load_data

        def without_iterator():
            loader, evaluation = load_data()
            loader.generator.manual_seed(1)
            return loader, evaluation

        def without_random(training, path):
            restore(training, path)
            torch.manual_seed(1)

        if part == "iterator":
            return patch.object(self.example, "load_data", without_iterator)
        return patch.object(self.example.Training, "restore", without_random)


STATES = {"jax_orbax_grain": JaxState, "torch_resume": TorchState}


def main():
    example, folder, what = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    sys.path.insert(0, str(EXAMPLES))
    state = STATES[example](importlib.import_module(example))
    found = record(state, folder) if what == "record" else replay(state, folder)
    (folder / f"{what}.json").write_text(json.dumps(found))


def record(state, folder):
    """Train as a user does, with a budget by which a job of seconds has windows on a busy machine too."""
    pp = state.example.pp
    with patch.object(pp, "record", partial(pp.record, budget=0.5)):
        final = state.example.main(arguments(folder))
    return {"steps": state.steps, "final": state.of(final)}


def replay(state, folder):
    """Take up every checkpoint, and the one before the last two by programs that forget a part of the state."""
    rows, last = checkpoints(folder / "run"), end_of(folder / "run")
    asked = [(f"replay-{row['step']}", row, last, None) for row in rows]
    asked += [(f"without-{part}", rows[-3], rows[-3]["step"] + 6, part) for part in ("iterator", "random")]
    found = {}
    for name, row, last_step, part in asked:
        state.steps = {}
        request(folder, name, row, last_step)
        with state.forgetting(part) if part is not None else nullcontext():
            final = state.example.main(arguments(folder))
        found[name] = {"checkpoint_step": row["step"], "steps": state.steps, "final": state.of(final)}
    return found


def arguments(folder):
    return ["--out", str(folder), "--steps", str(STEPS), "--checkpoint-every", str(CHECKPOINT_EVERY)]


def checkpoints(path):
    """The checkpoints of a run, in order."""
    return open_run(path).table("checkpoints").to_pylist()


def end_of(path):
    """Last step of a run."""
    return max(open_run(path).table("steps")["step"].to_pylist())


def request(folder, name, row, last):
    """Ask this process to replay, as `phasepoint replay run` asks a process of its own."""
    first = row["step"] + 1
    target = min(first + 2, last)
    os.environ[VARIABLE] = ReplayRequest(
        path=str(folder / name),
        original=str(folder / "run"),
        checkpoint=row["path"],
        checkpoint_step=row["step"],
        first_step=first,
        target_first=target,
        target_last=min(target + 2, last),
        last_step=last,
        iterator_state=row["iterator_state"],
        loop_place=row["loop_place"],
        handshake=str(folder / f"{name}.jsonl"),
        protected=(str(folder / "checkpoints"),),
        saves=str(folder / f"{name}-saves"),
    ).to_environ()


if __name__ == "__main__":
    main()
