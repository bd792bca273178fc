"""Checkpoints are noticed once each, with the facts that can be told, and the saving functions behave as before."""

import io
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from phasepoint.recorder import hooks
from phasepoint.recorder.hooks.checkpoints import FRAMEWORKS, watch_checkpoints
from phasepoint.recorder.hooks.saves import LEAST_WAIT_NS, Saved, SaveWatch
from phasepoint.recorder.seam.guard import Guard


def test_every_framework_has_a_row():
    folder = Path(hooks.__path__[0])
    able = {path.stem for path in folder.glob("*.py") if "def save_points(" in path.read_text()}
    assert able == set(FRAMEWORKS.values())


class Ticks:
    """A clock that grows by one at each reading."""

    def __init__(self):
        self.now = 0

    def __call__(self):
        self.now += 1
        return self.now


def plain_watch(describe, guard=None):
    seen = []
    watch = SaveWatch(seen.append, seen.append, guard or Guard(), Ticks())
    return seen, watch.wrap(describe)


def test_a_call_inside_a_call_is_one_checkpoint_with_the_inner_path():
    seen = []
    watch = SaveWatch(seen.append, seen.append, Guard(), Ticks())
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


def waiting_watch(tick_ns):
    """Saves and waits on a clock that grows by so much at each reading."""
    written, waited, ticks = [], [], Ticks()
    watch = SaveWatch(written.append, waited.append, Guard(), lambda: tick_ns * ticks())
    save = watch.wrap(lambda args, kwargs, result: Saved("orbax", "p", asynchronous=True))
    return written, waited, save, watch.wrap_wait("orbax")


def test_a_wait_for_a_save_is_noticed_with_its_times():
    written, waited, save, wait = waiting_watch(LEAST_WAIT_NS)
    save(lambda: None)()
    assert wait(lambda: "result")() == "result"
    (one,) = waited
    assert (one.start_ns, one.end_ns, one.framework) == (3 * LEAST_WAIT_NS, 4 * LEAST_WAIT_NS, "orbax")
    assert len(written) == 1


def test_a_wait_that_fails_is_noticed_and_raises_what_it_raised():
    _, waited, save, wait = waiting_watch(LEAST_WAIT_NS)
    save(lambda: None)()
    error = OSError("disk full")

    def fail():
        raise error

    with pytest.raises(OSError, match="disk full") as raised:
        wait(fail)()
    assert raised.value is error
    assert len(waited) == 1


def test_waits_that_are_none_of_the_jobs():
    _, waited, save, wait = waiting_watch(LEAST_WAIT_NS)
    wait(lambda: None)()  # nothing was saved on this thread: the checkpointer's own
    save(wait(lambda: None))()  # part of a save
    assert waited == []
    wait(wait(lambda: None))()  # a manager that waits for its checkpointer waits once
    assert len(waited) == 1


def test_a_call_with_nothing_to_wait_for_is_no_wait():
    _, waited, save, wait = waiting_watch(LEAST_WAIT_NS - 1)
    save(lambda: None)()
    wait(lambda: None)()
    assert waited == []


@pytest.mark.torch
def test_torch_save_to_path_and_file_but_not_to_memory(tmp_path):
    torch = pytest.importorskip("torch")
    before = torch.save.__code__
    seen = []
    remove = watch_checkpoints(seen.append, [].append, guard=Guard())
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
    assert torch.save is torch.serialization.save
    assert torch.save.__code__ is before


@pytest.mark.jax
@pytest.mark.filterwarnings("ignore")
def test_orbax_manager_and_checkpointers(tmp_path):
    ocp = pytest.importorskip("orbax.checkpoint")
    np = pytest.importorskip("numpy")
    before = {name: vars(getattr(ocp, name)).get("save") for name in ("CheckpointManager", "StandardCheckpointer")}
    seen = []
    remove = watch_checkpoints(seen.append, [].append, guard=Guard())
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
@pytest.mark.parametrize("kind", ["checkpointer", "manager"])
def test_waits_for_orbax(tmp_path, kind):
    ocp = pytest.importorskip("orbax.checkpoint")
    np = pytest.importorskip("numpy")
    owners = ocp.CheckpointManager, ocp.AsyncCheckpointer
    before = [owner.wait_until_finished for owner in owners]
    written, waited = [], []
    remove = watch_checkpoints(written.append, waited.append, guard=Guard())
    state = {"w": np.ones(4_000_000)}
    if kind == "manager":
        with ocp.CheckpointManager(tmp_path) as manager:
            manager.save(0, args=ocp.args.StandardSave(state))
            manager.wait_until_finished()
    else:
        with ocp.StandardCheckpointer() as checkpointer:
            checkpointer.save(tmp_path / "alone", state)
            checkpointer.wait_until_finished()
    remove()
    (save,) = written
    assert save.asynchronous
    assert save.end_ns <= waited[0].start_ns < waited[0].end_ns
    assert [owner.wait_until_finished for owner in owners] == before


