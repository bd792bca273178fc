"""Loops of all kinds, each a real job recorded without a line of code: all of its steps, and what is said of them.

Loops that begin alike are processes of one job, forked one after another when the framework has been imported: each
leaves a shard of its own, in their order.
"""

import functools
import importlib.util
import subprocess
import sys
import textwrap

import pytest

from phasepoint.store import open_run

JAX = """
    x = jnp.ones((8, 8))
    params = {"w": jnp.ones((8, 8))}

    def loss(p, x):
        return jax.nn.log_softmax(jax.nn.relu(x @ p["w"])).sum()

    def update(p, x):
        return jax.tree_util.tree_map(lambda p, g: p - 1e-4 * g, p, jax.grad(loss)(p, x))
"""

TORCH = """
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
        step = jax.jit(update).lower(params, x).compile()
        x = x / 2  # compiled anew, so that the first step is not taken to begin with the tracing of `step`: a
        # program whose first two executions take a second leads by itself
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
    "parameters freed between passes": (
        TORCH,
        """
        # As FSDP does: a pass runs on whole parameters, whose memory is given back after it.
        shards = [p.detach().clone().requires_grad_() for p in model.parameters()]
        optimizer = torch.optim.SGD(shards, lr=0.01)

        def free(p):
            p.data.untyped_storage().resize_(0)

        for p in model.parameters():
            p.register_post_accumulate_grad_hook(free)
        for i in range(40):
            for p, shard in zip(model.parameters(), shards):
                p.data.untyped_storage().resize_(p.numel() * 4)
                p.data.copy_(shard.detach())
            loss = model(x).pow(2).mean()
            loss.backward()
            for p, shard in zip(model.parameters(), shards):
                shard.grad, p.grad = p.grad, None
            optimizer.step()
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
    "gradients without updates": (
        TORCH,
        """
        for i in range(40):
            inputs = x.clone().requires_grad_()
            model(inputs).sum().backward()
        """,
        0,
        {},
    ),
}
"""Name of a job: how it begins, its loop, its steps, and what the session must say of them."""

IMPORTS = {JAX: "import jax, jax.numpy as jnp", TORCH: "import torch, torch._dynamo"}
"""What jobs that begin so import before they are forked (Dynamo: every optimizer does); the others are not forked."""

LIBRARIES = {"keras on jax, several batches at a time": "keras", "keras on torch": "keras", "lightning": "lightning"}

FORK = """
child = os.fork()
if not child:
{code}
    sys.exit()
assert os.waitpid(child, 0)[1] == 0
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Gives what became of the jobs that begin alike: their command's end, the run, and the shard of each name."""

    @functools.cache
    def record_family(begin):
        names = [name for name, (its_begin, *_) in JOBS.items() if its_begin == begin and is_installed(name)]
        codes = [textwrap.indent(textwrap.dedent(begin) + textwrap.dedent(JOBS[name][1]), "    ") for name in names]
        folder = tmp_path_factory.mktemp("family")
        job = folder / "job.py"
        job.write_text("\n".join(["import os, sys", IMPORTS.get(begin, ""), *(FORK.format(code=c) for c in codes)]))
        words = [sys.executable, "-m", "phasepoint", "record", "--out", str(folder / "run"), "--"]
        done = subprocess.run(
            [*words, sys.executable, str(job)], capture_output=True, text=True, check=False, timeout=600
        )
        assert done.returncode == 0, done.stderr
        run = open_run(folder / "run")
        return done, run, dict(zip([name for name in names if JOBS[name][2]], run.shards, strict=True))

    return record_family


def is_installed(name):
    library = LIBRARIES.get(name, "torch" if JOBS[name][0] is TORCH else "jax")
    return importlib.util.find_spec(library) is not None


@pytest.mark.parametrize("name", [name for name in JOBS if JOBS[name][2]])
def test_all_steps_are_recorded_and_what_they_are_is_said(recorded, name):
    if not is_installed(name):
        pytest.skip("its library is not installed")
    begin, _, steps, notes = JOBS[name]
    done, run, shards = recorded(begin)
    assert "may be lost" not in done.stderr
    shard = shards[name]
    told = [row["step"] for row in run.table("steps", columns=["step"]).to_pylist() if row["host"] == shard.host]
    assert told == list(range(steps))
    assert {key: shard.session.notes[key] for key in notes} == notes
    assert shard.state == "closed"


def test_gradients_without_updates_are_no_training(recorded):
    pytest.importorskip("torch")
    done, _, shards = recorded(TORCH)
    assert done.stderr.count("backward passes were seen") == 1
    assert done.stderr.count("run.mark_step()") == 1
    assert "gradients without updates" not in shards
