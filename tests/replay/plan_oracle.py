"""The plan of a replay once more, slowly: every checkpoint against every captured stretch, sums step by step."""

from phasepoint.replay.checkpoints import refusal
from phasepoint.replay.plan.ways import BRIDGE

LEAD, MOST = 10, 20


def best_plan(analysis, phase, checkpoints, *, wanted, representative):
    """Of one host's first attempt: (target, after which step, first, last step, compared, forward ps, skip ps).

    None where no captured stretch can be reached.
    """
    steps = _steps(analysis)
    stretches = _stretches(steps, phase.id)
    chosen = next(s for s in stretches if representative in s)
    ranked = [_widened(steps, phase.id, s) for s in (chosen, *(s for s in stretches if s is not chosen))]
    usable = sorted({_after(one) for one in checkpoints if refusal(one) is None})
    found = []
    for rank, stretch in enumerate(ranked):
        before = [after for after in usable if after < stretch[0]]
        with_lead = [after for after in before if stretch[0] - (after + 1) >= LEAD]
        if not with_lead:
            continue
        way = _way(steps, phase.id, stretch, with_lead[-1], wanted)
        if rank == 0 and with_lead[-1] == before[-1]:
            return way
        found.append(way)
    # Restoring costs the same everywhere in these runs, so what is run and what is skipped decide.
    return min(found, key=lambda way: way[-1] + way[-2], default=None)


def _steps(analysis):
    clock, window = analysis.clock, analysis.estimates.window
    columns = (clock.step, clock.dur_ps, clock.input_ps, analysis.labels, window)
    return [tuple(int(value) for value in row) for row in zip(*columns, strict=True)]


def _stretches(steps, phase):
    found = []
    for number, _, _, label, window in steps:
        if label != phase or window < 0:
            continue
        if found and found[-1][1] == window and found[-1][0][-1] == number - 1:
            found[-1][0].append(number)
        else:
            found.append(([number], window))
    return [numbers for numbers, _ in found]


def _widened(steps, phase, stretch):
    mine = [number for number, _, _, label, _ in steps if label == phase]
    i, j = mine.index(stretch[0]), mine.index(stretch[-1])
    while j - i + 1 < MOST and j + 1 < len(mine) and mine[j + 1] - mine[j] <= BRIDGE + 1:
        j += 1
    while j - i + 1 < MOST and i > 0 and mine[i] - mine[i - 1] <= BRIDGE + 1:
        i -= 1
    return mine[i : j + 1]


def _after(one):
    return -1 if one.step is None else one.step


def _way(steps, phase, stretch, after, wanted):
    first = after + 1
    of_phase = [label == phase for _, _, _, label, _ in steps]
    for counted in ([mine and row[4] < 0 for mine, row in zip(of_phase, steps, strict=True)], of_phase):
        compared = sum(counted[first + LEAD : stretch[0]])
        at = last = stretch[-1]
        strange = 0
        while compared < wanted and at + 1 < len(steps) and strange <= BRIDGE:
            at += 1
            strange = 0 if of_phase[at] else strange + 1
            if counted[at]:
                compared, last = compared + 1, at
        if compared >= wanted:
            break
    forward_ps = sum(steps[number][1] for number in range(first, last + 1))
    skip_ps = sum(steps[number][2] for number in range(first))
    return (stretch[0], stretch[-1]), after, first, last, compared, forward_ps, skip_ps
