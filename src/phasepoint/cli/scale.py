"""`phasepoint scale`: what takes a job to a pod, and how far predictions of that are off."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from phasepoint.cli.console import check_output, result_console, write_document, write_notes, write_text
from phasepoint.cli.opening import progress_bar
from phasepoint.cli.options import Args, ArgsFrom, AsJson, Force, seconds_of
from phasepoint.core.errors import UsageError
from phasepoint.core.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from phasepoint.learn.predict.tpu.topology import Topology
    from phasepoint.scale.plan.program import ProgramRow
    from phasepoint.scale.plan.recorded import RecordedStep
    from phasepoint.scale.plan.what_if import TechniqueLeftOut
    from phasepoint.scale.plan.whole import RunAsked

Measurements = Annotated[Path, typer.Argument(metavar="DIR", help="Folder with files of published or measured runs.")]


def scale(*, as_json: AsJson = False) -> None:
    """Say what predictions of larger systems rest on: published runs, their number, and errors of those left out."""
    from phasepoint.scale.validate.rests import what_predictions_rest_on

    found = what_predictions_rest_on()
    if as_json:
        write_document("scale", {"sets": found})
        return
    from phasepoint.report.terminal.scale import render_sets

    render_sets(found, result_console())


What = Annotated[
    str | None,
    typer.Argument(
        metavar="[WHAT]",
        help="A training step, FILE.py:FUNCTION; a recorded job, its folder; or a transformer: its config.json, or "
        "llama3-70b, …; left out with --benchmark.",
    ),
]
Seq = Annotated[int | None, typer.Option("--seq", metavar="N", min=1, help="Tokens of a transformer's sequences.")]
Benchmark = Annotated[
    str | None, typer.Option("--benchmark", metavar="NAME", help="Instead: of MLPerf Training: resnet, bert, …")
]
System = Annotated[str, typer.Option("--system", metavar="NAME", help="Its chips: tpu-v3, H100, …")]
Chips = Annotated[
    int | None, typer.Option("--chips", metavar="N", min=1, help="Chips of the system that ran the benchmark.")
]
Measured = Annotated[
    str, typer.Option("--measured", metavar="TIME", help="What it took the benchmark to train: 42.2min, 3.1h, 900s.")
]
To = Annotated[
    str,
    typer.Option(
        "--to",
        metavar="SLICE|N",
        help="The slice, as in tpu-v3:32x32; for a transformer also 2*tpu-v5e:16x16, 64*B200; of a recorded job also "
        "2*cpu; of a benchmark the most chips.",
    ),
]
Batch = Annotated[
    str | None,
    typer.Option("--batch", metavar="N", help="Samples of a step: 4096, 4096,8192 or 4096..65536; measured: one."),
]
Data = Annotated[
    str, typer.Option("--data", metavar="N,…", help="Which arguments are batches, from 0; found, where left out.")
]
BatchAxis = Annotated[
    int,
    typer.Option(
        "--batch-axis",
        metavar="N",
        min=0,
        help="Dimension of the batches that holds their samples: 1 if time comes first.",
    ),
]
Samples = Annotated[
    float | None, typer.Option("--samples", metavar="N", min=1, help="Samples to train on: gives times of whole runs.")
]
Start = Annotated[str, typer.Option("--start", metavar="TIME", help="From the job's begin to its first step.")]
Save = Annotated[str, typer.Option("--save", metavar="TIME", help="That a checkpoint holds up the job.")]
Restart = Annotated[str, typer.Option("--restart", metavar="TIME", help="From a failure to the first step after it.")]
Fails = Annotated[
    str, typer.Option("--fails", metavar="TIME", help="Between two failures of one host; left out: 264d (Llama 3).")
]
PlanPage = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Write the plan of a step or a transformer as a page, too."),
]
Divided = Annotated[
    bool,
    typer.Option("--divided", help="Of a recorded job: devices divide the batch that one had; else each has its own."),
]
Gradients = Annotated[
    str, typer.Option("--gradients", metavar="SIZE", help="Of a recorded job: what devices add up, as in 100MB.")
]
Like = Annotated[
    str | None,
    typer.Option("--like", metavar="RUN", help="A recorded job: hosts wait for input, and for each other, as its did."),
]
Evaluation = Annotated[str, typer.Option("--evaluation", metavar="TIME", help="All evaluations of the run together.")]
Price = Annotated[
    float | None, typer.Option("--price", metavar="X", min=0, help="Of a chip for an hour: gives the cost of runs.")
]


def plan(
    what: What = None, *, to: To, benchmark: Benchmark = None, system: System = "", chips: Chips = None,
    measured: Measured = "", batch: Batch = None, seq: Seq = None, args: Args = None, args_from: ArgsFrom = None,
    data: Data = "", batch_axis: BatchAxis = 0,
    samples: Samples = None, start: Start = "0s", save: Save = "0s", restart: Restart = "0s", fails: Fails = "",
    evaluation: Evaluation = "0s", price: Price = None, like: Like = None, divided: Divided = False,
    gradients: Gradients = "", output: PlanPage = None, force: Force = False, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Say what a larger system will take: of a step, of a recorded job, of a transformer, or of a benchmark.

    phasepoint scale plan train.py:step --args-from example --to tpu-v3:32x32 --batch 4096..65536
    phasepoint scale plan runs/my-job --to '64*H100 SXM5'
    phasepoint scale plan llama3-70b --seq 8192 --to tpu-v5p:8x8x8 --batch 512..2048 -o plan.html
    phasepoint scale plan --benchmark resnet --system tpu-v3 --chips 16 --measured 42.2min --to 1024
    """
    if (what is None) == (benchmark is None):
        raise UsageError(
            "give a training step, as in train.py:step, or --benchmark NAME, or a transformer's config.json: one"
        )
    if benchmark is not None:
        _plan_benchmark(benchmark, system, chips, measured, to, batch, as_json=as_json)
        return
    from phasepoint.scale.plan.whole import HOST_FAILS_S, Hazards, RunAsked

    fails_s = seconds_of("--fails", fails) if fails else HOST_FAILS_S
    hazards = Hazards(seconds_of("--save", save), seconds_of("--restart", restart), fails_s)
    started_s, evaluation_s = seconds_of("--start", start), seconds_of("--evaluation", evaluation)
    run = None if samples is None else RunAsked(samples, started_s, hazards, price, evaluation_s)
    if "://" in str(what) or Path(str(what)).is_dir():
        of_others = {"--batch": batch, "--seq": seq, "--samples": samples, "--price": price, "--like": like}
        given = [name for name, value in {**of_others, "--output": output}.items() if value is not None]
        if given:
            raise UsageError(
                f"{' and '.join(given)}: not of a recorded job, whose plan is that of its step; give the step itself "
                "(train.py:step) for more"
            )
        _plan_recorded(str(what), to, gradients, is_divided=divided, as_json=as_json)
    elif ":" in str(what) or str(what).endswith(".py"):
        _plan_program(
            str(what), to, (batch, data, batch_axis), (args, args_from), (run, like), (output, force), as_json=as_json
        )
    else:
        _plan_layouts(str(what), to, (batch, seq), run, (output, force), as_json=as_json)


