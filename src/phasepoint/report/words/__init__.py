"""Sentences and names, the same wherever they are shown."""
