import hashlib
import threading

import numpy as np
import pytest

import phasepoint.recorder.profilers.jax as jax_session_module
from phasepoint.recorder.recording import record
from phasepoint.recorder.seam.session import ProfilerBusyError
from phasepoint.store import open_run

jax = pytest.importorskip("jax")
pytestmark = pytest.mark.jax
jnp = jax.numpy


@pytest.fixture
def session():
    made = jax_session_module.JaxSession()
    yield made
    if made._session is not None:
        made.stop()


@pytest.fixture
def public(monkeypatch):
    """A JAX whose private profiler has moved."""
    monkeypatch.setattr(jax_session_module, "_find_private", lambda: None)
    return jax_session_module.JaxSession()


@jax.jit
def descend(weights, batch):
    def loss_of(weights):
        return jnp.mean((jnp.tanh(batch @ weights) - 1.0) ** 2)

    loss, gradient = jax.value_and_grad(loss_of)(weights)
    return weights - 0.1 * gradient, loss


def train(batches):
    """Hash of every loss and of the final parameters."""
    weights, digest = jnp.full((16, 4), 0.1), hashlib.sha256()
    for batch in batches:
        weights, loss = descend(weights, batch)
        digest.update(np.asarray(loss).tobytes())
    digest.update(np.asarray(weights).tobytes())
    return digest.hexdigest()


def batches(n=24):
    rng = np.random.default_rng(0)
    return [rng.normal(size=(32, 16)).astype(np.float32) for _ in range(n)]


def space_of(data):
    from jax.profiler import ProfileData

    return ProfileData.from_serialized_xspace(data)


def events_of(data):
    return [
        (plane.name, event.name, dict(event.stats))
        for plane in space_of(data).planes
        for line in plane.lines
        for event in line.events
    ]


def capture(session, *, with_programs, steps=(7, 8)):
    session.start(with_programs=with_programs)
    for step in steps:
        with session.step_annotation(step):
            descend(jnp.ones((16, 4)), jnp.ones((32, 16)))[1].block_until_ready()
    return session.stop()()


def test_probe_finds_the_private_session(session):
    probe = session.probe()
    assert (probe.framework, probe.framework_version, probe.api) == ("jax", jax.__version__, "private")


@pytest.mark.parametrize("with_programs", [False, True])
def test_a_capture_holds_steps_ops_and_programs(session, with_programs):
    descend(jnp.ones((16, 4)), jnp.ones((32, 16)))
    data = capture(session, with_programs=with_programs)
    events = events_of(data)
    assert [stats["step_num"] for _, name, stats in events if name == "phasepoint.step"] == [7, 8]
    assert any("hlo_op" in stats for _, _, stats in events)
    assert b"jit_descend" in data
    assert any(plane.name == "/host:metadata" for plane in space_of(data).planes) == with_programs


def test_public_fallback_gives_the_same_steps(public):
    probe = public.probe()
    assert probe.api == "public"
    assert "up to 1 s" in probe.reason
    events = events_of(capture(public, with_programs=True))
    assert [stats["step_num"] for _, name, stats in events if name == "phasepoint.step"] == [7, 8]
    assert public._folder is None


def test_a_capture_stops_on_another_thread(session):
    session.start(with_programs=False)
    descend(jnp.ones((16, 4)), jnp.ones((32, 16)))[1].block_until_ready()
    taken = []
    thread = threading.Thread(target=lambda: taken.append(session.stop()()))
    thread.start()
    thread.join()
    assert len(events_of(taken[0])) > 0


def test_the_users_session_first_ours_waits(session, tmp_path):
    jax.profiler.start_trace(tmp_path)
    try:
        assert session.busy()
        with pytest.raises(ProfilerBusyError):
            session.start(with_programs=False)
    finally:
        jax.profiler.stop_trace()
    assert not session.busy()
    assert len(list(tmp_path.rglob("*.xplane.pb"))) == 1


def test_a_session_that_cannot_be_seen_is_busy_when_ours_stops(session):
    from jax._src.lib import _profiler

    theirs = _profiler.ProfilerSession(_profiler.ProfileOptions())
    session.start(with_programs=False)
    with pytest.raises(ProfilerBusyError, match="ALREADY_EXISTS"):
        session.stop()
    assert len(theirs.stop()) > 0


