"""Checkpoints as frameworks write them are whole, and tell what is in them; cut off, they are never called whole."""

import json
import os
import pickle
import random
import shutil
import struct
import sys
import tracemalloc
import zipfile

import pytest

from phasepoint.checkpoints.facts import CheckpointContents, open_place, tell_contents
from phasepoint.checkpoints.formats import FORMATS, inspect_checkpoint
from phasepoint.checkpoints.pickle_outline import Made, outline_pickle
from phasepoint.core.errors import SourceError

ALL = CheckpointContents(True, True, True, False)
NONE = CheckpointContents()


def torch_state():
    torch = pytest.importorskip("torch")
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(3)).sum().backward()
    optimizer.step()
    return {"model": model.state_dict(), "optim": optimizer.state_dict(), "rng": torch.arange(8), "step": 3}


def save_torch(folder):
    torch = pytest.importorskip("torch")
    torch.save(torch_state(), folder / "c.pt")
    return folder / "c.pt"


def save_legacy_torch(folder):
    torch = pytest.importorskip("torch")
    torch.save(torch_state(), folder / "c.pt", _use_new_zipfile_serialization=False)
    return folder / "c.pt"


def save_torch_without_checksums(folder):
    torch = pytest.importorskip("torch")
    before = torch.serialization.get_crc32_options()
    torch.serialization.set_crc32_options(False)
    try:
        return save_torch(folder)
    finally:
        torch.serialization.set_crc32_options(before)


def save_dcp(folder):
    dcp = pytest.importorskip("torch.distributed.checkpoint")
    torch = pytest.importorskip("torch")
    state = {"model": {"w": torch.ones(2)}, "optim": {"w": torch.ones(2)}, "rng": torch.ones(1), "step": 3}
    dcp.save(state, checkpoint_id=str(folder / "c"), no_dist=True)
    return folder / "c"


def save_safetensors(folder):
    numpy_format = pytest.importorskip("safetensors.numpy")
    np = pytest.importorskip("numpy")
    tensors = {"model.l.weight": np.ones((3, 2), "f4"), "model.l.bias": np.ones(2, "f4"), "optimizer.mu": np.ones(2)}
    numpy_format.save_file({**tensors, "rng": np.ones(1)}, folder / "c.safetensors")
    return folder / "c.safetensors"


def jax_state():
    np = pytest.importorskip("numpy")
    return {
        "params": {"w": np.arange(6, dtype="f4").reshape(3, 2)},
        "opt_state": {"mu": np.ones(4, "f4")},
        "rng": np.arange(2, dtype="u4"),
        "step": 3,
    }


def save_orbax(folder):
    ocp = pytest.importorskip("orbax.checkpoint")
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(folder / "c", jax_state())
    return folder / "c"


def save_orbax_manager(folder):
    ocp = pytest.importorskip("orbax.checkpoint")
    with ocp.CheckpointManager(folder / "managed") as manager:
        state, meta = ocp.args.StandardSave(jax_state()), ocp.args.JsonSave({"epoch": 1})
        manager.save(3, args=ocp.args.Composite(state=state, meta=meta))
    return folder / "managed" / "3"


def save_orbax_zarr(folder, *, zarr3=False):
    ocp = pytest.importorskip("orbax.checkpoint")
    with ocp.Checkpointer(ocp.PyTreeCheckpointHandler(use_ocdbt=False, use_zarr3=zarr3)) as checkpointer:
        checkpointer.save(folder / "c", args=ocp.args.PyTreeSave(jax_state()))
    return folder / "c"


def save_orbax_zarr3(folder):
    return save_orbax_zarr(folder, zarr3=True)


def save_orbax_v1(folder):
    v1 = pytest.importorskip("orbax.checkpoint.experimental.v1")
    v1.save(folder / "c", jax_state())
    return folder / "c"


SAVERS = {
    "torch": [save_torch, save_legacy_torch, save_torch_without_checksums],
    "dcp": [save_dcp],
    "safetensors": [save_safetensors],
    "orbax": [save_orbax, save_orbax_manager, save_orbax_zarr, save_orbax_zarr3, save_orbax_v1],
}
EACH = [pytest.param(name, save, id=save.__name__) for name, savers in SAVERS.items() for save in savers]

pytestmark = pytest.mark.filterwarnings("ignore")


def files_of(path):
    return [path] if path.is_file() else sorted(one for one in path.rglob("*") if one.is_file())


def places_in(data, every=1):
    """Every so many bytes of a small file; of a larger one the ends and every 61st between."""
    if len(data) < 2000:
        return range(0, len(data), every)
    return sorted({*range(0, 300, every), *range(0, len(data), 61 * every), *range(len(data) - 300, len(data), every)})


def size_of(path):
    return sum(one.stat().st_size for one in files_of(path))


