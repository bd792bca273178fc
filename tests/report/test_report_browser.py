"""The page in a real browser without a network: no name runs as script, keyboard and phone can read all of it."""

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from sample_findings import EVIL_TITLE, sample_findings

from phasepoint.report.html.page import summary_html
from phasepoint.summary.machine_lane import MachineLane

pytestmark = pytest.mark.browser

AXE = Path(__file__).parents[2] / "web" / "node_modules" / "axe-core" / "axe.min.js"


def machine_lane(end_ps):
    """Crowded in its second half; of its last quarter nothing is known."""
    edges = [end_ps * i // 4 for i in range(4)]
    crowded, held = (0.01, 0.02, 0.4), (0.0, 0.0, 0.2)
    return MachineLane(tuple(edges[:3]), tuple(edges[1:]), (0.1, 0.1, 0.75), crowded, held, (1.0, 0.6, 1.0))


@pytest.fixture(scope="module")
def page_path(opened, near, forward, tmp_path_factory):
    _, summary, timeline = opened
    timeline = replace(timeline, machine=machine_lane(timeline.end_ps))
    path = tmp_path_factory.mktemp("page") / "report.html"
    html = summary_html(summary, timeline, sample_findings(summary.phases[0].name), near, fast_forward=forward)
    path.write_text(html, encoding="utf-8")
    return path


@pytest.fixture
def view(browser, page_path):
    """Opens the page at a width, offline; what it said, loaded and asked is kept beside it."""
    contexts = []

    def open_page(width=1280, scheme="light", anchor=""):
        context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme=scheme,
            offline=True,
            reduced_motion="reduce",
            permissions=["clipboard-read", "clipboard-write"],
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(5000)
        page.heard = []
        page.on("console", lambda message: page.heard.append(message.text))
        page.on("pageerror", lambda error: page.heard.append(str(error)))
        page.on("dialog", lambda dialog: (page.heard.append(f"dialog {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda request: page.heard.append(request.url))
        page.goto(Path(page_path).as_uri() + anchor)
        return page

    yield open_page
    for context in contexts:
        context.close()


def _until(page, expression):
    """Wait until an expression holds. Playwright's own `wait_for_function` needs `eval`, which the page forbids."""
    for _ in range(100):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(50)
    pytest.fail(f"after 5 s still not: {expression}")


def _range(page):
    """The stretch of time shown, in seconds."""
    return [float(page.locator("#timeline").get_attribute(f"data-{end}")) for end in ("from", "to")]


def _plot(page, lane=1):
    """Where a lane's plot stands on the screen: 1 is step time."""
    return page.locator("#timeline .u-over").nth(lane).bounding_box()


def _end(opened):
    last = opened[1].strip[-1]
    return (last.start_ps + last.dur_ps) / 1e12


def test_nothing_runs_and_nothing_is_loaded(view, page_path):
    page = view()
    box = _plot(page)
    page.mouse.move(box["x"] + 50, box["y"] + 50)
    for summary in page.locator("details > summary").all():
        if summary.is_visible():
            summary.click()
    assert page.heard == [page_path.as_uri()]
    assert page.locator("img").count() == 0
    assert page.locator("code", has_text="<img src=x onerror=alert(1)>").count() > 0
    assert page.title().endswith("Phasepoint")
    assert page.locator(".finding .title").first.inner_text() == EVIL_TITLE


@pytest.mark.parametrize("width", [1280, 820, 390])
def test_the_page_fits_its_width(view, width):
    page = view(width)
    page.evaluate("for (const d of document.querySelectorAll('details')) d.open = true")
    page.wait_for_timeout(50)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_dark_and_light_differ(view):
    ground = "getComputedStyle(document.body).backgroundColor"
    pixel = """() => { const c = document.querySelectorAll('#timeline canvas')[1];
        return [...c.getContext('2d').getImageData(c.width - 3, 12, 1, 1).data].slice(0, 3) }"""
    dark, light = view(scheme="dark"), view(scheme="light")
    assert dark.evaluate(ground) == "rgb(17, 20, 24)"
    assert light.evaluate(ground) == "rgb(255, 255, 255)"
    assert max(dark.evaluate(pixel)) < 64 < 230 < min(light.evaluate(pixel))
    light.emulate_media(color_scheme="dark")
    _until(light, f"Math.max(...({pixel})()) < 64")


def test_zooming_by_buttons_and_back(view, opened):
    page, end = view(), _end(opened)
    assert _range(page) == [0, pytest.approx(end)]
    page.click("button[data-zoom=in]")
    assert _range(page) == [pytest.approx(end / 4), pytest.approx(end * 3 / 4)]
    page.click("button[data-zoom=left]")
    assert _range(page)[0] == pytest.approx(end / 4 - end / 6)
    page.click("button[data-zoom=all]")
    assert _range(page) == [0, pytest.approx(end)]


def test_zooming_by_keyboard(view, opened):
    page, end = view(), _end(opened)
    page.focus("#timeline")
    page.keyboard.press("+")
    page.keyboard.press("ArrowRight")
    assert _range(page) == [pytest.approx(end / 4 + end / 6), pytest.approx(end * 3 / 4 + end / 6)]
    page.keyboard.press("-")
    page.keyboard.press("Home")
    assert _range(page) == [0, pytest.approx(end)]


def test_dragging_zooms_to_the_stretch(view, opened):
    page, end = view(), _end(opened)
    lane = _plot(page)
    middle = lane["y"] + lane["height"] / 2
    page.mouse.move(lane["x"] + lane["width"] * 0.25, middle)
    page.mouse.down()
    page.mouse.move(lane["x"] + lane["width"] * 0.4, middle, steps=3)
    page.mouse.move(lane["x"] + lane["width"] * 0.5, middle, steps=3)
    page.mouse.up()
    assert _range(page) == [pytest.approx(end / 4, rel=0.01), pytest.approx(end / 2, rel=0.01)]
    page.mouse.dblclick(lane["x"] + lane["width"] * 0.5, middle)
    assert _range(page) == [0, pytest.approx(end)]


def test_hovering_shows_the_phase_and_the_step_as_text(view, opened):
    _, summary, _ = opened
    page = view()
    stall = next(s for s in summary.strip if s.first_step == 150)
    lane = _plot(page)
    share = (stall.start_ps + stall.dur_ps / 2) / (_end(opened) * 1e12)
    page.mouse.move(lane["x"] + lane["width"] * share, lane["y"] + 5)
    lines = page.locator("#timeline .tip").inner_text().splitlines()
    assert lines[0] == f"{stall.name}: 1.90 s, steps 150 – 159"
    assert any("step 155: 19" in line and "150 ms of it waiting for input" in line for line in lines)


def _column(page, label, number):
    rows = page.locator(f'table[aria-label="{label}"] tbody tr').all()
    return [row.locator("td").nth(number).inner_text() for row in rows if row.is_visible()]


def test_the_machine_has_a_lane_with_a_legend(view):
    page = view()
    lane = page.locator(".lane", has=page.locator(".lane-label", has_text="machine"))
    assert lane.locator(".lane-key").inner_text().split("\n") == [
        "share of the job's threads' time spent waiting for a core",
        "of that, while other programs had the cores",
        "of that, while a limit on the job's CPU time held them",
    ]
    lane.scroll_into_view_if_needed()
    box = lane.locator(".u-over").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 5 / 8, box["y"] + 20)
    told = page.locator("#timeline .tip").inner_text()
    assert "the job's threads waited for a core 75.0 % of their time; 40.0 % while other programs had the cores" in told
    assert "; 20.0 % while a limit on its CPU time held them" in told
    page.mouse.move(box["x"] + box["width"] * 7 / 8, box["y"] + 20)
    assert "threads waited" not in page.locator("#timeline .tip").inner_text()
    assert page.locator(".lane-label", has_text="core speed").count() == 1


def test_tables_sort_by_their_exact_values(view, opened):
    _, summary, _ = opened
    page = view()
    by_steps = sorted(summary.phases, key=lambda phase: -phase.steps)
    heading = page.locator('table[aria-label="Phases"] th button', has_text="steps").first
    heading.focus()
    page.keyboard.press("Enter")
    assert _column(page, "Phases", 3) == [f"{phase.steps:,}" for phase in by_steps]
    assert page.locator('table[aria-label="Phases"] th[aria-sort=descending]').inner_text().startswith("steps")
    page.keyboard.press("Enter")
    assert _column(page, "Phases", 3) == [f"{phase.steps:,}" for phase in by_steps[::-1]]
    page.locator('table[aria-label="Phases"] th button', has_text="phase").first.click()
    names = [name.strip() for name in _column(page, "Phases", 0)]
    assert names == sorted(names)


def test_a_filter_keeps_the_rows_that_hold_every_word(browser, tmp_path):
    from sample_summary import sample_summary

    sample = sample_summary()
    many = (*[sample.events[0]] * 9, sample.events[1])
    path = tmp_path / "many.html"
    path.write_text(summary_html(sample_summary(events=many)), encoding="utf-8")
    page = browser.new_page()
    page.goto(path.as_uri())
    field = page.get_by_label("Filter Noticed")
    field.fill("slow INPUT")
    assert _column(page, "Noticed", 0) == ["input-stall"]
    field.fill("no such thing")
    assert _column(page, "Noticed", 0) == []
    field.fill("")
    assert len(_column(page, "Noticed", 0)) == 10
    page.close()


def test_a_table_copies_as_csv_with_exact_values(view, opened):
    _, summary, _ = opened
    page = view()
    page.get_by_label("Copy Phases as CSV").click()
    page.wait_for_selector(".said:has-text('copied')")
    rows = list(csv.DictReader(io.StringIO(page.evaluate("navigator.clipboard.readText()"))))
    assert [int(row["total_ps"]) for row in rows] == [phase.total_ps for phase in summary.phases]
    assert [row["phase"] for row in rows] == [phase.name for phase in summary.phases]
    assert [float(row["share"]) for row in rows] == [phase.share for phase in summary.phases]
    assert "median_ps" in rows[0]


def test_a_finding_leads_to_its_evidence(view, opened):
    _, summary, _ = opened
    page = view()
    assert page.locator(".finding .win").all_inner_texts()[:3] == [
        "31.2 s · 31.2 %",
        "6.50 s · 6.5 %",
        "2.00 s · 2.0 %",
    ]
    first = page.locator("#finding-1")
    first.locator("summary").focus()
    page.keyboard.press("Enter")
    first.get_by_role("link", name="show: rows of steps").click()
    _until(page, "location.hash === '#run-over-time'")
    first.get_by_role("link", name=summary.phases[0].name, exact=True).click()
    _until(page, f"location.hash === '#phase-{summary.phases[0].id}'")
    _until(page, f"document.activeElement.parentElement.id === 'phase-{summary.phases[0].id}'")
    first.get_by_role("button", name="Copy the command").click()
    page.wait_for_selector("#finding-1 .said:has-text('copied')")
    command = page.evaluate("navigator.clipboard.readText()")
    assert command.startswith("phasepoint sql ")
    assert "select * from steps where" in command


def test_a_phase_is_replayed_by_the_command_that_is_copied(view, forward):
    page = view()
    plan = forward.plans[0].plan
    block = page.locator(f"#replay-{plan.phase_id}")
    assert block.locator(".win").inner_text() == "3.82 s · 31.8 % of the run"
    block.locator("summary").focus()
    page.keyboard.press("Enter")
    block.get_by_role("button", name="Copy the command").click()
    page.wait_for_selector(f"#replay-{plan.phase_id} .said:has-text('copied')")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == f"phasepoint replay run {plan.run} --phase {plan.phase} -- python train.py"


def test_a_link_unfolds_what_it_points_at(view, opened):
    last = opened[1].phases[-1]
    page = view(anchor=f"#phase-{last.id}")
    assert page.locator(f"#phase-{last.id}").evaluate("node => node.open")
    page = view(anchor="#finding-4")
    assert page.locator("#finding-4").is_visible()


def test_layers_by_keyboard_and_by_another_measure(view, near):
    page = view()
    tree = page.locator(".icicle").first
    line = page.locator(".icicle-line").first
    nodes = near.phases[0].layers.nodes
    tree.locator("[tabindex='0']").focus()
    page.keyboard.press("ArrowDown")
    assert line.inner_text().startswith("Net:")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert line.inner_text().startswith("Net / fusion.1")
    widths = [box["width"] for box in (node.bounding_box() for node in tree.locator(".node").all())]
    assert widths[2] == pytest.approx(widths[0], abs=2)
    page.keyboard.press("Enter")
    assert tree.locator(".node").count() > 3
    assert nodes[0].self_ps == sum(node.self_ps for node in nodes if node.parent == 0)


def test_the_trace_is_saved_as_chrome_json(view, near):
    page = view()
    trace = near.phases[0].trace
    with page.expect_download() as download:
        page.get_by_role("button", name="Save for Perfetto").first.click()
    events = json.loads(Path(download.value.path()).read_text(encoding="utf-8"))["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    assert [(e["ts"], e["dur"]) for e in spans] == [
        (start / 1e6, dur / 1e6) for start, dur in zip(trace.start, trace.dur, strict=True)
    ]
    names = [event["args"]["name"] for event in events if event.get("name") == "thread_name"]
    assert names == list(trace.tracks)
    assert download.value.suggested_filename.endswith(".json")


def test_everything_can_be_reached_by_tab(view):
    page = view()
    seen = set()
    for _ in range(260):
        page.keyboard.press("Tab")
        seen.add(page.evaluate("(() => { const a = document.activeElement; return a.id || a.textContent.trim() })()"))
    assert {"timeline", "Copy CSV", "Save for Perfetto", "+", "share", "1 more finding"} <= seen


def test_printing_shows_all_and_hides_the_controls(view):
    page = view()
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print", color_scheme="dark")
    assert not page.locator("#timeline-controls").is_visible()
    assert not page.locator(".table-tools").first.is_visible()
    assert page.locator("#timeline canvas").first.is_visible()
    assert page.locator("details.phase:not([open])").count() == 0
    assert page.locator(".node").last.is_visible()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert len(page.pdf()) > 10_000


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_serious_accessibility_violation(view, scheme):
    if not AXE.exists():
        pytest.skip("axe-core is not installed: npm ci in web/")
    page = view(scheme=scheme)
    page.evaluate("for (const d of document.querySelectorAll('details')) d.open = true")
    page.wait_for_timeout(100)
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate("axe.run(document).then(r => r.violations)")
    serious = [v for v in found if v["impact"] in ("serious", "critical")]
    assert [(v["id"], v["nodes"][0]["html"], v["nodes"][0]["failureSummary"]) for v in serious] == []
