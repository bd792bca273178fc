"""A table on a page: figures carry their exact value, so that the script sorts and copies what was computed.

Its own file: a medium of the table, beside the others.
"""

from phasepoint.report.tables import Cell, Table, TableColumn, cell_text
from phasepoint.report.words.markup import Markup, element


def data_table(table: Table, *, with_filter: bool = True) -> Markup:
    """A table that scrolls sideways where it does not fit, ready to be sorted, filtered and copied.

    Args:
        table: the table; its label is for screen readers and the copy button.
        with_filter: whether rows can be filtered, where they are many.
    """
    head = element("tr", *map(_heading, table.columns))
    body = [element("tr", *(_cell(column, item) for column in table.columns)) for item in table.rows]
    whole = element("table", element("thead", head), element("tbody", *body), aria_label=table.label)
    attributes = {} if with_filter else {"data_filter": "off"}
    return element(
        "div", whole, class_="scroll", tabindex="0", role="region", aria_label=f"{table.label}, table", **attributes
    )


def _heading(column: TableColumn) -> Markup:
    if not column.title:
        return element("td", class_=column.side, data_csv=column.key)
    return element("th", column.title, class_=column.side, scope="col", data_csv=column.key)


def _cell(column: TableColumn, item: object) -> Markup:
    shown = column.cell(item)
    if column.side == "right" and (shown is None or isinstance(shown, int | float)):
        shown = Cell(cell_text(shown, column.unit), shown)
    if isinstance(shown, Cell):
        value = "" if shown.value is None else repr(shown.value)
        return element("td", shown.shown, class_=column.side, data_v=value)
    content = shown if isinstance(shown, Markup) else cell_text(shown, column.unit, column.width)
    return element("td", content, class_=column.side)
