"""`phasepoint learn evaluate`."""

from typing import Annotated

import typer

from phasepoint.cli.options import AsJson

ModelPath = Annotated[
    str,
    typer.Argument(metavar="MODEL", help="A model's folder, builtin:NAME, or builtin: those of the package."),
]
Folder = Annotated[str, typer.Argument(metavar="DIR", help="Folder of measurements.")]
TaskName = Annotated[
    str,
    typer.Option("--task", metavar="NAME", help="runtime, rank, gpu_ops, conv_solvers or tile_sweeps (docs/learn.md)."),
]
Seed = Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Of what is drawn at random.")]


def evaluate(
    model: ModelPath,
    folder: Folder,
    *,
    task: TaskName = "runtime",
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Hold a performance model against measurements: phasepoint learn evaluate builtin DIR --task gpu_ops

    Errors of predicted times, order within a group, and what the choices cost against the best.
    """
    from phasepoint.cli.console import result_console, write_notes
    from phasepoint.cli.opening import progress_bar
    from phasepoint.learn.tasks import evaluate_task, find_task

    row = find_task(task)
    with progress_bar(f"evaluating {row.name}") as advance:
        found = evaluate_task(row, model, folder, seed=seed, progress=advance)
    write_notes(found.notes)
    if as_json:
        from phasepoint.report.documents import to_json

        typer.echo(to_json("learn evaluate", found))
        return
    from phasepoint.report.learn_terminal import render_evaluation

    render_evaluation(found, result_console())
