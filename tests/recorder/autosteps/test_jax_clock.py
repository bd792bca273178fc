"""Which program of a JAX job is its step, and that every one of its executions is seen."""

import subprocess
import sys
import textwrap

import pytest

from phasepoint.recorder.autosteps.evidence import Rank
from phasepoint.recorder.autosteps.sources.jax.programs import MOST_EARLY_EXECUTIONS, StepProgram

S = 1_000_000_000
"""Nanoseconds in a second."""


def run(chooser, *names, sizes, ranks=None, step_ns=S, from_ns=0):
    """Execute programs by name; gives the choices as they were made."""
    choices = []
    for at, name in enumerate(names):
        rank = (ranks or {}).get(name, Rank.REPEATED_PROGRAM)
        if chooser.executed(name, lambda name=name: sizes.get(name, 1), from_ns + at * step_ns, rank=rank):
            choices.append(chooser.chosen)
    return choices


def test_the_program_with_most_executions_times_bytes_is_the_step():
    chooser = StepProgram()
    sizes = {"train": 1000, "metric": 8, "augment": 100}
    assert run(chooser, *["augment", "train", "metric", "metric"] * 40, sizes=sizes) == ["train"]


def test_a_gradient_goes_before_work_and_an_update_before_a_gradient():
    ranks = {"micro": Rank.GRADIENT_PROGRAM, "update": Rank.UPDATE_PROGRAM}
    chooser = StepProgram()
    names = [*["eval"] * 5, *["micro", "micro", "micro", "update"] * 5]
    assert run(chooser, *names, sizes={"eval": 1000, "micro": 100}, ranks=ranks, step_ns=S // 10) == ["update"]
    chooser = StepProgram()
    assert run(chooser, *names[:8], sizes={"eval": 1000}, ranks=ranks, step_ns=S) == ["micro"]


def test_what_may_be_preparation_is_waited_for():
    chooser = StepProgram()
    assert run(chooser, *["prepare"] * 40, sizes={}, step_ns=S // 10) == []
    assert run(chooser, *["prepare"] * 20, sizes={}, step_ns=S // 10, from_ns=4 * S) == ["prepare"]


def test_an_update_outside_of_any_program_is_waited_for_where_a_library_for_it_is_there():
    ranks = {"gradient": Rank.GRADIENT_PROGRAM}
    chooser = StepProgram()
    assert run(chooser, *["gradient"] * 3, sizes={}, ranks=ranks) == ["gradient"]
    chooser = StepProgram()
    chooser.expects_updates = True
    assert run(chooser, *["gradient"] * 5, sizes={}, ranks=ranks) == []
    assert run(chooser, "gradient", sizes={}, ranks=ranks, from_ns=5 * S) == ["gradient"]


def test_many_executions_are_not_waited_for():
    chooser = StepProgram()
    run(chooser, *["tiny"] * MOST_EARLY_EXECUTIONS, sizes={}, step_ns=1)
    assert chooser.chosen == "tiny"


def test_a_gradient_that_was_taken_once_long_ago_holds_nothing_back():
    chooser = StepProgram()
    run(chooser, "check", sizes={}, ranks={"check": Rank.GRADIENT_PROGRAM})
    assert run(chooser, *["sample"] * 50, sizes={}) == []
    assert run(chooser, *["sample"] * 50, sizes={}, from_ns=50 * S) == ["sample"]


def test_times_before_the_choice_are_kept():
    chooser = StepProgram()
    run(chooser, "init", *["train"] * 5, sizes={"init": 5, "train": 9}, step_ns=2 * S)
    assert list(chooser.programs["train"].ends_ns)[:4] == [2 * S, 4 * S, 6 * S, 8 * S]
    assert chooser.programs["train"].began_ns == 2 * S


def test_a_program_that_prepared_the_data_gives_way():
    chooser = StepProgram()
    choices = run(chooser, *["prepare"] * 50, *["train"] * 100, sizes={"prepare": 10, "train": 1000})
    assert choices == ["prepare", "train"]


def test_a_stage_without_a_gradient_takes_over_when_training_is_over():
    chooser = StepProgram()
    ranks = {"train": Rank.GRADIENT_PROGRAM}
    assert run(chooser, *["train"] * 10, *["sample"] * 100, sizes={}, ranks=ranks) == ["train", "sample"]


def test_two_programs_of_like_weight_do_not_alternate():
    chooser = StepProgram()
    sizes = {"critic": 100, "generator": 110}
    assert run(chooser, *["critic"] * 50, *["generator", *["critic"] * 5] * 50, sizes=sizes) == ["critic"]


def test_a_program_that_runs_once_is_no_step():
    chooser = StepProgram()
    run(chooser, "a", "b", "c", sizes={})
    assert not chooser.choose()
    run(chooser, "b", sizes={})
    assert chooser.choose(least_executions=1)
    assert chooser.chosen == "b"


def test_the_short_way_counts_as_the_long_one_does():
    def chosen_after(short):
        chooser, choices = StepProgram(), []
        for number in range(400):
            name = "train" if number < 100 else "finetune"
            if short and name == chooser.chosen and chooser.repeated():
                continue
            if chooser.executed(name, lambda: 1, number * S):
                choices.append((number, name))
        return choices, [(p.executions, p.since_look) for p in chooser.programs.values()]

    assert chosen_after(short=True) == chosen_after(short=False)
    assert [name for _, name in chosen_after(short=True)[0]] == ["train", "finetune"]


def test_sizes_are_asked_once():
    asked = []
    chooser = StepProgram()
    for at in range(5):
        chooser.executed("train", lambda: asked.append(1) or 1, at)
    assert asked == [1]


JOB = """
    import jax, jax.numpy as jnp
    import functools
    from phasepoint.recorder.autosteps.late_recording import AutoOptions, LateRecording
    from phasepoint.recorder.autosteps.sources.jax.clock import JaxClock

    seen = []
    late = LateRecording(AutoOptions("unused", 0.01, 5))
    late.open = lambda *args, **kwargs: None
    clock = JaxClock(late)
    clock._executed = lambda key, name, size, began: seen.append(getattr(key, "co_name", key))
    clock.install()

    def took(function):
        seen.clear()
        function()
        return seen

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
    jax.jit(lambda x: jax.nn.log_softmax(jax.nn.relu(x)))(x)  # tracing it hides JAX's hooks from this thread
    print("after relu", took(lambda: [train(x) for _ in range(3)]))
    print("made anew", took(lambda: [jax.jit(lambda x: train(x) + 1)(x) for _ in range(3)]))
    print("partial", took(lambda: [jax.jit(functools.partial(train))(x) for _ in range(3)]))
    print("pmap", took(lambda: [jax.pmap(train)(x[None]) for _ in range(3)]))
    mesh = jax.make_mesh((1,), ("d",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = jax.sharding.PartitionSpec("d")
    sharded = jax.jit(jax.shard_map(train, mesh=mesh, in_specs=spec, out_specs=spec))
    print("shard_map", took(lambda: [sharded(x) for _ in range(3)]))
    lowered = jax.jit(jax.grad(lambda x: jax.nn.relu(x).sum())).lower(x)
    print("our lines in a program:", "phasepoint" in lowered.as_text(debug_info=True))
    from phasepoint.recorder.autosteps.evidence import Rank, StepEvidence
    for rank in (Rank.STEP_ANNOTATION, Rank.FRAMEWORK_LOOP):
        late.leader = StepEvidence(rank, "jax", "batches")
        print(rank.name, took(lambda: [*(train(x) for _ in range(3)), noisy(x)]))
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
    told = dict(line.rsplit(" [", 1) for line in lines if " [" in line)
    assert {what: names.rstrip("]").count("'") // 2 for what, names in told.items()} == {
        "same": 3,
        "recompiled": 3,
        "nested": 2,
        "gradient": len(told["gradient"].split(",")),
        "method": 2,
        "effects": 3,
        "compiled ahead": 3,
        "after relu": 3,
        "made anew": 3,
        "partial": 3,
        "pmap": 3,
        "shard_map": 3,
        "STEP_ANNOTATION": 0,
        "FRAMEWORK_LOOP": 4,
        "after debug_nans": 4,
    }
    assert told["nested"] == "'outer', 'outer']"
    assert told["method"] == "'step', 'step']"
    assert told["compiled ahead"] == "'train', 'train', 'train']"
    assert "our lines in a program: False" in lines
    assert lines[-2:] == ["nan is still found", "None"]
