"""What a framework saves at one moment is one checkpoint, seen with the real frameworks, whichever name is called."""

import os
import subprocess
import sys
import textwrap
from importlib.util import find_spec
from pathlib import Path

import pytest

from phasepoint.recorder.hooks.checkpoints import watch_checkpoints
from phasepoint.recorder.hooks.saves import Saved, SaveWatch
from phasepoint.recorder.seam.guard import Guard
from phasepoint.recorder.seam.redirection import MOST_ENTRIES, saved_bytes

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def watched():
    """What is noticed while the test runs; the guard must have caught nothing."""
    guard, seen = Guard(), []
    remove = watch_checkpoints(seen.append, [].append, guard=guard)
    yield seen
    remove()
    assert guard.reason is None


def size_of(path):
    return sum(one.stat().st_size for one in [path, *path.rglob("*")] if one.is_file())


def facts_of(seen):
    return [(w.framework, w.path, w.bytes, w.asynchronous, w.has_iterator) for w in seen]


def test_functions_imported_by_name_before_recording_began(tmp_path):
    torch = pytest.importorskip("torch")
    from safetensors.numpy import save_file as save_arrays
    from safetensors.torch import save_file
    from torch import save
    from torch.distributed.checkpoint import async_save
    from torch.distributed.checkpoint import save as save_distributed

    seen = []
    state = {"w": torch.ones(3)}
    remove = watch_checkpoints(seen.append, [].append, guard=Guard())
    save(state, tmp_path / "a.pt")
    save_file(state, tmp_path / "b.safetensors")
    save_arrays({"w": state["w"].numpy()}, tmp_path / "c.safetensors")
    save_distributed({**state, "rest": [1]}, checkpoint_id=tmp_path / "d", no_dist=True)
    async_save({**state, "rest": [1]}, checkpoint_id=tmp_path / "e", no_dist=True).result()
    remove()
    save(state, tmp_path / "f.pt")
    assert [(w.framework, Path(w.path).name, w.asynchronous) for w in seen] == [
        ("torch", "a.pt", False),
        ("safetensors", "b.safetensors", False),
        ("safetensors", "c.safetensors", False),
        ("dcp", "d", False),
        ("dcp", "e", True),
    ]
    assert sorted(one.name for one in tmp_path.iterdir()) == [
        *("a.pt", "b.safetensors", "c.safetensors", "d", "e", "f.pt"),
    ]


