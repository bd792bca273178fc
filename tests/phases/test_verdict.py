"""The verdict, word for word."""

from dataclasses import replace

from phasepoint.phases.clock.accounting import measured_breakdown
from phasepoint.phases.clock.breakdown import OpTime
from phasepoint.summary.summary import write_verdict
from phasepoint.summary.types import PhaseSummary, RunEvent

S = 10**12
EVENT = RunEvent("input-stall", 0, 0, 400, 600, 0, 0, 9 * S, "")
PHASE = PhaseSummary(**dict.fromkeys(PhaseSummary.__dataclass_fields__) | {"name": "train", "top_ops": ()})
CONV = OpTime("fusion.3", "compute", "Conv_0", "jit_step", 9, 1, 1, 1, 0.34)


def verdict(totals, *, phases=(), events=(), hosts=1):
    account = measured_breakdown(sum(totals.values()), totals)
    return write_verdict(account, phases, events, hosts=hosts, elapsed_ps=account.total_ps // max(hosts, 1))


def test_largest_first_with_the_op_that_stands_out_and_where_it_waited():
    text = verdict(
        {"train": 61 * S, "input wait": 18 * S, "compiling": 9 * S, "eval": 12 * S},
        phases=[replace(PHASE, top_ops=(CONV,))],
        events=[EVENT],
    )
    assert text == (
        "61 % of 100 s went into train steps (fusion.3 in Conv_0 34 % of their op time); "
        "18 % waiting for input, most of it in steps 400–600; 12 % eval steps; 9 % compiling"
    )


def test_waiting_in_many_places():
    events = [replace(EVENT, cost_ps=S)] * 3
    assert verdict({"input wait": 3 * S}, events=events) == "100 % of 3.00 s went into waiting for input in 3 stretches"
    one = [replace(EVENT, last_step=400)]
    assert verdict({"input wait": 3 * S}, events=one) == "100 % of 3.00 s went into waiting for input in step 400"


def test_small_parts_are_left_to_the_table():
    assert verdict({"train": 990, "eval": 10}) == "99 % of 1.00 ns went into train steps"


def test_outside_steps_checkpoints_and_hosts():
    events = [replace(EVENT, kind="checkpoint")] * 2
    text = verdict({"outside steps": 6 * S, "checkpoint": 3 * S, "eval, outside steps": 1 * S}, events=events, hosts=2)
    assert text == "60 % of 2 × 5.00 s passed outside steps; 30 % 2 checkpoints; 10 % eval, outside steps"


def test_phases_of_one_sort_are_one_part():
    text = verdict({"train-1": 3 * S, "compiling": 4 * S, "train-2": 3 * S}, phases=[replace(PHASE, name="train-2")])
    assert text == "60 % of 10.0 s went into train steps; 40 % compiling"


def test_nothing_recorded():
    assert verdict({}) == "nothing was recorded: no steps and no time"
