"""Checkpoints are noticed once each, with the facts that can be told, and the saving functions behave as before."""

import io
import subprocess
import sys
import textwrap

import pytest

from phasepoint.recorder.checkpoint_hooks import Saved, SaveWatch, watch_checkpoints
from phasepoint.recorder.guard import Guard


class Ticks:
    """A clock that grows by one at each reading."""

    def __init__(self):
        self.now = 0

    def __call__(self):
        self.now += 1
        return self.now


def plain_watch(describe, guard=None):
    seen = []
    watch = SaveWatch(seen.append, guard or Guard(), Ticks())
    return seen, watch.wrap(describe)


def test_a_call_inside_a_call_is_one_checkpoint_with_the_inner_path():
    seen = []
    watch = SaveWatch(seen.append, Guard(), Ticks())
    inner = watch.wrap(lambda args, kwargs, result: Saved("orbax", args[0], asynchronous=True))(lambda path: None)
    outer = watch.wrap(lambda args, kwargs, result: Saved("orbax", "guess", has_iterator=True))(lambda: inner("real"))
    outer()
    (written,) = seen
    assert (written.path, written.asynchronous, written.has_iterator) == ("real", True, True)
    assert (written.start_ns, written.end_ns) == (1, 4)


def test_result_and_arguments_pass_unchanged():
    _, decorate = plain_watch(lambda args, kwargs, result: None)
    token = object()
    assert decorate(lambda *args, **kwargs: (args, kwargs, token))(1, x=2) == ((1,), {"x": 2}, token)


def test_a_failed_save_is_no_checkpoint_and_raises_what_it_raised():
    seen, decorate = plain_watch(lambda args, kwargs, result: Saved("torch", "p"))
    error = OSError("disk full")

    @decorate
    def save():
        raise error

    with pytest.raises(OSError, match="disk full") as raised:
        save()
    assert raised.value is error
    assert seen == []


def test_a_failed_inner_save_leaves_no_trace_for_the_next_one():
    seen, decorate = plain_watch(lambda args, kwargs, result: Saved("torch", args[0]))

    @decorate
    def save(path):
        if path == "bad":
            raise OSError(path)

    with pytest.raises(OSError, match="bad"):
        save("bad")
    save("good")
    assert [w.path for w in seen] == ["good"]


def test_a_fault_of_the_hook_stays_in_the_guard():
    guard = Guard()
    _, decorate = plain_watch(lambda args, kwargs, result: 1 // 0, guard)
    assert decorate(lambda: "result")() == "result"
    assert guard.faults == 1
    assert guard.off
    assert "ZeroDivisionError" in guard.reason


@pytest.mark.torch
def test_torch_save_to_path_and_file_but_not_to_memory(tmp_path):
    torch = pytest.importorskip("torch")
    before = torch.save, torch.serialization.save
    seen = []
    remove = watch_checkpoints(seen.append, guard=Guard())
    torch.save({"model": torch.ones(100), "dataloader": {"at": 3}}, tmp_path / "a.pt")
    with (tmp_path / "b.pt").open("wb") as file:
        torch.save([1], f=file)
    torch.save([1], io.BytesIO())
    remove()
    torch.save([1], tmp_path / "c.pt")
    assert [(w.path, w.bytes, w.has_iterator) for w in seen] == [
        (str(tmp_path / "a.pt"), (tmp_path / "a.pt").stat().st_size, True),
        (str(tmp_path / "b.pt"), None, None),
    ]
    assert all(w.framework == "torch" and w.asynchronous is False and w.end_ns > w.start_ns for w in seen)
    assert (torch.save, torch.serialization.save) == before


@pytest.mark.jax
@pytest.mark.filterwarnings("ignore")
def test_orbax_manager_and_checkpointers(tmp_path):
    ocp = pytest.importorskip("orbax.checkpoint")
    np = pytest.importorskip("numpy")
    before = {name: vars(getattr(ocp, name)).get("save") for name in ("CheckpointManager", "StandardCheckpointer")}
    seen = []
    remove = watch_checkpoints(seen.append, guard=Guard())
    state = {"w": np.ones(4)}
    options = ocp.CheckpointManagerOptions(save_interval_steps=2)
    with ocp.CheckpointManager(tmp_path / "managed", options=options) as manager:
        saved = [manager.save(step, args=ocp.args.StandardSave(state)) for step in (0, 1, 2)]
        manager.wait_until_finished()
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "alone", state)
    with ocp.Checkpointer(ocp.StandardCheckpointHandler()) as checkpointer:
        checkpointer.save(tmp_path / "sync", args=ocp.args.StandardSave(state))
    remove()
    assert saved == [True, False, True]
    assert [(w.path, w.asynchronous) for w in seen] == [
        (str(tmp_path / "managed" / "0"), True),
        (str(tmp_path / "managed" / "2"), True),
        (str(tmp_path / "alone"), True),
        (str(tmp_path / "sync"), False),
    ]
    after = {name: vars(getattr(ocp, name)).get("save") for name in before}
    assert after == before


@pytest.mark.jax
@pytest.mark.filterwarnings("ignore")
def test_the_iterator_of_grain_is_recognised(tmp_path):
    ocp = pytest.importorskip("orbax.checkpoint")
    grain = pytest.importorskip("grain.python")
    np = pytest.importorskip("numpy")
    seen = []
    remove = watch_checkpoints(seen.append, guard=Guard())
    iterator = iter(grain.MapDataset.range(10).to_iter_dataset())
    with ocp.CheckpointManager(tmp_path) as manager:
        args = ocp.args.Composite(
            state=ocp.args.StandardSave({"w": np.ones(2)}), anything=grain.PyGrainCheckpointSave(iterator)
        )
        manager.save(0, args=args)
        manager.wait_until_finished()
        manager.save(1, args=ocp.args.Composite(state=ocp.args.StandardSave({"w": np.ones(2)})))
    remove()
    assert [w.has_iterator for w in seen] == [True, None]


@pytest.mark.torch
def test_torch_imported_later_is_hooked_too(tmp_path):
    pytest.importorskip("torch")
    code = f"""
        import sys
        from phasepoint.recorder.checkpoint_hooks import watch_checkpoints
        from phasepoint.recorder.guard import Guard
        seen = []
        remove = watch_checkpoints(seen.append, guard=Guard())
        assert "torch" not in sys.modules
        import torch
        torch.save([1], {str(tmp_path / "later.pt")!r})
        remove()
        print([w.path for w in seen], len([f for f in sys.meta_path if "phasepoint" in type(f).__module__]))
    """
    output = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True, timeout=120
    ).stdout
    assert output == f"['{tmp_path / 'later.pt'}'] 0\n"