def _plan_benchmark(
    benchmark: str, system: str, chips: int | None, measured: str, to: str, batch: str | None, *, as_json: bool
) -> None:
    from phasepoint.scale.plan.benchmark import MeasuredSystem, plan_benchmark
    from phasepoint.scale.validate.mlperf import shipped_scaling

    if not system or chips is None or not measured:
        raise UsageError("--benchmark needs what was measured: --system NAME, --chips N and --measured TIME")
    start = MeasuredSystem(
        benchmark,
        system,
        chips,
        seconds_of("--measured", measured) / 60,
        None if batch is None else _number("--batch", batch, least=1),
    )
    filled, rows = plan_benchmark(shipped_scaling(), start, int(_number("--to", to, least=2)))
    if as_json:
        write_document("scale plan", {"start": filled, "systems": rows})
        return
    from phasepoint.report.terminal.scale import render_plan

    render_plan(filled, rows, result_console(), is_batch_known=batch is not None)


def _plan_recorded(what: str, to: str, gradients: str, *, is_divided: bool, as_json: bool) -> None:
    from phasepoint.scale.plan.recorded import parse_devices, plan_recorded

    devices, volume = parse_devices(to), _bytes("--gradients", gradients) if gradients else None
    step = _recorded(what)
    rows, notes = plan_recorded(step, devices, is_divided=is_divided, gradient_bytes=volume)
    write_notes(notes)
    if as_json:
        from phasepoint.report.documents import recorded_plan_document

        write_document("scale plan", recorded_plan_document(what, devices, step, rows))
        return
    from phasepoint.report.terminal.scale import render_recorded_plan

    render_recorded_plan(what, devices, step, rows, result_console())


