"""In a replay nothing of the original's checkpoints is written over or deleted, and every save is really done."""

import pytest

from phasepoint.recorder.hooks.checkpoints import watch_checkpoints
from phasepoint.recorder.resume.request import ReplayRequest
from phasepoint.recorder.resume.saves import protect_checkpoints, release_checkpoints
from phasepoint.recorder.seam.guard import Guard
from phasepoint.recorder.seam.redirection import Redirection, destination

pytestmark = pytest.mark.filterwarnings("ignore")


def request_of(folder, *, checkpoint=None, protected=("ckpt",)):
    return ReplayRequest(
        path=str(folder / "replay"),
        original=str(folder / "run"),
        checkpoint=None if checkpoint is None else str(checkpoint),
        checkpoint_step=None,
        first_step=0,
        target_first=0,
        target_last=0,
        last_step=0,
        iterator_state=None,
        handshake=str(folder / "handshake"),
        protected=tuple(str(folder / name) for name in protected),
        saves=str(folder / "replay" / "saves"),
    )


@pytest.fixture(autouse=True)
def _unprotected():
    """A replay's protection stays until its process ends; in-process tests of other files leave one behind."""
    release_checkpoints()
    yield
    release_checkpoints()


@pytest.fixture
def protect(tmp_path):
    """Puts the protection in force; gives what was told to be redirected."""
    guard = Guard()

    def protect(**more):
        told = []
        protect_checkpoints(request_of(tmp_path, **more), guard, told.append)
        return told

    yield protect
    assert guard.reason is None


def content_of(folder):
    return {str(one.relative_to(folder)): one.read_bytes() for one in sorted(folder.rglob("*")) if one.is_file()}


def test_where_a_save_goes(tmp_path):
    told = []
    places = Redirection(
        (str(tmp_path / "ckpt"), "gs://bucket/ckpt"), str(tmp_path / "ckpt" / "saves"), on_redirected=told.append
    )
    (tmp_path / "ckpt").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "ckpt")
    saves = f"{tmp_path}/ckpt/saves"
    for name in ("ckpt/20", "link/20", "ckpt/../ckpt/20"):
        assert places.destination(str(tmp_path / name)) == f"{saves}{tmp_path}/ckpt/20"
    assert places.destination("gs://bucket/ckpt/20") == f"{saves}/gs/bucket/ckpt/20"
    for place in (f"{tmp_path}/ckpt2/20", f"{tmp_path}", "gs://bucket/ckpt2", f"{saves}/x", "relative"):
        assert places.destination(place) == place
    assert told == [f"{tmp_path}/ckpt/20", "gs://bucket/ckpt/20"]


def test_outside_of_a_replay_nothing_is_redirected():
    assert destination("/anything/at/all") == "/anything/at/all"


@pytest.mark.torch
def test_torch_dcp_and_safetensors_go_elsewhere(tmp_path, protect):
    torch = pytest.importorskip("torch")
    dcp = pytest.importorskip("torch.distributed.checkpoint")
    save_file = pytest.importorskip("safetensors.torch")
    folder = tmp_path / "ckpt"
    folder.mkdir()
    state = {"w": torch.ones(3)}
    torch.save(state, folder / "a.pt")
    dcp.save(state, checkpoint_id=folder / "d", no_dist=True)
    save_file.save_file(state, folder / "s.safetensors")
    original = content_of(folder)
    told = protect()
    seen = []
    remove = watch_checkpoints(seen.append, [].append, guard=Guard())
    newer = {"w": torch.zeros(3)}
    torch.save(newer, folder / "a.pt")
    torch.save(newer, f=str(folder / "b.pt"))
    dcp.save(newer, checkpoint_id=folder / "d", no_dist=True)
    dcp.save(newer, storage_writer=dcp.FileSystemWriter(folder / "e"), no_dist=True)
    save_file.save_file(newer, str(folder / "s.safetensors"))
    torch.save(newer, tmp_path / "free.pt")
    remove()
    assert content_of(folder) == original
    saves = tmp_path / "replay" / "saves" / str(folder).lstrip("/")
    assert torch.equal(torch.load(saves / "a.pt")["w"], torch.zeros(3))
    assert sorted(one.name for one in saves.iterdir()) == ["a.pt", "b.pt", "d", "e", "s.safetensors"]
    assert (tmp_path / "free.pt").exists()
    assert [w.path for w in seen] == [
        *(str(saves / name) for name in ("a.pt", "b.pt", "d", "e", "s.safetensors")),
        str(tmp_path / "free.pt"),
    ]
    assert told == [str(folder / name) for name in ("a.pt", "b.pt", "d", "e", "s.safetensors")]


