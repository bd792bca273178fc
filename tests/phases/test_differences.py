"""What tells phases of one kind apart, word for word."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

from phasepoint.phases.clock.breakdown import FEW, OpTime
from phasepoint.phases.detection.detect import detect_phases
from phasepoint.summary.differences import tell_differences

MS = 10**9
NO_OPS = SimpleNamespace(phase_ops={}, phases={})


def run_of(*stretches, batch=None):
    """Steps in stretches of (number, ms), and their phases."""
    rng = np.random.default_rng(0)
    dur = np.concatenate([ms * np.exp(0.01 * rng.normal(size=n)) for n, ms in stretches])
    columns = {"step": np.arange(len(dur)), "dur_ps": np.asarray(dur * MS, np.int64)}
    steps = pa.table(columns)
    if batch is not None:
        elements = np.repeat(batch, [n for n, _ in stretches])
        steps = steps.append_column("batch_elements", pa.array(elements, pa.int64()))
    return detect_phases(steps), steps


def op(name, self_ps, half_ps=0, layer=None):
    return OpTime(name, "compute", layer, None, 1, self_ps, self_ps - half_ps, self_ps + half_ps, 0.5)


def test_a_slower_stretch_for_good():
    result, steps = run_of((300, 10.0), (200, 14.0))
    assert [phase.name for phase in result.phases] == ["train-1", "train-2"]
    assert tell_differences(result, steps, NO_OPS) == {1: "1.4 × as long, from step 300 on"}


def test_slow_steps_say_in_their_name_how_slow_they_are():
    result, steps = run_of(*(((49, 10.0), (1, 40.0)) * 10))
    assert [phase.name for phase in result.phases] == ["train", "slow 4 ×"]
    assert tell_differences(result, steps, NO_OPS) == {1: "10 stretches from step 49 on"}


def test_another_batch_is_named_first():
    result, steps = run_of((500, 10.0), (200, 20.0), batch=(1000, 2000))
    assert tell_differences(result, steps, NO_OPS) == {1: "2.0 × the batch, 2.0 × as long, from step 500 on"}


def test_a_batch_that_is_hardly_known_is_not_told():
    result, steps = run_of((500, 10.0), (200, 20.0))
    unknown = steps.append_column("batch_elements", pa.array([None] * 699 + [7], pa.int64()))
    assert tell_differences(result, unknown, NO_OPS) == {1: "2.0 × as long, from step 500 on"}


@pytest.mark.parametrize(
    ("slower_ps", "half_ps", "told"),
    [
        (9 * MS, 0, ": most of it aten::mm in Net/Linear_0 (+8.00 ms a step)"),
        (9 * MS, 20 * MS, ""),  # not sure
        (2 * MS, 0, ""),  # one tenth of the difference
    ],
)
def test_the_op_that_explains_most(slower_ps, half_ps, told):
    result, steps = run_of((500, 10.0), (200, 20.0))
    ops = {
        0: (op("aten::mm", 500 * MS, layer="Net/Linear_0"), op("other", 4000 * MS)),
        1: (op("aten::mm", 200 * slower_ps, 200 * half_ps, layer="Net/Linear_0"), op("other", 2000 * MS)),
    }
    known, few = ({i: SimpleNamespace(basis=basis) for i in ops} for basis in ("estimated", FEW))
    found = tell_differences(result, steps, SimpleNamespace(phase_ops=ops, phases=known))
    assert found == {1: f"2.0 × as long, from step 500 on{told}"}
    by_few = tell_differences(result, steps, SimpleNamespace(phase_ops=ops, phases=few))
    assert by_few == {1: "2.0 × as long, from step 500 on"}, "ops of the captured steps alone tell nothing of a step"


def test_stretches_that_return():
    result, steps = run_of((100, 10.0), (50, 16.0), (100, 10.0), (50, 16.0), (100, 10.0))
    kinds = [replace(phase, kind="train") for phase in result.phases]
    told = tell_differences(replace(result, phases=tuple(kinds)), steps, NO_OPS)
    assert told == {1: "1.6 × as long, 2 stretches from step 100 on"}


def test_an_only_phase_has_nothing_to_differ_from():
    result, steps = run_of((300, 10.0))
    assert tell_differences(result, steps, NO_OPS) == {}


def test_more_operations_on_the_same_batch():
    result, steps = run_of((500, 10.0), (200, 14.0), batch=(1000, 1000))
    more = steps.append_column("graph_nodes", pa.array([30] * 500 + [39] * 200, pa.int64()))
    assert tell_differences(result, more, NO_OPS) == {1: "1.3 × the operations, 1.4 × as long, from step 500 on"}


def test_damaged_sizes_beyond_what_a_float_holds():
    result, steps = run_of((500, 10.0), (200, 20.0), batch=(2**62 + 1, 2**62 + 1))
    assert tell_differences(result, steps, NO_OPS) == {1: "2.0 × as long, from step 500 on"}
