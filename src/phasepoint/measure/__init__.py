"""Leveled measurement: the same work with no profiler, with layers, with ops, so that each level's time is its own."""
