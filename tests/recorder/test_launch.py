"""`phasepoint record -- command`: real small jobs, recorded without a word in their code."""

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from phasepoint.core.errors import RecordError, UsageError
from phasepoint.recorder.process.launch import launch
from phasepoint.recorder.seam.options import AutoOptions
from phasepoint.store import open_run

TORCH_JOB = """
    import sys
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(1)
    net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
    optimizer = torch.optim.Adam(net.parameters())
    data = torch.utils.data.TensorDataset(torch.randn(120, 8), torch.randint(0, 2, (120,)))
    loader = torch.utils.data.DataLoader(data, batch_size=4, shuffle=True, num_workers=int(sys.argv[2]))
    losses = []
    for epoch in range(2):
        for x, y in loader:
            loss = torch.nn.functional.cross_entropy(net(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item().hex())
        torch.save(net.state_dict(), f"{sys.argv[1]}-{epoch}.pt")
    print(losses, [p.sum().item().hex() for p in net.parameters()])
"""

JAX_JOB = """
    import jax, jax.numpy as jnp, numpy as np, optax

    rng = np.random.default_rng(0)
    w = jnp.asarray(rng.normal(size=(16, 8)))

    @jax.jit
    def train_step(w, x):
        loss, grad = jax.value_and_grad(lambda w: ((x @ w) ** 2).mean())(w)
        return optax.apply_updates(w, -0.1 * grad), loss

    losses = []
    for step in range(60):
        w, loss = train_step(w, rng.normal(size=(4 if step < 40 else 6, 16)))
        losses.append(float(loss).hex())
    print(losses, float(w.sum()).hex())
"""


def write(folder: Path, text: str) -> str:
    path = folder / "job.py"
    path.write_text(textwrap.dedent(text))
    return str(path)


def record(run: Path, *command: str, options: tuple[str, ...] = (), **kwargs):
    words = [sys.executable, "-m", "phasepoint", "record", "--out", str(run), *options, "--", *command]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=300, **kwargs)


def plain(*command: str):
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout


@pytest.mark.torch
def test_a_torch_job_with_workers(tmp_path):
    pytest.importorskip("torch")
    job = write(tmp_path, TORCH_JOB)
    expected = plain(sys.executable, job, str(tmp_path / "a"), "2")
    done = record(tmp_path / "run", sys.executable, job, str(tmp_path / "b"), "2", options=("--budget", "none"))
    assert (done.returncode, done.stdout) == (0, expected)
    assert done.stderr.startswith("recorded: 60 steps, ")
    assert done.stderr.count("\n") == 1
    run = open_run(tmp_path / "run")
    assert [(shard.name, shard.state, shard.session.framework) for shard in run.shards] == [
        ("host=00000", "closed", "torch")
    ]
    steps = run.table("steps")
    assert steps["step"].to_pylist() == list(range(60))
    assert all(0 <= step["input_ps"] < step["dur_ps"] for step in steps.to_pylist())
    windows = run.table("windows")
    assert windows.num_rows > 1
    assert set(windows["format"].to_pylist()) == {"kineto"}
    raw = windows.slice(0, 1).to_pylist()[0]
    events = json.loads(run.read_raw("host=00000", raw["raw"]))["traceEvents"]
    captured = [e["name"] for e in events if e.get("ph") == "X" and e["name"].startswith("phasepoint.step#")]
    assert captured == [f"phasepoint.step#{n}" for n in range(raw["first_step"], raw["last_step"] + 1)]
    checkpoints = run.table("checkpoints").to_pylist()
    assert [(c["path"], c["step"]) for c in checkpoints] == [
        (str(tmp_path / "b-0.pt"), 29),
        (str(tmp_path / "b-1.pt"), 59),
    ]


COMPILED_JOB = """
    import time, torch
    def slowly(module, inputs):
        time.sleep(0.7)
        return module.forward
    net = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    forward = torch.compile(net, backend=slowly)
    for _ in range(30):
        optimizer.zero_grad()
        forward(torch.ones(4, 8)).sum().backward()
        optimizer.step()
"""


