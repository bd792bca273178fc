"""What changed between two runs, by how much, and whether it is more than noise: `phasepoint diff`.

Whether two runs are recordings of one job at all is told by the ops that they have in common.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace

from phasepoint.core.errors import NoDataError
from phasepoint.core.units import format_ratio
from phasepoint.stack.diff.measure import measure
from phasepoint.stack.diff.result import EVERYTHING, OUTSIDE, UNATTRIBUTED, DiffRow, RunDiff
from phasepoint.stack.diff.rows import build_diff
from phasepoint.stack.diff.sides import read_sides
from phasepoint.stack.diff.step_samples import NO_STEPS, StepSamples, read_captured_steps, step_kinds, step_samples
from phasepoint.store import Run

LEAST_COMMON = 0.5
"""Ratio of its op time that at least one side must share with the other: a job to which as much was added as there was
still shares all that it had, and two programs share little but copies and sums."""

_NO_OPS = (EVERYTHING, OUTSIDE, UNATTRIBUTED)


def tell_unrelated(rows: Sequence[DiffRow], base_command: str, run_command: str) -> str | None:
    """Why the sides are probably different jobs, one sentence; None where their ops look like one job's.

    Args:
        rows: of the comparison.
        base_command: how the base was started, for the sentence.
        run_command: how the run was started.
    """
    ops = [row for row in rows if row.level == "op" and row.name not in _NO_OPS]
    common = [row for row in ops if row.base_ps and row.run_ps]
    base_ps, run_ps = sum(row.base_ps for row in ops), sum(row.run_ps for row in ops)
    if not base_ps or not run_ps:
        return None
    base_share = sum(row.base_ps for row in common) / base_ps
    run_share = sum(row.run_ps for row in common) / run_ps
    if max(base_share, run_share) >= LEAST_COMMON:
        return None
    return (
        f"these are probably different jobs: {format_ratio(1 - base_share)} of the base's op time and "
        f"{format_ratio(1 - run_share)} of the run's is in ops that the other has not "
        f"(base: {base_command}; run: {run_command}); what changed within one job cannot be read from them"
    )


RARE = 0.02
"""Programs in which less of the captured steps' time lies are no kind of step: a save, a first step."""


def compare_runs(base: Sequence[Run], run: Sequence[Run]) -> RunDiff:
    """Compare two jobs, each by one recording or by several repeats.

    Args:
        base: recordings of the base, their captures converted.
        run: recordings of what is compared with it.

    Returns:
        Rows by level; every time is per step.

    Raises:
        NoDataError: a recording has no steps, none captured with its ops, or no hint in common with the others.
        StoreError: a table cannot be read.
        ValueError: a side without recordings.
    """
    if not base or not run:
        raise ValueError("each side needs at least one recording")
    kind = _kind_to_compare(base, run)
    samples = read_compared([*base, *run], kind)
    notes = [*_notes_on_runs(base, run, kind), *(problem for one in (*base, *run) for problem in one.problems)]
    found = compare_samples(samples[: len(base)], samples[len(base) :], kind=kind, notes=notes)
    return replace(found, unrelated=tell_unrelated(found.rows, _commands(base), _commands(run)))


def read_compared(runs: Sequence[Run], kind: str | None = None) -> list[StepSamples]:
    """The samples of runs that are to be compared: of one kind of step in all.

    Args:
        runs: the runs; where their steps run several programs, the first says which is compared.
        kind: steps of this hint alone; None for those without a hint.

    Raises:
        NoDataError, StoreError: as `compare_runs`.
    """
    captured = [read_captured_steps(one, kind) for one in runs]
    program = _program_to_compare([one.main_programs() for one in captured])
    return [step_samples(one, program) for one in captured]


def compare_samples(
    base: Sequence[StepSamples], run: Sequence[StepSamples], *, kind: str | None = None, notes: Sequence[str] = ()
) -> RunDiff:
    """As `compare_runs`, of samples that were read already."""
    programs = sorted({one.program for one in (*base, *run) if one.program is not None})
    several = [f"the steps run several programs; captured steps of {name} alone are compared" for name in programs]
    return build_diff(measure(read_sides(base, run)), kind=kind, notes=tuple(dict.fromkeys((*notes, *several))))


def _kind_to_compare(base: Sequence[Run], run: Sequence[Run]) -> str | None:
    """The hint, of those that every recording has, with the most time in the base; None where steps have no hint."""
    times = [step_kinds(one) for one in (*base, *run)]
    for one, found in zip((*base, *run), times, strict=True):
        if not found:
            raise NoDataError(f"{one.path}: {NO_STEPS}")
    common = set(times[0]).intersection(*times[1:])
    if not common:
        kinds = (", ".join(sorted(kind or "no hint" for kind in found)) for found in times)
        theirs = "; ".join(f"{one.path}: {of_run}" for one, of_run in zip((*base, *run), kinds, strict=True))
        raise NoDataError(f"the runs have no kind of step in common ({theirs}); give both the same hints (run.phase)")
    return max(common, key=lambda kind: (times[0][kind], kind is None, kind or ""))


def _program_to_compare(times: Sequence[Mapping[str | None, int]]) -> str | None:
    """The program whose steps alone are compared, with the most time in the base; None where all have one program."""
    usual = [{name for name, time_ps in found.items() if time_ps > RARE * sum(found.values())} for found in times]
    common = set(times[0]).intersection(*times[1:]) - {None}
    if not common or len(set().union(*usual)) < 2:
        return None
    return max(common, key=lambda name: (times[0][name], name or ""))


def _commands(side: Sequence[Run]) -> str:
    return ", ".join(sorted({shlex.join(one.manifest.command) or "not known" for one in side}))


def _notes_on_runs(base: Sequence[Run], run: Sequence[Run], kind: str | None) -> list[str]:
    notes = []
    for what in ("frameworks", "devices"):
        before, after = (sorted({_named(one, what) for one in side}) for side in (base, run))
        if before != after:
            notes.append(f"{what} differ: {' and '.join(before)} in the base, {' and '.join(after)} in the run")
    commands = _commands(base), _commands(run)
    if commands[0] != commands[1]:
        notes.append(f"commands differ: {commands[0]} in the base, {commands[1]} in the run")
    other = sorted({key or "no hint" for one in (*base, *run) for key in step_kinds(one) if key != kind})
    if other:
        notes.append(f"steps of {kind or 'no hint'} are compared; left out: {', '.join(other)}")
    return notes


def _named(run: Run, what: str) -> str:
    """Frameworks with their versions, or devices, as the run's manifest has them."""
    found = getattr(run.manifest, what)
    if isinstance(found, dict):
        return ", ".join(f"{name} {version}" for name, version in sorted(found.items())) or "none known"
    return ", ".join(map(str, found)) or "none known"
