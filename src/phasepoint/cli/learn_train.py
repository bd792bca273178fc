"""`phasepoint learn train`."""

from pathlib import Path
from typing import Annotated

import typer

from phasepoint.cli.options import AsJson, Force

Folder = Annotated[str, typer.Argument(metavar="CORPUS", help="Folder of measurements.")]
TaskName = Annotated[
    str,
    typer.Option("--task", metavar="NAME", help="runtime, rank, gpu_ops, conv_solvers or tile_sweeps (docs/learn.md)."),
]
Out = Annotated[Path, typer.Option("--out", "-o", metavar="MODEL", help="Folder of the model.")]
Seed = Annotated[int, typer.Option("--seed", metavar="N", min=0, help="The same seed gives the same model.")]


def train(
    folder: Folder,
    *,
    task: TaskName = "runtime",
    out: Out,
    seed: Seed = 0,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Train a performance model from measurements: phasepoint learn train corpus/ --task runtime --out model/

    What was held back from training is predicted at the end; the errors stand in the model's card.
    """
    from phasepoint.cli.console import result_console
    from phasepoint.cli.opening import progress_bar
    from phasepoint.core.errors import OutputExistsError
    from phasepoint.learn.model_file import CARD, write_model
    from phasepoint.learn.tasks import find_task, train_task

    row = find_task(task)
    if (out / CARD).exists() and not force:  # before the work, not after it
        raise OutputExistsError(f"{out} holds a model already; give --force to replace it, or another --out")
    with progress_bar(f"training for {row.name}") as advance:
        model = train_task(row, folder, seed=seed, progress=advance)
    write_model(model, out, force=force)
    if as_json:
        from phasepoint.report.documents import to_json
        from phasepoint.report.learn_document import model_document

        typer.echo(to_json("learn train", model_document(model, out)))
        return
    from phasepoint.report.learn_terminal import render_model

    render_model(model, str(out), result_console())
