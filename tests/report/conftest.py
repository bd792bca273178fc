import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "cli"))  # made_run.py


@pytest.fixture(scope="session")
def opened(tmp_path_factory):
    """A small run made through the store, opened, with its summary and its timeline."""
    from made_run import made_run

    from phasepoint.phases import summarize_run
    from phasepoint.phases.timeline import build_timeline
    from phasepoint.store import open_run

    run = open_run(made_run(tmp_path_factory.mktemp("report") / "made"))
    summary = summarize_run(run)
    return run, summary, build_timeline(run, summary)
