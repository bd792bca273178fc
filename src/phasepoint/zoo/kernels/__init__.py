"""Kinds of work that networks hold, alone."""
