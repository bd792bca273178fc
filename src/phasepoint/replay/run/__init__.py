"""A replay carried out."""
