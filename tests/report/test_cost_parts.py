from phasepoint.phases.clock.accounting import RecordingCost
from phasepoint.report.words.wording import cost_parts


def test_the_parts_of_the_recordings_cost_add_up_to_it():
    cost = RecordingCost(
        start_ps=1, slowdown_ps=2, stop_ps=4, write_ps=8, convert_ps=16, total_ps=511, share=None, budget=None,
        within_budget=None, entry_ps=32, clock_ps=64, flush_ps=128, wait_ps=256,
    )  # fmt: skip
    assert sum(time_ps for _, time_ps in cost_parts(cost)) == cost.total_ps
