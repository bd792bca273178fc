"""`plan_replay`: which steps, which checkpoint, and the cost to the picosecond."""

from dataclasses import replace

import pytest
from replay_runs import FIRST_START_PS, analysed

from phasepoint.core.errors import NoDataError, ReplayError, UsageError
from phasepoint.core.units import PS_PER_MS
from phasepoint.replay.checkpoints import CheckpointIndex, index_checkpoints
from phasepoint.replay.plan.plan import plan_phases, plan_replay

N = 300
SLOW = range(150, 250)
DUR_MS = [25 if step in SLOW else 10 for step in range(N)]
WINDOWS = (20, 60, 100, 170, 200, 230, 270)


def _checkpoints(folder, steps, *, exist=True):
    rows = []
    for step in steps:
        path = folder / f"ckpt-{step}"
        if exist:
            path.write_bytes(b"state")
        rows.append({"step": step, "path": str(path)})
    return rows


@pytest.fixture
def made(tmp_path):
    def make(steps=(49, 99, 149, 189), *, exist=True, **options):
        rows = _checkpoints(tmp_path, steps, exist=exist)
        return analysed(tmp_path / "run", DUR_MS, windows=WINDOWS, checkpoints=rows, **options)

    return make


def _names(analysis):
    """The fast and the slow phase's names."""
    at = {
        int(step): analysis.names[int(label)] for step, label in zip(analysis.clock.step, analysis.labels, strict=True)
    }
    return at[50], at[200]


def test_the_representative_window_from_the_newest_checkpoint_before_it(made, tmp_path):
    analysis = made()
    _, slow = _names(analysis)
    phase = next(p for p in analysis.result.phases if p.name == slow)
    plan = plan_replay(analysis, slow)
    after = max(step for step in (49, 99, 149, 189) if step + 10 < plan.target_first)
    assert plan.target_first <= phase.representative <= plan.target_last
    assert plan.window is not None
    assert plan.target_first <= WINDOWS[plan.window] <= plan.target_last - 4
    assert plan.target_last == plan.target_first + 19
    assert (plan.checkpoint, plan.checkpoint_step) == (str(tmp_path / f"ckpt-{after}"), after)
    assert plan.first_step == after + 1
    assert plan.forward_steps == plan.last_step - plan.first_step + 1


def test_times_alone_are_reached_by_the_shortest_way(made):
    analysis = made()
    fast, slow = _names(analysis)
    plan = plan_replay(analysis, fast, from_start=True, steps=20, times_only=True)
    assert (plan.first_step, plan.target_first, plan.target_last) == (0, 10, 10)  # ten steps to warm up
    assert (plan.last_step, plan.compared_steps) == (30, 20)
    plan = plan_replay(analysis, slow, steps=20, times_only=True)
    assert (plan.checkpoint_step, plan.target_first, plan.target_last) == (149, 160, 160)
    assert plan.compared_steps == 20
    assert plan.last_step == 180


def test_times_alone_come_from_a_stretch_that_holds_as_many_as_are_asked_for(tmp_path):
    """The slow phase comes for thirty steps first, and for eighty later."""
    dur_ms = [25 if step in range(40, 70) or step in range(200, 280) else 10 for step in range(N)]
    analysis = analysed(tmp_path / "run", dur_ms, windows=WINDOWS)
    slow = analysis.names[int(analysis.labels[240])]
    plan = plan_replay(analysis, slow, from_start=True, steps=40, times_only=True)
    assert (plan.target_first, plan.compared_steps) == (200, 40)
    few = plan_replay(analysis, slow, from_start=True, steps=20, times_only=True)
    assert (few.target_first, few.compared_steps) == (40, 20)


def test_the_cost_is_the_sum_of_what_was_measured(made):
    analysis = made(compile_ms={0: 7, 1: 2, 5: 4})
    _, slow = _names(analysis)
    plan = plan_replay(analysis, slow)
    clock = analysis.clock
    steps = range(plan.first_step, plan.last_step + 1)
    forward_ps = sum(int(clock.dur_ps[step]) for step in steps)
    skip_ps = sum(int(clock.input_ps[step]) for step in range(plan.first_step))
    assert plan.startup_ps == FIRST_START_PS
    assert plan.compile_ps == 13 * PS_PER_MS
    assert plan.restore_ps == 5 * PS_PER_MS
    assert plan.skip_ps == skip_ps
    assert plan.forward_ps == forward_ps
    assert plan.outside_ps == 0
    assert plan.cost_ps == FIRST_START_PS + 18 * PS_PER_MS + skip_ps + forward_ps
    assert plan.full_ps == sum(session.wall_ps for session in clock.sessions)
    assert plan.ratio == plan.cost_ps / plan.full_ps


