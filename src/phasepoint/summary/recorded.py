"""What a recording holds, counted the moment it ends: nothing is analysed or converted for it."""

from phasepoint.phases.clock.accounting import recording_cost
from phasepoint.phases.clock.steps import LAST_SEEN, last_seen_ps, read_clock
from phasepoint.store import Run
from phasepoint.summary.enough import find_shortfall, noted_budget
from phasepoint.summary.types import Recorded


def count_recorded(run: Run) -> Recorded:
    """Count what a recording holds.

    Raises:
        StoreError: its tables cannot be read.
    """
    tables = {name: run.table(name) for name in ("steps", "counters", *LAST_SEEN)}
    clock = read_clock(tables["steps"], run.shards, last_seen_ps(tables))
    return Recorded(
        steps=clock.n_steps,
        windows=tables["windows"].num_rows,
        processes=len({shard.host for shard in run.shards}),
        machines=max(len(run.hostnames), 1),
        cost=recording_cost(clock, tables["windows"], tables["counters"], noted_budget(run)),
        not_enough=find_shortfall(run, clock, tables),
    )
