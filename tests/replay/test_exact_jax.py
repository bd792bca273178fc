"""The JAX example, replayed from each of its checkpoints, does bit for bit what it did."""

import pytest
from exact_jobs import CHECKPOINT_EVERY, STEPS
from exactness import PARTS, equal_parts, fidelity, replayed

pytest.importorskip("jax")
pytest.importorskip("grain")
pytestmark = pytest.mark.jax


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return replayed("jax_orbax_grain", tmp_path_factory.mktemp("jax"))


def test_every_checkpoint_leads_to_the_same_steps(runs):
    _, original, replays = runs
    names = [name for name in replays if name.startswith("replay-")]
    assert len(names) == STEPS // CHECKPOINT_EVERY
    for number, name in enumerate(names, 1):
        expected = [str(step) for step in range(number * CHECKPOINT_EVERY + 1, STEPS + 1)]
        assert list(replays[name]["steps"]) == expected
        assert equal_parts(original, replays[name]) == dict.fromkeys(PARTS, expected), name
        assert replays[name]["final"] == original["final"]


def test_a_replay_is_said_to_have_the_same_loss(runs):
    folder, _, replays = runs
    found = fidelity(folder, f"replay-{2 * CHECKPOINT_EVERY - 1}", replays)
    loss = next(one for one in found.scalars if one.name == "loss")
    left = STEPS - 2 * CHECKPOINT_EVERY
    assert (loss.values, loss.equal, loss.unmatched) == (left, left, 0)
    assert {one.code for one in found.differences} <= {"ops", "step-time", "machine"}  # the machine's doing
    assert found.programs.same == 1
    assert not found.programs.differs


@pytest.mark.parametrize("part", ["iterator", "random"])
def test_a_state_restored_in_part_is_told(runs, part):
    folder, original, replays = runs
    name = f"without-{part}"
    assert equal_parts(original, replays[name])["loss"] == []
    assert equal_parts(original, replays[name])["params"] == []
    found = fidelity(folder, name, replays)
    assert found.verdict == "differs"
    told = {one.code: one.text for one in found.differences}
    assert "in the first common step" in told["data"]
    assert "other data or another state" in told["data"]
    assert "program" not in told
