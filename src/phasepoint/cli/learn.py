"""`phasepoint learn`, `learn collect`, `learn train` and `learn evaluate`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from phasepoint.cli.console import result_console, write_document, write_notes
from phasepoint.cli.opening import open_converted, progress_bar
from phasepoint.cli.options import AsJson, Force, RayAddress
from phasepoint.core.errors import OutputExistsError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from phasepoint.learn.corpus.runs import ProgramReference

Folder = Annotated[str, typer.Argument(metavar="CORPUS", help="Folder of measurements.")]
TaskName = Annotated[
    str,
    typer.Option("--task", metavar="NAME", help="runtime, rank, gpu_ops, conv_solvers or tile_sweeps (docs/learn.md)."),
]
ModelOut = Annotated[Path, typer.Option("--out", "-o", metavar="MODEL", help="Folder of the model.")]
Seed = Annotated[int, typer.Option("--seed", metavar="N", min=0, help="The same seed gives the same model.")]


def train(
    folder: Folder,
    *,
    task: TaskName = "runtime",
    out: ModelOut,
    seed: Seed = 0,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Train a performance model from measurements: phasepoint learn train corpus/ --task runtime --out model/

    What was held back from training is predicted at the end; the errors stand in the model's card.
    """
    from phasepoint.learn.models.model_file import CARD, write_model
    from phasepoint.learn.tasks import find_task, train_task

    row = find_task(task)
    if (out / CARD).exists() and not force:  # before the work, not after it
        raise OutputExistsError(f"{out} holds a model already; give --force to replace it, or another --out")
    with progress_bar(f"training for {row.name}") as advance:
        model = train_task(row, folder, seed=seed, progress=advance)
    write_model(model, out, force=force)
    if as_json:
        from phasepoint.report.documents import model_document

        write_document("learn train", model_document(model, out))
        return
    from phasepoint.report.terminal.learn import render_model

    render_model(model, str(out), result_console())


ModelPath = Annotated[
    str,
    typer.Argument(metavar="MODEL", help="A model's folder, builtin:NAME, or builtin: those of the package."),
]
MeasurementFolder = Annotated[str, typer.Argument(metavar="DIR", help="Folder of measurements.")]
DrawSeed = Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Of what is drawn at random.")]


def evaluate(
    model: ModelPath,
    folder: MeasurementFolder,
    *,
    task: TaskName = "runtime",
    seed: DrawSeed = 0,
    as_json: AsJson = False,
) -> None:
    """Hold a performance model against measurements: phasepoint learn evaluate builtin DIR --task gpu_ops

    Errors of predicted times, order within a group, and what the choices cost against the best.
    """
    from phasepoint.learn.tasks import evaluate_task, find_task

    row = find_task(task)
    with progress_bar(f"evaluating {row.name}") as advance:
        found = evaluate_task(row, model, folder, seed=seed, progress=advance)
    write_notes(found.notes)
    if as_json:
        write_document("learn evaluate", found)
        return
    from phasepoint.report.terminal.learn import render_evaluation

    render_evaluation(found, result_console())


Sources = Annotated[
    list[str] | None,
    typer.Argument(metavar="[RUN|FILE.py:FUNCTION]…", help="Recorded runs, and functions that give programs."),
]
CorpusOut = Annotated[Path, typer.Option("--out", "-o", metavar="CORPUS", help="The corpus to make or to add to.")]
Programs = Annotated[
    str | None,
    typer.Option(
        "--programs", metavar="WHICH", help="Of the package: zoo, generated, all, large, or a pattern of names."
    ),
]


def collect(
    sources: Sources = None,
    *,
    out: CorpusOut,
    programs: Programs = None,
    limit: Annotated[int | None, typer.Option(min=1, metavar="N", help="At most so many programs.")] = None,
    core: Annotated[int | None, typer.Option(min=0, metavar="N", help="Core to measure on; left out: any.")] = None,
    rounds: Annotated[int, typer.Option(min=1, metavar="N", help="Rounds of each program, in all.")] = 3,
    repeats: Annotated[int, typer.Option(min=1, metavar="N", help="Runs in a round, at most.")] = 12,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="Of the generated programs.")] = 0,
    workers: Annotated[int, typer.Option(min=1, metavar="N", help="Processes, each on a core of its own.")] = 1,
    device: Annotated[
        str | None,
        typer.Option(metavar="TPU", help="Compile for a TPU instead, with its compiler's cycles for times: tpu-v5p, …"),
    ] = None,
    ray: RayAddress = None,
    as_json: AsJson = False,
) -> None:
    """Measure the kernels of programs into a corpus: phasepoint learn collect --out corpus/ --programs zoo

    Programs of the package, functions of files, and recorded runs, whose kernels were measured already. What the
    corpus holds is not measured again: a collection that was broken off goes on, and more --rounds add to it.
    """
    from phasepoint.learn.corpus.collect import collect as collect_programs
    from phasepoint.learn.corpus.collect import collect_run, join_collected
    from phasepoint.learn.corpus.runs import is_file_source

    words = sources or []
    references = _references([word for word in words if is_file_source(word)], programs, seed)[:limit]
    runs = [word for word in words if not is_file_source(word)]
    if device is not None and runs:
        raise UsageError(f"--device {device}: a recorded run has its times already; collect it without")
    if not references and not runs:
        raise UsageError(
            "nothing to collect: give a run, FILE.py:function, or --programs zoo, generated, all, large, PATTERN"
        )
    parts = []
    if device is not None:
        from phasepoint.learn.predict.tpu.harvest import collect_compiled
        from phasepoint.learn.predict.tpu.topology import parse_topology

        with progress_bar("compiling programs, in batches") as advance:
            parts.append(collect_compiled(out, references, parse_topology(device), workers=workers, progress=advance))
    elif references:
        with progress_bar("measuring programs, in batches") as advance:
            measured = collect_programs(
                out,
                references,
                rounds=rounds,
                repeats=repeats,
                cores=None if core is None else (core,),
                workers=workers,
                ray_address=ray,
                progress=advance,
            )
        parts.append(measured)
    for path in runs:
        parts.append(collect_run(out, open_converted(path), path))
    found = join_collected(parts)
    if as_json:
        write_document("learn collect", found)
        return
    write_notes(f"{one.name}: {one.reason}" for one in found.failed)
    typer.echo(
        f"{found.path}: {found.measured} programs measured on {found.device}, {found.already} were there, "
        f"{len(found.failed)} failed"
    )
    if found.not_captured:
        write_notes([f"{found.not_captured} programs of the runs ran in no captured step and are left out"])


def _references(sources: "Sequence[str]", programs: str | None, seed: int) -> "list[ProgramReference]":
    """The programs of the package and of files that are asked for, each once."""
    from phasepoint.learn.corpus.collect import names_in_file
    from phasepoint.learn.corpus.runs import package_programs

    found = list(package_programs(programs, seed=seed)) if programs is not None else []
    for source in sources:
        found += names_in_file(source)
    return list(dict.fromkeys(found))


def learn(*, as_json: AsJson = False) -> None:
    """List the performance models that came with the package, and the tasks that can be trained and evaluated.

    `phasepoint learn collect`, `learn train` and `learn evaluate` make, train and check one.
    """
    from phasepoint.learn.models.model_file import builtin_models, read_model
    from phasepoint.learn.tasks import TASKS

    models = [read_model(f"builtin:{name}") for name in builtin_models()]
    if as_json:
        from phasepoint.report.documents import models_document

        write_document("learn", models_document(models, TASKS))
        return
    from phasepoint.report.terminal.learn import render_models

    render_models(models, TASKS, result_console())
