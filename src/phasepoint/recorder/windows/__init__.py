"""Capture windows: when one opens, what it may cost, and the profiler's run through it."""
