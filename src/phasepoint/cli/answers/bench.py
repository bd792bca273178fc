"""`phasepoint bench`: models measured on devices, and what ten of them say of all the others."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from phasepoint.cli.console import result_console, write_document, write_text
from phasepoint.cli.opening import progress_bar
from phasepoint.cli.options import AsJson, Force, Output, seconds_of
from phasepoint.core.errors import UsageError
from phasepoint.core.units import format_bytes, format_counted

if TYPE_CHECKING:
    from phasepoint.bench.suite.result import SuiteRequest

Times = Annotated[
    Path, typer.Argument(metavar="DIR", help="Folder with Parquet files: device, model, samples_per_s, …")
]

SUITES = ("embench",)
PAGE = "report.html"
"""In a suite's folder."""

Suite = Annotated[str, typer.Option("--suite", metavar="NAME", help="Which models: embench, all of the zoo.")]
Models = Annotated[
    list[str] | None,
    typer.Option(
        "--model", metavar="NAME", help="Instead: of the zoo, module:function, FILE.onnx, FILE.tflite; repeatable."
    ),
]
Devices = Annotated[
    str,
    typer.Option(
        "--devices", metavar="LIST", help="cpu:2 is two threads; cuda:0; tpu-v5p is predicted. Left out: all cores."
    ),
]
Precisions = Annotated[str, typer.Option("--precision", metavar="LIST", help="f32, bf16, int8.")]
Runtimes = Annotated[
    str,
    typer.Option(
        "--runtime",
        metavar="LIST",
        help="eager, compiled, jax, onnxruntime, openvino, litert; left out: the usual.",
    ),
]
Quick = Annotated[bool, typer.Option("--quick", help="A short list of models, once each: some minutes.")]
Rounds = Annotated[
    int | None, typer.Option("--rounds", metavar="N", min=1, help="Processes for each pair; left out: 3, quick: 1.")
]
Seconds = Annotated[
    float | None,
    typer.Option("--seconds", metavar="S", min=0.1, help="Of latencies in each process; left out: 10, quick: 2."),
]
SustainedFor = Annotated[
    str,
    typer.Option("--sustained", metavar="TIME", help="Go on without a break for so long, as 30m: does it slow down?"),
]
Why = Annotated[bool, typer.Option("--why", help="Say what holds each network back.")]
Prove = Annotated[
    bool, typer.Option("--prove", help="The same, and measure what should relieve it: all cores, the other precision.")
]
Limit = Annotated[
    float, typer.Option("--limit", metavar="S", min=1.0, help="Silence after which a process is ended: it hangs.")
]
Seed = Annotated[int, typer.Option("--seed", metavar="N", help="Of the order in which pairs are measured.")]
RayCluster = Annotated[str, typer.Option("--ray", metavar="ADDRESS", help="HOST:PORT of the cluster's head, or auto.")]
Like = Annotated[
    list[Path], typer.Option("--like", metavar="DIR", help="A suite of another device; two of them or more.")
]
Minutes = Annotated[float, typer.Option("--minutes", metavar="M", min=0.1, help="That measuring may take.")]
OneDevice = Annotated[str, typer.Option("--device", metavar="NAME", help="cpu:2, cuda:0. Left out: all cores.")]
SuiteFolder = Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Folder of the results.")]
Pack = Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="The pack, which Python runs: board.pyz.")]
Measured = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of `phasepoint bench run`, or a pack's file.")]
Several = Annotated[list[Path], typer.Argument(metavar="DIR DIR …", help="The same, of each machine.")]


def bench(context: typer.Context, *, as_json: AsJson = False) -> None:
    """Measure models on devices, and say what ten of them tell of all the others."""
    if as_json:
        write_document("bench", {"commands": ["run", "fingerprint", "fleet", "pack", "report", "compare", "validate"]})
        return
    typer.echo(context.get_help())


