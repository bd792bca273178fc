"""The stack's part of the page."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "stack"))  # stack_runs.py
from sample_summary import sample_summary
from stack_runs import kernel, run_of, span

from phasepoint.report.documents import overview_document
from phasepoint.report.html.data import page_data
from phasepoint.report.html.page import summary_html
from phasepoint.report.html.stack import stack_section
from phasepoint.stack.analyses.overview import MOST_ROWS, build_overview
from phasepoint.stack.analyses.table import ANALYSES, analyse

EVIL = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """More kernels than a table shows, one of them with a name that is markup, and a matrix product."""
    deep = "Net/" + "/".join(f"block{i}" for i in range(12)) + "/linear"
    spans = [
        span(
            0, 9, level="op", name="aten::mm", device="host", track="main", shape="f32[64,64], f32[64,64]", layer=deep
        ),
        kernel(10, 30, name=EVIL, layer="Net/<b>", launch=None),
        kernel(30, 45, name="gemm", launch=0),
        *(kernel(50 + i, 51 + i, name=f"k{i}", layer=f"Net/{i}", launch=None) for i in range(MOST_ROWS + 4)),
    ]
    return run_of(tmp_path_factory.mktemp("stack") / "run", spans)


@pytest.fixture(scope="module")
def overview(run):
    return build_overview(run)


def test_each_analysis_has_a_tab_in_its_order(overview):
    html = stack_section(overview).html
    places = [html.index(f'id="stack-{one.name}"') for one in ANALYSES]
    assert places == sorted(places)
    assert html.count('class="tab"') == len(ANALYSES)


def test_rows_are_those_of_the_analysis_and_the_cut_is_told(run, overview):
    shown = {one.table.name: one for one in overview.tables}
    for one in ANALYSES:
        whole = analyse(run, one.name)
        assert shown[one.name].rows == whole.rows.num_rows
        assert shown[one.name].table.rows.to_pylist() == whole.rows.slice(0, MOST_ROWS).to_pylist()
    html = stack_section(overview).html
    assert (
        f"The first {MOST_ROWS} of {MOST_ROWS + 6} rows; all of them: <code>phasepoint stack RUN --analysis A11" in html
    )


def test_names_are_text_and_the_end_of_a_path_shows(overview):
    html = stack_section(overview).html
    assert "<img" not in html
    assert "&lt;img" in html
    assert ">…/block8/block9/block10/block11/linear</code>" in html


def test_columns_of_which_nothing_is_known_are_left_out(overview):
    html = stack_section(overview).html
    panel = html[html.index('id="stack-layer-kernels"') : html.index('id="stack-layer-metrics"')]
    assert 'data-csv="flop"' in panel
    assert 'data-csv="occupancy_ratio"' not in panel
    assert 'data-csv="host"' not in panel


def test_a_roofline_is_drawn_where_the_device_is_known(tmp_path, overview):
    assert page_data(sample_summary(), None, None, overview)["stack"] == {}
    rows = overview.tables[8].table.rows
    peaks = {"element_type": ["f32"], "peak_flop_per_s": [67e12], "peak_bytes_per_s": [3.35e12]}
    for name, values in peaks.items():
        rows = rows.set_column(rows.column_names.index(name), rows.schema.field(name), [values])
    known = replace(overview.tables[8], table=replace(overview.tables[8].table, rows=rows))
    drawn = page_data(sample_summary(), None, None, replace(overview, tables=(known,)))["stack"]["kernel-roofline"]
    assert drawn["peaks"] == {"memory_bytes_per_s": 3.35e12, "rates": [{"kind": "f32", "flop_per_s": 67e12}]}
    assert drawn["points"]["op"] == ["gemm"]
    assert drawn["points"]["flop_per_byte"] == [2 * 64**3 / (3 * 64 * 64 * 4)]
    assert 'data-chart="stack-roofline"' in stack_section(replace(overview, tables=(known,))).html


def test_the_document_holds_what_the_page_shows(overview):
    document = json.loads(json.dumps(overview_document(overview)))
    assert [table["analysis"] for table in document["tables"]] == [one.name for one in ANALYSES]
    assert document["tables"][10]["rows_in_all"] == MOST_ROWS + 6
    assert len(document["tables"][10]["rows"]) == MOST_ROWS
    assert overview_document(None) is None


def test_a_run_without_spans_has_no_stack(tmp_path):
    empty = build_overview(run_of(tmp_path / "run", []))
    assert empty is None
    assert 'id="stack"' not in summary_html(sample_summary())


def test_of_many_spans_the_newest_windows_are_looked_at(tmp_path, monkeypatch):
    monkeypatch.setattr("phasepoint.stack.analyses.overview.MOST_SPANS", 3)
    spans = [kernel(i, i + 1, window=i // 2, name=f"k{i}") for i in range(6)]
    made = run_of(tmp_path / "run", spans)
    overview = build_overview(made)
    assert (overview.windows, overview.windows_kept) == (1, 3)
    assert [row["name"] for row in overview.tables[9].table.rows.to_pylist()] == ["k4", "k5"]


@pytest.mark.browser
def test_one_tab_is_seen_and_keys_and_links_move_on(browser, overview, tmp_path):
    path = tmp_path / "report.html"
    path.write_text(summary_html(sample_summary(), overview=overview), encoding="utf-8")
    page = browser.new_page()
    heard = []
    page.on("pageerror", lambda error: heard.append(str(error)))
    page.on("dialog", lambda dialog: (heard.append(dialog.message), dialog.dismiss()))
    page.goto(path.as_uri() + "#stack-layer-kernels")

    def seen():
        return [panel.get_attribute("id") for panel in page.locator("[role=tabpanel]").all() if panel.is_visible()]

    assert seen() == ["stack-layer-kernels"]
    chosen = page.locator("[role=tab][aria-selected=true]")
    assert chosen.inner_text() == "A11 layer kernels"
    chosen.focus()
    page.keyboard.press("ArrowRight")
    assert seen() == ["stack-layer-metrics"]
    page.keyboard.press("Home")
    assert seen() == ["stack-model-information"]
    page.locator("[role=tab]", has_text="A8 kernel information").click()
    assert seen() == ["stack-kernel-information"]
    assert page.locator("#stack code", has_text=EVIL).count() > 0
    assert heard == []
    page.close()
