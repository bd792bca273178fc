"""`phasepoint replay`."""
