"""Loops of all kinds, each a real job recorded without a line of code: all of its steps, and what is said of them."""

import importlib.util
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from phasepoint.store import open_run

JAX = """
    import sys
    import jax, jax.numpy as jnp

    x = jnp.ones((8, 8))
    params = {"w": jnp.ones((8, 8))}

    def loss(p, x):
        return jax.nn.log_softmax(jax.nn.relu(x @ p["w"])).sum()

    def update(p, x):
        return jax.tree_util.tree_map(lambda p, g: p - 1e-4 * g, p, jax.grad(loss)(p, x))
"""

TORCH = """
    import torch

    torch.manual_seed(0)
    model = torch.nn.Linear(8, 2)
    x = torch.ones(4, 8)
"""

JOBS = {
    "jit": (
        JAX,
        """
        evaluate, step = jax.jit(loss), jax.jit(update)
        for _ in range(20):
            evaluate(params, x)
        for i in range(150):
            params = step(params, x)
            evaluate(params, x)
        """,
        150,
        {"steps_from": "executions of update, the compiled program with a gradient that does most work"},
    ),
    "one jitted step": (JAX, "params = jax.jit(update)(params, x)", 1, {}),
    "compiled ahead": (
        JAX,
        """
        step = jax.jit(update).lower(params, x).compile()
        for i in range(150):
            params = step(params, x)
        """,
        150,
        {},
    ),
    "scan over steps": (
        JAX,
        """
        import optax
        optimizer = optax.sgd(1e-4)

        def step(carry, _):
            p, state = carry
            updates, state = optimizer.update(jax.grad(loss)(p, x), state, p)
            return (optax.apply_updates(p, updates), state), None

        many = jax.jit(lambda carry: jax.lax.scan(step, carry, jnp.arange(20))[0])
        carry = (params, optimizer.init(params))
        for i in range(30):
            carry = many(carry)
        """,
        30,
        {"steps_per_call": "20"},
    ),
    "scan, updates by hand": (
        JAX,
        """
        many = jax.jit(lambda p, x: jax.lax.scan(lambda p, _: (update(p, x), None), p, None, length=10)[0])
        for i in range(30):
            params = many(params, x)
        """,
        30,
        {
            "steps_unfollowed": "each recorded step is one call of a compiled program that loops over 10 gradients: "
            "whether these are as many training steps, or parts of one, is not known"
        },
    ),
    "eager": (
        JAX,
        """
        for i in range(20):
            params = update(params, x)
        """,
        20,
        {"steps_from": "gradients taken outside of any compiled program"},
    ),
    "accumulated gradients, optax outside": (
        JAX,
        """
        import optax
        optimizer, gradient = optax.sgd(1e-4), jax.jit(jax.grad(loss))
        state = optimizer.init(params)
        for i in range(40):
            total = gradient(params, x)
            for _ in range(2):
                total = jax.tree_util.tree_map(jnp.add, total, gradient(params, x))
            updates, state = optimizer.update(total, state, params)
            params = optax.apply_updates(params, updates)
        """,
        40,
        {"steps_from": "optimizer updates (optax.apply_updates)"},
    ),
    "annotated": (
        JAX,
        """
        step = jax.jit(update)
        for i in range(50):
            with jax.profiler.StepTraceAnnotation("train", step_num=i):
                for _ in range(2):
                    params = step(params, x)
        """,
        50,
        {"steps_from": "the job's own marks for the profiler (jax.profiler.StepTraceAnnotation)"},
    ),
    "keras on jax, several batches at a time": (
        """
        import os
        os.environ["KERAS_BACKEND"] = "jax"
        """,
        """
        import keras, numpy
        x, y = numpy.random.rand(160, 8), numpy.random.rand(160, 2)
        model = keras.Sequential([keras.layers.Dense(2)])
        model.compile("sgd", "mse", steps_per_execution=5)
        model.fit(x, y, batch_size=16, epochs=4, validation_split=0.5, verbose=0)
        """,
        4,
        {"steps_from": "training batches of Keras (jax)", "steps_per_call": "5"},
    ),
    "keras on torch": (
        """
        import os
        os.environ["KERAS_BACKEND"] = "torch"
        """,
        """
        import keras, numpy
        x, y = numpy.random.rand(160, 8), numpy.random.rand(160, 2)
        model = keras.Sequential([keras.layers.Dense(2)])
        model.compile("sgd", "mse")
        model.fit(x, y, batch_size=16, epochs=4, validation_split=0.5, verbose=0)
        """,
        20,
        {"steps_from": "training batches of Keras (torch)"},
    ),
    "no optimizer, through .data": (
        TORCH,
        """
        for i in range(40):
            model.zero_grad()
            for _ in range(2):
                model(x).pow(2).mean().backward()
            for p in model.parameters():
                p.data.add_(p.grad, alpha=-0.01)
        """,
        40,
        {"steps_from": "updates of parameters after a backward pass (torch.optim was not used)"},
    ),
    "no optimizer, under no_grad": (
        TORCH,
        """
        for i in range(40):
            model(x).pow(2).mean().backward()
            with torch.no_grad():
                for p in model.parameters():
                    p -= 0.01 * p.grad
                    p.grad = None
        """,
        40,
        {},
    ),
    "lbfgs": (
        TORCH,
        """
        optimizer = torch.optim.LBFGS(model.parameters())

        def closure():
            optimizer.zero_grad()
            loss = model(x).pow(2).mean()
            loss.backward()
            return loss

        for i in range(12):
            optimizer.step(closure)
        """,
        12,
        {"steps_from": "optimizer steps (torch.optim)"},
    ),
    "without a loader": (
        TORCH,
        """
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for i in range(40):
            optimizer.zero_grad()
            model(x).pow(2).mean().backward()
            optimizer.step()
        """,
        40,
        {},
    ),
    "lightning": (
        TORCH,
        """
        import logging, warnings
        warnings.simplefilter("ignore")
        import lightning
        logging.disable(logging.CRITICAL)

        class Model(lightning.LightningModule):
            def __init__(self):
                super().__init__()
                self.layer = model

            def training_step(self, batch, index):
                return self.layer(batch[0]).pow(2).mean()

            def validation_step(self, batch, index):
                self.layer(batch[0])

            def configure_optimizers(self):
                return torch.optim.SGD(self.parameters(), lr=0.01)

        data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(160, 8)), batch_size=8)
        trainer = lightning.Trainer(max_epochs=3, accelerator="cpu", logger=False, enable_checkpointing=False,
                                    enable_progress_bar=False, enable_model_summary=False, accumulate_grad_batches=2)
        trainer.fit(Model(), data, data)
        assert trainer.global_step == 30
        """,
        30,
        {"steps_from": "optimizer steps (torch.optim)"},
    ),
}
"""Name of a job: how it begins, its loop, its steps, and what the session must say of them."""

