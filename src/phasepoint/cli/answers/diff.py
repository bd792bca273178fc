"""`phasepoint diff`."""

from typing import TYPE_CHECKING, Annotated

import typer

from phasepoint.cli.console import busy, result_console, write_csv, write_document, write_notes
from phasepoint.cli.opening import open_converted, refuse_shortfalls
from phasepoint.cli.options import AsCsv, AsJson
from phasepoint.cli.ratios import ratio_option
from phasepoint.core.errors import ChangeError, NoDataError, NotEnoughError, UsageError
from phasepoint.core.units import format_ratio

if TYPE_CHECKING:
    from phasepoint.stack.diff.result import RunDiff
    from phasepoint.store import Run

Base = Annotated[str, typer.Argument(metavar="BASE", help="The run to compare with.")]
New = Annotated[str, typer.Argument(metavar="RUN", help="The run whose change is asked for.")]
FailOver = Annotated[
    str | None,
    typer.Option("--fail-over", metavar="RATIO", help="End with exit code 15 if the step grew by more: 3% or 0.03."),
]
BaseRepeat = Annotated[
    list[str] | None,
    typer.Option("--base-repeat", metavar="RUN", help="One more recording of the base's job; may be repeated."),
]
RunRepeat = Annotated[
    list[str] | None,
    typer.Option("--run-repeat", metavar="RUN", help="One more recording of RUN's job; may be repeated."),
]


def diff(
    base: Base,
    run: New,
    *,
    base_repeat: BaseRepeat = None,
    run_repeat: RunRepeat = None,
    fail_over: FailOver = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
) -> None:
    """Say what changed between two runs, by how much, and whether it is more than noise.

    As a gate: `phasepoint diff BASE RUN --fail-over 3%`. More recordings of each job tell the machine from the job.
    """
    if as_json and as_csv:
        raise UsageError("--json and --csv exclude each other; give one")
    limit_ratio = None if fail_over is None else ratio_option("--fail-over", fail_over)
    paths = ([base, *(base_repeat or [])], [run, *(run_repeat or [])])
    sides = [[open_converted(path) for path in side] for side in paths]
    with busy("comparing"):
        found = _compare(sides, fail_over)
    write_notes([*([found.unrelated] if found.unrelated else []), *found.notes])
    if as_json:
        from phasepoint.report.documents import diff_document

        write_document("diff", diff_document(found))
    elif as_csv:
        write_csv(found.table())
    else:
        from phasepoint.report.terminal.diff import render_diff

        render_diff(found, result_console())
    if limit_ratio is not None:
        from phasepoint.summary.enough import shortfall_of

        _judge(found, limit_ratio, fail_over or "")
        refuse_shortfalls(f"--fail-over {fail_over}", ((one.path, shortfall_of(one)) for side in sides for one in side))


def _compare(sides: "list[list[Run]]", fail_over: str | None) -> "RunDiff":
    """The comparison; a gate that has nothing to compare cannot be judged, which is no answer."""
    from phasepoint.stack.diff.diff import compare_runs

    try:
        return compare_runs(*sides)
    except NoDataError as error:
        if fail_over is None:
            raise
        raise NotEnoughError(f"--fail-over {fail_over}: cannot be judged: {error}") from error


def _judge(found: "RunDiff", limit_ratio: float, text: str) -> None:
    if found.grown_ratio is None:
        raise NotEnoughError(f"--fail-over {text}: cannot be judged: {found.unjudged}")
    if found.grown_ratio > limit_ratio:
        where = ", ".join(row.name for row in found.named if row.change_ps > 0)
        grown = f"the step grew by {format_ratio(found.grown_ratio)} beyond noise"
        raise ChangeError(f"{grown}{f', in {where}' if where else ''}; --fail-over allows {text}")
