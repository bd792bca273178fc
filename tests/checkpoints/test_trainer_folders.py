"""Checkpoints of trainers, written by the real ones: whole, cut off, without one of their files; what is in them."""

import json
import os
import pickle
import random
import shutil
import subprocess
import sys
import textwrap
from importlib.util import find_spec

import pytest

from phasepoint.checkpoints.facts import CheckpointContents
from phasepoint.checkpoints.formats import inspect_checkpoint

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Checkpoints that the frameworks wrote, by name."""
    folder = tmp_path_factory.mktemp("made")
    pytest.importorskip("torch")
    for write in (write_transformers, write_accelerate, write_lightning, write_by_hand, write_keras):
        write(folder)
    return folder


def write_transformers(folder):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    config = transformers.GPT2Config(n_layer=1, n_head=1, n_embd=2, vocab_size=4, n_positions=2)
    rows = [{"input_ids": torch.arange(2), "labels": torch.arange(2)} for _ in range(4)]
    arguments = transformers.TrainingArguments(
        str(folder / "hf"), max_steps=1, save_steps=1, report_to=[], use_cpu=True, disable_tqdm=True
    )
    trainer = transformers.Trainer(transformers.GPT2LMHeadModel(config), arguments, train_dataset=rows)
    trainer.train()
    trainer.save_model(str(folder / "hf-model"))
    trainer.model.save_pretrained(folder / "hf-shards", max_shard_size=200)


def write_accelerate(folder):
    torch = pytest.importorskip("torch")
    accelerate = pytest.importorskip("accelerate")
    pytest.importorskip("torchdata")
    loading = accelerate.utils.DataLoaderConfiguration(use_stateful_dataloader=True)
    accelerator = accelerate.Accelerator(cpu=True, dataloader_config=loading)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.Adam(model.parameters())
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    loader = torch.utils.data.DataLoader(torch.ones(4, 2), shuffle=True)
    prepared = accelerator.prepare(model, optimizer, schedule, loader)
    accelerator.save_state(folder / "acc")
    assert len(prepared) == 4


def write_lightning(folder):
    torch = pytest.importorskip("torch")
    pl = pytest.importorskip("lightning.pytorch")

    class Network(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(2, 1)

        def training_step(self, batch, index):
            return self.layer(batch).sum()

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters())

    class Loader(torch.utils.data.DataLoader):
        def state_dict(self):
            return {"at": 1}

        def load_state_dict(self, state):
            pass

    options = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    for name, kind in (("l.ckpt", torch.utils.data.DataLoader), ("stateful.ckpt", Loader)):
        trainer = pl.Trainer(max_steps=1, enable_checkpointing=False, **options)
        trainer.fit(Network(), kind(torch.ones(4, 2), batch_size=2))
        trainer.save_checkpoint(folder / name)


def write_by_hand(folder):
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(2, 1)
    (folder / "step_5").mkdir()
    torch.save(model.state_dict(), folder / "step_5" / "model.pt")
    torch.save(torch.optim.Adam(model.parameters()).state_dict(), folder / "step_5" / "optim.pt")
    (folder / "step_6").mkdir()
    torch.save({"model": model.state_dict(), "optimizer": {}, "rng": torch.ones(1)}, folder / "step_6" / "model.pt")


def write_keras(folder):
    if find_spec("keras") is None:
        pytest.skip("needs keras")
    code = """
        import sys
        import keras
        import numpy as np
        folder = sys.argv[1]
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
        model.save(folder + "/bare.keras")
        model.compile("adam", "mse")
        model.fit(np.ones((8, 4)), np.ones((8, 2)), verbose=0)
        model.save(folder + "/k.keras")
        model.save_weights(folder + "/k.weights.h5")
        model.save(folder + "/k.h5")
        model.save(folder + "/k", zipped=False)
    """
    environment = {**os.environ, "KERAS_BACKEND": "torch", "KERAS_HOME": str(folder / "home")}
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(code), str(folder)]
    subprocess.run(command, env=environment, check=True, capture_output=True, timeout=180)


@pytest.mark.parametrize(
    ("name", "kind", "contents"),
    [
        ("hf/checkpoint-1", "transformers", (True, True, True, False)),
        ("hf-model", "transformers", (True, False, False, False)),
        ("hf-shards", "transformers", (True, False, False, False)),
        ("acc", "accelerate", (True, True, True, True)),
        ("l.ckpt", "torch", (True, True, False, False)),
        ("stateful.ckpt", "torch", (True, True, False, True)),
        ("step_5", "files", (True, True, False, False)),
        ("step_6", "files", (True, True, True, False)),
        ("k.keras", "keras", (True, True, None, False)),
        ("bare.keras", "keras", (True, False, None, False)),
        ("k.weights.h5", "keras", (True, True, None, False)),
        ("k.h5", "keras", (True, True, None, False)),
        ("k", "keras", (True, True, None, False)),
    ],
)
def test_what_is_in_it(made, name, kind, contents):
    facts = inspect_checkpoint(str(made / name))
    assert (facts.format, facts.state, facts.problem) == (kind, "whole", None)
    assert facts.contents == CheckpointContents(*contents)
    assert facts.size_bytes == sum(one.stat().st_size for one in files_of(made / name))


def files_of(path):
    return [path] if path.is_file() else sorted(one for one in path.rglob("*") if one.is_file())


@pytest.mark.parametrize(
    ("name", "held"),
    [
        ("rng_state.pth", (False, False, True, False)),
        ("optimizer.pt", (False, True, False, False)),
        ("scheduler.pt", (False, None, None, None)),
        ("training_args.bin", (False, None, None, None)),
    ],
)
def test_one_file_of_a_trainer_holds_no_model(made, name, held):
    facts = inspect_checkpoint(str(made / "hf" / "checkpoint-1" / name), "torch")
    assert (facts.state, facts.contents) == ("whole", CheckpointContents(*held))


def test_why_torch_load_does_not_read_the_keys(made):
    """It refuses what every Trainer and Accelerate write beside the model: 0009 in docs/design."""
    torch = pytest.importorskip("torch")
    folders = (made / "hf" / "checkpoint-1", made / "acc")
    files = [file for folder in folders for file in files_of(folder) if file.suffix in {".pt", ".pth", ".bin", ".pkl"}]
    refused = set()
    for file in files:
        try:
            torch.load(file, weights_only=True, map_location="meta", mmap=True)
        except pickle.UnpicklingError:
            refused.add(file.name)
    assert refused == {"rng_state.pth", "training_args.bin", "random_states_0.pkl"}
    assert all(inspect_checkpoint(str(file), "torch").state == "whole" for file in files)


WITH_EACH_FILE = [
    *("hf/checkpoint-1", "hf-shards", "acc", "l.ckpt", "step_5", "k.keras", "k.weights.h5", "k.h5", "k"),
]


@pytest.mark.parametrize("name", WITH_EACH_FILE)
def test_cut_off_anywhere_it_is_never_whole(made, tmp_path, name):
    path = tmp_path / "c" if (made / name).is_dir() else tmp_path / name
    (shutil.copytree if (made / name).is_dir() else shutil.copy)(made / name, path)
    for file in files_of(path):
        data = file.read_bytes()
        if file.suffix in {".md", ".json"}:
            continue  # cut below by its own rule
        for length in sorted({*range(0, len(data), max(len(data) // 40, 1)), len(data) - 1, len(data) - 2}):
            file.write_bytes(data[:length])
            facts = inspect_checkpoint(str(path))
            assert (facts.state != "whole", bool(facts.problem)) == (True, True), (file.name, length)
        file.write_bytes(data)
    assert inspect_checkpoint(str(path)).state == "whole"


def test_a_cut_list_of_shards_or_state_is_seen(made, tmp_path):
    for name, file in (("hf/checkpoint-1", "trainer_state.json"), ("hf-shards", "model.safetensors.index.json")):
        shutil.copytree(made / name, tmp_path / name)
        whole = (tmp_path / name / file).read_text()
        for length in range(0, len(whole.rstrip()), 7):
            (tmp_path / name / file).write_text(whole[:length])
            facts = inspect_checkpoint(str(tmp_path / name))
            assert (facts.state, facts.problem) == ("incomplete", f"{file}: it is cut off, or no JSON")
    (tmp_path / "hf-shards" / file).write_text(whole)
    gone = min((tmp_path / "hf-shards").glob("*.safetensors"))
    gone.unlink()
    facts = inspect_checkpoint(str(tmp_path / "hf-shards"))
    assert (facts.state, facts.problem) == ("incomplete", f"{gone.name}, which {file} names, is not there")


@pytest.mark.parametrize(
    ("name", "file", "state", "problem"),
    [
        ("hf/checkpoint-1", "model.safetensors", "incomplete", "the model's weights are not there"),
        ("hf/checkpoint-1", "optimizer.pt", "incomplete", "its optimizer.pt is not there, though the rest is"),
        ("hf/checkpoint-1", "scheduler.pt", "incomplete", "its scheduler.pt is not there, though the rest is"),
        ("hf/checkpoint-1", "rng_state.pth", "incomplete", "its rng_state.pth is not there, though the rest is"),
        (
            *("hf/checkpoint-1", "trainer_state.json", "incomplete"),
            "its trainer_state.json, which is written last, is not there",
        ),
        ("hf/checkpoint-1", "training_args.bin", "whole", None),  # a Trainer goes on without
        ("acc", "model.safetensors", "incomplete", "the model's weights are not there"),
        ("acc", "optimizer.bin", "incomplete", "its optimizer.bin is not there, though the rest is"),
    ],
)
def test_without_one_of_its_files(made, tmp_path, name, file, state, problem):
    shutil.copytree(made / name, tmp_path / "c")
    (tmp_path / "c" / file).unlink()
    facts = inspect_checkpoint(str(tmp_path / "c"))
    assert (facts.state, facts.problem) == (state, problem)


def test_a_trainer_that_saves_the_model_alone(made, tmp_path):
    shutil.copytree(made / "hf" / "checkpoint-1", tmp_path / "c")
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth"):
        (tmp_path / "c" / name).unlink()
    facts = inspect_checkpoint(str(tmp_path / "c"))
    assert (facts.state, facts.contents.has_model, facts.contents.has_optimizer) == ("whole", True, False)


@pytest.mark.parametrize("name", WITH_EACH_FILE)
def test_damaged_anywhere_it_is_judged_without_a_fault(made, tmp_path, name):
    path = tmp_path / "c" if (made / name).is_dir() else tmp_path / name
    (shutil.copytree if (made / name).is_dir() else shutil.copy)(made / name, path)
    rng = random.Random(0)
    for file in files_of(path):
        data = file.read_bytes()
        for at in {*range(0, len(data), max(len(data) // 10, 1)), *range(0, min(len(data), 100), 5)}:
            damaged = bytearray(data)
            damaged[at] ^= rng.randrange(1, 256)
            file.write_bytes(damaged)
            facts = inspect_checkpoint(str(path))
            assert facts.state in {"whole", "incomplete", "corrupt", "unknown"}
            assert (facts.problem is None) == (facts.state == "whole")
        file.write_bytes(data)


def test_folders_of_deepspeed_and_fsdp_under_a_trainer(made, tmp_path):
    """Written as their names and places are in `Trainer._save_checkpoint`; the frameworks need accelerators."""
    torch = pytest.importorskip("torch")
    for name in ("deepspeed", "fsdp"):
        shutil.copytree(made / "hf" / "checkpoint-1", tmp_path / name)
        (tmp_path / name / "model.safetensors").unlink()
        (tmp_path / name / "optimizer.pt").unlink()
    (tmp_path / "deepspeed" / "global_step1").mkdir()
    (tmp_path / "deepspeed" / "latest").write_text("global_step1")
    for name in ("mp_rank_00_model_states.pt", "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt"):
        torch.save({"x": 1}, tmp_path / "deepspeed" / "global_step1" / name)
    for name in ("pytorch_model_fsdp_0", "optimizer_0"):
        (tmp_path / "fsdp" / name).mkdir()
        (tmp_path / "fsdp" / name / "__0_0.distcp").write_bytes(b"12345")
        (tmp_path / "fsdp" / name / ".metadata").write_bytes(b"12345")
    for name in ("deepspeed", "fsdp"):
        facts = inspect_checkpoint(str(tmp_path / name))
        assert (facts.format, facts.state, facts.problem) == ("transformers", "whole", None)
        assert facts.contents == CheckpointContents(True, True, True, False)


def test_a_folder_of_too_many_files_is_not_judged(made, tmp_path):
    shutil.copytree(made / "step_5", tmp_path / "c")
    for index in range(64):
        shutil.copy(made / "step_5" / "optim.pt", tmp_path / "c" / f"optim_{index}.pt")
    facts = inspect_checkpoint(str(tmp_path / "c"))
    assert (facts.format, facts.state, facts.contents.has_optimizer) == ("files", "unknown", True)
    assert facts.problem == "it has 66 files of parameters and states: not looked into"


def test_json_that_is_hostile(made, tmp_path):
    shutil.copytree(made / "hf-shards", tmp_path / "c")
    index = tmp_path / "c" / "model.safetensors.index.json"
    for document in ([], {"weight_map": 3}, {"weight_map": {"a": 3}}, {"weight_map": {"a": "../../x"}}):
        index.write_text(json.dumps(document))
        assert inspect_checkpoint(str(tmp_path / "c")).state in {"whole", "incomplete"}
    index.write_text("[" * 100_000)
    assert inspect_checkpoint(str(tmp_path / "c")).state == "incomplete"
