"""Plans of generated runs against a slow oracle: which checkpoint, which steps, what they cost."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plan_oracle import best_plan
from replay_runs import analysed

from phasepoint.replay.checkpoints import CheckpointIndex, index_checkpoints
from phasepoint.replay.plan.plan import plan_phases
from phasepoint.replay.plan.ways import MOST_STEPS
from phasepoint.summary.summary import representative_row

PATTERN = (10, 10, 10, 10, 30, 30, 30, 10)
"""Milliseconds of blocks of steps, in turns."""


def _dur_ms(block, n):
    return [PATTERN[(step // block) % len(PATTERN)] for step in range(n)]


@pytest.fixture(scope="module")
def analyses(tmp_path_factory):
    """Three runs: long blocks, short ones, and one captured from end to end in windows of seven steps."""
    folder = tmp_path_factory.mktemp("oracle")
    rows = [{"step": None if step < 0 else step, "path": f"c{step}"} for step in range(-1, 396)]
    options = {"checkpoints": rows}
    return (
        analysed(folder / "long", _dur_ms(25, 400), windows=range(7, 390, 23), **options),
        analysed(folder / "short", _dur_ms(6, 400), windows=range(3, 390, 17), **options),
        analysed(folder / "all", _dur_ms(25, 400), windows=range(0, 393, 7), window_steps=7, **options),
    )


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    which=st.integers(0, 2),
    steps=st.sets(st.integers(-1, 395), min_size=1, max_size=9),
    broken=st.sets(st.integers(-1, 395), max_size=60),
    wanted=st.integers(0, 40),
)
def test_every_plan_is_the_oracles(analyses, which, steps, broken, wanted):
    analysis = analyses[which]
    known = index_checkpoints(analysis).checkpoints
    chosen = [one for one in known if (-1 if one.step is None else one.step) in steps]
    index = [replace(one, state="corrupt" if one.step in broken else "whole") for one in chosen]
    plans = plan_phases(analysis, index=CheckpointIndex(analysis.run.path, tuple(index)), steps=wanted)
    assert {row.phase_id for row in plans} == {phase.id for phase in analysis.result.phases}
    for row in plans:
        phase = next(one for one in analysis.result.phases if one.id == row.phase_id)
        if not phase.n_captured:
            continue
        step = int(analysis.clock.step[representative_row(analysis.clock, analysis.result, phase, analysis.estimates)])
        expected = best_plan(analysis, phase, index, wanted=wanted, representative=step)
        if expected is None:
            assert row.plan is None or row.plan.window is None
            continue
        plan = row.plan
        after = -1 if plan.checkpoint_step is None else plan.checkpoint_step
        found = ((plan.target_first, plan.target_last), after, plan.first_step, plan.last_step)
        assert (*found, plan.compared_steps, plan.forward_ps, plan.skip_ps) == expected
        target = analysis.labels[plan.target_first : plan.target_last + 1]
        assert (target == row.phase_id).sum() <= MOST_STEPS
        parts = (plan.startup_ps, plan.compile_ps, plan.restore_ps, plan.skip_ps, plan.forward_ps, plan.outside_ps)
        assert plan.cost_ps == sum(parts)
