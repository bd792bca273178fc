"""Runs small jobs under the recorder with a fault in one of its hooks, each in a forked process of its own.

python hook_faults.py JOB FOLDER [count]

Prints a line of JSON for the job without the recorder, one for the job under it, and, unless it is to count alone, one
with a fault in each hook that the job reached.
"""

import atexit
import hashlib
import importlib
import json
import os
import pkgutil
import sys
import time
from functools import wraps
from pathlib import Path
from types import FunctionType

import numpy as np

import phasepoint.recorder
from phasepoint.recorder.autosteps.start import start_from_environ
from phasepoint.recorder.seam.guard import guarded, guarded_even_off
from phasepoint.recorder.seam.options import VARIABLE, AutoOptions

TUNING = dict.fromkeys(("loader", "kind", "verdict", "reason", "as_written", "chosen", "machine"), "")
TUNING |= {"spent_ps": 0, "won_ps": 0}
"""A row that a tuned loader keeps."""

HOOK_CODE = guarded(lambda self: None).__code__
"""Every guarded method is a closure over this code."""


def every_hook() -> dict[str, FunctionType]:
    """All guarded methods of the recorder, by `module:Class.method`."""
    found = {}
    for info in pkgutil.walk_packages(phasepoint.recorder.__path__, "phasepoint.recorder."):
        if ".inject" in info.name:
            continue
        module = importlib.import_module(info.name)
        for kind in vars(module).values():
            if isinstance(kind, type) and kind.__module__ == info.name:
                methods = {name: method for name, method in vars(kind).items() if isinstance(method, FunctionType)}
                found |= {
                    f"{info.name}:{kind.__name__}.{name}": method
                    for name, method in methods.items()
                    if method.__code__ is HOOK_CODE
                }
    return found


def plant(hook: str, reached: set[str], *, fails: bool) -> None:
    """Let a hook note that it was called and, if it is to, fail."""
    place, _, method = hook.rpartition(".")
    module, _, kind = place.partition(":")
    owner = getattr(importlib.import_module(module), kind)
    original = vars(owner)[method]
    inside = dict(
        zip(original.__code__.co_freevars, (cell.cell_contents for cell in original.__closure__), strict=True)
    )

    @wraps(inside["method"])
    def called(self, *args, **kwargs):
        reached.add(hook)
        if fails:
            raise RuntimeError("planted")
        return inside["method"](self, *args, **kwargs)

    setattr(owner, method, (guarded_even_off if inside["even_off"] else guarded)(called))


