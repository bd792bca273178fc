"""A PyTorch job recorded with two lines: what is in the run, and that the training is the same to the last bit."""

import json

import pytest

torch = pytest.importorskip("torch")

from phasepoint.recorder import record  # noqa: E402
from phasepoint.store import open_run  # noqa: E402

pytestmark = pytest.mark.torch


def train(steps, save):
    """A small training run; gives its losses and final parameters as exact hexadecimal."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Dropout(0.5), torch.nn.Linear(16, 1))
    optimizer = torch.optim.Adam(net.parameters())
    data = torch.utils.data.TensorDataset(torch.randn(160, 8), torch.randn(160, 1))
    losses = []
    for x, y in steps(torch.utils.data.DataLoader(data, batch_size=4, shuffle=True)):
        loss = torch.nn.functional.mse_loss(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item().hex())
        if len(losses) == 20:
            save(net)
    return losses, [value.hex() for p in net.parameters() for value in p.flatten().tolist()]


def test_steps_windows_and_checkpoints_of_a_real_job(tmp_path, capfd):
    path = tmp_path / "net.pt"
    expected = train(lambda loader: loader, lambda net: None)
    with record(tmp_path / "run", budget=None, window_steps=3, framework="torch") as run:
        recorded = train(run.steps, lambda net: torch.save(net.state_dict(), path))
    assert run.off_reason is None
    assert recorded == expected
    assert capfd.readouterr() == ("", "")

    run = open_run(tmp_path / "run")
    assert run.problems == ()
    steps = run.table("steps").to_pylist()
    assert [step["step"] for step in steps] == list(range(40))
    assert all(0 < step["input_ps"] < step["dur_ps"] for step in steps)
    assert [(c["step"], c["path"], c["bytes"]) for c in run.table("checkpoints").to_pylist()] == [
        (19, str(path), path.stat().st_size)
    ]
    windows = run.table("windows").to_pylist()
    assert len(windows) > 3
    for window in windows:
        data = json.loads(run.read_raw("host=00000", window["raw"]))
        names = [event["name"] for event in data["traceEvents"] if event.get("ph") == "X"]
        numbers = range(window["first_step"], window["last_step"] + 1)
        captured = [name for name in names if name.startswith("phasepoint.step#")]
        # the loader is asked once more than it has batches, which no step comes of
        assert captured[: len(numbers)] == [f"phasepoint.step#{number}" for number in numbers]
        assert captured[len(numbers) :] in ([], ["phasepoint.step#40"])
        assert names.count("Optimizer.step#Adam.step") == len(numbers)
        assert window["bytes"] > 10_000


def test_the_users_profiler_in_the_middle_of_a_recording(tmp_path):
    with record(tmp_path / "run", budget=None, window_steps=2, framework="torch") as run:
        weight = torch.ones(8, 8, requires_grad=True)
        for step in run.steps(range(30)):
            if step == 10:
                with torch.profiler.profile() as theirs:
                    (weight @ weight).sum().backward()
            (weight @ weight).sum().backward()
    assert run.off_reason is None
    assert "aten::mm" in {event.name for event in theirs.events()}
    run = open_run(tmp_path / "run")
    windows = run.table("windows").to_pylist()
    assert run.table("steps").num_rows == 30
    assert max(window["last_step"] for window in windows) > 20
    for window in windows:
        assert json.loads(run.read_raw("host=00000", window["raw"]))["traceEvents"]


def test_dynamo_tells_what_is_compiled_again_and_why(tmp_path):
    torch.compiler.reset()

    @torch.compile(backend="eager", dynamic=False)
    def forward(x):
        return (x * 2).sum()

    with record(tmp_path / "run", budget=0, framework="torch") as run:
        for index in run.steps(range(6)):
            forward(torch.ones(8 if index < 3 else 7))
    torch.compiler.reset()
    assert run.off_reason is None
    first, again = open_run(tmp_path / "run").table("compilations").to_pylist()
    assert (first["name"], first["step"], first["again"], first["why"]) == ("forward", 0, False, None)
    assert (again["name"], again["step"], again["again"]) == ("forward", 3, True)
    assert again["why"].startswith("tensor 'x' size mismatch at index 0. expected 8, actual 7")
    steps = open_run(tmp_path / "run").table("steps").to_pylist()
    assert [step["step"] for step in steps if step["compile_ps"]] == [0, 3]
    assert all(0 < row["dur_ps"] <= steps[row["step"]]["dur_ps"] for row in (first, again))