def trainer_of(folder, **more):
    """A Trainer of Transformers for a network of a few hundred parameters that is made here, not fetched."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    config = transformers.GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=16, n_positions=8)
    rows = [{"input_ids": torch.arange(8) % 16, "labels": torch.arange(8) % 16} for _ in range(16)]
    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        max_steps=4,
        save_steps=2,
        per_device_train_batch_size=2,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        **more,
    )
    return transformers.Trainer(transformers.GPT2LMHeadModel(config), arguments, train_dataset=rows)


@pytest.mark.torch
def test_a_trainer_of_transformers(tmp_path, watched):
    trainer = trainer_of(tmp_path / "out")
    trainer.train()
    trainer.save_model(str(tmp_path / "final"))
    trainer.model.save_pretrained(tmp_path / "alone")
    places = [tmp_path / "out" / "checkpoint-2", tmp_path / "out" / "checkpoint-4", tmp_path / "final"]
    assert facts_of(watched) == [
        ("transformers", str(place), size_of(place), False, None) for place in (*places, tmp_path / "alone")
    ]
    held = {one.name for one in places[0].iterdir()}
    assert held >= {"model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth", "trainer_state.json"}


def fit_with_lightning(folder, module="lightning.pytorch", **more):
    torch = pytest.importorskip("torch")
    pl = pytest.importorskip(module)

    class Network(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch, index):
            return self.layer(batch).sum()

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters())

    keep = pl.callbacks.ModelCheckpoint(dirpath=folder, every_n_train_steps=2, save_top_k=-1, filename="{step}")
    trainer = pl.Trainer(
        max_steps=4,
        accelerator="cpu",
        logger=False,
        callbacks=[keep],
        enable_progress_bar=False,
        enable_model_summary=False,
        **more,
    )
    trainer.fit(Network(), torch.utils.data.DataLoader(torch.ones(16, 4), batch_size=2))
    return trainer


@pytest.mark.torch
@pytest.mark.parametrize("module", ["lightning.pytorch", "pytorch_lightning"])
def test_a_trainer_of_lightning(tmp_path, watched, module):
    trainer = fit_with_lightning(tmp_path / "ck", module)
    trainer.save_checkpoint(tmp_path / "mine.ckpt", weights_only=True)
    places = [*(tmp_path / "ck" / f"step={step}.ckpt" for step in (2, 4)), tmp_path / "mine.ckpt"]
    assert facts_of(watched) == [("lightning", str(one), one.stat().st_size, False, None) for one in places]


@pytest.mark.torch
def test_lightning_in_the_background_and_fabric(tmp_path, watched):
    torch = pytest.importorskip("torch")
    pytest.importorskip("lightning")
    from lightning.fabric import Fabric
    from lightning.pytorch.plugins.io import AsyncCheckpointIO

    fit_with_lightning(tmp_path / "ck", plugins=[AsyncCheckpointIO()])
    model = torch.nn.Linear(2, 2)
    Fabric(accelerator="cpu").save(tmp_path / "f.ckpt", {"model": model, "step": 3})
    assert facts_of(watched) == [
        ("lightning", str(tmp_path / "ck" / "step=2.ckpt"), None, True, None),
        ("lightning", str(tmp_path / "ck" / "step=4.ckpt"), None, True, None),
        ("lightning", str(tmp_path / "f.ckpt"), (tmp_path / "f.ckpt").stat().st_size, False, None),
    ]


def accelerated(folder, *, named=True):
    """An accelerator with a model, an optimizer, a loader and a schedule; `named`: it names its folders itself."""
    torch = pytest.importorskip("torch")
    accelerate = pytest.importorskip("accelerate")
    project = accelerate.utils.ProjectConfiguration(project_dir=str(folder), automatic_checkpoint_naming=named)
    accelerator = accelerate.Accelerator(cpu=True, project_config=project)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.Adam(model.parameters())
    loader = torch.utils.data.DataLoader(torch.ones(8, 4), batch_size=2, shuffle=True)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    return accelerator, *accelerator.prepare(model, optimizer, loader, schedule)


@pytest.mark.torch
def test_accelerate(tmp_path, watched):
    accelerator, model, *_ = accelerated(tmp_path / "project")
    accelerator.save_state()
    accelerator.save_model(model, tmp_path / "final")
    places = [tmp_path / "project" / "checkpoints" / "checkpoint_0", tmp_path / "final"]
    assert facts_of(watched) == [("accelerate", str(place), size_of(place), False, None) for place in places]


@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_keras(tmp_path, backend):
    """Watched before Keras is imported, and again after."""
    for name in ("keras", backend):
        if find_spec(name) is None:  # not imported here: Keras takes its backend from the environment, once
            pytest.skip(f"needs {name}")
    code = """
        import sys
        import numpy as np
        from phasepoint.recorder.hooks.checkpoints import watch_checkpoints
        from phasepoint.recorder.seam.guard import Guard
        guard, seen = Guard(), []
        remove = watch_checkpoints(seen.append, [].append, guard=guard)
        assert "keras" not in sys.modules
        import keras
        from keras.saving import save_model
        for folder in sys.argv[1:]:
            model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
            model.compile("adam", "mse")
            keep = keras.callbacks.ModelCheckpoint(folder + "/{epoch}.keras")
            light = keras.callbacks.ModelCheckpoint(folder + "/{epoch}.weights.h5", save_weights_only=True)
            model.fit(np.ones((8, 4)), np.ones((8, 2)), epochs=2, callbacks=[keep, light], verbose=0)
            save_model(model, folder + "/last.keras")
            model.save(folder + "/whole", zipped=False)
            remove()
            model.save(folder + "/unseen.keras")
            remove = watch_checkpoints(seen.append, [].append, guard=guard)
        assert guard.reason is None, guard.reason
        for one in seen:
            print(one.framework, one.path, one.bytes, one.asynchronous)
    """
    folders = [tmp_path / "first", tmp_path / "again"]
    for folder in folders:
        folder.mkdir()
    found = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code), *map(str, folders)],
        env={**os.environ, "KERAS_BACKEND": backend, "KERAS_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        check=True,
        timeout=180,
    ).stdout.splitlines()
    names = ["1.keras", "1.weights.h5", "2.keras", "2.weights.h5", "last.keras", "whole"]
    places = [folder / name for folder in folders for name in names]
    assert found == [f"keras {place} {size_of(place)} False" for place in places]


@pytest.mark.jax
@pytest.mark.parametrize("by_orbax", [False, True])
def test_checkpoints_of_flax(tmp_path, watched, by_orbax):
    checkpoints = pytest.importorskip("flax.training.checkpoints")
    flax = pytest.importorskip("flax")
    np = pytest.importorskip("numpy")
    before = flax.config.flax_use_orbax_checkpointing
    flax.config.update("flax_use_orbax_checkpointing", by_orbax)
    try:
        checkpoints.save_checkpoint(tmp_path, {"w": np.ones(4)}, step=7)
    finally:
        flax.config.update("flax_use_orbax_checkpointing", before)
    place = tmp_path / "checkpoint_7"
    assert place.is_dir() is by_orbax
    assert facts_of(watched) == [("flax", str(place), size_of(place), False, None)]


def test_a_call_that_holds_others_has_its_own_path_and_size(tmp_path):
    (tmp_path / "a.pt").write_bytes(b"12345")
    (tmp_path / "b.pt").write_bytes(b"12")
    seen = []
    watch = SaveWatch(seen.append, [].append, Guard())
    file = watch.wrap(lambda args, kwargs, result: Saved("torch", args[0], 3, False, True))(lambda path: None)
    folder = watch.wrap(lambda args, kwargs, result: Saved("fw", str(tmp_path), holds_inner=True))(lambda: file("x"))

    def everything():
        folder()
        file("y")

    watch.wrap(lambda args, kwargs, result: Saved("whole", holds_inner=True))(everything)()
    watch.wrap(lambda args, kwargs, result: Saved("whole", holds_inner=True))(lambda: file("z"))()
    assert facts_of(seen) == [("whole", str(tmp_path), 7, None, True)]


def test_the_size_of_what_was_saved(tmp_path):
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "a").write_bytes(b"123")
    (tmp_path / "b").write_bytes(b"45")
    (tmp_path / "link").symlink_to(tmp_path / "b")
    assert saved_bytes(str(tmp_path)) == 5
    assert saved_bytes(str(tmp_path / "b")) == 2
    assert saved_bytes(str(tmp_path / "none")) is None
    assert saved_bytes("gs://bucket/c") is None
    for index in range(MOST_ENTRIES):
        (tmp_path / "below" / str(index)).touch()
    assert saved_bytes(str(tmp_path)) is None