def test_every_format_is_tested():
    elsewhere = {"accelerate", "transformers", "files", "keras"}  # test_checkpoint_folders.py
    assert {one.name for one in FORMATS} == {*SAVERS, *elsewhere, "other"}


@pytest.mark.parametrize(("name", "save"), EACH)
def test_what_a_framework_wrote_is_whole_and_tells_what_is_in_it(tmp_path, name, save):
    path = save(tmp_path)
    facts = inspect_checkpoint(str(path))
    assert (facts.format, facts.state, facts.problem) == (name, "whole", None)
    assert facts.size_bytes == size_of(path)
    assert facts.contents == ALL


def restores(path):
    """Whether Orbax still gives back what was saved: the oracle for files of a checkpoint that are not needed."""
    ocp = pytest.importorskip("orbax.checkpoint")
    np = pytest.importorskip("numpy")
    item = next((one for one in ("state", "default") if (path / one).is_dir()), None)
    with ocp.PyTreeCheckpointer() as checkpointer:
        found = checkpointer.restore(path / item if item else path)
    expected = jax_state()
    return all(
        np.array_equal(found[key][inner], expected[key][inner]) for key, inner in (("params", "w"), ("opt_state", "mu"))
    ) and np.array_equal(found["rng"], expected["rng"])


@pytest.mark.parametrize(("name", "save"), EACH)
def test_cut_off_anywhere_it_is_never_whole(tmp_path, name, save):
    path = save(tmp_path)
    whole = []
    for file in files_of(path):
        data = file.read_bytes()
        for length in places_in(data):
            file.write_bytes(data[:length])
            if inspect_checkpoint(str(path), name).state == "whole":
                whole.append((file, length))
        file.write_bytes(data)
    if name != "orbax":
        assert whole == []
        return
    # The mark of the commit counts by being there; what each process wrote is merged into another file at the end.
    assert {file.relative_to(path).parts[-1] for file, _ in whole if "ocdbt.process_0" not in file.parts} <= {
        "commit_success.txt"
    }
    for file in {file for file, _ in whole}:
        data = file.read_bytes()
        file.write_bytes(b"")
        assert restores(path)
        file.write_bytes(data)


@pytest.mark.parametrize(("name", "save"), EACH)
def test_without_one_of_its_files_it_is_whole_only_if_it_still_restores(tmp_path, name, save):
    path = save(tmp_path)
    for file in files_of(path):
        data = file.read_bytes()
        file.unlink()
        facts = inspect_checkpoint(str(path), name)
        if facts.state == "whole":
            assert name == "orbax"
            assert restores(path)
        else:
            assert facts.state in {"incomplete", "missing", "unknown"}
            assert facts.problem
        file.write_bytes(data)


@pytest.mark.parametrize(("name", "save"), EACH)
def test_damaged_anywhere_it_is_judged_without_a_fault(tmp_path, name, save):
    path = save(tmp_path)
    rng = random.Random(0)
    for file in files_of(path):
        data = file.read_bytes()
        for at in places_in(data, every=7):
            damaged = bytearray(data)
            damaged[at] ^= rng.randrange(1, 256)
            file.write_bytes(damaged)
            facts = inspect_checkpoint(str(path), name)
            assert facts.state in {"whole", "incomplete", "corrupt", "unknown"}
            assert (facts.problem is None) == (facts.state == "whole")
        file.write_bytes(data)


def test_a_byte_of_a_tensor_that_changed_is_seen_by_its_checksum(tmp_path):
    path = save_torch(tmp_path)
    data = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        record = archive.getinfo("c/data/0")
        at = data.index(archive.read("c/data/0"), record.header_offset)
    path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    facts = inspect_checkpoint(str(path))
    assert facts.state == "corrupt"
    assert facts.problem == "record 'c/data/0' does not have the checksum that was written with it"


def test_messages_of_half_written_checkpoints(tmp_path):
    path = save_safetensors(tmp_path)
    data = path.read_bytes()
    path.write_bytes(data[:-3])
    assert inspect_checkpoint(str(path)).problem == (
        f"it has {len(data) - 3} bytes, and its header promises {len(data)}"
    )
    folder = save_dcp(tmp_path)
    (folder / "__0_0.distcp").unlink()
    assert inspect_checkpoint(str(folder)).problem == "its file __0_0.distcp is not there"
    (folder / ".metadata").unlink()
    (folder / "__0_0.distcp").touch()
    assert inspect_checkpoint(str(folder)).problem == "its .metadata, which is written last, is not there"
    shutil.rmtree(folder)
    file = save_torch(tmp_path)
    os.truncate(file, 1000)
    assert inspect_checkpoint(str(file)).problem == (
        "the directory at the end of the archive is not there: it is cut off"
    )


