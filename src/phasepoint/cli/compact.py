"""`phasepoint compact`."""

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
