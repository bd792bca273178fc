"""The stack: a tab for each analysis across model, layer, op and kernel."""

from dataclasses import replace
from typing import Any

from phasepoint.core.units import format_count
from phasepoint.report.tables import TableColumn, arrow_table, cell_text
from phasepoint.report.tables.html import data_table
from phasepoint.report.words.markup import Content, Markup, element, section
from phasepoint.report.words.names import printable, shorten
from phasepoint.stack.analyses.overview import ShownTable, StackOverview
from phasepoint.stack.shard.shard import StackTable

_TEXT_CHARACTERS = 60
"""Of any text in a row: a choice, two such columns beside figures on a wide screen."""

_PATH_CHARACTERS = 42
"""Of a module path; the whole of it shows on hover."""

_NOTHING = Markup("")


def stack_section(overview: StackOverview | None) -> Markup:
    """The tabs; without a script they stand one below the other."""
    if overview is None:
        return _NOTHING
    windows = f"{format_count(overview.windows)} of {format_count(overview.windows_kept)} captured windows"
    aside = f"model, layer, op and kernel together · host {overview.host}, {windows}"
    panels = (_panel(one) for one in overview.tables)
    tabs = element("div", *panels, class_="tabs", data_tabs="Analyses of the stack")
    return section("Stack", aside, tabs, anchor="stack")


def _panel(shown: ShownTable) -> Markup:
    table = shown.table
    label = f"{table.code} {table.name}" if table.code else table.name
    title = f"{table.code} · {table.title}" if table.code else table.title
    blocks: list[Content] = [element("h3", title)]
    blocks += [element("p", note, class_="dim") for note in table.notes]
    if peaks_of(table) is not None:
        what = f"{table.title}: {format_count(shown.rows)} points below the device's peaks, listed below"
        chart = {"data_chart": "stack-roofline", "data_of": table.name}
        blocks.append(element("div", class_="chart roofline", role="img", aria_label=what, **chart))
    blocks.append(_table(table) if table.rows.num_rows else element("p", "No rows.", class_="dim"))
    if shown.rows > table.rows.num_rows:
        command = f"phasepoint stack RUN --analysis {table.code or table.name} --csv"
        left = f"The first {format_count(table.rows.num_rows)} of {format_count(shown.rows)} rows; all of them: "
        blocks.append(element("p", left, element("code", command), class_="dim"))
    return element("div", *blocks, class_="tab", id=f"stack-{table.name}", data_tab=label.replace("-", " "))


def _table(table: StackTable) -> Markup:
    """Its rows, without columns of which nothing is known; the heading says which host it is."""
    n_rows = table.rows.num_rows
    known = [c for c in table.columns if c.name != "host" and table.rows[c.name].null_count < n_rows]
    shown = arrow_table(table.rows, known, width=_TEXT_CHARACTERS)
    columns = [_with_hover(column) if column.key in ("name", "layer", "op") else column for column in shown.columns]
    return data_table(replace(shown, columns=columns, label=table.title))


def _with_hover(column: TableColumn) -> TableColumn:
    """A column of names, each whole on hover; of a module path the end is shown."""

    def cell(row: object) -> Content:
        value = column.cell(row)
        if value is None:
            return cell_text(None)
        shown = _tail(str(value)) if column.key == "layer" else shorten(str(value), _TEXT_CHARACTERS)
        return element("code", shown, title=printable(str(value)))

    return replace(column, cell=cell)


def _tail(path: str) -> str:
    """The end of a module path, which tells layers apart."""
    shown = printable(path)
    _, slash, end = shown[-_PATH_CHARACTERS:].partition("/")
    if len(shown) <= _PATH_CHARACTERS or not slash:
        return shorten(shown, _PATH_CHARACTERS)
    return f"…/{end}"


def rooflines(overview: StackOverview | None) -> dict[str, Any]:
    """The points of the rooflines and the roofs above them, by analysis, for the script."""
    found = {}
    for one in overview.tables if overview else ():
        peaks = peaks_of(one.table)
        if peaks is not None:
            found[one.table.name] = {"points": _points(one.table), "peaks": peaks}
    return found


def peaks_of(table: StackTable) -> dict[str, Any] | None:
    """The roofs of a roofline; None for other tables, without known peaks, and where several kinds of devices ran."""
    if "roof_ratio" not in table.rows.column_names or not table.rows.num_rows:
        return None
    rows = table.rows.select(["element_type", "peak_flop_per_s", "peak_bytes_per_s"]).to_pylist()
    known = {(r["element_type"], r["peak_flop_per_s"], r["peak_bytes_per_s"]) for r in rows if None not in r.values()}
    if len({size for _, _, size in known}) != 1:
        return None
    rates = sorted({(flop, kind) for kind, flop, _ in known}, reverse=True)
    memory = next(iter(known))[2]
    return {"memory_bytes_per_s": memory, "rates": [{"kind": kind, "flop_per_s": flop} for flop, kind in rates]}


def _points(table: StackTable) -> dict[str, list[Any]]:
    time, name = ("time_ps", "name") if "name" in table.rows.column_names else ("device_ps", "layer")
    return {
        "op": [shorten(value or "no layer", 60) for value in table.rows[name].to_pylist()],
        "self_ps": table.rows[time].to_pylist(),
        "flop_per_byte": table.rows["flop_per_byte"].to_pylist(),
        "flop_per_s": table.rows["flop_per_s"].to_pylist(),
    }
