"""A recording without a thread, for all tests of the recorder."""

import pytest
from recorder_fakes import StillFlusher

from phasepoint.recorder import assembly


@pytest.fixture
def still(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recordings of this test have no thread."""
    monkeypatch.setattr(StillFlusher, "made", None)  # not that of a test before
    monkeypatch.setattr(assembly, "Flusher", StillFlusher)