def test_starting_counts_from_the_process_where_that_is_known(tmp_path):
    def startup(name, notes):
        rows = _checkpoints(tmp_path, (149,))
        analysis = analysed(tmp_path / name, DUR_MS, windows=WINDOWS, checkpoints=rows, notes=notes)
        plan = plan_replay(analysis, _names(analysis)[1])
        return plan.startup_ps, plan.full_ps - analysis.clock.wall_ps

    age_ps = 2 * 10**12 + 7
    assert startup("a", {"process_age_ps": str(age_ps)}) == (FIRST_START_PS + age_ps, age_ps)
    for name, text in (("b", str(10**16)), ("c", "-5"), ("d", "9" * 40), ("e", "²")):
        assert startup(name, {"process_age_ps": text}) == (FIRST_START_PS, 0)


def analysed_with_costly_start(analysis):
    """The same with a wait for input as long as its step in every step before the first."""
    clock = analysis.clock
    return replace(analysis, clock=replace(clock, input_ps=clock.dur_ps, compile_ps=clock.dur_ps * 100))


def test_a_replay_that_costs_as_much_as_the_run_says_so(made):
    analysis = made((99,))
    _, slow = _names(analysis)
    assert not any("costs as much" in note for note in plan_replay(analysis, slow).notes)
    costly = analysed_with_costly_start(analysis)
    assert any("this costs as much as the whole run" in note for note in plan_replay(costly, slow).notes)


def test_from_the_start_needs_no_checkpoint_and_no_lead(made):
    analysis = made(())
    fast, _ = _names(analysis)
    plan = plan_replay(analysis, fast, from_start=True)
    assert (plan.checkpoint, plan.checkpoint_step, plan.first_step) == (None, None, 0)
    assert (plan.restore_ps, plan.skip_ps, plan.compile_ps) == (0, 0, 0)


def test_what_cannot_be_asked_for(made):
    analysis = made()
    with pytest.raises(UsageError, match=r"no phase 'nothing'; its phases \(with their ids\) are "):
        plan_replay(analysis, "nothing")
    with pytest.raises(UsageError, match="--steps -1: expected 0 or more"):
        plan_replay(analysis, "0", steps=-1)


def test_without_checkpoints_it_says_which_interval_would_have_paid(made):
    analysis = made(())
    _, slow = _names(analysis)
    with pytest.raises(NoDataError, match=r"no checkpoint was written before it; for one replay a checkpoint every "):
        plan_replay(analysis, slow)
    rows = plan_phases(analysis)
    assert all(row.plan is None and "--from-start" in row.reason for row in rows)


def test_checkpoints_that_are_gone(made):
    analysis = made(exist=False)
    _, slow = _names(analysis)
    with pytest.raises(ReplayError, match=r"none of the \d checkpoints before it can be used \(\d missing\)"):
        plan_replay(analysis, slow)


def test_a_run_without_windows_and_one_without_steps(tmp_path):
    with pytest.raises(NoDataError, match="no step was captured"):
        plan_replay(analysed(tmp_path / "a", DUR_MS), "0")
    with pytest.raises(NoDataError, match="no steps were recorded"):
        plan_replay(analysed(tmp_path / "b", []), "0")


def test_a_checkpoint_of_a_trainer_says_who_restores_it(made):
    analysis = made()
    _, slow = _names(analysis)
    plain = index_checkpoints(analysis)
    for framework, call in (("transformers", "trainer.train(resume_from_checkpoint=…)"), ("keras", "load_model")):
        written = tuple(replace(one, framework=framework) for one in plain.checkpoints)
        notes = plan_replay(analysis, slow, index=replace(plain, checkpoints=written)).notes
        assert any(f"hands run.resume.checkpoint to {call}" in note.replace("keras.models.", "") for note in notes)
    assert not any("trainer's" in note for note in plan_replay(analysis, slow, index=plain).notes)


def test_one_part_of_a_trainers_folder_leads_nowhere(tmp_path):
    torch = pytest.importorskip("torch")
    rows = _checkpoints(tmp_path, (49,))
    for step, state in ((99, {"python": 1, "numpy": 2, "cpu": torch.ones(1)}), (149, {"_step_count": 3})):
        path = tmp_path / str(step) / ("rng_state.pth" if step == 99 else "scheduler.pt")
        path.parent.mkdir()
        torch.save(state, path)
        rows.append({"step": step, "path": str(path), "framework": "torch", "bytes": path.stat().st_size})
    analysis = analysed(tmp_path / "run", DUR_MS, windows=WINDOWS, checkpoints=rows)
    _, slow = _names(analysis)
    plan = plan_replay(analysis, slow)
    assert plan.checkpoint_step == 49
    assert "nearer checkpoints that cannot be used: 2 holds no model" in plan.notes


def test_the_index_that_is_given_is_used(made):
    analysis = made()
    _, slow = _names(analysis)
    with pytest.raises(NoDataError, match="no checkpoint was written before it"):
        plan_replay(analysis, slow, index=CheckpointIndex(analysis.run.path, ()))
