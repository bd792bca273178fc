"""The frameworks' profilers as capture sessions."""
