"""`phasepoint replay compact` and `replay estimate`: what a few steps say of the whole run."""

from typing import Annotated

import typer

from phasepoint.cli.console import busy, result_console, write_document, write_notes
from phasepoint.cli.opening import open_analysis, open_converted
from phasepoint.cli.options import DEFAULT_METHOD, AsJson, Method, RunPath
from phasepoint.cli.ratios import ratio_option
from phasepoint.core.errors import UsageError

Change = Annotated[
    list[str] | None,
    typer.Option("--change", metavar="REPLAY", help="A replay of one phase with the change; may be repeated."),
]
Baseline = Annotated[
    list[str] | None,
    typer.Option("--baseline", metavar="REPLAY", help="A replay without it, made at the same time; may be repeated."),
]
Like = Annotated[
    str | None, typer.Option("--like", metavar="PHASE,…", help="Phases taken to change as the replayed one does.")
]
Batch = Annotated[
    str | None, typer.Option("--batch", metavar="OLD:NEW", help="Batch sizes, where the change is one: 32:64.")
]
Devices = Annotated[int | None, typer.Option("--devices", metavar="N", help="Devices that are paid for.")]
Price = Annotated[float | None, typer.Option("--price-per-hour", metavar="X", help="Of one device: 3.90.")]


def estimate(
    run: RunPath,
    *,
    change: Change = None,
    baseline: Baseline = None,
    like: Like = None,
    batch: Batch = None,
    devices: Devices = None,
    price_per_hour: Price = None,
    method: Method = DEFAULT_METHOD,
    as_json: AsJson = False,
) -> None:
    """Say what the whole run would take and cost if a phase went as in its replay.

    The replay was made with other flags, another batch, or on another device; phases that were not replayed are kept.
    Without --change: the run's own time and cost.
    """
    if baseline and not change:
        raise UsageError("--baseline needs --change: it stands for the original beside a replay with a change")
    steps_ratio = 1.0 if batch is None else _steps_ratio(batch)
    phases = [] if like is None else [name.strip() for name in like.split(",") if name.strip()]
    analysis = open_analysis(run, method)
    replays = [[open_converted(path) for path in paths or []] for paths in (change, baseline)]
    with busy("estimating"):
        from phasepoint.replay.change.estimate import estimate_change

        found = estimate_change(
            analysis,
            replays[0],
            baselines=replays[1],
            like=phases,
            steps_ratio=steps_ratio,
            devices=devices,
            price_per_hour=price_per_hour,
        )
    write_notes([*analysis.run.problems, *found.notes])
    write_notes(note for one in found.exchanges for note in one.notes)
    if as_json:
        write_document("replay estimate", found)
    else:
        from phasepoint.report.terminal.replay_results import render_estimate

        render_estimate(found, result_console())


def _steps_ratio(text: str) -> float:
    """`32:64` as 0.5."""
    try:
        old, new = (int(part) for part in text.split(":"))
    except ValueError:
        old = new = 0
    if old < 1 or new < 1:
        raise UsageError(f"--batch {text}: expected two sizes, old:new, such as 32:64")
    return old / new


Budget = Annotated[str, typer.Option(metavar="SHARE", help="Steps that may be used: 5% or 0.05 of the run's.")]
Seed = Annotated[int, typer.Option(metavar="N", min=0, help="Of the choice: another seed, other windows.")]
Top = Annotated[int, typer.Option(metavar="N", min=1, help="Windows shown.")]


def compact(
    path: RunPath,
    *,
    budget: Budget = "5%",
    seed: Seed = 0,
    method: Method = DEFAULT_METHOD,
    top: Top = 20,
    as_json: AsJson = False,
) -> None:
    """Choose the windows that stand for a run, and say what they alone tell of the whole: phasepoint replay compact RUN

    Time and categories with 95 % intervals, beside what was recorded.
    """
    from phasepoint.replay.compact.compact import compact_run

    share = _share(budget)
    analysis = open_analysis(path, method)
    with busy("choosing windows"):
        found = compact_run(analysis, budget=share, seed=seed)
    write_notes((*analysis.run.problems, *found.notes))
    if as_json:
        from phasepoint.report.documents import compact_document

        write_document("replay compact", compact_document(found))
        return
    from phasepoint.report.terminal.replay_results import render_compact

    render_compact(found, result_console(), top=top)


def _share(text: str) -> float:
    """`5%` or `0.05` as 0.05."""
    share = ratio_option("--budget", text, most=1)
    if not share:
        raise UsageError(f"--budget {text}: expected a share of the run's steps above 0, such as 5% or 0.05")
    return share
