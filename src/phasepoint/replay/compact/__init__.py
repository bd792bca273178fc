"""The fewest steps that stand for a run."""