LIBRARIES = {"keras on jax, several batches at a time": "keras", "keras on torch": "keras", "lightning": "lightning"}


def record(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    job = folder / "job.py"
    job.write_text(text)
    words = [sys.executable, "-m", "phasepoint", "record", "--out", str(folder / "run"), "--", sys.executable, str(job)]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)


@pytest.mark.parametrize("name", JOBS)
def test_all_steps_are_recorded_and_what_they_are_is_said(tmp_path, name):
    begin, loop, steps, notes = JOBS[name]
    library = LIBRARIES.get(name, "torch" if begin is TORCH else "jax")
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    done = record(tmp_path, textwrap.dedent(begin) + textwrap.dedent(loop))
    assert done.returncode == 0, done.stderr
    assert "may be lost" not in done.stderr
    run = open_run(tmp_path / "run")
    assert run.table("steps")["step"].to_pylist() == list(range(steps))
    [shard] = run.shards
    assert {key: shard.session.notes[key] for key in notes} == notes
    assert shard.state == "closed"


def test_gradients_without_updates_are_no_training(tmp_path):
    pytest.importorskip("torch")
    loop = """
        for i in range(40):
            inputs = x.clone().requires_grad_()
            model(inputs).sum().backward()
        """
    done = record(tmp_path, textwrap.dedent(TORCH) + textwrap.dedent(loop))
    assert done.returncode == 0
    assert "backward passes were seen" in done.stderr
    assert "run.mark_step()" in done.stderr
    assert open_run(tmp_path / "run").table("steps").num_rows == 0
