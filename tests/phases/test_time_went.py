"""The sentence on what the time went into, word for word."""

from dataclasses import replace

from phasepoint.phases.clock.accounting import PHASE, PartKey, measured_account
from phasepoint.phases.clock.breakdown import OpTime
from phasepoint.summary.summary import tell_time
from phasepoint.summary.types import PhaseSummary, RunEvent

S = 10**12
EVENT = RunEvent("input-stall", 0, 0, 400, 600, 0, 0, 9 * S, "")
SOME_PHASE = PhaseSummary(**dict.fromkeys(PhaseSummary.__dataclass_fields__) | {"top_ops": ()})
CONV = OpTime("fusion.3", "compute", "Conv_0", "jit_step", 9, 1, 1, 1, 0.34)
INPUT, COMPILING, CHECKPOINT, OUTSIDE = (
    PartKey(kind) for kind in ("input wait", "compiling", "checkpoint", "outside steps")
)


def phases_of(*names, kinds=None, **changes):
    """Phases 0, 1, … of these names; of the kinds that these words are, or of others."""
    stems = [name.rpartition("-")[0] or name for name in names]
    numbered = enumerate(zip(names, kinds or stems, strict=True))
    return [replace(SOME_PHASE, id=number, name=name, kind=kind, **changes) for number, (name, kind) in numbered]


def told(totals, *, phases=(), events=(), hosts=1):
    """Of time by phase id or measured part."""
    by_key = {PartKey(PHASE, key) if isinstance(key, int) else key: time_ps for key, time_ps in totals.items()}
    account = measured_account(sum(totals.values()), by_key, {phase.id: phase.name for phase in phases})
    return tell_time(account, phases, events, hosts=hosts, elapsed_ps=account.total_ps // max(hosts, 1))


def test_largest_first_with_the_op_that_stands_out_and_where_it_waited():
    text = told(
        {0: 61 * S, INPUT: 18 * S, COMPILING: 9 * S, 1: 12 * S},
        phases=[*phases_of("train", top_ops=(CONV,)), replace(phases_of("eval")[0], id=1)],
        events=[EVENT],
    )
    assert text == (
        "61 % of 100 s went into train steps (fusion.3 in Conv_0 34 % of their op time); "
        "18 % waiting for input, most of it in steps 400–600; 12 % eval steps; 9 % compiling"
    )


def test_waiting_in_many_places():
    events = [replace(EVENT, cost_ps=S)] * 3
    assert told({INPUT: 3 * S}, events=events) == "100 % of 3.00 s went into waiting for input in 3 stretches"
    one = [replace(EVENT, last_step=400)]
    assert told({INPUT: 3 * S}, events=one) == "100 % of 3.00 s went into waiting for input in step 400"


def test_small_parts_are_left_to_the_table():
    assert told({0: 990, 1: 10}, phases=phases_of("train", "eval")) == "99 % of 1.00 ns went into train steps"


def test_outside_steps_checkpoints_and_hosts():
    events = [replace(EVENT, kind="checkpoint")] * 2
    named = PartKey("named", given="eval")
    text = told({OUTSIDE: 6 * S, CHECKPOINT: 3 * S, named: 1 * S}, events=events, hosts=2)
    assert text == "60 % of 2 × 5.00 s passed outside steps; 30 % 2 checkpoints; 10 % eval, outside steps"


def test_phases_of_one_sort_are_one_part():
    text = told({0: 3 * S, COMPILING: 4 * S, 1: 3 * S}, phases=phases_of("train-1", "train-2"))
    assert text == "60 % of 10.0 s went into train steps; 40 % compiling"


def test_nothing_recorded():
    assert told({}) == "nothing was recorded: no steps and no time"


def test_a_phase_that_is_called_like_a_measured_part_is_none():
    """The job may name its phases as it likes: only what the clock measured as such is a checkpoint, or compiling."""
    names = ("checkpoint", "compiling", "input stall", "outside steps", "input wait")
    phases = phases_of(*names, kinds=["named"] * len(names))
    text = told({number: (9 - number) * S for number in range(5)} | {CHECKPOINT: 65 * S}, phases=phases)
    assert text == (
        "65 % of 100 s went into a checkpoint; 9 % checkpoint steps; 8 % compiling steps; 7 % input stall steps; "
        "6 % outside steps steps"
    )


def test_a_stretch_that_is_called_like_a_measured_part_is_none():
    named = [PartKey("named", given=name) for name in ("checkpoint", "compiling", "outside steps")]
    text = told({named[0]: 40 * S, named[1]: 30 * S, named[2]: 20 * S, CHECKPOINT: 6 * S, COMPILING: 4 * S})
    assert text == (
        "40 % of 100 s passed checkpoint, outside steps; 30 % compiling, outside steps; "
        "20 % outside steps, outside steps; 6 % a checkpoint; 4 % compiling"
    )
