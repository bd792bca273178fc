"""The page in a real browser: no name runs as script, nothing is loaded, zoom and hover work, phones can read it."""

import shutil
from pathlib import Path

import pytest

from phasepoint.report.html import summary_html

pytestmark = pytest.mark.browser

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")
def page_path(opened, tmp_path_factory):
    _, summary, timeline = opened
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(summary_html(summary, timeline), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.skip("no chromium on PATH")
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture
def view(browser, page_path):
    """Opens the page at a width; what it said, loaded and asked is kept beside it."""
    opened_pages = []

    def open_page(width=1280, scheme="light"):
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page.heard = []
        page.on("console", lambda message: page.heard.append(message.text))
        page.on("pageerror", lambda error: page.heard.append(str(error)))
        page.on("dialog", lambda dialog: (page.heard.append(f"dialog {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda request: page.heard.append(request.url))
        page.goto(Path(page_path).as_uri())
        opened_pages.append(page)
        return page

    yield open_page
    for page in opened_pages:
        page.close()


def test_nothing_runs_and_nothing_is_loaded(view, page_path):
    page = view()
    page.hover("#timeline .lane-body >> nth=0")
    assert page.heard == [page_path.as_uri()]
    assert page.locator("img").count() == 0
    assert page.locator("code", has_text="<img src=x onerror=alert(1)>").count() > 0


@pytest.mark.parametrize("width", [1280, 820, 390])
def test_the_page_fits_its_width(view, width):
    page = view(width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_dark_and_light_differ(view):
    ground = "getComputedStyle(document.body).backgroundColor"
    assert view(scheme="dark").evaluate(ground) == "rgb(17, 20, 24)"
    assert view(scheme="light").evaluate(ground) == "rgb(255, 255, 255)"


def _box(page):
    return [float(x) for x in page.locator("svg.zoom").first.get_attribute("viewBox").split()]


def test_zooming_by_buttons_and_back(view):
    page = view()
    assert _box(page)[::2] == [0, 1_000_000]
    page.click("button[data-zoom=in]")
    assert _box(page)[::2] == [250_000, 500_000]
    page.click("button[data-zoom=left]")
    assert _box(page)[0] == pytest.approx(250_000 - 500_000 / 3)
    page.click("button[data-zoom=all]")
    assert _box(page)[::2] == [0, 1_000_000]


def test_dragging_zooms_to_the_stretch(view):
    page = view()
    lane = page.locator("#timeline .lane-body").first.bounding_box()
    middle = lane["y"] + lane["height"] / 2
    page.mouse.move(lane["x"] + lane["width"] * 0.25, middle)
    page.mouse.down()
    page.mouse.move(lane["x"] + lane["width"] * 0.5, middle)
    page.mouse.up()
    low, _, width, _ = _box(page)
    assert (low, width) == (pytest.approx(250_000, abs=2_000), pytest.approx(250_000, abs=4_000))
    boxes = {
        tuple(box.split()[::2])
        for box in page.eval_on_selector_all("svg.zoom", "lanes => lanes.map((lane) => lane.getAttribute('viewBox'))")
    }
    assert len(boxes) == 1


def test_hovering_shows_the_phase_and_the_step_as_text(view, opened):
    _, summary, _ = opened
    page = view()
    lane = page.locator("#timeline .lane-body").first.bounding_box()
    stall = next(s for s in summary.strip if s.first_step == 150)
    end_ps = summary.strip[-1].start_ps + summary.strip[-1].dur_ps
    share = (stall.start_ps + stall.dur_ps / 2) / end_ps
    page.mouse.move(lane["x"] + lane["width"] * share, lane["y"] + 5)
    lines = page.locator(".tip").inner_text().splitlines()
    assert lines[0] == f"{stall.name}: 1.90 s, steps 150 – 159"
    assert any("step 155: 19" in line and "150 ms of it waiting for input" in line for line in lines)


def test_the_axis_is_labelled_in_round_times(view):
    page = view()
    labels = page.locator("svg.axis text").all_text_contents()
    assert labels[0] == "0 s"
    assert all(label.endswith(" s") for label in labels)
    numbers = [float(label.split()[0]) for label in labels]
    assert numbers == [2.0 * i for i in range(len(numbers))]


def test_printing_shows_all_and_hides_the_controls(view):
    page = view()
    page.emulate_media(media="print")
    assert not page.locator(".controls").is_visible()
    assert page.locator("#timeline svg.zoom").first.is_visible()