def run(
    *, out: SuiteFolder, suite: Suite = "embench", model: Models = None, devices: Devices = "",
    precision: Precisions = "f32", runtime: Runtimes = "", quick: Quick = False, rounds: Rounds = None,
    seconds: Seconds = None, sustained: SustainedFor = "", why: Why = False, prove: Prove = False,
    limit: Limit = 300.0, seed: Seed = 0, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Measure models on devices, one process for each pair; the same command again goes on where it was cut off.

    phasepoint bench run --quick --out runs/bench
    phasepoint bench run --devices cpu:1,cpu:2 --precision f32,bf16 --out runs/bench
    """
    from phasepoint.bench.suite.run import run_suite

    asked = (rounds, seconds, seconds_of("--sustained", sustained) if sustained else 0.0)
    request = _ask(
        suite, model, (devices, runtime, precision), asked, limit, seed, is_quick=quick, explains=why, proves=prove
    )
    with progress_bar("measuring") as advance:
        run_suite(out, request, advance)
    _tell(out, out / PAGE, force=True, as_json=as_json, kind="bench run")


def fleet(
    *, out: SuiteFolder, ray: RayCluster, suite: Suite = "embench", model: Models = None, devices: Devices = "cpu",
    precision: Precisions = "f32", runtime: Runtimes = "", quick: Quick = False, rounds: Rounds = None,
    seconds: Seconds = None, limit: Limit = 300.0, seed: Seed = 0,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Measure models on every machine of a Ray cluster, each in a folder of its own below DIR.

    phasepoint bench fleet --ray auto --quick --out runs/fleet
    """
    from phasepoint.bench.suite.fleet import run_fleet

    asked = (rounds, seconds, 0.0)
    request = _ask(suite, model, (devices, runtime, precision), asked, limit, seed, is_quick=quick)
    with progress_bar("measuring") as advance:
        machines = run_fleet(out, request, ray, advance)
    if as_json:
        write_document("bench fleet", {"folder": str(out), "machines": machines})
        return
    for machine in machines:
        typer.echo(str(machine.folder))
        if machine.left:
            typer.echo(f"  is gone: {machine.left} processes left; the same command again goes on with them")
    if len(machines) > 1:
        compare([machine.folder for machine in machines])


def pack(
    *, out: Pack, model: Models = None, devices: Devices = "", precision: Precisions = "f32", runtime: Runtimes = "",
    quick: Quick = False, rounds: Rounds = None, seconds: Seconds = None, limit: Limit = 300.0, seed: Seed = 0,
    force: Force = False, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Put graphs and a runner into one file, for a phone or a board: there, Python with NumPy and a runtime runs it.

    phasepoint bench pack --model mine.onnx --model onnx/squeezenet --devices cpu:1,cpu:4 --out board.pyz
    python3 board.pyz --out board.json               # on the board
    phasepoint bench report board.json
    """
    from phasepoint.bench.portable.pack import write_pack
    from phasepoint.bench.suite.ask import ask_suite
    from phasepoint.zoo.graphs.packaged import packaged_graphs

    request = ask_suite(
        model or list(packaged_graphs()), devices=_words(devices), runtimes=_words(runtime),
        precisions=_words(precision), is_quick=quick, rounds=rounds, seconds=seconds, limit_s=limit, seed=seed,
        is_elsewhere=True,
    )  # fmt: skip
    size_bytes = write_pack(out, request, force=force)
    if as_json:
        written = [{"path": str(out), "bytes": size_bytes}]
        write_document("bench pack", {"pairs": request.pairs, "rounds": request.rounds, "written": written})
        return
    typer.echo(f"wrote {out}: {format_counted(len(request.pairs), 'pair')}, {format_bytes(size_bytes)}")
    typer.echo(f"there: python3 {out.name} --out board.json; here: phasepoint bench report board.json")


def _ask(
    suite: str, model: list[str] | None, settings: tuple[str, str, str], often: tuple[int | None, float | None, float],
    limit: float, seed: int, *, is_quick: bool, explains: bool = False, proves: bool = False,
) -> "SuiteRequest":  # fmt: skip
    """What the options of `run` and `fleet` ask for."""
    from phasepoint.bench.suite.ask import ask_suite

    if suite not in SUITES:
        raise UsageError(f"no suite named {suite!r}; there is {', '.join(SUITES)}")
    devices, runtimes, precisions = map(_words, settings)
    return ask_suite(
        model or [],
        devices=devices,
        runtimes=runtimes,
        precisions=precisions,
        is_quick=is_quick,
        rounds=often[0],
        seconds=often[1],
        limit_s=limit,
        seed=seed,
        sustained_s=often[2],
        explains=explains,
        proves=proves,
    )


def fingerprint(
    *, out: SuiteFolder, like: Like, minutes: Minutes = 10.0, device: OneDevice = "", precision: Precisions = "f32",
    runtime: Runtimes = "", as_json: AsJson = False,
) -> None:  # fmt: skip
    """Measure the ten models that tell most, and say what all the others take on this device.

    phasepoint bench fingerprint --like runs/bench-laptop --like runs/bench-server --out runs/this-device
    """
    from phasepoint.bench.fingerprint.fingerprint import choose_for, known_suites, predict_rest
    from phasepoint.bench.suite.ask import ask_suite
    from phasepoint.bench.suite.run import run_suite
    from phasepoint.bench.suite.summary import summarize_suite

    suites = known_suites(like)
    models, seconds = choose_for(suites, minutes)
    request = ask_suite(
        models, devices=_words(device), runtimes=_words(runtime), precisions=[precision], rounds=1, seconds=seconds
    )
    with progress_bar("measuring") as advance:
        results = run_suite(out, request, advance)
    rows = predict_rest(suites, summarize_suite(results))
    if as_json:
        write_document("bench fingerprint", {"folder": str(out), "like": suites.labels, "models": rows})
        return
    from phasepoint.report.terminal.bench import render_fingerprint

    render_fingerprint(rows, result_console())


def report(folder: Measured, *, output: Output = None, force: Force = False, as_json: AsJson = False) -> None:
    """Print what a suite measured, and write it as a page (default: DIR/report.html, FILE.html)."""
    page = folder.with_suffix(".html") if folder.is_file() else folder / PAGE
    _tell(folder, output or page, force=force or output is None, as_json=as_json, kind="bench report")


def compare(folders: Several, *, as_json: AsJson = False) -> None:
    """Say which models are faster where, beyond what scatters, and whether the order of models differs.

    The first folder is what the others are held against.
    """
    from phasepoint.bench.suite.compare import compare_suites
    from phasepoint.bench.suite.result import read_suite
    from phasepoint.bench.suite.summary import summarize_suite

    if len(folders) < 2:
        raise UsageError("give two folders or more: the first is what the others are held against")
    suites = [summarize_suite(read_suite(folder)[1]) for folder in folders]
    found = [(folder, compare_suites(suites[0], suite)) for folder, suite in zip(folders[1:], suites[1:], strict=True)]
    if as_json:
        rows = [{"folder": str(folder), "comparison": comparison} for folder, comparison in found]
        write_document("bench compare", {"against": str(folders[0]), "suites": rows})
        return
    from phasepoint.report.terminal.bench import render_comparison

    for folder, comparison in found:
        render_comparison(str(folders[0]), str(folder), comparison, result_console())


def _tell(folder: Path, page: Path, *, force: bool, as_json: bool, kind: str) -> None:
    from phasepoint.bench.bottleneck.proof import told_changes
    from phasepoint.bench.suite.result import read_suite
    from phasepoint.bench.suite.summary import summarize_suite
    from phasepoint.report.html.suites import suite_html, suite_notes

    results = read_suite(folder)[1]
    summaries = summarize_suite(results)
    changes = told_changes(summaries, results)
    size_bytes = write_text(page, [suite_html(str(folder), summaries, results)], force=force)
    if as_json:
        written = [{"path": str(page), "bytes": size_bytes}]
        write_document(kind, {"folder": str(folder), "pairs": summaries, "changes": changes, "written": written})
        return
    from phasepoint.report.terminal.bench import render_suite

    render_suite(summaries, changes, result_console())
    for note in suite_notes([one for one in summaries if one.latency_ps]):
        typer.echo(note)
    typer.echo(f"wrote {page}")


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def validate(folder: Times, *, as_json: AsJson = False) -> None:
    """Take each device of a file for a new one: ten models are measured on it, the rest is predicted and compared.

    A file has the columns device, model and samples_per_s; params_m, gmacs, macts_m, image_size, precision and
    compiled help where it has them.
    """
    from phasepoint.bench.fingerprint.validation import validate_devices

    with progress_bar("validating") as advance:
        answers = validate_devices(folder, advance)
    if as_json:
        write_document("bench validate", {"devices": answers})
        return
    from phasepoint.report.terminal.bench import render_devices

    render_devices(answers, result_console())