def test_orbax_killed_while_writing(tmp_path):
    path = save_orbax(tmp_path)
    metadata = path / "_CHECKPOINT_METADATA"
    document = json.loads(metadata.read_text())
    metadata.write_text(json.dumps({**document, "commit_timestamp_nsecs": None}))
    assert inspect_checkpoint(str(path)).problem == (
        "its _CHECKPOINT_METADATA names no time of the commit: it was not written to its end"
    )
    left = tmp_path / "c.orbax-checkpoint-tmp"
    path.rename(left)
    for name in (path, left):
        facts = inspect_checkpoint(str(name))
        assert facts.state == "incomplete"
        assert facts.problem == "c.orbax-checkpoint-tmp: it was being written when its writer ended"


def test_an_item_of_orbax_that_is_gone(tmp_path):
    path = save_orbax_manager(tmp_path)
    shutil.rmtree(path / "state")
    facts = inspect_checkpoint(str(path))
    assert (facts.state, facts.problem) == ("incomplete", "its item 'state' is not there")


def test_the_iterator_of_grain_in_orbax(tmp_path):
    ocp = pytest.importorskip("orbax.checkpoint")
    grain = pytest.importorskip("grain.python")
    iterator = iter(grain.MapDataset.range(10).to_iter_dataset())
    with ocp.CheckpointManager(tmp_path) as manager:
        state = ocp.args.StandardSave(jax_state())
        manager.save(0, args=ocp.args.Composite(state=state, anything=grain.PyGrainCheckpointSave(iterator)))
    facts = inspect_checkpoint(str(tmp_path / "0"))
    assert (facts.state, facts.contents.has_iterator) == ("whole", True)


def test_the_folders_above_a_checkpoint_are_none(tmp_path):
    save_orbax_manager(tmp_path)
    assert inspect_checkpoint(str(tmp_path / "managed")).state != "whole"


def test_a_pickle_is_never_unpickled(tmp_path):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "called"),)

    for data in (pickle.dumps(Evil()), pickle.dumps({"model": Evil(), "optimizer": 1})):
        (tmp_path / "c.pkl").write_bytes(data)
        inspect_checkpoint(str(tmp_path / "c.pkl"), "torch")
    with zipfile.ZipFile(tmp_path / "c.pt", "w") as archive:
        archive.writestr("c/data.pkl", pickle.dumps({"model": Evil(), "rng": 1}))
    facts = inspect_checkpoint(str(tmp_path / "c.pt"))
    assert facts.contents == CheckpointContents(True, False, True, False)
    assert not (tmp_path / "called").exists()


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_the_outline_of_a_pickle(protocol):
    value = {"a": [1, (2.5, None), {"b": True}], 3: "c", "s": {1}, "d": b"x"}
    data = pickle.dumps(value, protocol=protocol)
    outline = outline_pickle(data + b"what follows")
    assert outline.size_bytes == len(data)
    assert isinstance(outline.value, Made)
    assert outline.value.keys() == ["a", "s", "d"]
    first, second, third = outline.value.find("a")
    assert (first, second, third.find("b")) == (1, (2.5, None), True)
    generator = outline_pickle(pickle.dumps(random.Random(0), protocol=protocol)).value
    assert isinstance(generator, Made)
    assert generator.state
    named = outline_pickle(pickle.dumps(json.JSONDecoder, protocol=protocol)).value
    assert (type(named), named.items, named.state) == (Made, [], None)


def test_an_outline_of_a_dictionary_made_by_a_call():
    import collections

    value = outline_pickle(pickle.dumps(collections.OrderedDict(weight=1, bias=2))).value
    assert isinstance(value, Made)
    assert value.items == [("weight", 1), ("bias", 2)]


@pytest.mark.parametrize("data", [b"", b"\x80", b"\x80\x04.", b"(", b"u.", b"\x80\x04R.", b"h\x05.", b"\x80\x04]}s."])
def test_bytes_that_are_no_pickle_are_refused(data):
    with pytest.raises(SourceError, match="no whole pickle"):
        outline_pickle(data)


