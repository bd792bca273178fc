"""Which program of a JAX job is its step, and that every one of its executions is seen."""

import subprocess
import sys
import textwrap

import pytest

from phasepoint.recorder.jax_clock import StepProgram


def run(chooser, *names, sizes):
    """Execute programs by name; gives the choices as they were made."""
    choices = []
    for at, name in enumerate(names):
        if chooser.executed(name, lambda name=name: sizes[name], at):
            choices.append(chooser.name)
    return choices


def test_the_program_with_most_executions_times_bytes_is_the_step():
    chooser = StepProgram()
    sizes = {"train": 1000, "metric": 8, "augment": 100}
    assert run(chooser, *["augment", "train", "metric", "metric"] * 40, sizes=sizes) == ["train"]


def test_times_before_the_choice_are_kept():
    chooser = StepProgram()
    run(chooser, "init", "train", "train", "train", "train", "train", sizes={"init": 5, "train": 9})
    assert chooser.first_times_ns() == [1, 2, 3, 4]


def test_a_program_that_prepared_the_data_gives_way():
    chooser = StepProgram()
    choices = run(chooser, *["prepare"] * 50, *["train"] * 100, sizes={"prepare": 10, "train": 1000})
    assert choices == ["prepare", "train"]


def test_two_programs_of_like_weight_do_not_alternate():
    chooser = StepProgram()
    sizes = {"critic": 100, "generator": 110}
    assert run(chooser, *["critic"] * 5, *["generator", *["critic"] * 5] * 50, sizes=sizes) == ["critic"]


def test_a_program_that_runs_once_is_no_step():
    chooser = StepProgram()
    run(chooser, "a", "b", "c", sizes={"a": 1, "b": 1, "c": 1})
    assert not chooser.choose()
    run(chooser, "b", sizes={})
    assert chooser.choose()
    assert chooser.name == "b"


def test_sizes_are_asked_once():
    asked = []
    chooser = StepProgram()
    for at in range(5):
        chooser.executed("train", lambda: asked.append(1) or 1, at)
    assert asked == [1]


JOB = """
    import jax, jax.numpy as jnp
    import functools
    from phasepoint.recorder.autosteps import AutoOptions, LateRecording
    from phasepoint.recorder.jax_clock import JaxClock

    seen = []
    clock = JaxClock(LateRecording(AutoOptions("unused", 0.01, 5)))
    clock._executed = lambda name, size: seen.append(name)
    clock.install()

    def took(function):
        seen.clear()
        function()
        return [name for name in seen if name in ("train", "inner", "lambda", "_lambda_", "step", "noisy", "outer")]

    @jax.jit
    def train(x):
        return x * 2

    x, y = jnp.ones(3), jnp.ones(4)
    print("same", took(lambda: [train(x) for _ in range(3)]))
    print("recompiled", took(lambda: [train(y) for _ in range(3)]))

    @jax.jit
    def outer(x):
        return train(x) + 1

    print("nested", took(lambda: [outer(x) for _ in range(2)]))
    print("gradient", took(lambda: [jax.grad(lambda x: train(x).sum())(x) for _ in range(2)])[-1:])

    class Model:
        @functools.partial(jax.jit, static_argnums=0)
        def step(self, x):
            return x + 1

    model = Model()
    print("method", took(lambda: [model.step(x) for _ in range(2)]))

    @jax.jit
    def noisy(x):
        jax.debug.callback(lambda s: None, x.sum(), ordered=True)
        return x

    print("effects", took(lambda: [noisy(x) for _ in range(3)]))
    compiled = train.lower(x).compile()
    print("compiled ahead", took(lambda: [compiled(x) for _ in range(3)]))
    jax.config.update("jax_debug_nans", True)
    print("after debug_nans", took(lambda: [train(x) for _ in range(4)]))
    try:
        print("nan", jax.jit(lambda x: x / 0 * 0)(x))
    except FloatingPointError:
        print("nan is still found")
    print(clock.guard.reason)
"""


@pytest.mark.jax
def test_every_execution_is_seen():
    pytest.importorskip("jax")
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(JOB)], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "same ['train', 'train', 'train']"
    assert lines[1] == "recompiled ['train', 'train', 'train']"
    assert lines[2] == "nested ['outer', 'outer']"
    assert lines[4] == "method ['step', 'step']"
    assert lines[5] == "effects ['noisy', 'noisy', 'noisy']"
    assert lines[7] == "after debug_nans ['train', 'train', 'train', 'train']"
    assert lines[-2:] == ["nan is still found", "None"]