@pytest.mark.torch
def test_what_was_compiled_before_the_recording_began_is_told(tmp_path):
    """The recording opens at the first steps, which have compiled by then; looks at the machine begin there."""
    pytest.importorskip("torch")
    done = record(tmp_path / "run", sys.executable, write(tmp_path, COMPILED_JOB))
    assert done.returncode == 0, done.stderr
    run = open_run(tmp_path / "run")
    first, second = run.table("steps").to_pylist()[:2]
    (compiled,) = run.table("compilations").to_pylist()
    assert (first["step"], compiled["step"]) == (0, 0)
    assert 0.7e12 < first["compile_ps"] == pytest.approx(compiled["dur_ps"], rel=0.01)
    assert first["start_ps"] <= compiled["start_ps"]
    assert compiled["start_ps"] + compiled["dur_ps"] <= first["start_ps"] + first["dur_ps"] + 10**9
    assert not second["compile_ps"]
    assert run.table("machine").to_pylist()[0]["start_ps"] >= second["start_ps"]


COMPILED_JAX_JOB = """
    import jax, jax.numpy as jnp
    def loss(weights, x):
        for weight in weights:
            x = jnp.tanh(x @ weight)
        return (x ** 2).mean()
    @jax.jit
    def update(weights, x):
        return [w - 0.1 * g for w, g in zip(weights, jax.grad(loss)(weights, x))]
    weights = [jnp.eye(16) for _ in range(12)]
    for _ in range(30):
        weights = jax.block_until_ready(update(weights, jnp.ones((4, 16))))
"""


@pytest.mark.jax
def test_what_jax_compiled_before_the_recording_began_is_told(tmp_path):
    pytest.importorskip("jax")
    done = record(tmp_path / "run", sys.executable, write(tmp_path, COMPILED_JAX_JOB))
    assert done.returncode == 0, done.stderr
    run = open_run(tmp_path / "run")
    steps = run.table("steps").to_pylist()
    (update,) = [row for row in run.table("compilations").to_pylist() if "update" in (row["name"] or "")]
    assert update["step"] == 0
    assert 0 < update["dur_ps"] <= steps[0]["compile_ps"] <= steps[0]["dur_ps"]
    assert not any(step["compile_ps"] for step in steps[2:])


@pytest.mark.jax
def test_a_jax_job(tmp_path):
    pytest.importorskip("jax")
    job = write(tmp_path, JAX_JOB)
    expected = plain(sys.executable, job)
    done = record(tmp_path / "run", sys.executable, job, options=("--budget", "none"))
    assert (done.returncode, done.stdout) == (0, expected)
    assert done.stderr.startswith("recorded: 60 steps, ")
    assert done.stderr.count("\n") == 1
    run = open_run(tmp_path / "run")
    steps = run.table("steps").to_pylist()
    assert [step["step"] for step in steps] == list(range(60))
    assert {step["input_ps"] for step in steps} == {None}
    assert set(run.table("windows")["format"].to_pylist()) == {"xplane"}
    assert [shard.session.framework for shard in run.shards] == ["jax"]


@pytest.mark.jax
def test_a_script_with_a_recording_of_its_own_is_left_to_it(tmp_path):
    pytest.importorskip("jax")
    own = tmp_path / "own"
    job = write(
        tmp_path,
        f"""
        import jax
        from phasepoint import record

        step = jax.jit(lambda w: w - 0.1 * jax.grad(lambda w: (w * w).sum())(w))
        weight = jax.numpy.ones(2)
        with record({str(own)!r}) as run:
            for batch in run.steps(range(7)):
                weight = step(weight)
        """,
    )
    done = record(tmp_path / "run", sys.executable, job)
    assert done.returncode == 0
    assert open_run(own).table("steps").num_rows == 7
    assert open_run(tmp_path / "run").table("steps").num_rows == 0


def test_a_command_that_never_makes_a_step_says_so_and_leaves_a_readable_run(tmp_path):
    job = write(tmp_path, "import sys; print('out'); sys.exit(7)")
    done = record(tmp_path / "run", sys.executable, job)
    assert (done.returncode, done.stdout) == (7, "out\n")
    assert done.stderr.startswith("recorded: 0 steps, ")
    assert f"note: {tmp_path / 'run'}: no training step was recorded: no process of the job" in done.stderr
    run = open_run(tmp_path / "run")
    assert run.shards == ()
    assert run.table("steps").num_rows == 0
    assert run.manifest.command == (sys.executable, job)


