import io

import pyarrow as pa
from rich.console import Console

from phasepoint.core.tables import Column
from phasepoint.report.terminal.stack import render_stack
from phasepoint.stack.shard.shard import StackTable, rows_of

COLUMNS = (
    Column("name", pa.string(), "a name"),
    Column("dur_ps", pa.int64(), "a time", "ps"),
    Column("flop", pa.int64(), "work", "flop", nullable=True),
    Column("flop_source", pa.string(), "where from", nullable=True),
    Column("share_ratio", pa.float64(), "a share", "ratio"),
    Column("energy", pa.float64(), "never known", "J", nullable=True),
)


def shown(width, *rows):
    names = [column.name for column in COLUMNS]
    data = {name: [row[i] for row in rows] for i, name in enumerate(names)}
    table = StackTable("layer-kernels", "A11", "Kernels by layer", COLUMNS, rows_of(COLUMNS, data), ())
    console = Console(file=io.StringIO(), width=width, highlight=False, markup=False)
    render_stack(table, console)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


ROW = ("a_kernel_of_some_length_with_template_arguments<(int)4>", 1_500_000, 2_000_000_000, "formula", 0.25, None)


def test_all_columns_where_there_is_room():
    assert shown(120, ROW) == [
        "A11  Kernels by layer",
        "name                                                  dur     flop  flop source   share",
        "a_kernel_of_some_length_…plate_arguments<(int)4>  1.50 µs  2 GFLOP  formula      25.0 %",
        "not known in this run: energy",
    ]


def test_texts_are_cut_first_then_sources_go_then_the_last_columns():
    assert shown(60, ROW)[1:] == [
        "name                          dur     flop   share",
        "a_kernel_of_…nts<(int)4>  1.50 µs  2 GFLOP  25.0 %",
        "no room for: flop source; --csv and --json print all",
        "not known in this run: energy",
    ]
    assert shown(36, ROW)[1].split() == ["name", "dur"]


def test_no_rows_are_said():
    assert shown(80) == ["A11  Kernels by layer", "no rows"]


def test_a_table_of_which_nothing_is_known_has_no_columns():
    columns = (Column("energy", pa.float64(), "never known", "J", nullable=True),)
    table = StackTable("energy", None, "Energy", columns, rows_of(columns, {"energy": [None, None]}), ())
    console = Console(file=io.StringIO(), width=80, highlight=False, markup=False)
    render_stack(table, console)
    assert console.file.getvalue().split("\n") == ["Energy", "", "not known in this run: energy", ""]
