"""A plan in words: what a replay will tell, what its reader must know, which checkpoint interval is worth its price."""

from math import isqrt

from phasepoint.core.units import format_counted, format_ps
from phasepoint.replay.plan.starts import RestartPoint, count_refused
from phasepoint.replay.plan.ways import LEAD_STEPS, Way


def best_interval_ps(write_ps: int, run_ps: int, replays: int = 1) -> int:
    """The interval between checkpoints at which writing them and running forward from them cost least together.

    A run of `R` writes `R / T` checkpoints at `W` each. A replay of a random place runs forward `T / 2` from the
    checkpoint before it, on average; `k` replays run `k T / 2`. The sum

        C(T) = W R / T + k T / 2

    has its only minimum where both are equal: T* = √(2 W R / k), where it is √(2 k W R).

    Args:
        write_ps: what writing one checkpoint costs the job, ps, 0 or more.
        run_ps: length of the run, ps.
        replays: places that will be replayed, 1 or more.

    Returns:
        ps, at least 1 and at most the run: then the start of the run is the one place to start from.

    Source: the argument of Young, "A first order approximation to the optimum checkpoint interval", CACM 17(9), 1974,
    with replays in the place of failures: there `R / k` is the mean time between failures, and T* = √(2 W M).
    """
    if write_ps < 0 or run_ps <= 0 or replays < 1:
        raise ValueError(f"write_ps {write_ps}, run_ps {run_ps}, replays {replays}: expected 0, 1 and 1 or more")
    return min(max(isqrt(2 * write_ps * run_ps // replays), 1), run_ps)


PS_OF_UNKNOWN_WRITE = 10**12
"""1 s: stands for the time to write a checkpoint where none was written, and is said to be an example."""


def tell_what_for(phase: str, way: Way) -> tuple[str, ...]:
    """What the replay will tell."""
    target = way.target
    n = target.last_step - target.first_step + 1
    steps = f"step {target.first_step}" if n == 1 else f"{n} steps ({target.first_step}–{target.last_step})"
    tells = [f"what the time of {phase} goes into, op by op: {steps} captured"]
    if way.compared.steps:
        tells.append(f"the step time of {phase}, from {name_count(way.compared.steps)} that run without capture")
    same = "whether it is still the same: programs, ops, step times and logged scalars against the original's"
    return (*tells, same)


def write_notes(phase: str, way: Way, wanted_steps: int, full_ps: int) -> tuple[str, ...]:
    """What the reader of a plan must know.

    Args:
        phase: its name.
        way: the way chosen.
        wanted_steps: steps that were to be compared.
        full_ps: what the whole run took.
    """
    notes, target, representative = [], way.target, way.representative
    if representative.window is None:
        notes.append(
            f"no window captured {phase}: the step clock chose the target, and there are no ops to compare with"
        )
    elif target.window is None:
        notes.append(
            f"the phase's captured windows (steps {representative.first_step}–{representative.last_step} and others) "
            f"leave no {LEAD_STEPS} steps to warm up after a checkpoint: the target is other steps of it"
        )
    elif target is not representative:
        notes.append(
            f"not the representative window (steps {representative.first_step}–{representative.last_step}): "
            "another captured window of the phase costs less to reach"
        )
    if way.point is None:
        notes.append("from the start of the job: nothing is restored")
    else:
        notes += _checkpoint_notes(way.point, way)
    if way.compared.steps < wanted_steps:
        notes.append(f"the phase has {name_count(way.compared.steps)} there to compare, not {wanted_steps}")
    if way.compared.captured:
        notes.append(
            f"{way.compared.captured:,} of the steps to compare were captured in the original, which slowed them"
        )
    if way.cost.cost_ps >= full_ps:
        notes.append(f"this costs as much as the whole run ({format_ps(full_ps)}): running that again tells more")
    return tuple(notes)


RESUMING = {
    "transformers": "trainer.train(resume_from_checkpoint=…)",
    "accelerate": "accelerator.load_state(…)",
    "lightning": "trainer.fit(…, ckpt_path=…)",
    "keras": "keras.models.load_model(…) or model.load_weights(…)",
}
"""By framework whose trainer owns the loop, its own way to go on from a checkpoint; `replay run` restores nothing."""


def _checkpoint_notes(point: RestartPoint, way: Way) -> list[str]:
    notes, one, first_step = [], point.checkpoint, way.target.first_step
    nearest = way.passed_by.newest_before(first_step)
    if nearest is not None and nearest.after_step > point.after_step:
        notes.append(
            f"a nearer checkpoint, after step {nearest.after_step}, leaves less than {LEAD_STEPS} steps to warm up"
        )
    broken = way.passed_by.refused_between(point.after_step, first_step)
    if broken:
        notes.append(f"nearer checkpoints that cannot be used: {count_refused(broken)}")
    if one.state == "unknown":
        notes.append(
            f"whether the checkpoint is still whole cannot be told from here: {one.problem or 'not looked at'}"
        )
    if one.has_optimizer is False:
        notes.append("no optimizer state in the checkpoint: step times can be compared, losses cannot")
    if one.framework in RESUMING:
        how = RESUMING[one.framework]
        notes.append(f"a trainer's checkpoint: the program hands run.resume.checkpoint to {how} and marks its steps")
    return notes


def advise_interval(write_ps: int | None, run_ps: int, n_steps: int) -> str:
    """Which checkpoint interval would have been worth its price.

    Args:
        write_ps: time to write a checkpoint as the run measured it, None where it did not.
        run_ps: length of the run.
        n_steps: its steps, 1 or more.
    """
    basis = "as measured"
    if write_ps is None:
        write_ps, basis = PS_OF_UNKNOWN_WRITE, "an example: no time to write one was measured"
    interval_ps = best_interval_ps(write_ps, max(run_ps, 1))
    steps = max(interval_ps * n_steps // max(run_ps, 1), 1)
    return (
        f"for one replay a checkpoint every {steps:,} steps ({format_ps(interval_ps)}) would have been worth its price "
        f"({format_ps(write_ps)} each, {basis})"
    )


def name_count(count: int) -> str:
    """`1 step`, `1,200 steps`."""
    return format_counted(count, "step")