def test_json_document(tmp_path):
    done = record(tmp_path / "run", sys.executable, "-c", "pass", options=("--json",))
    document = json.loads(done.stdout)
    assert {key: document[key] for key in ("kind", "steps", "windows", "hosts", "exit_code")} == {
        "kind": "record",
        "steps": 0,
        "windows": 0,
        "hosts": 0,
        "exit_code": 0,
    }


def test_a_job_ended_by_a_signal_has_the_shells_exit_code(tmp_path):
    job = write(tmp_path, "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    assert record(tmp_path / "run", sys.executable, job).returncode == 128 + signal.SIGKILL


def test_signals_reach_the_job(tmp_path):
    job = write(
        tmp_path,
        """
        import signal, sys
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(42))
        print("ready", flush=True)
        signal.pause()
        """,
    )
    words = [sys.executable, "-m", "phasepoint", "record", "--out", str(tmp_path / "run"), "--", sys.executable, job]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 42


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        (["no-such-command-at-all"], 10, "no-such-command-at-all: command not found"),
        (["."], 10, ".: cannot be started: Permission denied"),
    ],
)
def test_a_command_that_cannot_be_started(tmp_path, command, code, message):
    done = record(tmp_path / "run", *command)
    assert done.returncode == code
    assert done.stderr.startswith(f"error: {message}")


def test_an_empty_command_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="no command to record"):
        launch([], AutoOptions(str(tmp_path), 0.01, 5))
    done = record(tmp_path / "run")
    assert done.returncode == 2
    assert "COMMAND" in done.stderr


def test_an_output_that_is_no_run_is_left_alone(tmp_path):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").write_text("mine")
    for out in (tmp_path / "notes", tmp_path / "notes" / "mine.txt"):
        done = record(out, sys.executable, "-c", "print('ran')", options=("--force",))
        assert (done.returncode, done.stdout) == (12, "")
        assert done.stderr.startswith(f"error: {out}: exists and is no run")
    assert (tmp_path / "notes" / "mine.txt").read_text() == "mine"


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write everywhere")
def test_an_output_without_permission(tmp_path):
    tmp_path.chmod(0o500)
    done = record(tmp_path / "run", sys.executable, "-c", "print('ran')")
    assert (done.returncode, done.stdout) == (10, "")
    assert "Permission denied" in done.stderr


def test_an_output_below_a_file(tmp_path):
    (tmp_path / "file").write_text("")
    done = record(tmp_path / "file" / "run", sys.executable, "-c", "print('ran')")
    assert (done.returncode, done.stdout) == (10, "")
    assert done.stderr.startswith(f"error: {tmp_path / 'file' / 'run'}: Not a directory")


@pytest.mark.parametrize("budget", ["2", "-0.1", "much"])
def test_a_budget_outside_its_range(tmp_path, budget):
    done = record(tmp_path / "run", sys.executable, "-c", "print('ran')", options=("--budget", budget))
    assert (done.returncode, done.stdout) == (2, "")
    assert f"--budget {budget}" in done.stderr
    assert not (tmp_path / "run").exists()


def test_the_users_own_sitecustomize_still_runs(tmp_path):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("import builtins; builtins.theirs = 'ran'\n")
    job = write(
        tmp_path,
        """
        import builtins, sys
        print(builtins.theirs, sys.modules["sitecustomize"].__file__, [p for p in sys.path if "inject" in p])
        """,
    )
    environ = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    done = record(tmp_path / "run", sys.executable, job, env=environ)
    assert done.stdout == f"ran {tmp_path / 'site' / 'sitecustomize.py'} []\n"


def test_a_broken_sitecustomize_is_told_as_before(tmp_path):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("raise RuntimeError('on purpose')\n")
    environ = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    done = record(tmp_path / "run", sys.executable, "-c", "print('goes on')", env=environ)
    assert done.stdout == "goes on\n"
    assert "on purpose" in done.stderr


def test_a_program_that_is_no_program(tmp_path):
    broken = tmp_path / "broken"
    broken.write_text("\x00not a program")
    broken.chmod(0o755)
    with pytest.raises(RecordError, match=r"broken: cannot be started: Exec format error"):
        launch([str(broken)], AutoOptions(str(tmp_path / "run"), 0.01, 5))
