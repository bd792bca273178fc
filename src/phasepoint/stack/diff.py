"""What changed between two runs, by how much, and whether it is more than noise: `phasepoint diff`.

from phasepoint.stack.diff import compare_runs
compare_runs([open_run("runs/main")], [open_run("runs/branch")]).rows
"""

from collections.abc import Sequence

from phasepoint.core.errors import NoDataError
from phasepoint.stack.diff_measure import measure
from phasepoint.stack.diff_result import RunDiff
from phasepoint.stack.diff_rows import build_diff
from phasepoint.stack.diff_sides import read_sides
from phasepoint.stack.step_samples import read_step_samples, step_kinds
from phasepoint.store import Run


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
    sides = read_sides([read_step_samples(one, kind) for one in base], [read_step_samples(one, kind) for one in run])
    notes = (*_notes_on_runs(base, run, kind), *(problem for one in (*base, *run) for problem in one.problems))
    return build_diff(measure(sides), kind=kind, notes=tuple(dict.fromkeys(notes)))


def _kind_to_compare(base: Sequence[Run], run: Sequence[Run]) -> str | None:
    """The hint, of those that every recording has, with the most time in the base; None where steps have no hint."""
    times = [step_kinds(one) for one in (*base, *run)]
    for one, found in zip((*base, *run), times, strict=True):
        if not found:
            raise NoDataError(
                f"{one.path}: holds no steps to compare; record a training loop, or import a trace with its ops"
            )
    common = set(times[0]).intersection(*times[1:])
    if not common:
        theirs = "; ".join(f"{one.path}: {_listed(times[i])}" for i, one in enumerate((*base, *run)))
        raise NoDataError(f"the runs have no kind of step in common ({theirs}); give both the same hints (run.phase)")
    return max(common, key=lambda kind: (times[0][kind], kind is None, kind or ""))


def _listed(times: dict[str | None, int]) -> str:
    return ", ".join(sorted(kind or "no hint" for kind in times))


def _notes_on_runs(base: Sequence[Run], run: Sequence[Run], kind: str | None) -> list[str]:
    notes = []
    for what in ("frameworks", "devices"):
        before, after = (sorted({_named(one, what) for one in side}) for side in (base, run))
        if before != after:
            notes.append(f"{what} differ: {' and '.join(before)} in the base, {' and '.join(after)} in the run")
    other = sorted({key or "no hint" for one in (*base, *run) for key in step_kinds(one) if key != kind})
    if other:
        notes.append(f"steps of {kind or 'no hint'} are compared; left out: {', '.join(other)}")
    return notes


def _named(run: Run, what: str) -> str:
    found = getattr(run.manifest, what)
    if isinstance(found, dict):
        return ", ".join(f"{name} {version}" for name, version in sorted(found.items())) or "none known"
    return ", ".join(map(str, found)) or "none known"
