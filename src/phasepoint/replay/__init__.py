"""Fast-forward: a phase from its checkpoint, and the whole run from a few of its steps."""
