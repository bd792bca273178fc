"""Benchmarks of models on devices: what was measured on a few says what the rest will take."""