def managed(folder, steps, **options):
    """A folder with steps as an original run left them: `{step: value}`."""
    ocp = pytest.importorskip("orbax.checkpoint")
    np = pytest.importorskip("numpy")
    with ocp.CheckpointManager(folder, options=ocp.CheckpointManagerOptions(**options)) as manager:
        for step in steps:
            manager.save(step, args=ocp.args.StandardSave({"w": np.full(3, step)}))
    return ocp, np


@pytest.mark.jax
@pytest.mark.parametrize("early", [True, False])
def test_a_manager_reads_the_original_and_writes_elsewhere(tmp_path, protect, early):
    folder = tmp_path / "ckpt"
    ocp, np = managed(folder, [10, 20, 30, 40])
    original = content_of(folder)
    options = ocp.CheckpointManagerOptions(save_interval_steps=10, max_to_keep=2)
    if early:
        told = protect(checkpoint=folder / "20")
        manager = ocp.CheckpointManager(folder, options=options)
    else:
        manager = ocp.CheckpointManager(folder, options=options)
        told = protect(checkpoint=folder / "20")
    with manager:
        assert manager.latest_step() == 20
        assert manager.all_steps() == [10, 20]
        assert manager.restore(20, args=ocp.args.StandardRestore())["w"].tolist() == [20, 20, 20]
        saved = {
            step: manager.save(step, args=ocp.args.StandardSave({"w": np.full(3, -step)})) for step in (25, 30, 40)
        }
        manager.wait_until_finished()
        assert saved == {25: False, 30: True, 40: True}
        assert manager.all_steps() == [30, 40]  # as max_to_keep has it; the files stay
        assert manager.restore(40, args=ocp.args.StandardRestore())["w"].tolist() == [-40, -40, -40]
        assert manager.restore(20, args=ocp.args.StandardRestore())["w"].tolist() == [20, 20, 20]
        manager.save(50, args=ocp.args.StandardSave({"w": np.full(3, -50)}))
        manager.wait_until_finished()
        manager.reload()
        assert manager.all_steps() == [10, 20, 40, 50]
        manager.delete(50)
    assert content_of(folder) == original
    saves = tmp_path / "replay" / "saves" / str(folder).lstrip("/")
    assert sorted(one.name for one in saves.iterdir()) == ["40"]
    assert told == [str(folder / name) for name in ("30", "40", "50")]


@pytest.mark.jax
def test_a_replay_from_the_start_finds_the_folder_empty(tmp_path, protect):
    folder = tmp_path / "ckpt"
    ocp, np = managed(folder, [10, 20])
    original = content_of(folder)
    protect()
    with ocp.CheckpointManager(folder) as manager:
        assert manager.latest_step() is None
        assert manager.save(10, args=ocp.args.StandardSave({"w": np.zeros(3)}))
        manager.wait_until_finished()
        assert manager.restore(10, args=ocp.args.StandardRestore())["w"].tolist() == [0, 0, 0]
    assert content_of(folder) == original


@pytest.mark.jax
def test_what_was_half_written_is_not_cleaned_up(tmp_path, protect):
    folder = tmp_path / "ckpt"
    ocp, _ = managed(folder, [10])
    (folder / "20.orbax-checkpoint-tmp").mkdir()
    (folder / "20.orbax-checkpoint-tmp" / "_CHECKPOINT_METADATA").write_text("{}")
    original = content_of(folder)
    protect(checkpoint=folder / "10")
    with ocp.CheckpointManager(folder, options=ocp.CheckpointManagerOptions(cleanup_tmp_directories=True)):
        pass
    assert content_of(folder) == original


@pytest.mark.jax
def test_checkpointers_and_v1_go_elsewhere(tmp_path, protect):
    ocp = pytest.importorskip("orbax.checkpoint")
    v1 = pytest.importorskip("orbax.checkpoint.experimental.v1")
    np = pytest.importorskip("numpy")
    folder = tmp_path / "ckpt"
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(folder / "a", {"w": np.ones(3)})
    v1.save(folder / "b", {"w": np.ones(3)})
    with v1.training.Checkpointer(folder / "m") as managed_v1:
        managed_v1.save(3, {"w": np.ones(3)})
        managed_v1.save(6, {"w": np.ones(3)})
    original = content_of(folder)
    protect(checkpoint=folder / "m" / "3")
    newer = {"w": np.zeros(3)}
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(folder / "a", newer, force=True)
    v1.save(folder / "b", newer, overwrite=True)
    with v1.training.Checkpointer(folder / "m") as managed_v1:
        assert managed_v1.latest.step == 3
        assert managed_v1.load(3)["w"].tolist() == [1, 1, 1]
        assert managed_v1.save(6, newer, overwrite=True)
    assert content_of(folder) == original
    saves = tmp_path / "replay" / "saves" / str(folder).lstrip("/")
    assert sorted(one.name for one in saves.iterdir()) == ["a", "b", "m"]
    assert v1.load(saves / "m" / "6")["w"].tolist() == [0, 0, 0]
    assert v1.load(saves / "b")["w"].tolist() == [0, 0, 0]