def _plan_program(
    what: str, to: str, batches: tuple[str | None, str, int], args: tuple[str | None, str | None],
    run: tuple["RunAsked | None", str | None], page: tuple[Path | None, bool], *, as_json: bool,
) -> None:  # fmt: skip
    from phasepoint.learn.predict.programs import function_of
    from phasepoint.learn.predict.tpu.topology import parse_topology
    from phasepoint.scale.plan.program import batches_between, plan_program

    (batch, data, batch_axis), (asked_run, like), (output, force) = batches, run, page
    if output is not None:
        check_output(output, force=force)
    topology, asked = parse_topology(to), function_of(what, *args)
    sizes = [None] if batch is None else batches_between(batch)
    step = None if like is None else _recorded(like)
    with progress_bar("compiling") as advance:
        rows = plan_program(
            asked,
            topology,
            sizes,
            data=_places(data),
            batch_axis=batch_axis,
            run=asked_run,
            like=step,
            progress=advance,
        )
    notes = list(dict.fromkeys(note for row in rows for note in row.notes))
    write_notes(notes)
    written = _page(output, what, topology, rows, notes, force=force)
    if as_json:
        from phasepoint.report.documents import program_plan_document

        write_document("scale plan", program_plan_document(what, topology, rows))
        return
    from phasepoint.report.terminal.scale import render_program_plan

    render_program_plan(what, topology, rows, result_console())
    _tell_written(written)


def _recorded(path: str) -> "RecordedStep":
    from phasepoint.cli.opening import open_converted
    from phasepoint.scale.plan.recorded import recorded_step
    from phasepoint.summary.analysis import analyse_run

    return recorded_step(analyse_run(open_converted(path)))


def _page(
    output: Path | None, what: str, topology: "Topology", rows: "Sequence[ProgramRow]", notes: "Sequence[str]",
    without: "Sequence[TechniqueLeftOut]" = (), *, force: bool,
) -> list[tuple[Path, int]]:  # fmt: skip
    if output is None:
        return []
    from phasepoint.report.html.programs import program_html

    return [(output, write_text(output, [program_html(what, topology, rows, notes, without)], force=force))]


def _tell_written(written: "Sequence[tuple[Path, int]]") -> None:
    for path, size_bytes in written:
        typer.echo(f"wrote {path} ({format_bytes(size_bytes)})")


def _plan_layouts(
    what: str, to: str, sequences: tuple[str | None, int | None], run: "RunAsked | None",
    page: tuple[Path | None, bool], *, as_json: bool,
) -> None:  # fmt: skip
    from phasepoint.scale.plan.layouts import notes_of, parse_machine, plan_layouts, plan_sizes
    from phasepoint.scale.plan.program import batches_between
    from phasepoint.scale.steps.hugging_face import find_transformer

    (batch, seq), (output, force) = sequences, page
    if batch is None or seq is None:
        raise UsageError("a transformer needs --seq N, tokens of a sequence, and --batch N..M, sequences of a step")
    if output is not None:
        check_output(output, force=force)
    model, machine = find_transformer(what, seq), parse_machine(to)
    plans = plan_layouts(model, machine, batches_between(batch), run=run)
    notes = [*notes_of(machine), *([model.note] if model.note else [])]
    write_notes(notes)
    written: list[tuple[Path, int]] = []
    if output is not None:
        from phasepoint.report.html.layouts import layouts_html
        from phasepoint.report.words.layouts import fastest

        rows = [row for plan in plans for row in plan.best]
        sizes = plan_sizes(model, machine, fastest(rows).batch, run=run) if rows else []
        written.append((output, write_text(output, [layouts_html(what, machine, plans, sizes, notes)], force=force)))
    if as_json:
        from phasepoint.report.documents import layouts_document

        write_document("scale plan", layouts_document(what, machine, plans))
        return
    from phasepoint.report.terminal.layouts import render_layouts

    render_layouts(what, machine, plans, result_console())
    _tell_written(written)