HOSTILE = {
    "header": struct.pack("<Q", 99_999_999) + b'{"',
    "nested": struct.pack("<Q", 2_000_000) + b'{"a":' + b"[" * 1_999_995,
    "text": b"\x80\x04\x8d" + struct.pack("<Q", 1 << 60),
    "number": b"\x80\x04\x8b" + struct.pack("<i", (1 << 31) - 1),
    "deep": b"\x80\x04" + b"]" * 150_000 + b"a" * 149_999 + b".",
    "directory": b"PK\x03\x04" + b"PK\x05\x06" + struct.pack("<4H2LH", 0, 0, 1, 1, 0xFFFFFFF0, 0, 0),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_file_takes_no_memory_to_speak_of(tmp_path, kind):
    (tmp_path / "c").write_bytes(HOSTILE[kind])
    tracemalloc.start()
    facts = inspect_checkpoint(str(tmp_path / "c"), "safetensors" if kind in {"header", "nested"} else "torch")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert facts.state != "whole" or kind == "deep"
    assert peak < 150 << 20


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["model", "optimizer", "step"], (True, True, False, False)),
        (["state_dict", "optimizer_states", "lr_schedulers", "epoch", "loops"], (True, True, False, False)),
        (["params", "opt_state", "rng", "grain"], (True, True, True, True)),
        (["params", "something"], (True, None, None, None)),
        (["something"], (None, None, None, None)),
        ([], (None, None, None, None)),
        (["app.model.l.weight", "app.optim.state.l.weight.exp_avg"], (True, True, False, False)),
        (["layers.0.attn.key.weight", "layers.0.attn.key.bias"], (True, False, False, False)),
        (["model.dropout.rngs.count", "torch_rng_state", "dataloader"], (True, False, True, True)),
        (["key", "net.w"], (True, False, True, False)),
    ],
)
def test_what_names_tell(names, expected):
    assert tell_contents(names) == CheckpointContents(*expected)


def test_without_tensorstore_orbax_tells_what_to_install_and_what_is_in_it(tmp_path, monkeypatch):
    path = save_orbax(tmp_path)
    monkeypatch.setitem(sys.modules, "tensorstore", None)
    facts = inspect_checkpoint(str(path))
    assert (facts.state, facts.contents) == ("unknown", ALL)
    assert facts.problem == (
        "it cannot be checked: its arrays are TensorStore's, which is not installed: "
        "pip install 'phasepoint[checkpoints]'"
    )


def test_without_torch_an_old_file_tells_what_to_install_and_what_is_in_it(tmp_path, monkeypatch):
    path = save_legacy_torch(tmp_path)
    monkeypatch.setitem(sys.modules, "torch", None)
    facts = inspect_checkpoint(str(path))
    assert (facts.state, facts.contents) == ("unknown", ALL)
    assert facts.problem == (
        "written without an archive: only PyTorch can tell whether all of it is there: pip install 'phasepoint[torch]'"
    )


def test_an_old_file_with_an_object_of_the_job_is_not_loaded(tmp_path):
    torch = pytest.importorskip("torch")
    path = tmp_path / "c.pt"
    torch.save({"model": random.Random(0)}, path, _use_new_zipfile_serialization=False)
    facts = inspect_checkpoint(str(path))
    assert (facts.state, facts.contents.has_model) == ("unknown", True)
    assert facts.problem == "written without an archive; it holds objects that torch.load(weights_only=True) refuses"


def test_an_old_file_with_more_behind_its_storages(tmp_path):
    path = save_legacy_torch(tmp_path)
    path.write_bytes(path.read_bytes() + b"more")
    facts = inspect_checkpoint(str(path))
    assert (facts.state, facts.problem) == (
        "corrupt",
        "written without an archive; its storages end before the file does",
    )


def test_why_torch_load_does_not_check_an_archive(tmp_path):
    """A byte of a tensor that changed passes it, and so does a state's outline that it refuses: 0009 in docs/design."""
    torch = pytest.importorskip("torch")
    path = save_torch(tmp_path)
    data = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        at = data.index(archive.read("c/data/0"), archive.getinfo("c/data/0").header_offset)
    path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    assert torch.load(path, weights_only=True, map_location="meta", mmap=True).keys() == torch_state().keys()
    assert inspect_checkpoint(str(path)).state == "corrupt"
    metadata = save_dcp(tmp_path / "d") / ".metadata"
    with pytest.raises(pickle.UnpicklingError):
        torch.load(metadata, weights_only=True)
    assert inspect_checkpoint(str(metadata.parent)).state == "whole"


def test_messages_of_arrays_in_zarr(tmp_path):
    path = save_orbax_zarr(tmp_path)
    (path / "params.w" / ".zattrs").write_text("{}")  # the user's, and no chunk
    assert inspect_checkpoint(str(path)).state == "whole"
    chunk = path / "params.w" / "0.0"
    data = chunk.read_bytes()
    chunk.write_bytes(data[:-1])
    assert inspect_checkpoint(str(path)).problem == "params.w/0.0 is cut off or damaged"
    chunk.unlink()
    assert inspect_checkpoint(str(path)).problem == "a chunk of params.w is not there"
    chunk.write_bytes(data)
    description = path / "params.w" / ".zarray"
    packed = json.loads(description.read_text())
    description.write_text(json.dumps(packed | {"compressor": {"id": "zlib", "level": 1}}))
    facts = inspect_checkpoint(str(path))
    assert (facts.state, facts.problem) == ("unknown", "it cannot be checked: arrays packed by zlib")
    assert facts.contents == ALL


def test_at_a_name_with_a_null_byte_stands_nothing():
    assert open_place("a\0b") is None