def test_ours_first_is_closed_before_the_users_starts(tmp_path):
    def train_with_profiler():
        for index, batch in enumerate(run.steps(batches(12))):
            descend(jnp.ones((16, 4)), batch)[1].block_until_ready()
            if index == 5:
                jax.profiler.start_trace(tmp_path / "theirs")
            if index == 8:
                jax.profiler.stop_trace()

    with record(tmp_path / "run", budget=None, window_steps=4, framework="jax") as run:
        train_with_profiler()
    assert run.off_reason is None
    theirs = list((tmp_path / "theirs").rglob("*.xplane.pb"))
    assert len(theirs) == 1
    assert any("descend" in name for _, name, _ in events_of(theirs[0].read_bytes()))
    opened = open_run(tmp_path / "run")
    windows = [(w["first_step"], w["last_step"]) for w in opened.table("windows").to_pylist()]
    assert windows == [(0, 3), (4, 4), (9, 11)]
    assert [g["first_step"] for g in opened.table("gaps").to_pylist() if g["why"] == "profiler-busy"] == [6]


def test_the_users_constructor_is_put_back(tmp_path):
    from jax._src.lib import _profiler

    before = _profiler.ProfilerSession
    with record(tmp_path / "run", budget=0, framework="jax"):
        assert _profiler.ProfilerSession is not before
    assert _profiler.ProfilerSession is before


def test_training_is_bit_identical_and_the_run_is_whole(tmp_path):
    expected = train(batches())
    with record(tmp_path / "run", budget=None, framework="jax") as run:
        assert train(run.steps(batches())) == expected
    opened = open_run(tmp_path / "run")
    assert opened.table("steps").num_rows == 24
    windows = opened.table("windows").to_pylist()
    assert sum(w["last_step"] - w["first_step"] + 1 for w in windows) == 24
    for window in windows:
        events = events_of(opened.read_raw("host=00000", window["raw"]))
        steps = [stats["step_num"] for _, name, stats in events if name == "phasepoint.step"]
        wanted = list(range(window["first_step"], window["last_step"] + 1))
        assert steps[: len(wanted)] == wanted
    assert opened.manifest.frameworks["jax"] == jax.__version__
    assert opened.shards[0].session.devices == ("cpu:0 cpu",)


def test_compiling_shows_in_its_step(tmp_path):
    with record(tmp_path / "run", budget=0, framework="jax") as run:
        for index, batch in enumerate(run.steps(batches(6))):
            if index == 3:
                jax.jit(lambda x: jnp.cos(x).sum() * 3.0)(batch).block_until_ready()
            else:
                descend(jnp.ones((16, 4)), batch)[1].block_until_ready()
    compiled = open_run(tmp_path / "run").table("steps").column("compile_ps").to_pylist()
    (told,) = [row for row in open_run(tmp_path / "run").table("compilations").to_pylist() if row["step"] == 3]
    assert (told["name"], told["again"], told["why"]) == ("jit(<lambda>)", None, None)
    assert 0 < told["dur_ps"] <= compiled[3]
    assert compiled[3] > 0
    assert compiled[4] == compiled[5] == 0


def test_the_compile_listener_goes_away(session):
    seen = []
    remove = session.watch_compiles(lambda dur_ns, is_new, describe=None: seen.append((dur_ns, is_new)))
    jax.jit(lambda x: jnp.sin(x) + 1.5)(jnp.ones(3))
    assert any(is_new for _, is_new in seen)
    assert all(dur_ns >= 0 for dur_ns, _ in seen)
    count = len(seen)
    remove()
    remove()
    jax.jit(lambda x: jnp.sin(x) + 2.5)(jnp.ones(3))
    assert len(seen) == count


def test_devices_and_memory_on_cpu(session):
    jnp.ones(3).block_until_ready()
    assert session.devices() == ["cpu:0 cpu"]
    assert session.device_memory_bytes() is None


def test_drain_waits_for_what_is_in_flight(session):
    @jax.jit
    def slow(x):
        for _ in range(10):
            x = x @ x / 300
        return x

    result = slow(jnp.ones((300, 300)))
    session.drain()
    assert result.is_ready()