Step = Annotated[str, typer.Argument(metavar="FILE.py:FUNCTION", help="A training step.")]
OneBatch = Annotated[
    int | None, typer.Option("--batch", metavar="N", min=1, help="Samples of a step; left out: as the arguments have.")
]
Without = Annotated[
    list[str] | None,
    typer.Option("--without", metavar="NAME", help="A technique to leave out; again for more; left out: each of them."),
]


def what_if(
    what: Step, *, to: To, without: Without = None, batch: OneBatch = None, args: Args = None,
    args_from: ArgsFrom = None, data: Data = "", batch_axis: BatchAxis = 0,
    output: PlanPage = None, force: Force = False, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Say what each technique of phasepoint.scale is worth in a training step: compiled with it and without it.

    phasepoint scale what-if train.py:step --args-from example --to tpu-v3:32x32 --without weight-update-sharding
    """
    from phasepoint.learn.predict.programs import function_of
    from phasepoint.learn.predict.tpu.topology import parse_topology
    from phasepoint.scale.plan.what_if import leave_out

    if output is not None:
        check_output(output, force=force)
    topology = parse_topology(to)
    asked = function_of(what, args, args_from)
    with progress_bar("compiling") as advance:
        whole, others = leave_out(
            asked, topology, batch, without or (), data=_places(data), batch_axis=batch_axis, progress=advance
        )
    notes = list(dict.fromkeys(note for row in (whole, *(other.row for other in others)) for note in row.notes))
    write_notes(notes)
    written = _page(output, what, topology, [whole], notes, others, force=force)
    if as_json:
        from phasepoint.report.documents import what_if_document

        write_document("scale what-if", what_if_document(what, topology, whole, others))
        return
    from phasepoint.report.terminal.scale import render_what_if

    render_what_if(what, topology, whole, others, result_console())
    _tell_written(written)


def _places(data: str) -> list[int]:
    return [int(_number("--data", part, least=0)) for part in data.split(",") if part]


def _bytes(option: str, text: str) -> int:
    from phasepoint.tune.limits import parse_bytes

    try:
        return parse_bytes(text)
    except ValueError as error:
        raise UsageError(f"{option} {text!r} is no size; expected a number of bytes, as in 100MB") from error


def _number(option: str, text: str, *, least: int) -> float:
    try:
        number = float(text)
    except ValueError as error:
        raise UsageError(f"{option} {text!r} is no number") from error
    if not least <= number < math.inf:
        raise UsageError(f"{option} {text!r}: expected a number of {least} or more")
    return number


def validate(folder: Measurements, *, as_json: AsJson = False) -> None:
    """Hold predictions of large systems against what was published: phasepoint scale validate DIR

    Reads whichever it holds of mlperf_training_results, tpu_pod_training, b200_training_steps, tpu_gemm and
    llm_iteration_times_single and _multi (.parquet), with the constants that came with the package.
    """
    from phasepoint.scale.validate.table import validate_folder

    with progress_bar("validating") as advance:
        answers = validate_folder(folder, advance)
    write_notes([f"{answer.file}: {note}" for answer in answers for note in answer.notes])
    if as_json:
        from phasepoint.report.documents import validation_document

        write_document("scale validate", validation_document(answers))
        return
    from phasepoint.report.terminal.scale import render_validation

    render_validation(answers, result_console())