def torch_loader(folder: Path) -> str:
    """A loader, an optimizer, checkpoints, a profiler of the user's."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    torch.manual_seed(0)
    net = torch.nn.Linear(8, 8)
    optimizer = torch.optim.Adam(net.parameters())
    data = TensorDataset(torch.randn(400, 8), torch.randn(400, 8))
    for epoch in range(2):
        for x, y in DataLoader(data, batch_size=8):
            optimizer.zero_grad()
            (net(x) - y).square().mean().backward()
            optimizer.step()
        torch.save(net.state_dict(), folder / f"{epoch}.pt")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        net(x)
    return digest_of([p.detach().numpy() for p in net.parameters()])


def torch_by_hand(folder: Path) -> str:
    """Parameters changed in place, without optimizer and loader."""
    import torch

    torch.manual_seed(0)
    net = torch.nn.Linear(8, 8)
    for _ in range(60):
        net.zero_grad()
        net(torch.randn(8, 8)).square().mean().backward()
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.sub_(1e-3 * parameter.grad)
    return digest_of([p.detach().numpy() for p in net.parameters()])


def jax_optax(folder: Path) -> str:
    """A jitted step, `optax`, and a checkpoint of Orbax."""
    import jax
    import jax.numpy as jnp
    import optax
    import orbax.checkpoint as ocp

    optimizer = optax.adam(1e-3)

    @jax.jit
    def step(w, state, x):
        grads = jax.grad(lambda w: jnp.square(jax.nn.relu(x @ w)).mean())(w)
        updates, state = optimizer.update(grads, state)
        return optax.apply_updates(w, updates), state

    w = jnp.ones((8, 8))
    state = optimizer.init(w)
    for number in range(60):
        w, state = step(w, state, jnp.full((4, 8), float(number % 7)))
    saver = ocp.StandardCheckpointer()
    saver.save(folder / "saved", {"w": w})
    saver.wait_until_finished()
    saver.close()
    return digest_of([np.asarray(w)])


def jax_annotated(folder: Path) -> str:
    """Steps that the user marks, and several of them in one program."""
    import jax
    import jax.numpy as jnp

    @jax.jit
    def steps(w):
        return jax.lax.scan(lambda w, _: (w - 1e-3 * jax.grad(lambda w: jnp.square(w).sum())(w), None), w, None, 4)[0]

    w = jnp.ones((8, 8))
    for number in range(40):
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            w = steps(w)
    return digest_of([np.asarray(w)])


def jax_eager(folder: Path) -> str:
    """`optax` without a jitted step."""
    import jax
    import jax.numpy as jnp
    import optax

    optimizer, w = optax.sgd(1e-3), jnp.ones((8, 8))
    state = optimizer.init(w)
    for _ in range(30):
        grads = jax.grad(lambda w: jnp.square(w).sum())(w)
        updates, state = optimizer.update(grads, state)
        w = optax.apply_updates(w, updates)
    return digest_of([np.asarray(w)])


def two_lines(folder: Path) -> str:
    """The recorder's own interface."""
    import torch

    from phasepoint.recorder import record

    torch.manual_seed(0)
    net = torch.nn.Linear(8, 8)
    with record(folder / "run", budget=0.5) as run:
        for number in run.steps(range(60)):
            net(torch.randn(8, 8)).square().mean().backward()
            run.log(loss=number)
            run.keep("tunings", {**TUNING, "step": run.next_step()}, at_ns=time.perf_counter_ns())
            if number % 20 == 19:
                torch.save(net.state_dict(), folder / "0.pt")
                run.checkpoint(str(folder / "0.pt"))
                with run.checkpoint(folder / "0.npy"):
                    np.save(folder / "0.npy", net.weight.detach().numpy())
                with run.phase("eval"):
                    for _ in run.steps(range(3)):
                        net(torch.randn(8, 8))
    return digest_of([p.grad.numpy() for p in net.parameters()])


JOBS = {job.__name__: job for job in (torch_loader, torch_by_hand, jax_optax, jax_annotated, jax_eager, two_lines)}
FRAMEWORK = {"torch_loader": "torch", "torch_by_hand": "torch", "two_lines": "torch"}


def digest_of(arrays: list[np.ndarray]) -> str:
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()


def forked(job: str, folder: Path, hook: str | None, *, recorded: bool = True) -> dict:
    """The job in a process of its own: what it computed and said, how it ended, and which hooks it reached."""
    folder.mkdir(parents=True)
    child = os.fork()
    if not child:
        sys.stderr = (folder / "stderr").open("w", buffering=1)
        os.dup2(sys.stderr.fileno(), 2)
        os.chdir(folder)
        reached: set[str] = set()
        for name in [hook] if hook else every_hook() if recorded else []:
            plant(name, reached, fails=hook is not None)
        atexit.register(lambda: (folder / "reached").write_text(json.dumps(sorted(reached))))
        if recorded and job != "two_lines":
            os.environ[VARIABLE] = AutoOptions(str(folder / "run"), budget=0.5, window_steps=5).to_environ()
            start_from_environ()
        (folder / "digest").write_text(JOBS[job](folder))
        raise SystemExit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    texts = {name: (folder / name).read_text() if (folder / name).exists() else "" for name in ("digest", "stderr")}
    reached_file = folder / "reached"
    known = json.loads(reached_file.read_text()) if reached_file.exists() else []
    told = [path.read_text() for path in folder.glob("run/host=*/session.json")]
    return {"hook": hook, "status": status, "reached": known, "told": told, **texts}


def main() -> None:
    job, folder = sys.argv[1], Path(sys.argv[2])
    importlib.import_module(FRAMEWORK.get(job, "jax"))
    print(json.dumps(forked(job, folder / "plain", None, recorded=False)), flush=True)
    counted = forked(job, folder / "counted", None)
    print(json.dumps(counted), flush=True)
    for number, hook in enumerate(counted["reached"] if len(sys.argv) < 4 else ()):
        print(json.dumps(forked(job, folder / str(number), hook)), flush=True)


if __name__ == "__main__":
    main()
