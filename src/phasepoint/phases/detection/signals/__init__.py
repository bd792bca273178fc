"""What tells phases apart: levels, drifts, cycles and events of the clock; kinds of step by their ops.

The thresholds here are choices, made on the generated runs of benchmarks/phases.py. Of 37 of them half and twice were
tried, one at a time (23 November 2026): `recurrent` passes tests/phases/test_recurrent.py and its part of the contract
with all but half of `_SCATTER`. Finer claims about them are not made.
"""
