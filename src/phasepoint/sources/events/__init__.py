"""Events of a capture, whatever its format: from what a reader finds to rows of the run's tables."""
