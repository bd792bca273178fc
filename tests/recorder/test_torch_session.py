"""Kineto sessions in process: what they capture, on which threads, and beside the user's own profiler."""

import json
import threading
import types

import pytest

torch = pytest.importorskip("torch")

from phasepoint.core.errors import RecordError  # noqa: E402
from phasepoint.recorder.profilers.torch import session as session_module  # noqa: E402
from phasepoint.recorder.profilers.torch.session import TorchSession, _saved_file  # noqa: E402
from phasepoint.recorder.seam.session import ProfilerBusyError  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:.*Profiler clears events.*")]


def small_step():
    weight = torch.ones(4, 4, requires_grad=True)
    (weight @ weight).sum().backward()


def capture(session, work):
    session.start(with_programs=True)
    work()
    events = json.loads(session.stop()())["traceEvents"]
    return [event for event in events if event.get("ph") == "X"]


@pytest.fixture(params=[False, True], ids=["private", "public"])
def session(request):
    return TorchSession(force_public=request.param)


def test_steps_and_ops_are_captured(session):
    def work():
        for step in (7, 8):
            with session.step_annotation(step):
                small_step()

    events = capture(session, work)
    names = [event["name"] for event in events]
    steps = [event for event in events if event["name"].startswith("phasepoint.step")]
    assert [step["name"] for step in steps] == ["phasepoint.step#7", "phasepoint.step#8"]
    assert names.count("aten::matmul") == 2
    for step in steps:
        inside = [e for e in events if e["name"] == "aten::mm" and step["ts"] <= e["ts"] < step["ts"] + step["dur"]]
        assert len(inside) == 3  # one forward, two backward


def test_the_probe_says_which_api_and_what_it_costs():
    private, public = TorchSession().probe(), TorchSession(force_public=True).probe()
    assert (private.framework, private.api, public.api) == ("torch", "private", "public")
    assert private.framework_version == torch.__version__
    assert "ms a window" in private.reason
    assert "ms a window" in public.reason


def test_another_threads_work_is_not_captured_and_another_thread_cannot_stop():
    """Capturing all threads crashes a job whose other threads are inside an op when the window closes."""
    session = TorchSession()
    session.start(with_programs=True)
    refused = []

    def elsewhere():
        torch.ones(3) * 2
        try:
            session.stop()
        except RecordError as error:
            refused.append(error)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    torch.ones(3) + 2
    names = {event["name"] for event in json.loads(session.stop()())["traceEvents"]}
    assert "aten::add" in names
    assert "aten::mul" not in names
    assert len(refused) == 1


def test_nothing_is_printed_and_kinetos_log_level_stays(capfd):
    session = TorchSession()
    capture(session, small_step)
    before = session._engine._severity.value
    capture(session, small_step)
    assert session._engine._severity.value == before
    assert capfd.readouterr() == ("", "")


def test_the_users_profiler_closes_our_window_first():
    session = TorchSession()
    closed = []
    remove = session.watch_user_profiler(lambda: closed.append(len(session.stop()())))
    session.start(with_programs=True)
    small_step()
    with torch.profiler.profile() as theirs:
        assert session.busy()
        with pytest.raises(ProfilerBusyError):
            session.start(with_programs=True)
        small_step()
    remove()
    assert len(closed) == 1
    assert closed[0] > 1000
    assert {event.name for event in theirs.events()} >= {"aten::matmul", "aten::mm"}
    assert not session.busy()


def test_a_schedules_warm_up_counts_as_running():
    session = TorchSession()
    starts, ready, busy = [], [], []
    remove = session.watch_user_profiler(lambda: starts.append(1))
    schedule = torch.profiler.schedule(wait=1, warmup=1, active=1, repeat=2)
    with torch.profiler.profile(schedule=schedule, on_trace_ready=lambda p: ready.append(len(p.events()))) as theirs:
        for _ in range(7):
            busy.append(session.busy())
            small_step()
            theirs.step()
    remove()
    assert busy == [False, True, True, False, True, True, False]
    assert len(starts) == 2
    assert len(ready) == 2
    assert all(count > 10 for count in ready)


def test_a_profiler_prepared_before_we_watched_still_sees_its_work():
    session = TorchSession()
    schedule = torch.profiler.schedule(wait=0, warmup=1, active=1, repeat=1)
    theirs = torch.profiler.profile(schedule=schedule)
    theirs.start()
    remove = session.watch_user_profiler(lambda: None)
    capture(session, small_step)  # voids their preparation
    theirs.step()
    small_step()
    theirs.stop()
    remove()
    assert "aten::matmul" in {event.name for event in theirs.events()}


