"""The reference of the tables, and the page in docs/ that is made of it."""

import json
from pathlib import Path

from phasepoint.core.tables import TABLES
from phasepoint.report.export.tables_reference import as_markdown

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_in_docs_is_up_to_date(phasepoint):
    done = phasepoint("tables", "--format", "md")
    assert (DOCS / "tables.md").read_text() == done.out, "run: phasepoint tables --format md > docs/tables.md"


def test_markdown_has_a_row_for_every_column():
    text = as_markdown(list(TABLES.values()))
    for spec in TABLES.values():
        section = text.partition(f"## {spec.name}\n")[2].partition("\n## ")[0]
        names = [line.split("`")[1] for line in section.splitlines() if line.startswith("| `")]
        assert names == [column.name for column in spec.columns]


def test_json_names_units_and_nulls(phasepoint):
    document = json.loads(phasepoint("tables", "steps", "--json").out)
    columns = {column["name"]: column for column in document["tables"][0]["columns"]}
    assert columns["dur_ps"]["unit"] == "ps"
    assert columns["dur_ps"]["nullable"] is False
    assert columns["kind"] == {**columns["kind"], "type": "string", "nullable": True}


def test_text_for_one_table(phasepoint):
    done = phasepoint("tables", "gaps")
    assert done.out.splitlines()[0] == "gaps  one row per stretch of time or steps not observed"
    names = [line.split()[0] for line in done.out.splitlines()[1:] if line[2] != " "]
    assert names == [column.name for column in TABLES["gaps"].columns]
