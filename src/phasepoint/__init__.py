"""Phasepoint: where a training run's time went.

    import phasepoint as pp

    with pp.record("runs/my-job", budget=0.01) as run:
        for batch in run.steps(loader):
            state, loss = train_step(state, batch)

Names are loaded when first used, so that `import phasepoint` costs a job nothing.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from phasepoint.findings import summarize_run as summarize_run
    from phasepoint.phases import detect_phases as detect_phases
    from phasepoint.recorder import record as record
    from phasepoint.recorder import start as start
    from phasepoint.sources.ingest.opened import open_run as open_run

__version__ = "0.1.0"

_HOMES = {
    "record": "phasepoint.recorder",
    "start": "phasepoint.recorder",
    "open_run": "phasepoint.sources.ingest.opened",
    "detect_phases": "phasepoint.phases",
    "summarize_run": "phasepoint.findings",
}

__all__ = ["__version__", "detect_phases", "open_run", "record", "start", "summarize_run"]


_FLOORS = frozenset(
    {"phases", "store", "sources", "recorder", "report", "stack", "summary", "findings", "estimates", "tune"}
)
_SHOWN_IN_NOTEBOOKS = {"open_run", "summarize_run"}


def __getattr__(name: str) -> Any:
    if name in _SHOWN_IN_NOTEBOOKS and "IPython" in sys.modules:
        _teach_notebook()
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in _FLOORS:
        return import_module(f"phasepoint.{name}")
    raise AttributeError(f"module 'phasepoint' has no attribute {name!r}")


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext phasepoint`: an opened run and its summary show what the time went into."""
    import_module("phasepoint.report.export.short").register_display(shell)


def _teach_notebook() -> None:
    """The same without being asked, in a running notebook only."""
    shell = sys.modules["IPython"].get_ipython()
    if shell is not None:
        load_ipython_extension(shell)