@pytest.mark.torch
def test_functions_imported_by_name_before_go_elsewhere(tmp_path, protect):
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file
    from torch import save

    folder = tmp_path / "ckpt"
    folder.mkdir()
    save({"w": torch.ones(3)}, folder / "a.pt")
    original = content_of(folder)
    told = protect()
    save({"w": torch.zeros(3)}, folder / "a.pt")
    save_file({"w": torch.zeros(3)}, folder / "b.safetensors")
    assert content_of(folder) == original
    assert told == [str(folder / name) for name in ("a.pt", "b.safetensors")]


@pytest.mark.torch
def test_what_frameworks_save_goes_elsewhere(tmp_path, protect):
    from test_framework_saves import accelerated, fit_with_lightning, trainer_of

    folder = tmp_path / "ckpt"
    trainer_of(folder / "hf").train()
    fit_with_lightning(folder / "pl")
    accelerator, *_ = accelerated(folder, named=False)
    accelerator.save_state(folder / "acc")
    original = content_of(folder)
    assert {"hf/checkpoint-4/optimizer.pt", "pl/step=4.ckpt", "acc/optimizer.bin"} <= set(original)
    told = protect(protected=("ckpt/hf", "ckpt/pl", "ckpt/acc"))
    seen = []
    remove = watch_checkpoints(seen.append, [].append, guard=Guard())
    trainer = trainer_of(folder / "hf", save_total_limit=1)
    trainer.train()
    trainer.save_model()
    fit_with_lightning(folder / "pl")
    accelerator.save_state(str(folder / "acc"))
    remove()
    assert content_of(folder) == original
    saves = tmp_path / "replay" / "saves" / str(folder).lstrip("/")
    # Lightning sees its files of the original there and chooses other names.
    names = ["hf/checkpoint-2", "hf/checkpoint-4", "hf", "pl/step=2-v1.ckpt", "pl/step=4-v1.ckpt", "acc"]
    assert [w.path for w in seen] == [str(saves / name) for name in names]
    assert sorted(one.name for one in (saves / "hf").iterdir() if one.is_dir()) == ["checkpoint-4"]
    assert (saves / "hf" / "checkpoint-4" / "trainer_state.json").exists()
    assert told[0] == str(folder / "hf")


@pytest.mark.torch
def test_a_second_request_takes_the_place_of_the_first(tmp_path, protect):
    torch = pytest.importorskip("torch")
    before = torch.save.__code__
    first, second = protect(), protect(protected=("ckpt", "more"))
    torch.save([1], tmp_path / "more" / "a.pt")
    assert (first, second) == ([], [str(tmp_path / "more" / "a.pt")])
    assert not (tmp_path / "more").exists()
    assert torch.save.__code__ is not before


@pytest.mark.torch
def test_hooks_are_taken_out_whole(tmp_path):
    torch = pytest.importorskip("torch")
    ocp = pytest.importorskip("orbax.checkpoint")
    methods = ("__init__", "save", "_load_checkpoint_infos")
    before = torch.save.__code__, [vars(ocp.CheckpointManager)[name] for name in methods]
    remove = protect_checkpoints(request_of(tmp_path), Guard(), [].append)
    assert torch.save.__code__ is not before[0]
    remove()
    assert (torch.save.__code__, [vars(ocp.CheckpointManager)[name] for name in methods]) == before
    assert destination(str(tmp_path / "ckpt" / "a")) == str(tmp_path / "ckpt" / "a")


@pytest.mark.jax
def test_an_orbax_that_is_not_as_known_saves_nothing_there(tmp_path, protect, monkeypatch, capsys):
    folder = tmp_path / "ckpt"
    ocp, np = managed(folder, [10])
    original = content_of(folder)
    monkeypatch.setattr("phasepoint.recorder.resume.orbax_saves._USED", ("_of_another_version",))
    protect(checkpoint=folder / "10")
    with ocp.CheckpointManager(folder) as manager:
        assert not manager.save(20, args=ocp.args.StandardSave({"w": np.zeros(3)}))
        manager.delete(10)
    assert content_of(folder) == original
    assert "save was left out: this version of Orbax gives no way" in capsys.readouterr().err
