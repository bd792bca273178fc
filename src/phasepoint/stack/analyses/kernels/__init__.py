"""Analyses of what ran on devices, by execution, name, layer or model."""
