"""`phasepoint learn collect`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from phasepoint.cli.options import AsJson, RayAddress
from phasepoint.core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from phasepoint.learn.collect_sources import ProgramReference

Sources = Annotated[
    list[str] | None,
    typer.Argument(metavar="[RUN|FILE.py:FUNCTION]…", help="Recorded runs, and functions that give programs."),
]
Out = Annotated[Path, typer.Option("--out", "-o", metavar="CORPUS", help="The corpus to make or to add to.")]
Programs = Annotated[
    str | None,
    typer.Option("--programs", metavar="WHICH", help="Of the package: zoo, generated, all, or a pattern of names."),
]


def collect(
    sources: Sources = None,
    *,
    out: Out,
    programs: Programs = None,
    limit: Annotated[int | None, typer.Option(min=1, metavar="N", help="At most so many programs.")] = None,
    core: Annotated[int | None, typer.Option(min=0, metavar="N", help="Core to measure on; left out: any.")] = None,
    rounds: Annotated[int, typer.Option(min=1, metavar="N", help="Rounds of each program, in all.")] = 3,
    repeats: Annotated[int, typer.Option(min=1, metavar="N", help="Runs in a round, at most.")] = 12,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="Of the generated programs.")] = 0,
    workers: Annotated[int, typer.Option(min=1, metavar="N", help="Processes, each on a core of its own.")] = 1,
    ray: RayAddress = None,
    as_json: AsJson = False,
) -> None:
    """Measure the kernels of programs into a corpus: phasepoint learn collect --out corpus/ --programs zoo

    Programs of the package, functions of files, and recorded runs, whose kernels were measured already. What the
    corpus holds is not measured again: a collection that was broken off goes on, and more --rounds add to it.
    """
    from phasepoint.cli.console import write_notes
    from phasepoint.cli.opening import open_converted, progress_bar
    from phasepoint.learn.collect import collect as collect_programs
    from phasepoint.learn.collect import collect_run, join_collected
    from phasepoint.learn.collect_sources import is_file_source

    words = sources or []
    references = _references([word for word in words if is_file_source(word)], programs, seed)[:limit]
    runs = [word for word in words if not is_file_source(word)]
    if not references and not runs:
        raise UsageError("nothing to collect: give a run, FILE.py:function, or --programs zoo, generated, all, PATTERN")
    parts = []
    if references:
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
        from phasepoint.report.documents import to_json

        typer.echo(to_json("learn collect", found))
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
    from phasepoint.learn.collect import names_in_file
    from phasepoint.learn.collect_sources import package_programs

    found = list(package_programs(programs, seed=seed)) if programs is not None else []
    for source in sources:
        found += names_in_file(source)
    return list(dict.fromkeys(found))