@pytest.mark.jax
@pytest.mark.filterwarnings("ignore")
def test_the_iterator_of_grain_is_recognised(tmp_path):
    ocp = pytest.importorskip("orbax.checkpoint")
    grain = pytest.importorskip("grain.python")
    np = pytest.importorskip("numpy")
    seen = []
    remove = watch_checkpoints(seen.append, [].append, guard=Guard())
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
        from phasepoint.recorder.hooks.checkpoints import watch_checkpoints
        from phasepoint.recorder.seam.guard import Guard
        seen = []
        remove = watch_checkpoints(seen.append, [].append, guard=Guard())
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


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")
def test_distributed_checkpoints_of_one_process(tmp_path):
    torch = pytest.importorskip("torch")
    dcp = pytest.importorskip("torch.distributed.checkpoint")
    before = dcp.save.__code__, dcp.async_save.__code__
    seen = []
    remove = watch_checkpoints(seen.append, [].append, guard=Guard())
    state = {"model": {"w": torch.ones(4)}}
    dcp.save(state, checkpoint_id=str(tmp_path / "a"), no_dist=True)
    dcp.async_save({**state, "dataloader": 1}, checkpoint_id=tmp_path / "b", no_dist=True).result()
    dcp.save(state, storage_writer=dcp.FileSystemWriter(tmp_path / "c"), no_dist=True)
    remove()
    assert [(w.framework, w.path, w.bytes, w.asynchronous, w.has_iterator) for w in seen] == [
        ("dcp", str(tmp_path / "a"), None, False, None),
        ("dcp", str(tmp_path / "b"), None, True, True),
        ("dcp", str(tmp_path / "c"), None, False, None),
    ]
    assert (dcp.save.__code__, dcp.async_save.__code__) == before


@pytest.mark.torch
@pytest.mark.parametrize("kind", ["torch", "numpy", "flax"])
def test_safetensors_files(tmp_path, kind):
    np = pytest.importorskip("numpy")
    module = pytest.importorskip(f"safetensors.{kind}")
    make = {"torch": lambda: pytest.importorskip("torch").ones(3), "numpy": lambda: np.ones(3)}
    tensors = {"w": make.get(kind, lambda: pytest.importorskip("jax.numpy").ones(3))()}
    before = module.save_file.__code__
    seen = []
    remove = watch_checkpoints(seen.append, [].append, guard=Guard())
    module.save_file(tensors, tmp_path / "a.safetensors")
    module.save_file(tensors, filename=str(tmp_path / "b.safetensors"))
    remove()
    assert [(w.framework, w.path, w.bytes, w.asynchronous) for w in seen] == [
        ("safetensors", str(tmp_path / name), (tmp_path / name).stat().st_size, False)
        for name in ("a.safetensors", "b.safetensors")
    ]
    assert module.save_file.__code__ is before


@pytest.mark.jax
@pytest.mark.filterwarnings("ignore")
def test_orbax_v1(tmp_path):
    v1 = pytest.importorskip("orbax.checkpoint.experimental.v1")
    np = pytest.importorskip("numpy")
    before = v1.save, v1.training.Checkpointer.save
    seen = []
    remove = watch_checkpoints(seen.append, [].append, guard=Guard())
    state = {"w": np.ones(4)}
    v1.save(tmp_path / "one", state)
    v1.save_async(tmp_path / "two", state).result()
    v1.save_checkpointables(tmp_path / "three", {"state": state, "dataset": {"at": np.ones(1)}})
    with v1.training.Checkpointer(tmp_path / "managed") as checkpointer:
        assert checkpointer.save(3, state)
        assert checkpointer.save_async(4, state).result()
        policy = v1.training.save_decision_policies.FixedIntervalPolicy(10)
    with v1.training.Checkpointer(tmp_path / "rare", save_decision_policy=policy) as checkpointer:
        assert not checkpointer.save(7, state)
    remove()
    assert [(w.framework, w.path, w.asynchronous, w.has_iterator) for w in seen] == [
        ("orbax", str(tmp_path / "one"), False, None),
        ("orbax", str(tmp_path / "two"), True, None),
        ("orbax", str(tmp_path / "three"), False, True),
        ("orbax", str(tmp_path / "managed" / "3"), False, None),
        ("orbax", str(tmp_path / "managed" / "4"), True, None),
    ]
    assert (v1.save, v1.training.Checkpointer.save) == before
