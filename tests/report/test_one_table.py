"""One table in every medium."""

import io
import json
from operator import itemgetter

import numpy as np
import pyarrow as pa
import pytest
from rich.console import Console
from rich.text import Text

from phasepoint.core.tables import Column
from phasepoint.report.tables import Cell, Table, TableColumn, arrow_table, cell_text
from phasepoint.report.tables.html import data_table
from phasepoint.report.tables.terminal import grid, render_rows
from phasepoint.report.tables.text import csv_text, markdown_table, table_document
from phasepoint.report.words.markup import element

EVIL = "<b>[red]|\x1b[31m"
COLUMNS = (
    TableColumn("op", itemgetter(0), width=12),
    TableColumn("self time", itemgetter(1), "ps", "self_ps", "time of its own"),
    TableColumn("share", itemgetter(2), "ratio"),
    TableColumn("calls", itemgetter(3), "count"),
)
TABLE = Table(COLUMNS, [("fusion", 1_234_000_000, 0.5, 1_200), (EVIL, None, None, 1)], "Ops")


def printed(what, width=80):
    out = io.StringIO()
    console = Console(file=out, width=width, highlight=False)  # markup is on, as in a user's own console
    console.print(what)
    return [line.rstrip() for line in out.getvalue().splitlines()]


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (None, "ps", "–"),
        (0, "ps", "0 s"),
        (1_234_000_000, "ps", "1.23 ms"),
        (1_234_000_000.4, "ps", "1.23 ms"),
        (1536, "bytes", "1.50 KiB"),
        (0.123, "ratio", "12.3 %"),
        (12.3e12, "flop/s", "12.3 TFLOP/s"),
        (999.0, "flop", "999 FLOP"),
        (2e9, "bytes/s", "2 GB/s"),
        (1_234_567, "count", "1,234,567"),
        (np.int64(1_234_567), "", "1,234,567"),
        (np.float32(0.25), "", "0.25"),
        (0.123456, "cosine", "0.1235"),
        (True, "", "yes"),
        (False, "ps", "no"),
        ("a\nb", "ps", "a\\x0ab"),
    ],
)
def test_a_value_in_its_unit(value, unit, text):
    assert cell_text(value, unit) == text


def test_a_long_text_gives_way_in_its_middle():
    assert cell_text("fusion_of_many_things.1234", width=12) == "fusion….1234"


def test_on_a_terminal():
    assert printed(grid(TABLE)) == [
        "op            self time   share  calls",
        "fusion          1.23 ms  50.0 %  1,200",
        "<b>[re…b[31m          –       –      1",
    ]


def test_without_titles_there_is_no_line_of_headings():
    table = Table([TableColumn("", itemgetter(0)), TableColumn("", itemgetter(1), "ps")], [("a", 1)])
    assert printed(grid(table)) == ["a  1.00 ps"]


def test_a_cell_that_may_wrap_is_never_cut():
    kept, wrapped = (Table([TableColumn("", itemgetter(0), wraps=wraps)], [("0123456789",)]) for wraps in (False, True))
    assert printed(grid(kept), 6) == ["01234…"]
    assert printed(grid(wrapped), 6) == ["012345", "6789"]


def test_styled_text_and_cells_are_shown_as_they_are():
    columns = [TableColumn("a", lambda _: Text("[bold]")), TableColumn("b", lambda _: Cell("× 1.5", 1.5), "ratio")]
    assert printed(grid(Table(columns, [0]))) == ["a           b", "[bold]  × 1.5"]


def test_on_a_page():
    assert data_table(TABLE).html == (
        '<div class="scroll" tabindex="0" role="region" aria-label="Ops, table"><table aria-label="Ops"><thead><tr>'
        '<th class="left" scope="col" data-csv="op">op</th>'
        '<th class="right" scope="col" data-csv="self_ps">self time</th>'
        '<th class="right" scope="col" data-csv="share">share</th>'
        '<th class="right" scope="col" data-csv="calls">calls</th></tr></thead><tbody>'
        '<tr><td class="left">fusion</td><td class="right" data-v="1234000000">1.23 ms</td>'
        '<td class="right" data-v="0.5">50.0 %</td><td class="right" data-v="1200">1,200</td></tr>'
        '<tr><td class="left">&lt;b&gt;[re…b[31m</td><td class="right" data-v="">–</td>'
        '<td class="right" data-v="">–</td><td class="right" data-v="1">1</td></tr></tbody></table></div>'
    )


def test_markup_and_cells_on_a_page():
    columns = [
        TableColumn("", lambda name: element("code", name), name=""),
        TableColumn("ratio", lambda _: Cell(element("b", "× 2"), 2.0), "ratio"),
    ]
    html = data_table(Table(columns, ["<i>"]), with_filter=False).html
    assert '<td class="left" data-csv=""></td>' in html
    assert '<td class="left"><code>&lt;i&gt;</code></td><td class="right" data-v="2.0"><b>× 2</b></td>' in html
    assert html.count('data-filter="off"') == 1


def test_as_csv_and_json_the_values_are_exact():
    assert csv_text(TABLE) == f"op,self_ps,share,calls\nfusion,1234000000,0.5,1200\n{EVIL},,,1\n"
    assert json.loads(json.dumps(table_document(TABLE))) == {
        "columns": [
            {"name": "op", "unit": "", "doc": ""},
            {"name": "self_ps", "unit": "ps", "doc": "time of its own"},
            {"name": "share", "unit": "ratio", "doc": ""},
            {"name": "calls", "unit": "count", "doc": ""},
        ],
        "rows": [
            {"op": "fusion", "self_ps": 1_234_000_000, "share": 0.5, "calls": 1_200},
            {"op": EVIL, "self_ps": None, "share": None, "calls": 1},
        ],
    }


def test_in_markdown():
    assert markdown_table(TABLE).splitlines() == [
        "| op | self time | share | calls |",
        "| --- | ---: | ---: | ---: |",
        "| fusion | 1.23 ms | 50.0 % | 1,200 |",
        "| \\<b\\>\\[red\\]\\|\\\\x1b\\[31m | – | – | 1 |",
    ]


def test_an_arrow_table_has_the_columns_that_are_declared():
    rows = pa.table({"dur_ps": pa.array([1, None], pa.int64()), "name": pa.array(["a", "b"]).dictionary_encode()})
    declared = (Column("name", pa.string(), "a name"), Column("dur_ps", pa.int64(), "a time", "ps"))
    table = arrow_table(rows, declared)
    assert [(c.title, c.key, c.unit, c.doc, c.side) for c in table.columns] == [
        ("name", "name", "", "a name", "left"),
        ("dur", "dur_ps", "ps", "a time", "right"),
    ]
    assert list(table.rows) == [("a", 1), ("b", None)]


def test_a_querys_rows_are_shown_as_they_are():
    rows = pa.table([[1_234_567, None], [b"abc", b""], ["a", EVIL]], names=["n", "n", "name"])
    out = io.StringIO()
    render_rows(rows, Console(file=out, width=80, highlight=False))
    assert [line.rstrip() for line in out.getvalue().splitlines()] == [
        "      n  n        name",
        "1234567  3 bytes  a",
        "   null  0 bytes  <b>[red]|\\x1b[31m",
    ]
