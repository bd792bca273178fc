"""The table of step sources: a row for every file, and what a loop that tells of its steps becomes."""

import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest

from phasepoint.recorder.autosteps import sources
from phasepoint.recorder.autosteps.evidence import Rank, StepEvidence
from phasepoint.recorder.autosteps.late_recording import AutoOptions, LateRecording
from phasepoint.recorder.autosteps.start import SOURCES
from phasepoint.recorder.autosteps.step_ends import follow_loop

EVIDENCE = StepEvidence(Rank.FRAMEWORK_LOOP, "torch", "steps of a loop that tells")


def test_every_source_has_a_row():
    folder = Path(sources.__path__[0])
    files = {".".join(path.relative_to(folder).with_suffix("").parts) for path in folder.rglob("*.py")}
    able = {name for name in files if hasattr(import_module(f"{sources.__name__}.{name}"), "install")}
    assert able == set(SOURCES.values())


class Late(LateRecording):
    """Notes what a recording would be told."""

    def __init__(self):
        super().__init__(AutoOptions("unused", 0.01, 5))
        self.told = []
        self.mark = lambda: self.told.append("mark")

    def open(self, evidence, past, *, finish):
        self.is_open, self.leader = True, evidence
        self.told.append(f"open {len(past)}")


@pytest.fixture
def late():
    return Late()


def make_loop():
    class Loop:
        def begin(self, what):
            return what

        def end_step(self, number, *, fails=False):
            if fails:
                raise ValueError(number)
            return number

    return Loop


@pytest.mark.parametrize("source", [None, "transformers", "torch.profiler"])
def test_a_loop_that_tells_is_followed_from_its_second_step_on(late, monkeypatch, source):
    owner = make_loop()
    begin, end = "begin", "end_step"
    if source is None:
        follow_loop(late, EVIDENCE, owner, begins="begin", ends="end_step")
    else:
        begin, end = {"transformers": ("on_train_begin", "on_step_end"), "torch.profiler": ("start", "step")}[source]
        setattr(owner, begin, owner.begin)
        setattr(owner, end, owner.end_step)
        monkeypatch.setitem(sys.modules, "framework", SimpleNamespace(CallbackHandler=owner, profile=owner))
        import_module(f"{sources.__name__}.{source}").install(late, "framework")
    loop = owner()
    assert getattr(loop, begin)("here") == "here"
    assert [getattr(loop, end)(number) for number in range(4)] == [0, 1, 2, 3]
    assert late.told == ["open 2", "mark", "mark", "mark"]
    with pytest.raises(ValueError, match="4"):
        getattr(loop, end)(4, fails=True)
    assert len(late.told) == 4  # what failed is no step


def test_what_fails_in_telling_stays_with_its_source(late, monkeypatch):
    owner = make_loop()
    follow_loop(late, EVIDENCE, owner, begins="begin", ends="end_step")
    monkeypatch.setattr(late, "admits", lambda evidence: 1 // 0)
    assert [owner().end_step(number) for number in range(2)] == [0, 1]
    [guard] = late._source_guards
    assert (guard.off, guard.faults, late.guard.off) == (True, 1, False)
    assert guard.reason == "ZeroDivisionError in StepEnds.ended: integer division or modulo by zero"
