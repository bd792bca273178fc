"""Kernels and programs as graphs of numbers."""
