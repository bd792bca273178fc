"""`phasepoint convert`.

`phasepoint compact`.
"""

import typer

from phasepoint.cli.options import AsJson, RunPath


def compact(path: RunPath, as_json: AsJson = False) -> None:
    """Merge a run's small files into few large ones; nothing that was recorded changes."""
    from phasepoint.cli.console import busy, write_notes
    from phasepoint.core.units import format_bytes, format_counted
    from phasepoint.store import compact_run

    with busy("merging"):
        result = compact_run(path)
    if as_json:
        from phasepoint.report.documents import plain, to_json

        typer.echo(to_json("compact", {"run": path, **plain(result)}))
        return
    before = f"{format_counted(result.parts_before, 'file')}, {format_bytes(result.bytes_before)}"
    after = f"{format_counted(result.parts_after, 'file')}, {format_bytes(result.bytes_after)}"
    typer.echo(f"compacted {path}: {before} → {after}")
    write_notes(f"{part}: cannot be read and was left as it is" for part in result.skipped)


def convert(path: RunPath, *, as_json: AsJson = False) -> None:
    """Turn a run's raw captures into tables now; the commands that read a run do the same when they need it."""
    from phasepoint.cli.console import write_notes
    from phasepoint.cli.opening import convert_with_progress
    from phasepoint.core.units import format_count, format_counted
    from phasepoint.store import open_run

    open_run(path)  # first, so that a wrong path fails before numba is imported
    result = convert_with_progress(path)
    if as_json:
        from phasepoint.report.documents import to_json

        fields = ("converted", "failed", "problems", "written")
        typer.echo(to_json("convert", {"run": path, **{name: getattr(result, name) for name in fields}}))
        return
    write_notes(result.problems)
    failed = f", {format_count(result.failed)} could not be read" if result.failed else ""
    windows = format_counted(result.converted, "window")
    typer.echo(f"converted {windows} of {path}{failed}")
    if not result.written:
        typer.echo("nothing was written: the run cannot be written; readers convert it in memory each time")