def test_the_public_sessions_own_start_is_not_the_users():
    session = TorchSession(force_public=True)
    starts = []
    remove = session.watch_user_profiler(lambda: starts.append(1))
    capture(session, small_step)
    remove()
    assert starts == []
    assert not session.busy()


def test_hooks_leave_nothing_behind():
    import torch.autograd.profiler as current

    before = current._prepare_profiler, current._enable_profiler, current._disable_profiler
    TorchSession().watch_user_profiler(lambda: None)()
    assert (current._prepare_profiler, current._enable_profiler, current._disable_profiler) == before


def one_capture(session):
    session.start(with_programs=True)
    small_step()
    return session.stop()


def test_a_capture_is_written_before_the_next_begins(session, tmp_path, monkeypatch):
    """Kineto turns the GPU's times into times of day by the clock of the session that ended last."""
    monkeypatch.setattr(session_module, "_capture_folder", lambda: str(tmp_path))
    first = one_capture(session)
    assert list(tmp_path.iterdir()) == []  # later, where nothing else begins
    session.start(with_programs=True)
    (path,) = tmp_path.iterdir()
    assert json.loads(path.read_text())["traceEvents"]
    small_step()
    second = session.stop()
    assert json.loads(first()) != json.loads(second())
    assert list(tmp_path.iterdir()) == []


def test_a_capture_is_written_before_the_users_profiler_begins(session, tmp_path, monkeypatch):
    monkeypatch.setattr(session_module, "_capture_folder", lambda: str(tmp_path))
    remove = session.watch_user_profiler(lambda: None)
    pending = one_capture(session)
    with torch.profiler.profile():
        assert len(list(tmp_path.iterdir())) == 1
    remove()
    assert json.loads(pending())["traceEvents"]


def test_a_capture_that_nobody_wants_is_not_written(session, tmp_path, monkeypatch):
    monkeypatch.setattr(session_module, "_capture_folder", lambda: str(tmp_path))
    one_capture(session)
    second = one_capture(session)
    assert list(tmp_path.iterdir()) == []
    session.start(with_programs=True)  # writes the second
    del second
    assert list(tmp_path.iterdir()) == []
    session.stop()


def test_what_kept_a_capture_from_being_written_is_told_to_whoever_wants_it(session, tmp_path, monkeypatch):
    monkeypatch.setattr(session_module, "_capture_folder", lambda: str(tmp_path / "none"))
    pending = one_capture(session)
    session.start(with_programs=True)
    session.stop()
    for _ in range(2):
        with pytest.raises(RecordError, match="none"):
            pending()


def test_a_capture_that_was_not_written_is_an_error():
    with pytest.raises(RecordError, match="TMPDIR"):
        _saved_file(lambda path: None)


def test_a_torch_with_other_names_falls_back_to_the_public_api(monkeypatch):
    monkeypatch.delattr(torch.autograd, "_prepare_profiler")
    assert TorchSession().probe().api == "public"


def test_an_older_torch_without_our_options_is_taken_without_them(monkeypatch):
    class OldConfig(torch._C._profiler._ExperimentalConfig):
        def __init__(self, **options):
            if options:
                raise TypeError("unexpected keyword argument")
            super().__init__()

    monkeypatch.setattr(torch._C._profiler, "_ExperimentalConfig", OldConfig)
    session = TorchSession()
    assert session.probe().api == "private"
    assert "aten::matmul" in {event["name"] for event in capture(session, small_step)}


def test_cpu_has_no_device_memory_and_one_device():
    session = TorchSession()
    if torch.cuda.is_initialized():
        pytest.skip("the test process has initialised CUDA")
    assert session.devices() == ["cpu:0"]
    assert session.device_memory_bytes() is None
    session.drain()


def test_compiles_of_dynamo_are_timed(monkeypatch):
    handlers = {}

    class Handler:
        def register_start_callback(self, callback):
            handlers["start"] = callback

        def register_end_callback(self, callback):
            handlers["end"] = callback

        def remove_start_callback(self, callback):
            handlers.pop("start")

        def remove_end_callback(self, callback):
            handlers.pop("end")

    module = types.ModuleType("torch._dynamo.callback")
    module.callback_handler = Handler()
    monkeypatch.setitem(__import__("sys").modules, "torch._dynamo.callback", module)
    seen = []
    remove = TorchSession().watch_compiles(lambda dur_ns, is_new, describe=None: seen.append((dur_ns >= 0, is_new)))
    handlers["end"]()
    handlers["start"]()
    handlers["end"]()
    assert seen == [(True, True)]
    remove()
    assert handlers == {}
