"""Whole networks as libraries define them, with random weights: what benchmarks of devices run."""
