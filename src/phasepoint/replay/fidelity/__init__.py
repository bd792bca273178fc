"""Whether a replay did what the original did."""
