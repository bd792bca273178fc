import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "cli"))  # made_run.py
sys.path.append(str(Path(__file__).parents[1] / "replay"))  # replay_runs.py

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


@pytest.fixture(scope="session")
def opened(tmp_path_factory):
    """A small run made through the store, opened, with its summary and its timeline."""
    from made_run import made_run

    from phasepoint.findings import summarize_run
    from phasepoint.store import open_run
    from phasepoint.summary.timeline import build_timeline

    run = open_run(made_run(tmp_path_factory.mktemp("report") / "made"))
    summary = summarize_run(run)
    return run, summary, build_timeline(run, summary)


@pytest.fixture(scope="session")
def near(opened):
    """Details of the same run; the step that stands for its largest phase is one whose events were kept."""
    from phasepoint.summary.analysis import analyse_run
    from phasepoint.summary.details import build_details

    run, summary, _ = opened
    shown = replace(summary.phases[0], representative_window=0, representative_step=10)
    return build_details(analyse_run(run), replace(summary, phases=(shown, *summary.phases[1:])))


@pytest.fixture(scope="session")
def forward(opened):
    """What can be replayed of the same run."""
    from phasepoint.replay.fast_forward import build_fast_forward
    from phasepoint.summary.analysis import analyse_run

    return build_fast_forward(analyse_run(opened[0]))


@pytest.fixture(scope="session")
def browser():
    if CHROMIUM is None:
        pytest.skip("no chromium on PATH")
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()
