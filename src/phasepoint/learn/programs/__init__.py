"""Programs of which a corpus is made: networks written by hand, and a generator of well-formed ones."""

from phasepoint.learn.programs.catalogue import MANUAL_TEST_FAMILIES, corpus_programs
from phasepoint.learn.programs.inputs import make_inputs
from phasepoint.learn.programs.specs import ProgramSpec

__all__ = ["MANUAL_TEST_FAMILIES", "ProgramSpec", "corpus_programs", "make_inputs"]
