"""Programs drawn from a seed."""
