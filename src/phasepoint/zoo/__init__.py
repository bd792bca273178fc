"""Programs of which a corpus is made: networks written by hand, and a generator of well-formed ones."""

from phasepoint.zoo.catalogue import MANUAL_TEST_FAMILIES, corpus_programs
from phasepoint.zoo.specs import ProgramSpec, make_inputs

__all__ = ["MANUAL_TEST_FAMILIES", "ProgramSpec", "corpus_programs", "make_inputs"]
